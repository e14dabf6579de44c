"""What an agent tells of its views: the members as JSON, a change as one event, what was refused by reason.

Pure functions of membership's values, for members and for voters of an ensemble.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from membership import Change, Configuration, Member
from rota.http.answers import FormerMember, Members, ShortRack
from rota.http.control_answers import Losses
from rota.services.store_tags import HTTP, VERSION_TAG, tags_of

RACK = "rack"
NAMES_SHOWN = 12
"""Of those who came or went in one way, in the text of an event; its data have all."""


def members_of(view: Configuration) -> Members:
    """The view, its members by name."""
    return {
        "epoch": view.epoch,
        "id": view.id.hex(),
        "cluster_id": view.cluster_id.hex(),
        "members": [
            {
                "name": member.name,
                "address": str(member.address),
                "state": "member",
                "incarnation": member.incarnation.hex(),
                "joined_epoch": joined_epoch,
                "place": place,  # on the first ring
                "http": member.attributes.get(HTTP),
                "version": member.attributes.get(VERSION_TAG),
                "tags": tags_of(member),
            }
            for place, (member, joined_epoch) in sorted(
                enumerate(zip(view.members, view.joined_epochs, strict=True)),
                key=lambda each: each[1][0].name,
            )
        ],
    }


def short_racks(view: Configuration, former: Sequence[FormerMember]) -> list[ShortRack]:
    """The racks that hosts have gone from, and how many are left in each."""
    left = Counter(member.attributes.get(RACK) for member in view.members)
    gone: dict[str, list[str]] = {}
    for each in former:
        if rack := each["tags"].get(RACK):
            gone.setdefault(rack, []).append(each["name"])
    return [
        {"rack": rack, "hosts": left[rack], "gone": sorted(names)} for rack, names in sorted(gone.items())
    ]


def majority_losses(view: Configuration) -> list[Losses]:
    """The hosts and racks without any one of which the others are no majority of the members."""
    if len(view) == 1:
        return []
    groups: dict[tuple[str, str], int] = {("host", member.name): 1 for member in view.members}
    for rack, count in Counter(member.attributes.get(RACK) for member in view.members).items():
        if rack and count > 1:
            groups["rack", rack] = count
    broken = [group for group, count in sorted(groups.items()) if 2 * (len(view) - count) <= len(view)]
    text = "no majority of the members would be left, and nothing could change"
    named = {what: [name for kind, name in broken if kind == what] for what in ("host", "rack")}
    return [{"what": what, "names": names, "breaks": text} for what, names in named.items() if names]


def view_event(change: Change) -> tuple[str, dict[str, Any]] | None:
    """The text and the data of the event that tells of a new view; None when the view is the same."""
    view = change.view
    if change.previous is not None and change.previous.id == view.id:
        return None
    updated = [member for member in change.updated if _stayed(member, change.previous)]
    changes = {
        "joined": change.joined,
        "left": change.left,
        "evicted": change.evicted,
        "failed": change.failed,
        "restarted": [member for member in change.updated if member not in updated],
        "updated": updated,
    }
    names = {kind: [member.name for member in members] for kind, members in changes.items()}
    parts = [f"{kind} {', '.join(some[:NAMES_SHOWN])}" for kind, some in names.items() if some]
    text = f"view {view.epoch}, {len(view)} members: {'; '.join(parts) or 'as they were'}"
    return text, {"epoch": view.epoch, "id": view.id.hex(), "size": len(view), **names}


def _stayed(member: Member, previous: Configuration | None) -> bool:
    """Whether this very process was there before, so that only its tags are new."""
    return previous is not None and member in previous


def dropped(statistics: dict[str, int]) -> dict[str, int]:
    """The counters of what was refused, by reason: ``datagrams_not_rota``, ``messages_malformed`` and so on."""
    return {key.replace("_dropped", "", 1): count for key, count in statistics.items() if "_dropped_" in key}

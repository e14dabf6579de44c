"""The history of the layout: what differs between two versions of it, in numbers and in words.

A read model of what the engine kept, pure; decisions are never made from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datastore_adapter.interface import LayoutVersion
from mgmt.errors import IntentError, UnknownEpochError
from mgmt.placement.hash_slot_assignment import SlotMove, slot_moves
from mgmt.placement.intent import Intent

NAMES_SHOWN = 8
"""Of one sort, in words; the data have all."""


@dataclass(frozen=True, slots=True)
class NamesDifference:
    """Of a set of names: a role's hosts, or requests of one sort."""

    what: str
    added: tuple[str, ...]
    removed: tuple[str, ...]

    def words(self) -> str:
        names = [f"+{name}" for name in self.added] + [f"-{name}" for name in self.removed]
        shown = " ".join(names[:NAMES_SHOWN])
        return f"{self.what} {shown}{' …' if len(names) > NAMES_SHOWN else ''}"

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "added": list(self.added), "removed": list(self.removed)}


@dataclass(frozen=True, slots=True)
class SegmentDifference:
    """Of one segment: hosts that hold a copy (or a part of one), and its primary."""

    segment: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    primary: tuple[str | None, str | None]
    """Before and after."""

    def to_json(self) -> dict[str, Any]:
        before, after = self.primary
        return {
            "segment": self.segment,
            "added": list(self.added),
            "removed": list(self.removed),
            "primary": None if before == after else {"from": before, "to": after},
        }


@dataclass(frozen=True, slots=True)
class LayoutDifference:
    segments: tuple[SegmentDifference, ...]
    roles: tuple[NamesDifference, ...]
    intent: tuple[NamesDifference, ...]
    slots: tuple[SlotMove, ...]
    views: tuple[int, int]
    """The latest view on whose behalf anything was changed, before and after."""

    def words(self) -> str:
        """One line."""
        counts = (
            ("copies added", sum(len(each.added) for each in self.segments)),
            ("copies removed", sum(len(each.removed) for each in self.segments)),
            ("primaries changed", sum(each.primary[0] != each.primary[1] for each in self.segments)),
            ("slots moved", sum(move.slots for move in self.slots)),
        )
        told = [f"{count} {what}" for what, count in counts if count]
        return "; ".join([*told, *(each.words() for each in (*self.roles, *self.intent))])

    def to_json(self) -> dict[str, Any]:
        intent = [each.to_json() for each in self.intent]
        return {
            "segments": [each.to_json() for each in self.segments],
            "roles": [each.to_json() for each in self.roles],
            "intent": intent,
            "wishes": intent,  # as commands of 0.1 call it
            "slots": [{"from": m.source, "to": m.destination, "slots": m.slots} for m in self.slots],
            "views": {"from": self.views[0], "to": self.views[1]},
        }


def difference(before: LayoutVersion, after: LayoutVersion) -> LayoutDifference:
    """What changed from one version to another, an older one too."""
    keys = sorted({*before.holders, *after.holders})
    segments = (_segment(key, before, after) for key in keys)
    return LayoutDifference(
        tuple(each for each in segments if each is not None),
        _differences(_roles(before), _roles(after)),
        _differences(_requests(before.intent), _requests(after.intent)),
        slot_moves(before.placement.slots or {}, after.placement.slots or {}, {}),
        (before.view_epoch, after.view_epoch),
    )


def history_report(versions: Sequence[LayoutVersion]) -> dict[str, Any]:
    """``rota layout history --json``: the latest first, each beside the one before it that is kept."""
    entries = []
    for position, version in enumerate(versions):
        before = versions[position - 1] if position else None
        changed = None if before is None else difference(before, version)
        entries.append(
            {
                **_told(version),
                "since": None if before is None else before.epoch,
                "what": "" if changed is None else changed.words(),
                "difference": None if changed is None else changed.to_json(),
            }
        )
    return {"layout_epoch": versions[-1].epoch if versions else -1, "versions": entries[::-1]}


def difference_report(versions: Sequence[LayoutVersion], before: int, after: int) -> dict[str, Any]:
    """``rota layout diff --json``.  Raises :class:`UnknownEpochError` for a version that is not kept."""
    by_epoch = {version.epoch: version for version in versions}
    for epoch in (before, after):
        if epoch not in by_epoch:
            raise UnknownEpochError(epoch, sorted(by_epoch))
    changed = difference(by_epoch[before], by_epoch[after])
    return {
        "from": _told(by_epoch[before]),
        "to": _told(by_epoch[after]),
        "what": changed.words(),
        "difference": changed.to_json(),
    }


def _told(version: LayoutVersion) -> dict[str, Any]:
    cause = version.cause
    return {
        "epoch": version.epoch,
        "at": cause.at or None,
        "by": cause.by,
        "asked_at": cause.asked_at,
        "why": cause.why,
        "plan_id": version.plan_id,
        "view_epoch": version.view_epoch,
    }


def _segment(key: str, before: LayoutVersion, after: LayoutVersion) -> SegmentDifference | None:
    old, new = before.holders.get(key, ()), after.holders.get(key, ())
    added = tuple(host for host in new if host not in old)
    removed = tuple(host for host in old if host not in new)
    first, second = (next(iter(each.placement.segments.get(key, ())), None) for each in (before, after))
    if not added and not removed and first == second:
        return None
    return SegmentDifference(key, added, removed, (first, second))


def _roles(version: LayoutVersion) -> dict[str, tuple[str, ...]]:
    roles = version.placement.roles
    return {
        "layout servers": roles.layout_servers,
        "sequencer": roles.sequencers[:1],
        "log units": roles.log_units,
    }


def _requests(document: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """What it asks for, by sort, each as a set of names; nothing where it cannot be read."""
    try:
        intent = Intent.from_mapping(document) if document else None
    except IntentError:
        return {}
    if intent is None:
        return {}
    plan = intent.plan
    return {
        "segments": intent.segments,
        "replication factor": (str(intent.replication_factor),),
        "policies": (intent.policies.pack, *(_named(name, text) for name, text in intent.policies.texts)),
        "drained": intent.drains,
        "pinned": tuple(f"{segment} on {host}" for segment, host in intent.pins),
        "paused": ("paused",) if intent.paused else (),
        "observing": ("observing",) if intent.observing else (),
        "frozen": tuple(f"{freeze.host} ({freeze.returns})" for freeze in intent.freezes),
        "plan": () if plan is None else (plan.plan_id,),
    }


def _named(name: str, text: str) -> str:
    return f"{name} ({len(text)} characters)"


def _differences(
    before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]
) -> tuple[NamesDifference, ...]:
    found = []
    for what in {**before, **after}:
        old, new = before.get(what, ()), after.get(what, ())
        added = tuple(name for name in new if name not in old)
        removed = tuple(name for name in old if name not in new)
        if added or removed:
            found.append(NamesDifference(what, added, removed))
    return tuple(found)

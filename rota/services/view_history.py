"""When each member installed each view: the timeline of the console, gathered from the members themselves.

Every agent keeps its own changes of view in its event log.  Whoever is asked for the timeline asks the others over
the cluster's transport; of a large cluster only some, evenly chosen.  Times are each host's own clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from membership import Cluster, Member
from rota.errors import ApiError
from rota.http.answers import Event, InstalledView, Views
from rota.services.asking_members import Shared, ask_all, chosen
from rota.services.event_log import EventLog

MEMBERS_ASKED = 100
"""Of more members, this many are asked: more dots would not be told apart."""
LONGEST_HISTORY = 200
"""Changes per member, the latest."""

Ask = Callable[[Member], Awaitable[dict[str, Any]]]


def own_views(events: EventLog) -> list[InstalledView]:
    """The views that this agent installed, oldest first."""
    views = [event for event in events.after(0) if event["kind"] == "view"]
    return [_installed(event) for event in views[-LONGEST_HISTORY:]]


def _installed(event: Event) -> InstalledView:
    data = event["data"]
    return {"time": event["time"], "epoch": data["epoch"], "id": data["id"], "size": data["size"]}


class ViewHistory:
    """The timeline as far as the present members can tell it."""

    def __init__(self, name: str, events: EventLog) -> None:
        self._name = name
        self._events = events
        self._shared = Shared[Views]()

    async def gather(self, cluster: Cluster, ask: Ask) -> Views:
        """``{"size", "asked", "silent", "members": {NAME: [{"time", "epoch", "id", "size"}]}}``.

        Nobody's silence is an error: they are named under ``silent``.
        """
        return await self._shared.get(cluster.view.id, partial(self._ask_all, cluster, ask))

    async def _ask_all(self, cluster: Cluster, ask: Ask) -> Views:
        async def ask_one(member: Member) -> list[InstalledView]:
            return checked_views((await ask(member)).get("views"))

        others = [member for member in cluster.view.members if member.name != self._name]
        asked = chosen(others, MEMBERS_ASKED - 1)
        told = await ask_all(asked, ask_one)
        members = {self._name: own_views(self._events), **told.answers}
        return {
            "size": len(cluster.view),
            "asked": len(asked) + 1,
            "silent": told.silent,
            "members": dict(sorted(members.items())),
        }


def checked_views(answer: object) -> list[InstalledView]:
    """Another agent's answer, if it is one.  Raises :class:`ApiError`."""
    if not isinstance(answer, list):
        raise ApiError("no list of views", code="malformed", status=502)
    views: list[InstalledView] = []
    for entry in answer[-LONGEST_HISTORY:]:
        match entry:
            case {"time": int() | float() as time, "epoch": int(epoch), "id": str(id_), "size": int(size)}:
                views.append({"time": time, "epoch": epoch, "id": id_[:64], "size": size})
            case _:
                raise ApiError("no list of views", code="malformed", status=502)
    return views

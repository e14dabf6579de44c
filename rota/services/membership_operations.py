"""What an operator asks of the membership through this host: evict, leave, tag, recover.

Each is one agreed view change; the answer comes when it is agreed, or says that it was not.  Whoever reaches this
interface may do all of them, and so may whoever holds a member's keys: there is one trust for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import trio

from membership import Cluster, EvictionError, MembershipError
from rota.errors import ApiError
from rota.services.store_tags import RESERVED

TAGS_TIMEOUT = 20.0
"""Seconds until it is said that new tags are not agreed yet; they go on being asked for."""
ANSWER_TIMEOUT = 5.0
"""Seconds the answer to a leave may take on its way before the process ends all the same."""
ACTIONS = ("evict", "leave", "tags", "recover")


class Operations:
    """``cluster`` is set once this host is in a view."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.cluster: Cluster | None = None
        self.waiting: Cluster | None = None
        """The same while this host is joining."""
        self._leaving = 0
        self._answered = trio.Event()

    async def perform(self, action: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Do it and wait for the agreement.  Raises :class:`ApiError`."""
        cluster = self.waiting if action == "recover" and self.cluster is None else self.cluster
        if cluster is None:
            raise ApiError("this agent has not joined yet; `rota status` says more", code="joining")
        try:
            match action, arguments:
                case "evict", {"host": str(host)}:
                    return await self._evict(cluster, host)
                case "leave", _:
                    return await self._leave(cluster)
                case "tags", {"set": dict(new), "remove": list(old)}:
                    return await self._tag(cluster, new, old)
                case "recover", {"survivors": list(survivors), "force": bool(force)}:
                    return await self._recover(cluster, survivors, force)
        except MembershipError as error:
            raise ApiError(str(error), code="refused", status=409) from error
        raise ApiError(
            f"{action}: the request lacks something; GET / shows how", code="bad_request", status=400
        )

    async def _evict(self, cluster: Cluster, host: str) -> dict[str, Any]:
        if cluster.view.member(host) is None:
            raise ApiError(f"no host {host!r}; `rota members` lists them", code="unknown_host", status=404)
        if host == self._name:
            text = f"{host} is the agent that answers here: use `rota leave`, or ask another agent"
            raise ApiError(text, code="refused", status=409)
        try:
            epoch = await cluster.evict(host)
        except EvictionError as error:
            raise ApiError(str(error), code="not_agreed") from error
        return {"host": host, "evicted": True, "epoch": epoch}

    async def _leave(self, cluster: Cluster) -> dict[str, Any]:
        self._leaving += 1
        decided = await cluster.leave()
        return {"host": self._name, "left": True, "agreed": decided}

    async def _tag(self, cluster: Cluster, new: dict[Any, Any], old: list[Any]) -> dict[str, Any]:
        tags = {**cluster.me.attributes, **_checked_tags(new)}
        _refuse_reserved(old)
        for key in old:
            if tags.pop(key, None) is None:
                raise ApiError(f"there is no tag {key!r} to remove", code="unknown_tag", status=404)
        with trio.move_on_after(TAGS_TIMEOUT) as limit:
            await cluster.set_metadata(tags)
        if limit.cancelled_caught:
            raise ApiError(
                f"not agreed within {TAGS_TIMEOUT:.0f} s; this host goes on asking for it"
                + ("" if cluster.quorum else " until a majority is within reach"),
                code="not_agreed",
            )
        return {"host": self._name, "tags": cluster.me.attributes, "epoch": cluster.view.epoch}

    async def _recover(self, cluster: Cluster, survivors: list[Any], force: bool) -> dict[str, Any]:
        view = await cluster.recover([str(survivor) for survivor in survivors], force=force)
        return {
            "epoch": view.epoch,
            "id": view.id.hex(),
            "recovery": view.lineage[-1].hex(),
            "members": sorted(member.name for member in view.members),
        }

    # -- leaving politely: the answer first, then the end -------------------------------------------

    async def answered(self) -> None:
        """The answer to a leave is on its way."""
        self._leaving = max(0, self._leaving - 1)
        self._answered.set()

    async def finish(self) -> None:
        """Return when whoever asked for the leave has the answer, or soon after."""
        with trio.move_on_after(ANSWER_TIMEOUT):
            while self._leaving > 0:
                self._answered = trio.Event()
                await self._answered.wait()


def _refuse_reserved(keys: Iterable[Any]) -> None:
    for key in keys:
        if key in RESERVED:
            text = f"{key} is told by the agent itself; choose another name"
            raise ApiError(text, code="bad_request", status=400)


def _checked_tags(new: dict[Any, Any]) -> dict[str, str]:
    _refuse_reserved(new)
    for key, value in new.items():
        if not isinstance(key, str) or not isinstance(value, str) or not key or not key.isprintable():
            raise ApiError("tags are text by text, and a key is not empty", code="bad_request", status=400)
    if not new.get("capacity", "0").isdigit():
        raise ApiError("capacity is a number of bytes", code="bad_request", status=400)
    if new.get("manager", "yes") not in ("yes", "no"):
        raise ApiError("manager is yes or no", code="bad_request", status=400)
    return new

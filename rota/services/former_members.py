"""Which hosts were in the cluster and are not any more: how each went, and when, as far as this agent saw it.

Every agent keeps its own list, from the view changes that it was told of, in its data directory: so what one of them
did not see, while it was down or cut off, another one has.  A host that is back is gone no more.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import trio

from membership import Change, Configuration, Member
from membership.files import replace_file
from rota.http.answers import FormerMember
from rota.services.store_tags import tags_of

log = logging.getLogger("rota")

FILE: Final = "former-members.json"
KEPT: Final = 100
"""Hosts, the last ones that went."""
KEPT_FOR: Final = 72 * 3600.0
"""Seconds."""


class FormerMembers:
    """The list of one agent, in this file; what is in it already is read at once."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._gone = {former["name"]: former for former in _read(path)}
        self._changed = trio.Event()

    def see(self, change: Change) -> None:
        """Who went with this change, and who is back."""
        present = {member.name for member in change.view.members}
        before = dict(self._gone)
        for how, members in (("failed", change.failed), ("left", change.left), ("evicted", change.evicted)):
            for member in members:
                self._gone.pop(member.name, None)  # the latest is the last
                self._gone[member.name] = self._former(member, how, change.view)
        self._gone = {name: each for name, each in self._gone.items() if name not in present}
        self._gone = {each["name"]: each for each in self.latest()[::-1]}
        if self._gone != before:
            self._changed.set()

    def _former(self, member: Member, how: str, view: Configuration) -> FormerMember:
        return {
            "name": member.name,
            "address": str(member.address),
            "how": how,
            "time": self._clock(),
            "epoch": view.epoch,
            "tags": tags_of(member),
        }

    def latest(self) -> list[FormerMember]:
        """Those that are still told of, the last one first."""
        since = self._clock() - KEPT_FOR
        kept = [former for former in self._gone.values() if former["time"] >= since]
        return kept[::-1][:KEPT]

    async def keep(self) -> None:
        """Write the list down whenever it has changed, apart: a disk may be slow, and nothing depends on it."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            await self.write()

    async def write(self) -> None:
        """Have it on the disk, if that takes it."""
        text = json.dumps(self.latest()[::-1])
        try:
            await trio.to_thread.run_sync(replace_file, self._path, text.encode())
        except OSError as error:
            log.warning(
                "%s: not written (%s); who is gone is forgotten when this agent ends",
                self._path,
                error.strerror,
            )


def _read(path: Path) -> Iterable[FormerMember]:
    """What is there and can be read; nothing depends on it, so what is damaged is left out."""
    try:
        found: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return
    for entry in found if isinstance(found, list) else ():
        match entry:
            case {
                "name": str(), "address": str(), "how": "failed" | "left" | "evicted", "time": float(),
                "epoch": int(), "tags": dict(tags),
            } if all(isinstance(value, str) for value in tags.values()):  # fmt: skip
                yield entry

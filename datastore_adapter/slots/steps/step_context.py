"""What every step does its work with: looks at the cluster, and commands that the fence still allows.

A step asks and commands servers by their node ids; another one at the address of the one that is meant is told nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import trio

from datastore_adapter.interface import Adapter, Fence
from datastore_adapter.slots.cluster_client import ClusterClient
from datastore_adapter.slots.errors import SlotsError, StepFailedError
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.servers import Command
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.state.cluster_state import ClusterState, Member, NoMajority, Report
from datastore_adapter.slots.state.shards import Record, Shard, shards_of

UNREACHABLE: Final = "unreachable"
"""Code of what fails because no majority of the servers answers."""

Progress = Callable[[int, int], None]
"""Bytes done, and of how many."""


@dataclass(slots=True)
class SharedState:
    """What the steps of one adapter share."""

    cluster: ClusterClient
    layout_adapter: Adapter
    access: EngineAccess
    settings: SlotsSettings
    record: Record
    """Of the epoch document seen last."""
    claimed: set[str]
    """Node ids of servers that a running step is about to use."""


class StepContext:
    """Of one running step."""

    def __init__(self, shared: SharedState, fence: Fence) -> None:
        self.cluster = shared.cluster
        self.access = shared.access
        self.settings = shared.settings
        self.claimed = shared.claimed
        self.report: Progress = lambda done, total: None
        self._shared = shared
        self._fence = fence
        self._checked_at = float("-inf")

    # looking

    @property
    def record(self) -> Record:
        return self._shared.record

    async def state(self, max_age: float = 0.0) -> ClusterState:
        state = await self.cluster.read_state(max_age)
        if isinstance(state, NoMajority):
            raise StepFailedError(UNREACHABLE, state.reason)
        return state

    def shards(self, state: ClusterState, key: str = "", chain: Sequence[str] = ()) -> dict[str, Shard]:
        """By key; ``chain``: where the shard ``key`` is wanted, in case it holds no slots yet."""
        record = self.record
        if key and chain:
            record = replace(record, chains={**(record.chains or {}), key: tuple(chain)})
        return shards_of(state, record)

    async def ask(self, server: Recipient, *words: str | bytes | int) -> Any:
        """One command that changes nothing."""
        return await self.cluster.servers.call(server, *words)

    async def ask_all(self, server: Recipient, commands: Sequence[Command]) -> list[Any]:
        """Several at once; a refusal stands in its place as a CommandRefusedError."""
        return await self.cluster.servers.call_all(server, commands)

    async def present(self, members: Sequence[Report]) -> list[Report]:
        """Those that answer at their addresses themselves: others are about to be sent there."""
        found: set[str] = set()

        async def ask(server: Recipient) -> None:
            try:
                await self.ask(server, "ROLE")
            except SlotsError:
                return
            found.add(server.node_id)

        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(ask, member.recipient)
        return [member for member in members if member.node_id in found]

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, interval: float) -> None:
        """Look again and again.  Raises StepFailedError, which may be tried again."""
        deadline = trio.current_time() + self.settings.gossip_timeout
        while True:
            try:
                if await condition():
                    return
            except StepFailedError as error:
                if error.code != UNREACHABLE:
                    raise  # servers that are about to meet may look like too few
            if trio.current_time() > deadline:
                raise StepFailedError("slow", f"not within {self.settings.gossip_timeout:g} s: {what}")
            await trio.sleep(interval)

    # changing

    async def check(self) -> None:
        """Raises FencedError where another controller took over, AdapterError where nobody knows."""
        if trio.current_time() - self._checked_at > self.settings.fence_age:
            asked_at = trio.current_time()
            await self._shared.layout_adapter.check(self._fence)
            self._checked_at = asked_at

    async def allowed(self) -> None:
        """Something is about to be changed; raises as `check` does."""
        await self.check()
        self.cluster.forget_state()

    async def command(
        self, server: Recipient, *words: str | bytes | int, timeout: float | None = None
    ) -> Any:
        """One command that changes something."""
        await self.allowed()
        return await self.cluster.servers.call(server, *words, timeout=timeout)

    async def commands(
        self, server: Recipient, commands: Sequence[Command], timeout: float | None = None
    ) -> list[Any]:
        """Several at once; a refusal stands in its place as a CommandRefusedError."""
        if not commands:
            return []
        await self.allowed()
        return await self.cluster.servers.call_all(server, commands, timeout)

    async def everywhere(
        self, members: Sequence[Member], commands: Sequence[Command]
    ) -> dict[str, list[Any]]:
        """The same to several servers at the same time; by node id, without those that do not answer."""
        await self.allowed()
        answers: dict[str, list[Any]] = {}

        async def ask(member: Member) -> None:
            try:
                answers[member.node_id] = await self.cluster.servers.call_all(recipient_of(member), commands)
            except SlotsError:
                return

        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(ask, member)
        return answers


def recipient_of(member: Member) -> Recipient:
    """Raises StepFailedError for one that does not answer."""
    if member.report is None:
        raise StepFailedError("silent", f"{member.address} on {member.host} does not answer")
    return member.report.recipient

"""What changes between the look at a cluster and the decision that is taken by it; the servers are scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from datastore_adapter.interface import Fence
from datastore_adapter.slots.cluster_client import ClusterClient
from datastore_adapter.slots.errors import ServerUnreachableError, StepFailedError
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.servers import Command, Servers
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.state.shards import Record
from datastore_adapter.slots.steps.promotion import fail_over
from datastore_adapter.slots.steps.step_context import SharedState, StepContext
from tests.fake_adapter import FakeAdapter, FakeEngine

PRIMARY, REPLICA, SECOND, THIRD = IDS = tuple(letter * 40 for letter in "abcd")
ADDRESSES = {node_id: f"10.0.0.{number}:7000" for number, node_id in enumerate(IDS, 1)}
SLOTS = {PRIMARY: "0-5460", SECOND: "5461-10921", THIRD: "10922-16383"}


class Script(Servers):
    """A shard with a replica, and two without: they answer as they stand, and keep what they are told."""

    def __init__(self) -> None:
        super().__init__(EngineAccess(), SlotsSettings())
        self.silent: set[str] = set()
        self.is_elected = False
        self.told: list[str] = []
        self.before_answer: Callable[[str | Recipient], None] = lambda to: None

    async def call_all(
        self, to: str | Recipient, commands: Sequence[Command], timeout: float | None = None
    ) -> list[Any]:
        self.before_answer(to)
        address = to if isinstance(to, str) else to.address
        (node_id,) = (each for each in IDS if ADDRESSES[each] == address)
        if node_id in self.silent:
            raise ServerUnreachableError(f"{address} does not answer")
        return [self._said(node_id, " ".join(map(str, command))) for command in commands]

    def _said(self, node_id: str, command: str) -> object:
        if command == "CLUSTER NODES":
            return "\n".join(self._line(node_id, other) for other in IDS).encode()
        if command.startswith("INFO"):
            role = "slave" if self._follows(node_id) else "master"
            lines = ["redis_version:7.0.15", "redis_mode:cluster", f"run_id:{node_id}", f"role:{role}"]
            lines += ["master_link_status:up", "slave_repl_offset:100", "master_repl_offset:100"]
            return "\r\n".join([*lines, f"master_replid:{SLOTS.get(node_id) or SLOTS[PRIMARY]}"]).encode()
        if command.startswith("CONFIG GET"):
            return [b"cluster-allow-replica-migration", b"no"]
        self.told.append(command)
        return b"OK"

    def _follows(self, node_id: str) -> bool:
        return node_id == REPLICA and not self.is_elected

    def _line(self, asked: str, node_id: str) -> str:
        held = SLOTS.get(node_id, "")
        if self.is_elected:
            held = {PRIMARY: "", REPLICA: SLOTS[PRIMARY]}.get(node_id, held)
        myself = "myself," if node_id == asked else ""
        role = f"slave {PRIMARY}" if self._follows(node_id) else "master -"
        return f"{node_id} {ADDRESSES[node_id]}@17000 {myself}{role} 0 0 1 connected {held}"


def context_of(servers: Script) -> StepContext:
    hosts = {f"n{number}": [address] for number, address in enumerate(ADDRESSES.values())}
    cluster = ClusterClient(servers, lambda host: hosts[host], SlotsSettings())
    cluster.set_hosts(frozenset(hosts))
    layout_adapter = FakeAdapter(FakeEngine(list(hosts)))
    shared = SharedState(cluster, layout_adapter, EngineAccess(), SlotsSettings(), Record(), set())
    return StepContext(shared, Fence(0, 0, "", 0))


async def when_asked_again(context: StepContext, servers: Script, happen: Callable[[], object]) -> None:
    """The primary dies, all are looked at, and then this happens, before a candidate tells of itself."""
    await context.state()
    servers.silent.add(PRIMARY)
    await context.state()

    def before_answer(to: str | Recipient) -> None:
        if isinstance(to, Recipient) and to.node_id == REPLICA:
            happen()

    servers.before_answer = before_answer
    await fail_over(context, "s00")


async def test_a_replica_that_was_elected_meanwhile_is_no_question(autojump_clock: object) -> None:
    """An election took longer than the step that asked for it, and the next one looked at the cluster just before."""
    servers = Script()
    await when_asked_again(context_of(servers), servers, lambda: setattr(servers, "is_elected", True))
    assert servers.told == [], "nobody runs again"


async def test_a_replica_that_does_not_answer_just_now_is_asked_again_and_nobody_else(
    autojump_clock: object,
) -> None:
    """It has the data, and operators are asked about what stays as it is."""
    servers = Script()
    with pytest.raises(StepFailedError, match="n1, which has a copy of s00, does not answer") as failed:
        await when_asked_again(context_of(servers), servers, lambda: servers.silent.add(REPLICA))
    assert failed.value.retryable
    assert servers.told == []

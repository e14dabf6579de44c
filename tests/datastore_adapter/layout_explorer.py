"""All that can happen to three layout servers and two proposers, up to a bound: small, exhaustive, deterministic.

The very objects of an agent run (`LogNode`, `Proposal`, the rule who answers for whom); the explorer decides which
message arrives next, which is lost, and what happens to hosts: they stop, come back as they were, somewhere else or
with an empty disk, and take over the address of one that is down.  It goes through every order of these, depth first,
and leaves out what leads to a state that it has seen.  In none may two documents of one epoch be decided.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from datastore_adapter import EpochDocument, LogSettings, SimulatedCluster, SimulatedRuntime
from datastore_adapter.log.errors import CallError, CallTimeoutError, LayoutUnavailableError, SupersededError
from datastore_adapter.log.layout.chain import LayoutChain, Proposal
from datastore_adapter.log.layout.document import Layout, encode_document
from datastore_adapter.log.messages import Install, Reply, Request
from datastore_adapter.log.runtime.runtime import Peer, whoever_at
from datastore_adapter.log.runtime.virtual_loop import Task, Wait

SERVERS: Final = ("a", "b", "c")
PROPOSERS: Final = ("early", "late")
"""In the order in which they begin; the ballot of the second is higher."""

SETTINGS: Final = LogSettings(reconfiguration_timeout=0.5)
"""For a proposer, for whom a second passes whenever it looks at the clock: it tries once."""

FAULTS: Final = frozenset({"stop", "start", "start empty", "take over"})
"""Of hosts."""

Action: TypeAlias = tuple[str, ...]
"""What happens next, in words: a verb, and what it happens to."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is explored."""

    faults: int
    """Of hosts, in one run."""
    cuts: int
    """Of links between a proposer and a server, for good, in one run."""
    switches: int = 1
    """How often in one run another proposer's message comes next than the one whose came last."""
    kinds: frozenset[str] = FAULTS
    stragglers: bool = False
    """Whether requests arrive whose proposer has enough answers from others."""


@dataclass(slots=True)
class _Message:
    """A request under way."""

    runtime: _Proposer
    proposer: str
    server: str
    """Who is meant."""
    peer: Peer
    request: Request
    task: Task
    ticket: int
    is_awaited: bool = True


class _Proposer(SimulatedRuntime):
    """A runtime whose requests arrive when the explorer says so."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.cluster, name, random.Random(name))
        self._world = world
        self._looks = count()
        self.name = name

    def now(self) -> float:
        return float(next(self._looks))

    async def call(self, peer: Peer | str, request: Request, timeout: float) -> Reply:
        peer = whoever_at(peer) if isinstance(peer, str) else peer
        assert peer.identity is not None
        task = self._current()
        message = _Message(self, self.name, peer.identity.host, peer, request, task, task.ticket())
        self._world.under_way.append(message)
        try:
            reply: Reply = await Wait()
            return reply
        finally:
            message.is_awaited = False


@dataclass(slots=True)
class World:
    """One run, as far as it has come."""

    bounds: Bounds
    cluster: SimulatedCluster = field(init=False)
    first: EpochDocument = field(init=False)
    under_way: list[_Message] = field(default_factory=list)
    decided: list[EpochDocument] = field(default_factory=list)
    _tasks: dict[str, Task] = field(default_factory=dict)
    _heard: dict[str, list[str]] = field(default_factory=dict)
    """By proposer, what came of its requests: all that it knows."""
    _asleep: dict[str, object] = field(default_factory=dict)
    """By server that is down, what its disk holds."""
    _cut: set[tuple[str, str]] = field(default_factory=set)
    _faults: int = 0
    _struck: set[str] = field(default_factory=set)
    """Addresses that the faults just now concern."""
    _switches: int = 0
    _acting: str = ""

    def __post_init__(self) -> None:
        self.cluster = SimulatedCluster(SERVERS, settings=SETTINGS)
        disks = {name: self.cluster.node(name).identity.disk for name in SERVERS}
        layout = Layout(layout_servers=SERVERS)
        self.first = EpochDocument(0, "id", layout, dict(self.cluster.addresses), disks)
        for name in SERVERS:
            self.cluster.node(name).handle(Install(encode_document(self.first)))

    # what can happen

    def actions(self) -> Iterator[Action]:
        started = len(self._tasks)
        may_start = started < len(PROPOSERS) and self._may_act(PROPOSERS[started])
        busy = [name for name, task in self._tasks.items() if not task.ended and self._may_act(name)]
        if len(self.decided) + len(busy) + len(PROPOSERS[started:] if may_start else ()) < 2:
            return  # no two are decided any more
        for index, message in enumerate(self.under_way):
            # A fault that what comes next does not notice may as well come after it.
            noticed = not self._struck or message.peer.address in self._struck
            if noticed and self._may_act(message.proposer):
                yield ("arrive", str(index))
                if message.is_awaited and len(self._cut) < self.bounds.cuts:
                    yield ("arrive, cut", str(index))
        if may_start:
            yield ("propose", PROPOSERS[started])
        if len(self._cut) < self.bounds.cuts:
            for proposer in self._tasks:
                if not self._tasks[proposer].ended:
                    yield from (
                        ("cut", proposer, name) for name in SERVERS if (proposer, name) not in self._cut
                    )
        if self._faults < self.bounds.faults:
            yield from (fault for fault in self._possible_faults() if fault[0] in self.bounds.kinds)

    def _may_act(self, proposer: str) -> bool:
        return self._acting in ("", proposer) or self._switches < self.bounds.switches

    def _possible_faults(self) -> Iterator[Action]:
        # Which of them is the first makes no difference.
        for name in SERVERS if self._faults else SERVERS[:1]:
            if name in self._asleep:
                yield ("start", name)
                yield ("start empty", name)
                continue
            yield ("stop", name)
            for other in self._asleep:
                if self._is_at(other, self.cluster.hosts[other].address):
                    yield ("take over", name, other)

    def _is_at(self, name: str, address: str) -> bool:
        return self.cluster.host_at(address) is self.cluster.hosts[name]

    def do(self, action: Action) -> None:
        """Let it happen, and all that follows by itself."""
        if action[0] not in FAULTS:
            self._struck.clear()
        match action:
            case ("arrive", index):
                self._arrive(self._next(int(index)))
            case ("arrive, cut", index):
                message = self._next(int(index))
                message.runtime.exchange(message.peer, message.request, lambda outcome: None)
                self._heard_of(message, CallTimeoutError("the reply was lost"))
                self._cut_off(message.proposer, message.server)
            case ("propose", name):
                self._turn_of(name)
                self._heard[name] = []
                self._tasks[name] = self.cluster.loop.start(self._propose(name))
            case ("cut", proposer, server):
                self._cut_off(proposer, server)
            case _:
                self._faults += 1
                self._strike(*action)
        self._settle()

    def _strike(self, kind: str, name: str, other: str = "") -> None:
        cluster = self.cluster
        self._struck.add(cluster.hosts[name].address)
        match kind:
            case "stop":
                self._asleep[name] = self._memory_of(name)
                cluster.crash(name)
                return
            case "take over":
                cluster.crash(name)
                cluster.move(name, cluster.hosts[other].address)
            case "start empty":
                cluster.hosts[name].erase()
        cluster.restart(name)
        if kind == "start empty":  # the control loop tells it what it missed
            cluster.node(name).handle(Install(encode_document(self.first)))
        self._struck.add(cluster.hosts[name].address)
        self._asleep.pop(name, None)

    def _next(self, index: int) -> _Message:
        message = self.under_way.pop(index)
        self._turn_of(message.proposer)
        return message

    def _turn_of(self, proposer: str) -> None:
        self._switches += self._acting not in ("", proposer)
        self._acting = proposer

    def _cut_off(self, proposer: str, server: str) -> None:
        self._cut.add((proposer, server))

    def _arrive(self, message: _Message) -> None:
        outcomes: list[Reply | CallError] = []
        message.runtime.exchange(message.peer, message.request, outcomes.append)
        self._heard_of(message, outcomes[0])

    def _heard_of(self, message: _Message, outcome: Reply | CallError) -> None:
        if not message.is_awaited:
            return
        self._heard[message.proposer].append(f"{message.server} {message.request} {outcome}")
        if isinstance(outcome, CallError):
            message.task.wake(message.ticket, error=outcome)
        else:
            message.task.wake(message.ticket, outcome)

    def _settle(self) -> None:
        """Until everybody waits for a message; what goes over a cut link is lost at once."""
        loop = self.cluster.loop
        while True:
            loop.run_before(float("inf"), lambda: False)
            lost = [m for m in self.under_way if self._is_lost(m)]
            if not lost:
                return
            for message in lost:
                self.under_way.remove(message)
                self._heard_of(message, CallTimeoutError("the link is cut"))

    def _is_lost(self, message: _Message) -> bool:
        late = not message.is_awaited and not self.bounds.stragglers
        return late or (message.proposer, message.server) in self._cut

    async def _propose(self, name: str) -> None:
        runtime = _Proposer(self, name)
        chain = LayoutChain(runtime, SETTINGS)
        chain.set_view(self.cluster.addresses)
        proposal = Proposal(chain, runtime, SETTINGS, self.first)
        value = replace(self.first, epoch=1, intent={"by": name})
        try:
            await proposal.prepare()
            self.decided.append(await proposal.decide(value))
        except (LayoutUnavailableError, SupersededError):
            pass

    # what is known of it

    def _memory_of(self, name: str) -> object:
        node = self.cluster.node(name)
        return node.identity.disk, node.layout_server.epoch, node.layout_server._acceptor.state

    def state(self) -> Any:
        """Equal for runs that go on alike."""
        hosts = tuple(
            (
                self.cluster.hosts[name].address,
                self._is_at(name, self.cluster.hosts[name].address),
                name in self._asleep,
                self._asleep.get(name) or self._memory_of(name),
            )
            for name in SERVERS
        )
        messages = tuple(
            sorted((m.proposer, m.server, str(m.peer), str(m.request), m.is_awaited) for m in self.under_way)
        )
        heard = tuple((name, tuple(sorted(what))) for name, what in self._heard.items())
        return (
            hosts,
            messages,
            heard,
            frozenset(self._cut),
            self._faults,
            frozenset(self._struck),
            self._switches,
            self._acting,
        )

    def close(self) -> None:
        self.cluster.loop.close()


@dataclass(frozen=True, slots=True)
class Explored:
    """What came of it."""

    states: int
    two_decided: tuple[Action, ...] | None
    """A run in which two documents of one epoch were decided, if there is one."""
    decided: int
    """States in which a document is."""


def explore(bounds: Bounds) -> Explored:
    """Every run within `bounds`, up to the first in which two documents are decided."""
    seen: set[Any] = set()
    left: list[tuple[Action, ...]] = [()]
    decided = 0
    while left:
        run = left.pop()
        world = World(bounds)
        for action in run:
            world.do(action)
        while True:
            if len({encode_document(document) for document in world.decided}) > 1:
                world.close()
                return Explored(len(seen), run, decided)
            state = world.state()
            if state in seen:
                break
            seen.add(state)
            decided += bool(world.decided)
            actions = list(world.actions())
            if not actions:
                break
            left += [(*run, other) for other in reversed(actions[1:])]
            world.do(actions[0])
            run = (*run, actions[0])
        world.close()
    return Explored(len(seen), None, decided)

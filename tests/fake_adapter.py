"""A datastore engine in memory, with faults: what the control loop is tested against.

One :class:`FakeEngine` is the cluster; each controller has its own :class:`FakeAdapter` on it.  Changes of
the layout take a moment, transfers take time by their bytes, both in the virtual time of the test's clock.
The engine
checks after every change that no plan lowered the number of complete copies below what it may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from datastore_adapter.interface import (
    AdapterError,
    Cancelled,
    Capabilities,
    DiskTrouble,
    Done,
    Failed,
    Fence,
    FencedError,
    LayoutVersion,
    Observation,
    Pending,
    Placement,
    Recovery,
    Refusal,
    Replica,
    ReplicaState,
    Role,
    Running,
    SegmentObservation,
    ServiceRoles,
    SlotRange,
    StaleIntentError,
    Step,
    StepGraph,
    StepStatus,
    Unreachable,
)

Chains = Mapping[str, tuple[str, ...]]


@dataclass
class Copy:
    host: str
    in_sync: bool
    bytes: float = 0.0


@dataclass
class Job:
    """A step that runs."""

    step: Step
    fence: Fence
    started: float
    status: StepStatus = field(default_factory=lambda: Running(0, 0))


class FakeEngine:
    """The store's own state; survives controllers."""

    def __init__(self, hosts: list[str], bytes_per_segment: int = 1000, rate: float = 10_000.0) -> None:
        self.up = set(hosts)
        self.epoch = 0
        self.intent: dict[str, Any] = {}
        self.roles = ServiceRoles(layout_servers=(hosts[0],), sequencers=(hosts[0],))
        self.segments: dict[str, list[Copy]] = {}
        self.retired: frozenset[str] = frozenset()
        self.disks: dict[str, DiskTrouble] = {}
        self.sync_seconds: dict[str, float] = {}
        self.servers: dict[str, int] = {}  # copies that each host can hold; empty: any number
        self.fails_over = False  # whether lost primaries are to be replaced by repairs
        self.failover_seconds = 0.02
        self.slot_count = 0  # into how many slots keys are divided; 0: into none
        self.slots: dict[str, tuple[SlotRange, ...]] = {}
        self.loads: dict[str, float] = {}
        self.exchanged: list[str] = []  # segments of which a copy left before the one in its place was made
        self.bytes_per_segment = bytes_per_segment
        self.sizes: dict[str, int] = {}  # of segments that are reported with another size
        self.rate = rate  # bytes per second of one transfer
        self.layout_seconds = 0.05
        self.fenced_below = -1  # view epochs below this are refused
        self.unreachable = ""  # a reason, or nothing
        self.forgotten: set[str] = set()
        self.left_open = False  # a sealed but undecided epoch
        self.copied: dict[tuple[str, str], float] = {}  # bytes sent, by (segment, destination)
        self.refuse_start: Callable[[Step], Exception | None] = lambda step: None
        self.fail_step: Callable[[Step], Failed | None] = lambda step: None
        self.on_start: Callable[[Step], None] = lambda step: None
        self.started: list[str] = []
        self.intents_agreed = 0
        self.versions: list[LayoutVersion] = []

    def remember(self, fence: Fence) -> None:
        """What is in force now, for the history."""
        chains = {key: self.chain(key) for key in sorted(self.segments)}
        version = LayoutVersion(
            self.epoch,
            Placement(chains, self.roles),
            chains,
            dict(self.intent),
            fence.view_epoch,
            fence.plan_id,
            fence.cause,
        )
        self.versions.append(version)

    def check_fence(self, fence: Fence) -> None:
        if fence.view_epoch < self.fenced_below:
            raise FencedError(f"view {fence.view_epoch} is older than {self.fenced_below}")
        self.fenced_below = fence.view_epoch

    def chain(self, key: str) -> tuple[str, ...]:
        return tuple(copy.host for copy in self.segments[key])

    def in_sync(self, key: str) -> list[str]:
        return [copy.host for copy in self.segments.get(key, ()) if copy.in_sync and copy.host in self.up]

    def change_layout(self, step: Step, fence: Fence) -> StepStatus:
        """Apply an ``open`` or ``close`` step."""
        if fence.layout_epoch != self.epoch:
            return Failed(
                "conflict", f"the layout is at {self.epoch}, not {fence.layout_epoch}", retryable=True
            )
        if fence.view_epoch < self.fenced_below:
            return Failed("fenced", "another controller took over", retryable=False)
        chains: Chains = step.arguments["chains"]
        for key, chain in chains.items():
            before = self.in_sync(key)
            known = {copy.host: copy for copy in self.segments.get(key, ())}
            fresh = key not in self.segments
            self.segments[key] = [known.get(host) or Copy(host, in_sync=fresh) for host in chain]
            if fresh:
                for copy in self.segments[key]:
                    copy.bytes = self.bytes_per_segment
            wanted = self.intent["replication_factor"]
            if key in step.arguments.get("exchanged", ()):
                assert before[0] == chain[0], f"{step.description} takes the primary of {key}"
                self.exchanged.append(key)
                continue
            assert len(self.in_sync(key)) >= min(wanted, len(before)), (
                f"{step.description} lost copies of {key}: {before} -> {self.in_sync(key)}"
            )
        self.check_servers(step)
        self.roles = step.arguments.get("roles", self.roles)
        self.retired = step.arguments.get("retired", self.retired)
        self.epoch += 1
        self.remember(fence)
        return Done()

    def check_servers(self, step: Step) -> None:
        held = Counter(copy.host for copies in self.segments.values() for copy in copies)
        for host in self.up & self.servers.keys():
            assert held[host] <= self.servers[host], (
                f"{step.description}: no server on {host} for {held[host]}"
            )

    def move_slots(self, job: Job, now: float) -> StepStatus:
        """A ``migrate`` step: it takes as long as its bytes, then all of the slots are there."""
        step = job.step
        done = int((now - job.started) * self.rate)
        if done < step.bytes:
            return Running(done, step.bytes)
        source, ranges = step.arguments["from"], step.arguments["ranges"]
        moved = {slot for first, last in ranges for slot in range(first, last + 1)}
        if source is not None:
            self.slots[source] = ranges_of(slots_of(self.slots.get(source, ())) - moved)
        held = slots_of(self.slots.get(step.arguments["to"], ()))
        self.slots[step.arguments["to"]] = ranges_of(held | moved)
        return Done()

    def fail_over(self, job: Job, now: float) -> StepStatus:
        if now - job.started < self.failover_seconds:
            return job.status
        key = job.step.segment or ""
        complete = self.in_sync(key)
        if not complete:
            return Failed(
                "asks", f"no live copy of {key} is complete; bring its primary back", retryable=False
            )
        self.segments[key].sort(key=lambda copy: copy.host != complete[0])
        return Done()

    def remove(self, step: Step) -> StepStatus:
        key = step.arguments["key"]
        assert not self.slots.get(key), f"{key} is removed, and holds {self.slots[key]}"
        self.segments.pop(key, None)
        self.slots.pop(key, None)
        return Done()

    def source_of(self, step: Step) -> bool:
        return step.source in self.in_sync(step.segment or "")

    def advance_copy(self, job: Job, now: float) -> StepStatus:
        """Move a transfer on to ``now``; what has arrived stays, whatever becomes of the controller."""
        step = job.step
        assert step.segment is not None
        assert step.destination is not None
        copy = next((c for c in self.segments.get(step.segment, ()) if c.host == step.destination), None)
        if copy is None:
            return Failed("moot", "the destination is not in the chain", retryable=False)
        if step.destination not in self.up:
            return Failed("gone", f"{step.destination} does not answer", retryable=False)
        if not self.source_of(step):
            return Failed("source", f"{step.source} does not answer", retryable=True)
        arrived = min(copy.bytes + (now - job.started) * self.rate, float(self.bytes_per_segment))
        key = (step.segment, step.destination)
        self.copied[key] = self.copied.get(key, 0.0) + arrived - copy.bytes
        job.started = now
        copy.bytes = arrived
        if copy.bytes >= self.bytes_per_segment:
            copy.in_sync = True
            return Done()
        return Running(int(copy.bytes), self.bytes_per_segment)


class FakeAdapter:
    """One controller's adapter.  ``crash`` forgets everything that ran in its process."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            "fake",
            resumable_transfer=True,
            cancellable_transfer=True,
            moves_primaries=True,
            slots=self.engine.slot_count,
        )

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.hosts: dict[str, str] = {}
        self.view_epoch = -1
        self.jobs: dict[tuple[str, str | None, str | None], Job] = {}
        self.cancelled: list[str] = []
        self.alive = True
        self.on_call: Callable[[], None] = lambda: None

    def set_hosts(self, view_epoch: int, addresses: Mapping[str, str]) -> None:
        self.view_epoch = view_epoch
        self.hosts = dict(addresses)

    def crash(self) -> None:
        self.alive = False
        self.jobs.clear()

    async def _call(self) -> None:
        self.on_call()
        await trio.sleep(0.002)
        assert self.alive, "a dead controller goes on calling its adapter"

    async def observe(self) -> Observation | Unreachable:
        await self._call()
        engine = self.engine
        if engine.unreachable:
            return Unreachable(engine.unreachable)
        return Observation(
            layout_epoch=engine.epoch,
            cluster_id="fake",
            segments=tuple(self._segment(key) for key in sorted(engine.segments)),
            roles=engine.roles,
            unresponsive=frozenset(set(self.hosts) - engine.up),
            intent=dict(engine.intent),
            disks=dict(engine.disks),
            sync_seconds=dict(engine.sync_seconds),
            servers={host: count for host, count in engine.servers.items() if host in self.hosts},
        )

    def _segment(self, key: str) -> SegmentObservation:
        replicas: list[Replica] = []
        for position, copy in enumerate(self.engine.segments[key]):
            state = ReplicaState.IN_SYNC if copy.in_sync else ReplicaState.SYNCING
            if copy.host not in self.hosts:
                state = ReplicaState.GONE
            role = Role.REPLICA if position else Role.PRIMARY
            replicas.append(Replica(key, copy.host, position, role, state, int(copy.bytes)))
        engine = self.engine
        size = engine.sizes.get(key, engine.bytes_per_segment)
        slots, load = engine.slots.get(key, ()), engine.loads.get(key, 0.0)
        if not engine.slot_count:
            return SegmentObservation(key, tuple(replicas), size, key in engine.retired)
        retired = key not in engine.intent.get("segments", (key,))
        trimmed = retired and not slots
        return SegmentObservation(key, tuple(replicas), size, retired, trimmed, slots=slots, load=load)

    async def history(self) -> tuple[LayoutVersion, ...] | Unreachable:
        await self._call()
        if self.engine.unreachable:
            return Unreachable(self.engine.unreachable)
        return tuple(self.engine.versions)

    async def set_intent(self, expected_epoch: int, intent: Mapping[str, Any], fence: Fence) -> int:
        await self._call()
        if self.engine.unreachable:
            raise AdapterError(self.engine.unreachable)
        self.engine.check_fence(fence)
        if expected_epoch != self.engine.epoch:
            raise StaleIntentError(expected_epoch, self.engine.epoch)
        self.engine.intent = dict(intent)
        self.engine.epoch += 1
        self.engine.intents_agreed += 1
        self.engine.remember(fence)
        await self._call()  # the answer, too, takes time: the caller may be dead by then
        return self.engine.epoch

    async def check(self, fence: Fence) -> None:
        await self._call()
        if self.engine.unreachable:
            raise AdapterError(self.engine.unreachable)
        self.engine.check_fence(fence)

    def lower(self, current: Observation, target: Placement) -> StepGraph:
        opened: dict[str, tuple[str, ...]] = {}
        closed: dict[str, tuple[str, ...]] = {}
        copies: list[tuple[str, str, str]] = []
        observed = {segment.key: segment.replicas for segment in current.segments}
        for key in sorted(target.segments):
            wanted = tuple(target.segments[key])
            standing = tuple(copy.host for copy in observed.get(key, ()))
            complete = [c.host for c in observed.get(key, ()) if c.state is ReplicaState.IN_SYNC]
            if standing and not complete:
                continue
            live = [host for host in standing if host in self.hosts]
            chain = (*live, *(host for host in wanted if host not in live))
            if not standing:
                chain = wanted
                complete = list(wanted)
            if chain != standing:
                opened[key] = chain
            copies += [(key, complete[0], host) for host in wanted if host not in complete]
            if wanted != chain:
                closed[key] = wanted
        exchanged = _left_first(current, target, opened)
        steps = _steps(current, target, opened, copies, closed, self.engine.bytes_per_segment, exchanged)
        return StepGraph((*steps, *_slot_steps(current, target, steps)))

    def precheck(self, step: Step, observation: Observation) -> Refusal | None:
        needed = {host for chain in step.arguments.get("chains", {}).values() for host in chain}
        needed |= {step.destination} if step.destination else set()
        absent = sorted(needed - self.hosts.keys())
        return Refusal("host_gone", f"{absent[0]} is not in the view") if absent else None

    async def start(self, step: Step, fence: Fence) -> None:
        self.engine.on_start(step)
        await self._call()
        error = self.engine.refuse_start(step)
        if error is not None:
            raise error
        self.engine.check_fence(fence)
        key = (step.kind, step.segment, step.destination)
        self.engine.started.append(step.description)
        job = self.jobs.get(key)
        same = job is not None and job.step.arguments == step.arguments
        if job is None or not same or not isinstance(job.status, Running):
            self.jobs[key] = Job(step, fence, trio.current_time())
        await self._call()

    async def poll(self, step: Step) -> StepStatus:
        await self._call()
        job = self.jobs.get((step.kind, step.segment, step.destination))
        if job is None or job.step.arguments != step.arguments:
            return Pending()
        if isinstance(job.status, Running):
            job.status = self._advance(job)
        return job.status

    def _advance(self, job: Job) -> StepStatus:
        now = trio.current_time()
        failed = self.engine.fail_step(job.step)
        if failed is not None:
            return failed
        if job.step.kind == "finish":
            self.engine.left_open = False
            return Done()
        if job.step.kind == "failover":
            return self.engine.fail_over(job, now)
        if job.step.kind == "migrate":
            return self.engine.move_slots(job, now)
        if job.step.destination is not None:
            return self.engine.advance_copy(job, now)
        if now - job.started < self.engine.layout_seconds:
            return job.status
        if job.step.kind == "remove":
            return self.engine.remove(job.step)
        return self.engine.change_layout(job.step, job.fence)

    async def cancel(self, step: Step) -> None:
        await self._call()
        self.cancelled.append(step.description)
        job = self.jobs.get((step.kind, step.segment, step.destination))
        if job is not None and isinstance(job.status, Running):
            job.status = Cancelled()

    def inverse(self, step: Step) -> Step | None:
        if step.kind != "open":
            return None
        arguments = {
            **{name: step.arguments[f"previous_{name}"] for name in ("chains", "roles", "retired")},
            **{f"previous_{name}": step.arguments[name] for name in ("chains", "roles", "retired")},
        }
        return replace(step, description=f"back: {step.description}", arguments=arguments)

    async def forget(self, hosts: Collection[str], fence: Fence) -> None:
        await self._call()
        if self.engine.unreachable:
            raise AdapterError(self.engine.unreachable)
        self.engine.check_fence(fence)
        held = {copy.host for copies in self.engine.segments.values() for copy in copies}
        for host in hosts:
            if host in self.hosts or host not in held | self.engine.forgotten:
                raise AdapterError(f"{host} is in the view, or holds nothing")
        if not self.engine.forgotten.issuperset(hosts):
            self.engine.forgotten.update(hosts)
            self.engine.epoch += 1
            self.engine.remember(fence)

    async def recover(self, fence: Fence, *, only_look: bool = False) -> Recovery:
        await self._call()
        if not self.engine.unreachable:
            raise AdapterError("a majority answers")
        if not only_look:
            self.engine.unreachable = ""
            self.engine.epoch += 1_000_000_000
            self.engine.remember(fence)
        return Recovery(self.engine.epoch)

    async def repair(self, observation: Observation) -> StepGraph:
        if self.engine.fails_over:
            lost = [segment for segment in observation.segments if segment.replicas[0].host not in self.hosts]
            return StepGraph(
                tuple(
                    Step(number, "failover", f"fail {segment.key} over", segment=segment.key)
                    for number, segment in enumerate(lost)
                )
            )
        if not self.engine.left_open:
            return StepGraph(())
        return StepGraph((Step(0, "finish", "finish the undecided epoch", arguments={"chains": {}}),))

    async def failover(self, segment: str, fence: Fence, prefer: str | None = None) -> None:
        await self._call()
        self.engine.check_fence(fence)
        copies = self.engine.segments.get(segment, [])
        usable = [copy for copy in copies if copy.in_sync and copy.host in self.hosts]
        chosen = next((copy for copy in usable if prefer in (None, copy.host)), None)
        if chosen is None:
            raise AdapterError(f"segment {segment}: no live and complete copy {prefer or ''}")
        self.engine.segments[segment] = [chosen, *(copy for copy in copies if copy is not chosen)]
        self.engine.epoch += 1
        self.engine.remember(fence)


def _slot_steps(current: Observation, target: Placement, before: Sequence[Step]) -> list[Step]:
    """Slots after everything else, and segments that nobody wants any more at the very end."""
    observed = {segment.key: segment for segment in current.segments}
    steps: list[Step] = []

    def add(kind: str, description: str, **fields: Any) -> None:
        number = len(before) + len(steps)
        after = frozenset(step.number for step in (*before, *(s for s in steps if kind == "remove")))
        steps.append(Step(number, kind, description, after, **fields))

    for key, ranges in sorted((target.slots or {}).items()):
        lacking = slots_of(ranges) - slots_of(observed[key].slots if key in observed else ())
        for source in [*sorted(observed), None]:
            owned = lacking if source is None else lacking & slots_of(observed[source].slots)
            lacking = lacking - owned
            if not owned:
                continue
            arguments = {"from": source, "to": key, "ranges": ranges_of(owned)}
            from_host = None if source is None else observed[source].replicas[0].host
            add(
                "migrate",
                f"move {len(owned)} slots from {source} to {key}",
                segment=f"{source}>{key}",
                source=from_host,
                destination=target.segments[key][0],
                bytes=0 if source is None else observed[source].bytes // 10,
                arguments=arguments,
            )
    if target.slots is not None:
        for key in sorted(observed.keys() - target.segments.keys()):
            add("remove", f"remove {key}", arguments={"key": key})
    return steps


def slots_of(ranges: Sequence[SlotRange]) -> set[int]:
    return {slot for first, last in ranges for slot in range(first, last + 1)}


def ranges_of(slots: Collection[int]) -> tuple[SlotRange, ...]:
    ranges: list[SlotRange] = []
    for slot in sorted(slots):
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1] = (ranges[-1][0], slot)
        else:
            ranges.append((slot, slot))
    return tuple(ranges)


def _left_first(
    current: Observation, target: Placement, opened: dict[str, tuple[str, ...]]
) -> frozenset[str]:
    """Take copies that are to leave out of the opened chains where no server is left for those that come; of which."""
    standing = {segment.key: tuple(copy.host for copy in segment.replicas) for segment in current.segments}
    chains = {**standing, **opened}
    held = Counter(host for chain in chains.values() for host in chain)
    full = {host for host, count in current.servers.items() if held[host] > count}
    exchanged = set()
    for key, chain in chains.items():
        stays = tuple(host for host in chain if host not in full or host in target.segments.get(key, chain))
        if stays != chain:
            opened[key] = stays
            exchanged.add(key)
    return frozenset(exchanged)


def _steps(
    current: Observation,
    target: Placement,
    opened: Chains,
    copies: list[tuple[str, str, str]],
    closed: Chains,
    size: int,
    exchanged: frozenset[str] = frozenset(),
) -> list[Step]:
    steps: list[Step] = []
    roles_differ = (set(current.roles.layout_servers), current.roles.sequencers[:1]) != (
        set(target.roles.layout_servers),
        target.roles.sequencers[:1],
    )
    retired = frozenset(segment.key for segment in current.segments if segment.retired)
    wanted = retired if target.retired is None or target.slots is not None else target.retired
    if opened or roles_differ or wanted != retired:
        standing = {segment.key: tuple(c.host for c in segment.replicas) for segment in current.segments}
        arguments = {
            "chains": opened,
            "roles": target.roles,
            "retired": wanted,
            "previous_chains": {key: standing[key] for key in opened if key in standing},
            "previous_roles": current.roles,
            "previous_retired": retired,
            "exchanged": exchanged,
        }
        steps.append(Step(0, "open", f"open {len(opened)} chains", arguments=arguments))
    first = frozenset(step.number for step in steps)
    for key, source, destination in copies:
        text = f"copy {key} to {destination}"
        number = len(steps)
        step = Step(number, "copy", text, first, key, source, destination, size)
        steps.append(step)
    if closed:
        before = frozenset(step.number for step in steps)
        text = f"close {len(closed)} chains"
        steps.append(Step(len(steps), "close", text, before, arguments={"chains": closed}))
    return steps

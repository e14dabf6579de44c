"""The adapter for servers that speak Redis Cluster: what the management plane calls.

Shards, copies and slots are the servers'.  Intent, plans, layout epoch, roles and the fence are those of another
adapter, the layout adapter.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import trio

from datastore_adapter.interface import (
    Adapter,
    AdapterError,
    Cancelled,
    Capabilities,
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
    ReplicaState,
    Running,
    SegmentObservation,
    Step,
    StepGraph,
    StepStatus,
    Unreachable,
)
from datastore_adapter.slots import lowering
from datastore_adapter.slots.cluster_client import ClusterClient
from datastore_adapter.slots.errors import StepFailedError
from datastore_adapter.slots.lowering import KINDS
from datastore_adapter.slots.observation import make_observation, with_placement
from datastore_adapter.slots.servers import Servers
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.state.cluster_state import ClusterState, NoMajority
from datastore_adapter.slots.state.server_info import ServerInfo
from datastore_adapter.slots.state.shards import Record, record_of, shards_of
from datastore_adapter.slots.state.slot_ranges import SLOTS, normalized, text_of
from datastore_adapter.slots.steps import membership as membership_steps
from datastore_adapter.slots.steps import promotion, slot_moves
from datastore_adapter.slots.steps.step_context import SharedState, StepContext

log = logging.getLogger(__name__)

DEFAULTS: Final = SlotsSettings()
MOST_RUNS: Final = 10_000
SEEN_JUST_NOW: Final = 1.0
"""Seconds that a look may be old when repairs are thought about: it is the one of the observation they are for."""


@dataclass(slots=True)
class _Run:
    """One step under way, or ended."""

    status: StepStatus
    scope: trio.CancelScope


class SlotsAdapter:
    """`interface.Adapter` for Valkey and Redis Cluster, for one trio run: steps go on in its background."""

    def __init__(
        self,
        layout_adapter: Adapter,
        servers: Callable[[str], Sequence[str]],
        access: EngineAccess,
        settings: SlotsSettings = DEFAULTS,
    ) -> None:
        """``layout_adapter``: agrees on the epoch document; ``servers``: ``host:port`` of each, by host of the view."""
        self._layout_adapter = layout_adapter
        self._settings = settings
        self._connections = Servers(access, settings)
        self._cluster = ClusterClient(self._connections, servers, settings)
        self._shared = SharedState(self._cluster, layout_adapter, access, settings, Record(), set())
        self._runs: dict[str, _Run] = {}
        self._view_epoch = -1
        self._counters: Counter[str] = Counter()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            "slots",
            resumable_transfer=True,
            cancellable_transfer=True,
            moves_primaries=True,
            slots=SLOTS,
        )

    def statistics(self) -> dict[str, int]:
        """Counters: observations, steps begun, done and failed, commands that changed something."""
        return dict(sorted((self._counters + self._connections.counters).items()))

    async def infos(self, servers: Sequence[str]) -> list[ServerInfo]:
        """What those of these servers that answer say of themselves now."""
        return await self._cluster.infos(servers)

    async def sample(self) -> None:
        """Collect, without end, what replicas can be judged by when their primary is lost."""
        while True:
            await self._cluster.sample()
            await trio.sleep(self._settings.sample_interval)

    def close(self) -> None:
        """Stop the steps that run, and end the connections."""
        for run in self._runs.values():
            run.scope.cancel()
        self._connections.close()

    # looking

    def set_hosts(self, view_epoch: int, addresses: Mapping[str, str]) -> None:
        """Hosts of the view; an older view than the last one told is ignored."""
        self._layout_adapter.set_hosts(view_epoch, addresses)
        if view_epoch >= self._view_epoch:
            self._view_epoch = view_epoch
            self._cluster.set_hosts(frozenset(addresses))

    async def observe(self) -> Observation | Unreachable:
        """What a majority of the servers says, with what the layout adapter has agreed."""
        self._counters["observations"] += 1
        answers: dict[str, Any] = {}

        async def ask_layout_adapter() -> None:
            answers["kept"] = await self._layout_adapter.observe()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_layout_adapter)
            state = await self._cluster.read_state()
        kept = answers["kept"]
        if isinstance(kept, Unreachable):
            known = None if kept.known is None else self._joined(kept.known, state)
            return replace(kept, known=known if isinstance(known, Observation) else None)
        if not isinstance(state, NoMajority):
            self._shared.record = record_of(kept.intent)
        return self._joined(kept, state)

    def _joined(self, kept: Observation, state: ClusterState | NoMajority) -> Observation | Unreachable:
        if isinstance(state, NoMajority):
            return Unreachable(state.reason)
        return make_observation(kept, state, self._cluster.hosts, self._settings.sync_lag)

    async def history(self) -> tuple[LayoutVersion, ...] | Unreachable:
        """See `interface.Adapter.history`: shards as the plans agreed wanted them."""
        versions = await self._layout_adapter.history()
        return versions if isinstance(versions, Unreachable) else tuple(map(with_placement, versions))

    # agreeing

    async def set_intent(self, expected_epoch: int, intent: Mapping[str, Any], fence: Fence) -> int:
        """See `interface.Adapter.set_intent`."""
        epoch = await self._layout_adapter.set_intent(expected_epoch, intent, fence)
        self._shared.record = record_of(intent)
        return epoch

    async def check(self, fence: Fence) -> None:
        """See `interface.Adapter.check`."""
        await self._layout_adapter.check(fence)

    async def recover(self, fence: Fence, *, only_look: bool = False) -> Recovery:
        """See `interface.Adapter.recover`.  It is about the epoch document; the servers have their own majority."""
        return await self._layout_adapter.recover(fence, only_look=only_look)

    async def forget(self, hosts: Collection[str], fence: Fence) -> None:
        """See `interface.Adapter.forget`: by the layout adapter, and by every server that answers."""
        known: AdapterError | None = None
        try:
            await self._layout_adapter.forget(hosts, fence)
        except FencedError:
            raise
        except (
            AdapterError
        ) as error:  # it may hold nothing of the layout adapter's, and a copy of a shard all the same
            known = error
        state = await self._cluster.read_state()
        if isinstance(state, NoMajority):
            raise known or AdapterError(state.reason)
        gone = {host for host in self._cluster.known_hosts if host not in self._cluster.hosts}
        if known is not None and not gone.issuperset(hosts):
            raise known
        await membership_steps.forget_hosts(self._step_context(fence), hosts)

    # planning

    def lower(self, current: Observation, target: Placement) -> StepGraph:
        """See `slots.lowering`; the roles, which are the layout adapter's, come first."""
        roles = replace(target.roles, log_units=current.roles.log_units)
        mine = replace(current, segments=(), servers={}, notices=())
        kept = self._layout_adapter.lower(mine, Placement({}, roles)).steps
        shards = lowering.lower(current, target, first=len(kept))
        before = frozenset(step.number for step in kept)
        return StepGraph((*kept, *(replace(step, after=step.after | before) for step in shards)))

    def inverse(self, step: Step) -> Step | None:
        return lowering.inverse(step) if step.kind in KINDS else self._layout_adapter.inverse(step)

    def precheck(self, step: Step, observation: Observation) -> Refusal | None:
        """Refuse what cannot succeed with the hosts that are there, and with servers that do what they want."""
        if step.kind not in KINDS:
            return self._layout_adapter.precheck(step, observation)
        absent = sorted(set(step.arguments["hosts"]) - self._cluster.hosts)
        if absent:
            return Refusal("host_gone", f"{absent[0]} is not in the view; make a new plan")
        state = self._cluster.last
        faults = sorted(report.fault for report in state.usable if report.fault) if state else []
        if faults and step.kind != lowering.FAILOVER:
            return Refusal("settings", faults[0])
        return None

    async def repair(self, observation: Observation) -> StepGraph:
        """Lost primaries first; then slots left half way, and servers of ours that the others have forgotten."""
        mine = replace(observation, segments=(), servers={}, notices=())
        steps = list((await self._layout_adapter.repair(mine)).steps)
        state = await self._cluster.read_state(SEEN_JUST_NOW)
        if isinstance(state, NoMajority):
            return StepGraph(tuple(steps))
        for segment in observation.segments:
            why = self._loss(segment, state)
            if why:
                steps.append(lowering.failover_step(len(steps), segment, why))
        steps += self._unfinished(state, len(steps), {step.segment for step in steps})
        for report in state.returned if state.owners else ():
            steps.append(lowering.release_step(len(steps), report.host, report.address))
        return StepGraph(tuple(steps))

    def _loss(self, segment: SegmentObservation, state: ClusterState) -> str:
        """Why the shard needs another primary; empty: it does not."""
        primary = next((copy for copy in segment.replicas if copy.position == 0), None)
        if primary is None or not segment.slots:
            return ""
        if primary.state is ReplicaState.GONE:
            return f"{primary.host} is gone"
        shard = shards_of(state, self._shared.record).get(segment.key)
        if primary.state is not ReplicaState.STALE or shard is None or shard.primary.report is not None:
            return ""
        node_id = shard.primary.node_id
        doubts = [
            report
            for report in state.reports
            if node_id in report.table.nodes and report.table.nodes[node_id].is_suspect
        ]
        return f"its server on {primary.host} is dead" if 2 * len(doubts) > len(state.reports) else ""

    def _unfinished(self, state: ClusterState, number: int, busy: Collection[str | None]) -> list[Step]:
        keys = {shard.primary.node_id: key for key, shard in shards_of(state, self._shared.record).items()}
        steps: list[Step] = []
        for node_id, ranges in sorted(slot_moves.open_slots(state).items()):
            key = keys.get(node_id)
            if key is not None and key not in busy:
                steps.append(lowering.finish_step(number + len(steps), key, ranges))
        return steps

    # doing

    async def start(self, step: Step, fence: Fence) -> None:
        """Begin the step in the background, unless it runs already."""
        if step.kind not in KINDS:
            await self._layout_adapter.start(step, fence)
            return
        context = self._step_context(fence)
        await context.check()
        key = _identity(step)
        run = self._runs.get(key)
        if run is not None and isinstance(run.status, Running):
            return
        if len(self._runs) >= MOST_RUNS:
            self._runs = {key: run for key, run in self._runs.items() if isinstance(run.status, Running)}
        run = self._runs[key] = _Run(Running(0, max(1, step.bytes)), trio.CancelScope())
        self._counters[f"started_{step.kind}"] += 1
        # Not a task of the caller's: the step outlives the call, and may outlive the plan.
        trio.lowlevel.spawn_system_task(self._run, run, step, context)

    async def poll(self, step: Step) -> StepStatus:
        if step.kind not in KINDS:
            return await self._layout_adapter.poll(step)
        run = self._runs.get(_identity(step))
        return Pending() if run is None else run.status

    async def cancel(self, step: Step) -> None:
        """Stop it; slots that the source sends by itself are called back."""
        if step.kind not in KINDS:
            await self._layout_adapter.cancel(step)
            return
        run = self._runs.get(_identity(step))
        if run is not None and isinstance(run.status, Running):
            run.status = Cancelled()
            run.scope.cancel()

    async def failover(self, segment: str, fence: Fence, prefer: str | None = None) -> None:
        """See `interface.Adapter.failover`."""
        context = self._step_context(fence)
        await context.check()
        shard = context.shards(await context.state()).get(segment)
        if shard is None:
            raise AdapterError(f"there is no shard {segment!r}")
        replicas = [member.host for member in shard.replicas if member.report is not None]
        if prefer is not None and prefer not in [shard.primary.host, *replicas]:
            raise AdapterError(f"shard {segment}: {prefer} has no live copy of it")
        if shard.primary.report is None:
            await promotion.fail_over(context, segment, prefer, only=prefer is not None)
        elif prefer != shard.primary.host:
            if not replicas:
                raise AdapterError(f"shard {segment} has no live copy but its primary")
            await promotion.switch(context, segment, prefer or replicas[0])

    def _step_context(self, fence: Fence) -> StepContext:
        return StepContext(self._shared, fence)

    async def _run(self, run: _Run, step: Step, context: StepContext) -> None:
        """A step from begin to end; its status tells what came of it."""
        with run.scope:
            status: StepStatus
            try:
                await self._execute(run, step, context)
                status = Done()
            except FencedError as error:
                status = Failed("fenced", str(error), retryable=False)
            except StepFailedError as error:
                status = Failed(error.code, str(error), error.retryable)
            except AdapterError as error:
                status = Failed("unavailable", str(error), retryable=True)
            except Exception as error:
                # A defect must show as a failed step, not as one that runs for ever.
                log.exception("step %d (%s) failed unexpectedly", step.number, step.description)
                status = Failed("internal", f"{type(error).__name__}: {error}", retryable=False)
            if isinstance(status, Failed):
                log.info("step %d (%s): %s", step.number, step.description, status.message)
            if isinstance(run.status, Running):
                run.status = status
                self._counters[f"{'done' if isinstance(status, Done) else 'failed'}_{step.kind}"] += 1
        if isinstance(run.status, Cancelled) and step.kind == lowering.MIGRATE:
            await self._call_back(step, context)

    async def _execute(self, run: _Run, step: Step, context: StepContext) -> None:
        began = trio.current_time()

        def report(done: int, total: int) -> None:
            if isinstance(run.status, Running):
                whole = max(total, step.bytes, 1)
                seconds = trio.current_time() - began
                most = max(done, run.status.done)
                run.status = Running(min(most, whole), whole, "bytes", done / seconds if seconds > 0 else 0.0)

        context.report = report
        given, key = step.arguments, step.segment or ""
        match step.kind:
            case lowering.CREATE:
                slots = {name: normalized(ranges) for name, ranges in given["slots"].items()}
                await membership_steps.create(context, given["chains"], slots)
            case lowering.JOIN:
                await membership_steps.join(context, [(segment, host) for segment, host in given["copies"]])
            case lowering.REPLICATE:
                await membership_steps.replicate(
                    context, key, step.destination or "", given["chain"], given["instead"]
                )
            case lowering.SWITCH:
                await promotion.switch(context, key, given["primary"])
            case lowering.FAILOVER:
                await promotion.fail_over(context, key)
            case lowering.MIGRATE:
                await slot_moves.migrate(
                    context,
                    given["from"],
                    given["to"],
                    normalized(given["ranges"]),
                    given["chain"],
                    step.bytes,
                )
            case lowering.REMOVE:
                await membership_steps.remove(context, key, given["host"], given["only"])
            case lowering.FINISH:
                await slot_moves.finish(context, key, normalized(given["slots"]))
            case lowering.RELEASE:
                await membership_steps.release(context, given["address"])

    async def _call_back(self, step: Step, context: StepContext) -> None:
        if step.arguments["from"] is None:
            return
        ranges = normalized(step.arguments["ranges"])
        try:
            with trio.move_on_after(self._settings.call_timeout):
                await slot_moves.cancel_whole(context, step.arguments["from"], ranges)
        except AdapterError as error:
            log.info("slots %s go on moving, although they were cancelled: %s", text_of(ranges), error)


def _identity(step: Step) -> str:
    return repr((step.kind, step.segment, step.source, step.destination, sorted(step.arguments.items())))

"""The replicated log behind the management plane's interface.

`interface.Adapter` for the log: observation from a majority, steps as background tasks, intent by compare-and-set.
Everything it knows can be found out again: a new controller's adapter goes on where a dead one's stopped, because
steps are defined by their effect.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from datastore_adapter.interface import (
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
    Replica,
    ReplicaState,
    Running,
    Step,
    StepGraph,
    StepStatus,
    Unreachable,
)
from datastore_adapter.log.adapter.lowering import CLOSE, COMPLETE, COPY, KINDS, OPEN, lower
from datastore_adapter.log.adapter.observation import make_observation, version_of
from datastore_adapter.log.adapter.step_arguments import (
    chains_of,
    hosts_needed,
    identity_of,
    target_of,
    unreliable_of,
)
from datastore_adapter.log.client.replication import Replication
from datastore_adapter.log.errors import (
    EpochSealedError,
    LayoutError,
    LayoutUnavailableError,
    LogError,
    ReplicaRefusedError,
    ReplicaSilentError,
    ReplicaUnavailableError,
    SupersededError,
)
from datastore_adapter.log.layout.chain import Latest, LayoutChain
from datastore_adapter.log.layout.change import LayoutTarget
from datastore_adapter.log.layout.document import EpochDocument, Layout, encode_document
from datastore_adapter.log.layout.history import read_history
from datastore_adapter.log.messages import Install, StatusReply
from datastore_adapter.log.reconfiguration.activation import status_of
from datastore_adapter.log.reconfiguration.forced import ForcedLayout
from datastore_adapter.log.reconfiguration.reconfiguration import Authority, Reconfiguration, Reopening, View
from datastore_adapter.log.reconfiguration.transfer import Progress, Transfer
from datastore_adapter.log.runtime.runtime import Backoff, Runtime, TaskHandle, call_all, hosts_at
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.disk_health import DISK_REFUSALS

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """One step under way, or ended."""

    status: StepStatus
    handle: TaskHandle | None = field(default=None)


class LogAdapter:
    """`interface.Adapter` for the log.  Steps run in the runtime's background (`Runtime.spawn`)."""

    def __init__(
        self,
        runtime: Runtime,
        host: str = "",
        addresses: Mapping[str, str] | None = None,
        settings: LogSettings | None = None,
        on_reopened: Callable[[Reopening], None] | None = None,
    ) -> None:
        """`host`: the name of the host it runs on, for its log lines; `addresses`: hosts known before a view.

        `on_reopened`: told of each change that writers had to wait for; it must neither block nor raise.
        """
        self._runtime = runtime
        self._host = host
        self._settings = settings or LogSettings()
        self._chain = LayoutChain(runtime, self._settings)
        self._reconfiguration = Reconfiguration(runtime, self._settings, self._chain, on_reopened)
        self._view_epoch = -1
        self._addresses: dict[str, str] = dict(addresses or {})
        self._chain.set_view(self._addresses)
        self._runs: dict[str, _Run] = {}
        self._counters: Counter[str] = Counter()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            "log",
            resumable_transfer=True,
            cancellable_transfer=True,
            moves_primaries=True,
            throttles_transfer=True,
        )

    @property
    def document(self) -> EpochDocument | None:
        """The latest epoch document this adapter has seen."""
        return self._chain.known

    def statistics(self) -> dict[str, int]:
        """Counters: observations, steps begun, done and failed."""
        return dict(sorted(self._counters.items()))

    def learn(self, document: EpochDocument) -> None:
        """A document this host knows already (its own layout server's), to begin the search from."""
        self._chain.learn(document)

    def set_hosts(self, view_epoch: int, addresses: Mapping[str, str]) -> None:
        """Hosts of the view; an older view than the last one told is ignored."""
        if view_epoch >= self._view_epoch:
            self._view_epoch = view_epoch
            self._addresses = dict(addresses)
            self._chain.set_view(addresses)

    async def observe(self) -> Observation | Unreachable:
        """What is in force now, as a majority of the layout servers holds it, and what the units report."""
        self._counters["observations"] += 1
        try:
            latest = await self._chain.fetch()
        except LayoutUnavailableError as error:
            return Unreachable(str(error), error.lost, await self._observe_known())
        # Also those that the layout does not name: whoever may be given something must not be full.
        statuses = await status_of(self._runtime, self._settings, self._addresses)
        await self._tell_laggards(latest.document, statuses)
        return make_observation(latest, statuses, self._addresses)

    async def _observe_known(self) -> Observation | None:
        """What the latest document that could be found says, though it is not known to be in force."""
        known = self._chain.known
        if known is None:
            return None
        statuses = await status_of(self._runtime, self._settings, self._addresses)
        observation = make_observation(Latest(known, sealed=False), statuses, self._addresses)
        roles = replace(observation.roles, layout_servers=known.layout.layout_servers)
        return replace(observation, roles=roles)

    async def history(self) -> tuple[LayoutVersion, ...] | Unreachable:
        """See `interface.Adapter.history`; read from every host that answers."""
        try:
            latest = (await self._chain.fetch()).document
        except LayoutUnavailableError as error:
            return Unreachable(str(error))
        addresses = {**latest.hosts, **self._addresses}
        found = await read_history(self._runtime, self._settings, addresses)
        found.setdefault(latest.epoch, latest)
        return tuple(version_of(found[epoch]) for epoch in sorted(found) if epoch <= latest.epoch)

    async def set_intent(self, expected_epoch: int, intent: Mapping[str, Any], fence: Fence) -> int:
        """See `interface.Adapter.set_intent`; raises AdapterError when the layout servers are out of reach."""
        try:
            document = await self._reconfiguration.set_intent(
                expected_epoch, intent, View(self._addresses), Authority.of(fence)
            )
        except LogError as error:
            raise AdapterError(f"the intent could not be agreed: {error}") from error
        return document.epoch

    async def check(self, fence: Fence) -> None:
        """See `interface.Adapter.check`."""
        try:
            Authority.of(fence).check((await self._chain.fetch()).document)
        except LayoutUnavailableError as error:
            raise AdapterError(f"whether this controller may still act is not known: {error}") from error

    def lower(self, current: Observation, target: Placement) -> StepGraph:
        """See `log.adapter.lowering`."""
        return lower(current, target)

    def precheck(self, step: Step, observation: Observation) -> Refusal | None:
        """Refuse what cannot succeed with the hosts that are there."""
        if step.kind not in KINDS:
            return Refusal("unknown_step", f"the log knows no step {step.kind!r}")
        absent = sorted(host for host in hosts_needed(step) if host not in self._addresses)
        if absent:
            return Refusal("host_gone", f"{absent[0]} is not in the view; make a new plan")
        if step.kind == COPY:
            segment = next((one for one in observation.segments if one.key == step.segment), None)
            if segment is None:
                return Refusal("unknown_segment", f"there is no segment {step.segment!r}")
            if not any(replica.state is not ReplicaState.GONE for replica in segment.replicas):
                return Refusal("no_source", f"no live host holds segment {step.segment}")
        return None

    async def start(self, step: Step, fence: Fence) -> None:
        """Begin the step in the background, unless it runs already.  Repeating one that is done does no harm."""
        known = self._chain.known
        if known is not None:
            Authority.of(fence).check(known)
        key = identity_of(step)
        run = self._runs.get(key)
        if run is not None and isinstance(run.status, Running):
            return
        if step.kind not in KINDS:
            raise AdapterError(f"the log knows no step {step.kind!r}")
        run = _Run(Running(0, max(1, step.bytes)))
        self._forget_old_runs()
        self._runs[key] = run
        self._counters[f"started_{step.kind}"] += 1
        run.handle = self._runtime.spawn(partial(self._run, run, step, Authority.of(fence)))

    async def poll(self, step: Step) -> StepStatus:
        run = self._runs.get(identity_of(step))
        return Pending() if run is None else run.status

    async def cancel(self, step: Step) -> None:
        """Stop a running step; what it has done stays done."""
        run = self._runs.get(identity_of(step))
        if run is not None and isinstance(run.status, Running):
            run.status = Cancelled()
            if run.handle is not None:
                run.handle.cancel()

    def inverse(self, step: Step) -> Step | None:
        """An ``open`` goes back to the chains and roles before it; nothing else needs undoing, or can be undone."""
        previous = step.arguments.get("previous")
        if step.kind != OPEN or not previous:
            return None
        arguments = {
            "segments": previous,
            "roles": step.arguments["previous_roles"],
            "previous": step.arguments["segments"],
            "previous_roles": step.arguments["roles"],
            "retired": step.arguments["previous_retired"],
            "previous_retired": step.arguments["retired"],
        }
        return replace(
            step,
            description=f"back to the chains before: {step.description}",
            after=frozenset(),
            arguments=arguments,
        )

    async def repair(self, observation: Observation) -> StepGraph:
        """One step that completes an epoch that was sealed or decided but does not serve; else none."""
        replicas = [segment.replicas for segment in observation.segments]
        usable = all(any(_is_alive_in_chain(replica) for replica in each) for each in replicas)
        if not observation.unfinished or not usable:
            return StepGraph(
                ()
            )  # nothing left open, or a segment without live replicas that nobody can complete
        description = (
            f"complete epoch {observation.layout_epoch}: a change was left half done, or a host has moved"
        )
        unreliable = sorted(observation.relieved)
        arguments = {"unreliable": unreliable} if unreliable else {}
        return StepGraph((Step(0, COMPLETE, description, reversible=False, arguments=arguments),))

    async def failover(self, segment: str, fence: Fence, prefer: str | None = None) -> None:
        """Make `prefer` (or the next live replica) the head of the segment's chain; returns when done.

        Raises FencedError, or AdapterError when it could not be done.
        """
        authority = Authority.of(fence)
        try:
            layout = (await self._chain.fetch()).document.layout
            target = _failover_target(layout, segment, frozenset(self._addresses), prefer)
            await self._open(target, authority)
        except LogError as error:
            raise AdapterError(f"segment {segment} could not fail over: {error}") from error
        with suppress(LogError):  # only tidies up: the same hosts in one order throughout
            chain = {segment: target.chains[segment]}
            await self._reconfiguration.close(chain, View(self._addresses), authority)

    async def forget(self, hosts: Collection[str], fence: Fence) -> None:
        """See `interface.Adapter.forget` and `Reconfiguration.forget`."""
        view, authority = View(self._addresses), Authority.of(fence)
        await self._repeat(lambda: self._reconfiguration.forget(hosts, view, authority))

    async def recover(self, fence: Fence, *, only_look: bool = False) -> Recovery:
        """See `interface.Adapter.recover` and `log.reconfiguration.forced`."""
        forced = ForcedLayout(self._runtime, self._settings, self._chain, self._addresses)
        return await (forced.look() if only_look else forced.run(Authority.of(fence)))

    # steps

    async def _run(self, run: _Run, step: Step, authority: Authority) -> None:
        """A step from begin to end; its status tells what came of it."""
        try:
            await self._execute(run, step, authority)
            status: StepStatus = Done()
        except FencedError as error:
            status = Failed("fenced", str(error), retryable=False)
        except LayoutError as error:
            status = Failed("layout", str(error), retryable=False)
        except SupersededError as error:
            status = Failed("superseded", str(error), retryable=True)
        except LogError as error:
            status = Failed("unavailable", str(error), retryable=True)
        except Exception as error:
            # A defect must show as a failed step, not as one that runs for ever.
            log.exception("%s: step %d (%s) failed unexpectedly", self._host, step.number, step.description)
            status = Failed("internal", f"{type(error).__name__}: {error}", retryable=False)
        if isinstance(status, Failed):
            log.info("%s: step %d (%s): %s", self._host, step.number, step.description, status.message)
        if not isinstance(run.status, Cancelled):
            run.status = status
            self._counters[f"{'done' if isinstance(status, Done) else 'failed'}_{step.kind}"] += 1

    async def _execute(self, run: _Run, step: Step, authority: Authority) -> None:
        if step.kind == OPEN:
            force, unreliable = bool(step.arguments.get("force")), unreliable_of(step)
            await self._open(target_of(step), authority, force=force, unreliable=unreliable)
        elif step.kind == COMPLETE:
            unreliable = unreliable_of(step)
            await self._leaving_behind(
                lambda left: self._reconfiguration.complete(
                    View(self._addresses), authority, without=left, unreliable=unreliable
                ),
                unreliable=unreliable,
            )
        elif step.kind == CLOSE:
            chains = chains_of(step)
            await self._repeat(lambda: self._reconfiguration.close(chains, View(self._addresses), authority))
        else:
            await self._repeat(partial(self._copy, run, step))

    async def _open(
        self,
        target: LayoutTarget,
        authority: Authority,
        *,
        force: bool = False,
        unreliable: frozenset[str] = frozenset(),
    ) -> None:
        def attempt(left: frozenset[str]) -> Awaitable[object]:
            view = View(self._addresses)
            return self._reconfiguration.open(
                target, view, authority, force=force, without=left, unreliable=unreliable
            )

        needed = frozenset(host for chain in target.chains.values() for host in chain)
        await self._leaving_behind(attempt, needed, unreliable)

    async def _leaving_behind(
        self,
        attempt: Callable[[frozenset[str]], Awaitable[object]],
        needed: frozenset[str] = frozenset(),
        unreliable: frozenset[str] = frozenset(),
    ) -> None:
        """Do this without the hosts that stand in its way, if it does without them: their disks take nothing, so that
        they can neither be sealed nor settled, or they are `unreliable` and do not answer in time."""
        left: set[str] = set()

        async def without_them() -> None:
            while True:
                try:
                    await attempt(frozenset(left))
                except (ReplicaRefusedError, ReplicaSilentError) as error:
                    refused = isinstance(error, ReplicaRefusedError) and error.code in DISK_REFUSALS
                    if error.host in needed | left or not (refused or error.host in unreliable):
                        raise
                    left.add(error.host)
                else:
                    return

        await self._repeat(without_them)

    async def _copy(self, run: _Run, step: Step) -> None:
        document = (await self._chain.fetch()).document
        segment = document.layout.segment(step.segment or "")
        if segment is None or step.destination is None:
            raise LayoutError(f"there is no segment {step.segment!r} to copy")
        if not await self._reconfiguration.activation.is_activated(document):
            raise ReplicaUnavailableError(f"epoch {document.epoch} is not activated; open it first")
        addresses = self._chain.addresses(document.layout.hosts(), document)
        replication = Replication(self._runtime, self._settings, document, addresses)

        def report(progress: Progress) -> None:
            if not isinstance(run.status, Cancelled):
                rate = progress.bytes / progress.seconds if progress.seconds > 0 else 0.0
                total = max(step.bytes, progress.bytes, 1)
                share = progress.records / progress.total if progress.total else 1.0
                run.status = Running(int(total * share), total, "bytes", rate)

        transfer = Transfer(self._runtime, _throttled(self._settings, step), replication, report)
        await transfer.run(segment, step.destination, prefer=step.source)

    async def _repeat(self, attempt: Callable[[], Awaitable[object]]) -> None:
        """Try again at once when only the layout moved on; leave other failures to the executor's retries."""
        backoff = Backoff(self._runtime, self._settings.backoff_first, self._settings.backoff_limit)
        deadline = self._runtime.now() + self._settings.reconfiguration_timeout
        while True:
            try:
                await attempt()
            except (SupersededError, EpochSealedError):
                if self._runtime.now() >= deadline:
                    raise
                await backoff.pause()
            else:
                return

    async def _tell_laggards(self, document: EpochDocument, statuses: Mapping[str, StatusReply]) -> None:
        """A host that was away learns of the current epoch."""
        behind = {
            host: self._addresses[host]
            for host, status in statuses.items()
            if status.document_epoch < document.epoch
        }
        if behind:
            self._counters["laggards_told"] += len(behind)
            request = Install(encode_document(document))
            await call_all(self._runtime, hosts_at(behind), request, self._settings.call_timeout)

    def _forget_old_runs(self) -> None:
        """Keep the table bounded: ended runs go first."""
        if len(self._runs) >= 10_000:
            self._runs = {key: run for key, run in self._runs.items() if isinstance(run.status, Running)}


def _throttled(settings: LogSettings, step: Step) -> LogSettings:
    """The settings for this transfer: of the step's cap and this process's own, the lower."""
    caps = [cap for cap in (settings.transfer_bytes_per_second, step.bytes_per_second) if cap > 0]
    return replace(settings, transfer_bytes_per_second=min(caps, default=0.0))


def _is_alive_in_chain(replica: Replica) -> bool:
    return replica.state in (ReplicaState.IN_SYNC, ReplicaState.SYNCING)


def _failover_target(layout: Layout, key: str, live: frozenset[str], prefer: str | None) -> LayoutTarget:
    target = LayoutTarget.as_is(layout)
    if key not in target.chains:
        raise LayoutError(f"there is no segment {key!r}")
    chain = [host for host in target.chains[key] if host in live]
    candidates = chain[1:] + chain[:1]
    head = prefer if prefer is not None else next(iter(candidates), None)
    if head not in chain:
        raise LayoutError(f"segment {key}: {head} is no live replica of {', '.join(target.chains[key])}")
    ordered = (head, *(host for host in chain if host != head))
    # Whoever died stands in other chains as well, and none of them could be sealed with it.
    gone = frozenset(layout.hosts()) - live
    return replace(target, chains={**target.chains, key: ordered}).without(gone)

"""The scheduler at work: watches, placements, bindings and elections on trio, until it is cancelled."""

from __future__ import annotations

import logging
import math
import socket
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import trio

from mgmt import PolicyError, SolveTimeout
from orchestrators.kubernetes.api.client import ApiClient
from orchestrators.kubernetes.api.kinds import CLAIM, CONFIG_MAP, EVENT, KINDS, LEASE, POD, Kind
from orchestrators.kubernetes.api.reflector import Listed, news
from orchestrators.kubernetes.errors import RequestError, UnreachableError
from orchestrators.kubernetes.explanations import explanations
from orchestrators.kubernetes.metrics import Metrics
from orchestrators.kubernetes.own_policies import of_config_map
from orchestrators.kubernetes.placement import Placement, Placer
from orchestrators.kubernetes.scheduling import documents
from orchestrators.kubernetes.scheduling.effects import Bind, Effect, Evict, Mark, Report
from orchestrators.kubernetes.scheduling.election import Election, ElectionSettings
from orchestrators.kubernetes.scheduling.object_cache import Json, key_of, uid_of
from orchestrators.kubernetes.scheduling.scheduler import Batch, Outcome, Scheduler, SchedulingSettings

Result = TypeVar("Result")

log = logging.getLogger("rota.kubernetes")

BINDERS: Final = 32
REPORTERS: Final = 4
WAITING_REPORTS: Final = 10_000
"""Events and conditions that wait to be sent; more are dropped and counted, and never hold a binding up."""
PAUSE: Final = 0.5
LONGEST_STRETCH: Final = 16
"""Times the budget that a solve may take where less was too little to find any placement."""
CONFLICT: Final = 409
NOT_FOUND: Final = 404


class RunBlocking(Protocol):
    """Runs a function that blocks, off the event loop."""

    async def __call__(self, function: Callable[..., Result], /, *arguments: Any) -> Result: ...


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """``budget``: seconds for a solve; ``explaining``: for the reasons of pods that were left out.

    ``config_map``: namespace and name of one whose ``.sql`` entries are rules beside those of the placer.
    ``lease``: namespace and name of the lease that replicas compete for; None: this is the only one.
    """

    scheduling: SchedulingSettings = field(default_factory=SchedulingSettings)
    budget: float = 1.0
    explaining: float = 3.0
    lease: tuple[str, str] | None = ("kube-system", "rota-scheduler")
    election: ElectionSettings = field(default_factory=ElectionSettings)
    config_map: tuple[str, str] | None = None
    seed: int = 0


class Service:
    """One scheduler.  ``await run()`` ends when it is cancelled."""

    def __init__(
        self,
        client: ApiClient,
        placer: Placer,
        settings: ServiceSettings | None = None,
        run_blocking: RunBlocking = trio.to_thread.run_sync,
    ) -> None:
        self.settings = settings or ServiceSettings()
        self.scheduler = Scheduler([kind.field for kind in KINDS], self.settings.scheduling)
        self.identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self.metrics = Metrics()
        self._stretch = 1  # of the budget, while the machine is too busy for it
        self._client, self._placer, self._run_blocking = client, placer, run_blocking
        self._news = trio.Event()
        self._new_policies: Json | None = None
        self._work, self._works = trio.open_memory_channel[Bind | Evict](math.inf)
        self._tell, self._tells = trio.open_memory_channel[Report | Mark](WAITING_REPORTS)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for kind in KINDS:
                nursery.start_soon(self._follow, kind)
            if self.settings.config_map is not None:
                nursery.start_soon(self._follow_policies, self.settings.config_map)
            nursery.start_soon(self._elect)
            for _ in range(BINDERS):
                nursery.start_soon(self._carry_out)
            for _ in range(REPORTERS):
                nursery.start_soon(self._report)
            nursery.start_soon(self._schedule)

    def _notify(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def _follow(self, kind: Kind) -> None:
        async with aclosing(news(self._client, kind)) as told:
            async for each in told:
                now = trio.current_time()
                if isinstance(each, Listed):
                    self.scheduler.listed(kind.field, each.items, now)
                else:
                    self.scheduler.changed(kind.field, each.item, now, deleted=each.deleted)
                self._notify()

    async def _follow_policies(self, name: tuple[str, str]) -> None:
        selector = f"metadata.name={name[1]}"  # one may be allowed to see only this one
        async with aclosing(news(self._client, CONFIG_MAP, name[0], fieldSelector=selector)) as told:
            async for each in told:
                if isinstance(each, Listed):
                    found = each.items[0] if each.items else None
                else:
                    found = None if each.deleted else each.item
                self._new_policies = found or {}
                self._notify()

    # Placing

    async def _schedule(self) -> None:
        while True:
            news = self._news
            if self._new_policies is not None:
                config_map, self._new_policies = self._new_policies, None
                await self._use(config_map)
            batch = self.scheduler.batch(trio.current_time())
            if batch is not None:
                await self._place(batch)
                continue
            now = trio.current_time()
            at = self.scheduler.wake_at() if self.scheduler.leads(now) else None
            with trio.move_on_at(math.inf if at is None else at):
                await news.wait()

    async def _use(self, config_map: Json) -> None:
        """Take the rules of a ConfigMap; what is wrong with them is told there, and those before are kept."""
        try:
            await self._run_blocking(self._placer.use, of_config_map(config_map))
        except PolicyError as error:
            log.warning("the rules of the ConfigMap are not used: %s", error)
            uid = uid_of(config_map)
            self._do(
                [Report(key_of(config_map), uid, "InvalidPolicy", str(error), True, "Compiling", "ConfigMap")]
            )
        else:
            self.scheduler.reconsider(trio.current_time())

    async def _place(self, batch: Batch) -> None:
        moment = datetime.now(UTC)
        solve = partial(
            self._placer.place, batch.objects, budget=self.settings.budget * self._stretch,
            seed=self.settings.seed, now=moment,
        )  # fmt: skip
        begin = trio.current_time()
        try:
            placement = await self._run_blocking(solve)
        except PolicyError as error:
            log.warning("no placement of %d pods: %s", len(batch.pending), error)
            self.metrics.failures.inc()
            if isinstance(error, SolveTimeout) and self._stretch < LONGEST_STRETCH:
                self._stretch *= 4  # nobody need be told yet
            else:
                self._do(self._blamed(batch, str(error)))
            self.scheduler.failed(trio.current_time())
            return
        self._stretch = max(1, self._stretch // 2)
        self.metrics.solves.observe(trio.current_time() - begin)
        self.metrics.pending.set(len(placement.left_out) + len(placement.refused))
        self._do(self.scheduler.placed(batch, placement, trio.current_time()))
        reasons = {}
        if placement.left_out or placement.refused:
            reasons = await self._run_blocking(self._reasons, batch, placement, moment)
        self._do(self.scheduler.explained(batch, reasons, trio.current_time()))

    def _reasons(self, batch: Batch, placement: Placement, moment: datetime) -> dict[Any, str]:
        found = explanations(
            self._placer, batch.objects, placement, budget=self.settings.explaining, now=moment
        )
        return dict(found)

    def _blamed(self, batch: Batch, message: str) -> list[Effect]:
        return self.scheduler.explained(batch, dict.fromkeys(batch.pending, message), trio.current_time())

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Bind | Evict):
                self._work.send_nowait(effect)
            else:
                try:
                    self._tell.send_nowait(effect)
                except trio.WouldBlock:
                    self.metrics.dropped.inc()

    # Carrying it out

    async def _carry_out(self) -> None:
        async for effect in self._works:
            if isinstance(effect, Bind):
                await self._bind(effect)
            else:
                outcome, message = await self._ask(effect)
                self.metrics.attempts.labels("eviction", outcome.name.lower()).inc()
                self._do(self.scheduler.evicted(effect, outcome, trio.current_time(), message))
            self._notify()

    async def _bind(self, effect: Bind) -> None:
        while self.scheduler.leads(trio.current_time()):
            outcome, message = await self._ask(effect)
            self.metrics.attempts.labels("binding", outcome.name.lower()).inc()
            follow_up = self.scheduler.bound(effect, outcome, trio.current_time(), message)
            if outcome is not Outcome.UNKNOWN:
                waits = self.scheduler.statistics.waits
                while waits:
                    self.metrics.waits.observe(waits.pop())
                self._do(follow_up)
                return
            await trio.sleep(PAUSE)
        self.scheduler.abandoned(effect)

    async def _ask(self, effect: Bind | Evict) -> tuple[Outcome, str]:
        path = POD.path(*effect.pod)
        try:
            if isinstance(effect, Evict):
                await self._client.create(f"{path}/eviction", documents.eviction(effect))
            else:
                for claim in effect.claims:
                    patch = documents.chosen_node(effect.node)
                    await self._client.patch(CLAIM.path(effect.pod[0], claim), patch)
                await self._client.create(f"{path}/binding", documents.binding(effect))
        except UnreachableError as error:
            return Outcome.UNKNOWN, str(error)
        except RequestError as error:
            by_status = {CONFLICT: Outcome.CONFLICT, NOT_FOUND: Outcome.GONE}
            return by_status.get(error.status, Outcome.REFUSED), str(error)
        return Outcome.DONE, ""

    async def _report(self) -> None:
        async for effect in self._tells:
            moment = datetime.now(UTC)
            try:
                if isinstance(effect, Report):
                    await self._client.create(
                        EVENT.path(effect.subject[0]), documents.event(effect, self.identity, moment)
                    )
                else:
                    path = POD.path(*effect.pod, "status")
                    await self._client.patch(path, documents.condition(effect, moment), "strategic")
            except (RequestError, UnreachableError) as error:
                key = effect.subject if isinstance(effect, Report) else effect.pod
                log.info("not told to %s: %s", "/".join(key), error)

    # Leading

    async def _elect(self) -> None:
        if self.settings.lease is None:
            self._lead(math.inf)
            return
        election = Election(self.identity, self.settings.election)
        try:
            while True:
                await self._compete(election, self.settings.lease)
                self._lead(election.leads_until)
                await trio.sleep(self.settings.election.period)
        finally:
            self._lead(-math.inf)
            with trio.CancelScope(shield=True), trio.move_on_after(2):
                await self._release(election, self.settings.lease)

    def _lead(self, until: float) -> None:
        now = trio.current_time()
        led = self.scheduler.leads(now)
        self.scheduler.lead(until, now)
        self.metrics.leads.set(self.scheduler.leads(now))
        if led != self.scheduler.leads(now):
            log.info("%s %s", self.identity, "leads no more" if led else "leads")
            self._notify()

    async def _compete(self, election: Election, name: tuple[str, str]) -> None:
        now = trio.current_time()
        with trio.move_on_after(self.settings.election.renewed_within / 2):
            try:
                lease = await self._lease(name)
                spec = election.wanted(lease, now, datetime.now(UTC))
                if spec is None:
                    return
                if lease is None:
                    metadata = {"namespace": name[0], "name": name[1]}
                    document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
                    await self._client.create(LEASE.path(name[0]), {**document, "spec": spec})
                else:
                    await self._client.replace(LEASE.path(*name), {**lease, "spec": spec})
                election.written(now)
            except RequestError as error:
                if error.status == CONFLICT:
                    election.refused()
                else:
                    log.warning("lease: %s", error)
            except UnreachableError as error:
                log.warning("lease: %s", error)

    async def _lease(self, name: tuple[str, str]) -> dict[str, Any] | None:
        try:
            return await self._client.get(LEASE.path(*name))
        except RequestError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def _release(self, election: Election, name: tuple[str, str]) -> None:
        try:
            lease = await self._lease(name)
            spec = None if lease is None else election.released(lease, datetime.now(UTC))
            if lease is not None and spec is not None:
                await self._client.replace(LEASE.path(*name), {**lease, "spec": spec})
        except (RequestError, UnreachableError) as error:
            log.info("the lease is left to run out: %s", error)

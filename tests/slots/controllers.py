"""A controller in a test's own process: the adapter on real servers, its epoch document kept by the fake engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from datastore_adapter.interface import (
    Done,
    Failed,
    Fence,
    Observation,
    Placement,
    Running,
    ServiceRoles,
    Step,
    StepGraph,
    StepStatus,
    Unreachable,
)
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.slots_adapter import SlotsAdapter
from tests.fake_adapter import FakeAdapter, FakeEngine
from tests.slots.servers import Fleet

ROLES = ServiceRoles(("n0",), ("n0",))
PATIENT = SlotsSettings(call_timeout=10.0, failover_timeout=10.0)
"""Servers of tests are killed, and nobody waits for those; one that a busy machine lets wait must not look like it."""


class Controller:
    """One after the other may work on the same servers, with the document that the ones before have agreed on."""

    def __init__(
        self,
        fleet: Fleet,
        layout_adapter: FakeEngine | None = None,
        access: EngineAccess | None = None,
        settings: SlotsSettings | None = None,
        view_epoch: int = 1,
    ) -> None:
        self.fleet = fleet
        self.layout_adapter = layout_adapter or FakeEngine(list(fleet.hosts))
        self.view_epoch = view_epoch
        self.adapter = SlotsAdapter(
            FakeAdapter(self.layout_adapter),
            fleet.addresses,
            access or EngineAccess(),
            settings or PATIENT,
        )
        self.tell(list(fleet.hosts))

    def tell(self, hosts: Sequence[str]) -> None:
        """A view of these hosts."""
        self.adapter.set_hosts(self.view_epoch, {host: f"{host}:1" for host in hosts})

    async def observed(self) -> Observation:
        """Asked again for a while, as the control loop does: servers that are about to meet may look like too few."""
        deadline = trio.current_time() + 20.0
        while isinstance(observation := await self.adapter.observe(), Unreachable):
            assert trio.current_time() < deadline, observation
            await trio.sleep(0.05)
        assert isinstance(observation, Observation)
        return observation

    async def reason(self) -> str:
        """Why nothing can be said of the servers."""
        answer = await self.adapter.observe()
        assert isinstance(answer, Unreachable), answer
        return answer.reason

    async def agree(self, target: Placement, **more: Any) -> None:
        """A plan, as the control loop agrees on it before its first step."""
        slots = None if target.slots is None else {key: list(ranges) for key, ranges in target.slots.items()}
        plan = {"segments": {key: list(chain) for key, chain in target.segments.items()}, "slots": slots}
        observation = await self.observed()
        await self.adapter.set_intent(
            observation.layout_epoch, {"plan": plan, **more}, self.fence(observation)
        )

    def fence(self, observation: Observation, step: int = 0) -> Fence:
        return Fence(self.view_epoch, observation.layout_epoch, "plan", step)

    async def run(self, step: Step) -> StepStatus:
        """One step to its end."""
        observation = await self.observed()
        refusal = self.adapter.precheck(step, observation)
        if refusal is not None:
            return Failed(refusal.code, refusal.message, retryable=True)
        await self.adapter.start(step, self.fence(observation, step.number))
        return await self.ended(step)

    async def ended(self, step: Step) -> StepStatus:
        while isinstance(status := await self.adapter.poll(step), Running):  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.005)
        return status

    async def finish(self, step: Step) -> StepStatus:
        """As the control loop does: a step may fail a few times in a way that is worth another try."""
        status = await self.run(step)
        for _ in range(5):
            if not (isinstance(status, Failed) and status.retryable):
                break
            await trio.sleep(0.2)
            status = await self.run(step)
        return status

    async def carry_out(self, graph: StepGraph) -> None:
        """All steps."""
        for step in graph.steps:
            status = await self.finish(step)
            assert status == Done(), f"{step.description}: {status}"

    async def repair(self) -> None:
        for _ in range(5):
            graph = await self.adapter.repair(await self.observed())
            if not graph.steps:
                return
            await self.carry_out(graph)
        raise AssertionError(f"repairs never end: {graph.steps}")

    async def reach(self, target: Placement, **more: Any) -> Observation:
        """Agreed and carried out."""
        await self.agree(target, **more)
        await self.carry_out(self.adapter.lower(await self.observed(), target))
        observation = await self.observed()
        assert self.adapter.lower(observation, target).steps == ()
        return observation


def placement(
    chains: Mapping[str, str], slots: Mapping[str, Sequence[tuple[int, int]]] | None = None
) -> Placement:
    """``{"s00": "n0 n1"}``: hosts of each shard, the primary first."""
    held = None if slots is None else {key: tuple(ranges) for key, ranges in slots.items()}
    return Placement({key: tuple(hosts.split()) for key, hosts in chains.items()}, ROLES, slots=held)


def chains_of(observation: Observation) -> dict[str, str]:
    """The same way; replicas in order of name."""
    found = {}
    for segment in observation.segments:
        first, *others = sorted(segment.replicas, key=lambda copy: copy.position)
        found[segment.key] = " ".join([first.host, *sorted(copy.host for copy in others)])
    return found


def story(controller: Controller, main: Callable[[], Any]) -> None:
    """Run it, and end the controller."""

    async def run() -> None:
        try:
            await main()
        finally:
            controller.adapter.close()

    trio.run(run)

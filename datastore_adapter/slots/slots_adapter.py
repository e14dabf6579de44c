"""The adapter for servers that speak Redis Cluster: what the management plane calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from datastore_adapter.interface import (
    Adapter,
    Capabilities,
    Fence,
    LayoutVersion,
    Observation,
    Placement,
    Recovery,
    Refusal,
    Step,
    StepGraph,
    StepStatus,
    Unreachable,
)
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.slot_ranges import SLOTS


class SlotsAdapter:
    """Not finished: calls that need the servers raise NotImplementedError."""

    def __init__(
        self,
        keeper: Adapter,
        servers: Callable[[str], Sequence[str]],
        access: EngineAccess,
        settings: SlotsSettings = SlotsSettings(),
    ) -> None:
        self._keeper = keeper
        self._servers_of = servers
        self._access = access
        self._settings = settings

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            "slots",
            resumable_transfer=True,
            cancellable_transfer=True,
            moves_primaries=True,
            slots=SLOTS,
        )

    async def sample(self) -> None:
        """Collect, without end, what replicas can be judged by when their primary is gone."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connections."""

    def set_hosts(self, view_epoch: int, addresses: Mapping[str, str]) -> None:
        self._keeper.set_hosts(view_epoch, addresses)

    async def observe(self) -> Observation | Unreachable:
        raise NotImplementedError

    async def history(self) -> tuple[LayoutVersion, ...] | Unreachable:
        raise NotImplementedError

    async def set_intent(self, expected_epoch: int, intent: Mapping[str, Any], fence: Fence) -> int:
        return await self._keeper.set_intent(expected_epoch, intent, fence)

    async def check(self, fence: Fence) -> None:
        await self._keeper.check(fence)

    def lower(self, current: Observation, target: Placement) -> StepGraph:
        raise NotImplementedError

    def precheck(self, step: Step, observation: Observation) -> Refusal | None:
        raise NotImplementedError

    async def start(self, step: Step, fence: Fence) -> None:
        raise NotImplementedError

    async def poll(self, step: Step) -> StepStatus:
        raise NotImplementedError

    async def cancel(self, step: Step) -> None:
        raise NotImplementedError

    def inverse(self, step: Step) -> Step | None:
        raise NotImplementedError

    async def repair(self, observation: Observation) -> StepGraph:
        raise NotImplementedError

    async def forget(self, hosts: Collection[str], fence: Fence) -> None:
        raise NotImplementedError

    async def recover(self, fence: Fence, *, only_look: bool = False) -> Recovery:
        return await self._keeper.recover(fence, only_look=only_look)

    async def failover(self, segment: str, fence: Fence, prefer: str | None = None) -> None:
        raise NotImplementedError

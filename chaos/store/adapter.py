"""The log's adapter for a control loop that runs on trio, while the log's own procedures run on the virtual loop.

`interface.Adapter`, every call handed over; cancelling one cancels what it began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

import trio

from datastore_adapter import LogAdapter
from datastore_adapter.interface import (
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
from datastore_adapter.log.runtime.virtual_loop import VirtualLoop

_Result = TypeVar("_Result")


class BridgedAdapter:
    """`adapter` as seen from trio. `wake` is called whenever a call has ended."""

    def __init__(self, adapter: LogAdapter, loop: VirtualLoop, wake: Callable[[], None]) -> None:
        self._adapter = adapter
        self._loop = loop
        self._wake = wake

    async def _await(self, call: Coroutine[Any, Any, _Result]) -> _Result:
        ended = trio.Event()
        task = self._loop.start(call)

        def end() -> None:
            ended.set()
            self._wake()

        task.on_end = end
        try:
            await ended.wait()
        except trio.Cancelled:
            task.on_end = lambda: None
            task.cancel()
            raise
        if task.error is not None:
            raise task.error
        result: _Result = task.result
        return result

    @property
    def capabilities(self) -> Capabilities:
        return self._adapter.capabilities

    def set_hosts(self, view_epoch: int, addresses: Mapping[str, str]) -> None:
        self._adapter.set_hosts(view_epoch, addresses)

    async def observe(self) -> Observation | Unreachable:
        return await self._await(self._adapter.observe())

    async def history(self) -> tuple[LayoutVersion, ...] | Unreachable:
        return await self._await(self._adapter.history())

    async def set_intent(self, expected_epoch: int, intent: Mapping[str, Any], fence: Fence) -> int:
        return await self._await(self._adapter.set_intent(expected_epoch, intent, fence))

    async def check(self, fence: Fence) -> None:
        await self._await(self._adapter.check(fence))

    def lower(self, current: Observation, target: Placement) -> StepGraph:
        return self._adapter.lower(current, target)

    def precheck(self, step: Step, observation: Observation) -> Refusal | None:
        return self._adapter.precheck(step, observation)

    async def start(self, step: Step, fence: Fence) -> None:
        await self._await(self._adapter.start(step, fence))

    async def poll(self, step: Step) -> StepStatus:
        return await self._await(self._adapter.poll(step))

    async def cancel(self, step: Step) -> None:
        await self._await(self._adapter.cancel(step))

    def inverse(self, step: Step) -> Step | None:
        return self._adapter.inverse(step)

    async def repair(self, observation: Observation) -> StepGraph:
        return await self._await(self._adapter.repair(observation))

    async def forget(self, hosts: Collection[str], fence: Fence) -> None:
        await self._await(self._adapter.forget(hosts, fence))

    async def recover(self, fence: Fence, *, only_look: bool = False) -> Recovery:
        return await self._await(self._adapter.recover(fence, only_look=only_look))

    async def failover(self, segment: str, fence: Fence, prefer: str | None = None) -> None:
        await self._await(self._adapter.failover(segment, fence, prefer))

"""Reports: read from the engine for anybody, by any controller, also one that stands by; nothing is changed."""

from __future__ import annotations

import contextlib
from typing import Any

import trio

from datastore_adapter.interface import AdapterError, Observation, Unreachable
from mgmt.control.environment import Environment
from mgmt.control.settings import ControlSettings
from mgmt.control.status import ControlStatus, Phase
from mgmt.errors import ControlError, EngineUnreachableError
from mgmt.placement.intent import Intent
from mgmt.placement.layout_history import difference_report, history_report
from mgmt.placement.layout_report import known_layout_report, layout_report

_PATIENCE = 1.0
"""Seconds that a status waits for a look at the engine; then it is as of the look before."""


class Reports:
    """Everything here but :meth:`look` raises :class:`EngineUnreachableError`."""

    def __init__(self, environment: Environment, status: ControlStatus, settings: ControlSettings) -> None:
        self._environment = environment
        self._status = status
        self._settings = settings

    async def look(self) -> None:
        """For a status that is no older than the controller's own: look at the engine, unless that was done just now.

        One that is not to be had soon is done without.
        """
        if self._status.phase is not Phase.STANDBY:
            return
        if self._environment.seconds_since_look >= self._settings.round_interval:
            with trio.move_on_after(_PATIENCE), contextlib.suppress(AdapterError, ControlError):
                await self._environment.observe()

    async def layout(self) -> dict[str, Any]:
        """``rota layout show``: without a majority of the engine, what is known of it, marked as such."""
        environment = self._environment
        answer = await environment.observe()
        if isinstance(answer, Observation):
            return layout_report(environment.view, answer, environment.intent)
        if answer.known is None:
            raise _unreachable(answer)
        document = answer.known.intent
        intent = Intent.from_mapping(document, environment.slots) if document else None
        return known_layout_report(environment.view, answer.known, intent, answer)

    async def outcome(self, plan_id: str) -> dict[str, Any]:
        """What has become of an agreed plan, as the epoch document tells."""
        answer = await self._environment.observe()
        if isinstance(answer, Unreachable):
            raise _unreachable(answer)
        return self._status.outcome(plan_id)

    async def history(self) -> dict[str, Any]:
        """``rota layout history``."""
        answer = await self._environment.history()
        if isinstance(answer, Unreachable):
            raise _unreachable(answer)
        return history_report(answer)

    async def difference(self, before: int, after: int) -> dict[str, Any]:
        """``rota layout diff``.  Raises also :class:`UnknownEpochError`."""
        answer = await self._environment.history()
        if isinstance(answer, Unreachable):
            raise _unreachable(answer)
        return difference_report(answer, before, after)


def _unreachable(answer: Unreachable) -> EngineUnreachableError:
    return EngineUnreachableError(f"the engine does not answer: {answer.reason}; try again")

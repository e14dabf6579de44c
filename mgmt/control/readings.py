"""What anybody may ask any controller, also one that stands by: it is read from the engine, and changes nothing."""

from __future__ import annotations

from typing import Any

from datastore_adapter.interface import Observation, Unreachable
from mgmt.control.consultation import Consultation
from mgmt.control.status import ControlStatus
from mgmt.control_errors import EngineUnreachableError
from mgmt.placement.layout_history import difference_report, history_report
from mgmt.placement.layout_report import layout_report


class Readings:
    """Everything here raises :class:`EngineUnreachableError`."""

    def __init__(self, consultation: Consultation, status: ControlStatus) -> None:
        self._consultation = consultation
        self._status = status

    async def layout(self) -> dict[str, Any]:
        """``rota layout show``."""
        answer = await self._consultation.observe()
        if not isinstance(answer, Observation):
            raise _unreachable(answer)
        return layout_report(self._consultation.view, answer, self._consultation.intent)

    async def outcome(self, plan_id: str) -> dict[str, Any]:
        """What has become of an agreed plan, as the epoch document tells."""
        await self.layout()
        return self._status.outcome(plan_id)

    async def history(self) -> dict[str, Any]:
        """``rota layout history``."""
        answer = await self._consultation.history()
        if isinstance(answer, Unreachable):
            raise _unreachable(answer)
        return history_report(answer)

    async def difference(self, before: int, after: int) -> dict[str, Any]:
        """``rota layout diff``.  Raises also :class:`UnknownEpochError`."""
        answer = await self._consultation.history()
        if isinstance(answer, Unreachable):
            raise _unreachable(answer)
        return difference_report(answer, before, after)


def _unreachable(answer: Unreachable) -> EngineUnreachableError:
    return EngineUnreachableError(f"the engine does not answer: {answer.reason}; try again")

"""Forced recovery: what an operator orders when hosts are gone for good, which no program can know.

Each is shown first, what it would cost, and done only when it is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from datastore_adapter.interface import (
    Adapter,
    AdapterError,
    Fence,
    FencedError,
    Observation,
    StaleIntentError,
)
from mgmt.control.environment import Environment
from mgmt.control.events import ControlEvents
from mgmt.errors import (
    EngineUnreachableError,
    InvalidRequestError,
    NotControllerError,
    NothingLostError,
)
from mgmt.placement.data_loss import losses
from mgmt.placement.hosts import controller_of


class ForcedRecovery:
    """Of one controller."""

    def __init__(
        self,
        me: str,
        adapter: Adapter,
        environment: Environment,
        events: ControlEvents,
        acting: Callable[[], None] = lambda: None,
    ) -> None:
        """``acting`` is called when the engine is about to be changed."""
        self._acting = acting
        self._me = me
        self._adapter = adapter
        self._environment = environment
        self._events = events

    async def forget(self, hosts: Sequence[str], asked_at: str, *, confirmed: bool) -> dict[str, Any]:
        """``rota log forget``: what only ``hosts`` have is lost, and the log goes on without it."""
        environment = self._environment
        controller = controller_of(environment.view)
        if controller != self._me:
            raise NotControllerError(controller)
        names = tuple(sorted(set(hosts)))
        if not names:
            raise InvalidRequestError("no host is named; `rota status` names those that are away")
        for name in names:
            if name in environment.view.names:
                raise NothingLostError(f"{name} is in the view: nothing of it is lost")
        observation = await environment.observe()
        if not isinstance(observation, Observation):
            raise EngineUnreachableError(
                f"the engine does not answer: {observation.reason}; see `rota layout recover`"
            )
        lost = losses(observation, names)
        if confirmed:
            cause = environment.cause(f"declared lost: {', '.join(names)}", asked_at)
            fence = Fence(environment.view.epoch, observation.layout_epoch, "", 0, cause)
            self._acting()
            try:
                await self._adapter.forget(names, fence)
            except (FencedError, StaleIntentError):
                raise
            except ValueError as error:
                raise NothingLostError(str(error)) from error
            except AdapterError as error:
                raise EngineUnreachableError(f"the engine did not agree: {error}; try again") from error
            self._events.add(
                "forgotten",
                f"{', '.join(names)} are declared lost, with what only they held",
                hosts=list(names),
            )
        return {"hosts": list(names), "lost": [asdict(loss) for loss in lost], "forgotten": confirmed}

    async def recover_layout(self, asked_at: str, *, confirmed: bool) -> dict[str, Any]:
        """``rota layout recover``: go on without a majority of the layout servers.  At any host."""
        environment = self._environment
        view = environment.view
        cause = environment.cause("recovered without a majority of the layout servers", asked_at)
        fence = Fence(view.epoch, -1, "", 0, cause)
        if confirmed:
            self._acting()
        try:
            recovery = await self._adapter.recover(fence, only_look=not confirmed)
        except ValueError as error:
            raise NothingLostError(str(error)) from error
        except AdapterError as error:
            raise EngineUnreachableError(f"{error}") from error
        epoch, risks = recovery.layout_epoch, list(recovery.risks)
        if confirmed:
            text = "; ".join([f"the layout begins again at epoch {epoch}", *risks])
            self._events.add("layout-recovered", text, layout_epoch=epoch, risks=risks)
        return {"layout_epoch": epoch, "hosts": sorted(view.names), "risks": risks, "recovered": confirmed}

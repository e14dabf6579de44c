"""Events: what the control loop did and why, the latest of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """``number`` counts from 1 per controller object; ``time`` is of the controller's clock, in seconds."""

    number: int
    time: float
    kind: str
    """One of: ``controller``, ``standby``, ``intent``, ``plan``, ``step-started``, ``step-done``,
    ``step-retry``, ``step-failed``, ``plan-done``, ``plan-failed``, ``plan-superseded``, ``settled``,
    ``waiting``, ``infeasible``, ``undecided``, ``unavailable``, ``fenced``, ``engine-unreachable``,
    ``engine-reachable``, ``trouble``, ``drain``, ``undrain``, ``drain-refused``, ``pause``, ``resume``, ``abort``,
    ``apply``, ``holding``, ``frozen``,
    ``pin``, ``unpin``, ``resize``, ``rebalance``, ``disk-full``, ``disk-room``, ``disk-failed``,
    ``disk-slow``, ``disk-ok``, ``forgotten``,
    ``layout-recovered``, ``asks``, ``drift``, ``step-cancelled``."""
    text: str
    data: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "time": self.time,
            "kind": self.kind,
            "text": self.text,
            "data": dict(self.data),
        }


class ControlEvents:
    """The last events.  ``listener`` is called with each new one; it must neither block nor raise."""

    def __init__(
        self,
        clock: Callable[[], float],
        kept: int,
        listener: Callable[[ControlEvent], None] | None = None,
    ) -> None:
        self._clock = clock
        self._listener = listener
        self._events: deque[ControlEvent] = deque(maxlen=kept)
        self._last = 0

    @property
    def now(self) -> float:
        """The clock of the events, in seconds."""
        return self._clock()

    def add(self, kind: str, text: str, /, **data: Any) -> None:
        self._last += 1
        event = ControlEvent(self._last, self._clock(), kind, text, data)
        self._events.append(event)
        if self._listener is not None:
            self._listener(event)

    def after(self, number: int = 0) -> list[ControlEvent]:
        """The kept events with a higher number, oldest first."""
        return [event for event in self._events if event.number > number]

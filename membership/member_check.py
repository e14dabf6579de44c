"""An application's own check of other members: what it is, and how often.

What it is: a value that says which function answers "is this member healthy?", and what its answers count for.
What it is not: the running of that function, which happens outside the protocol's path (see check_runner); nor a
replacement for probes, which go on.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from membership.edge_detector import DetectorFactory
from membership.errors import MembershipError
from membership.member import Member

Check = Callable[[Member], bool | Awaitable[bool]]
"""Whether a member is healthy. An exception, or no answer in time, is a no."""


class ApplicationCheckError(MembershipError, ValueError):
    """Raised when a check's numbers make no sense. The text says which."""


@dataclass(frozen=True, slots=True)
class ApplicationCheck:
    """See `application_check`."""

    check: Check
    interval: float = 5.0
    timeout: float = 2.0
    failures: int = 3
    probes: DetectorFactory | None = None

    def __post_init__(self) -> None:
        if not callable(self.check):
            raise ApplicationCheckError(f"a check is a function of a member, not {self.check!r}")
        for name in ("interval", "timeout"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ApplicationCheckError(f"the check's {name} is a number of seconds above 0, not {value}")
        if self.failures < 1:
            raise ApplicationCheckError(f"at least 1 failed check is needed, not {self.failures}")


def application_check(
    check: Check,
    *,
    interval: float = 5.0,
    timeout: float = 2.0,
    failures: int = 3,
    probes: DetectorFactory | None = None,
) -> ApplicationCheck:
    """A detector that asks the application about each member this one observes, besides probing it.

    check: called with the member. A coroutine function is awaited by trio in a task of its own, any other is called
        in a thread; neither ever holds up the protocol. False, an exception or no answer within `timeout` seconds
        is a failure.
    interval: seconds between two checks of a member.
    failures: failures in a row after which this member reports the other; one success takes that back as far as
        it was not acted on. As with probes, the others must agree: give all members the same check.
    probes: how probes are judged, windowed by default.

    Raises ApplicationCheckError.
    """
    return ApplicationCheck(check, interval, timeout, failures, probes)

"""An application's own health check of other members, and the task that runs it.

`application_check` says which function answers "is this member healthy?", how often it is asked, and how many
failures count. `CheckRunner` runs each check in a task or thread of its own and hands the results to the core. Slow,
stuck and failing checks are bounded in number and time. Probes go on beside it.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from membership.errors import MembershipError
from membership.protocol.monitoring.edge_detector import DetectorFactory
from membership.protocol.view.member import Member
from membership.runtime.member_log import MemberLog

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


MOST_THREADS: Final = 32
"""Checks in threads at a time, those included that were given up but have not returned."""


class Checked(Protocol):
    """Whose subjects are checked: the driver."""

    def subjects(self) -> tuple[Member, ...]:
        """The members observed at present."""

    def report_check(self, subject: bytes, healthy: bool) -> None:
        """The result for the member of this incarnation."""


class CheckRunner:
    """Keep `run` running while the process is a member."""

    def __init__(self, checked: Checked, what: ApplicationCheck, rng: random.Random, log: MemberLog) -> None:
        self._log = log
        self._checked = checked
        self._what = what
        self._rng = rng
        self._failures: dict[bytes, int] = {}
        self._busy: dict[bytes, None] = {}
        self._in_threads: dict[bytes, None] = {}
        self._limiter = trio.CapacityLimiter(MOST_THREADS)
        self._awaited = _is_coroutine_function(what.check)

    async def run(self) -> None:
        """Check all subjects again and again, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                subjects = {subject.incarnation: subject for subject in self._checked.subjects()}
                self._failures = {key: count for key, count in self._failures.items() if key in subjects}
                for incarnation, subject in subjects.items():
                    if incarnation not in self._busy:
                        self._busy[incarnation] = None
                        nursery.start_soon(self._check, subject)
                await trio.sleep(self._what.interval * self._rng.uniform(0.8, 1.2))

    async def _check(self, subject: Member) -> None:
        try:
            healthy, why = await self._ask(subject)
        finally:
            del self._busy[subject.incarnation]
        if healthy is None:
            return
        failures = 0 if healthy else self._failures.get(subject.incarnation, 0) + 1
        self._failures[subject.incarnation] = failures
        if failures == self._what.failures:
            self._log.warning("the application's check finds %s unhealthy: %s", subject.name, why)
        # Every time, not only when it changes: a core that has just got this subject knows nothing yet.
        self._checked.report_check(subject.incarnation, failures < self._what.failures)

    async def _ask(self, subject: Member) -> tuple[bool | None, str]:
        """Whether it is healthy and why not; None when nothing can be said."""
        try:
            with trio.move_on_after(self._what.timeout):
                if self._awaited:
                    result = self._what.check(subject)
                elif subject.incarnation in self._in_threads:
                    return False, "the check before has not returned yet"
                elif len(self._in_threads) >= MOST_THREADS:
                    return None, ""  # others' checks are stuck: that is no sign about this member
                else:
                    self._in_threads[subject.incarnation] = None
                    result = await trio.to_thread.run_sync(
                        self._in_thread, subject, trio.lowlevel.current_trio_token(),
                        limiter=self._limiter, abandon_on_cancel=True,
                    )  # fmt: skip
                if inspect.isawaitable(result):
                    result = await result
                return bool(result), "it said no"
        except Exception as error:  # whatever the application raises is its answer
            return False, f"{type(error).__name__}: {error}"
        return False, f"no answer within {self._what.timeout:g} s"

    def _in_thread(self, subject: Member, token: trio.lowlevel.TrioToken) -> bool | Awaitable[bool]:
        try:
            return self._what.check(subject)
        finally:
            _tell(token, lambda: self._in_threads.pop(subject.incarnation, None))


def _tell(token: trio.lowlevel.TrioToken, what: Callable[[], object]) -> None:
    """Have it done in trio's thread; a check that returns after the run has ended tells nobody."""
    try:
        token.run_sync_soon(what)
    except trio.RunFinishedError:
        return


def _is_coroutine_function(check: object) -> bool:
    return inspect.iscoroutinefunction(check) or inspect.iscoroutinefunction(
        getattr(type(check), "__call__", None)  # noqa: B004  # an object that can be awaited when called
    )

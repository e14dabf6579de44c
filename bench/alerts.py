"""When were the alerts of a crash complete? One definition for the simulator and for real processes.

What it is: a function of who observes whom and of the reports of failure detectors, with their times.
What it is not: a measurement; the backends note the reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar

from membership.configuration import Configuration

DEFINITION: Final = (
    "after the alerts: from the detector's report with which each faulty member had been found faulty on H rings "
    "(a ring whose observer is faulty itself counts), or from the last report before the end where observers with less "
    "evidence joined in, until the last survivor stands in the view without them"
)

Observers: TypeAlias = Mapping[str, Mapping[str, int]]
"""For each faulty member, its observers and on how many rings each observes it."""


class Report(Protocol):
    """A detector of `observer` has found `subject` faulty."""

    @property
    def seconds(self) -> float:
        """When."""

    @property
    def observer(self) -> str:
        """Name of the member whose detector it is."""

    @property
    def subject(self) -> str:
        """Name of the member found faulty."""


R = TypeVar("R", bound=Report)


def observers_of(view: Configuration, names: Iterable[str]) -> dict[str, dict[str, int]]:
    """Who observes these members of `view`."""
    found: dict[str, dict[str, int]] = {}
    for name in names:
        subject = view.member(name)
        assert subject is not None, name
        found[name] = {
            view.members[index].name: mask.bit_count() for index, mask in view.observer_masks(subject)
        }
    return found


def last_alert(
    observers: Observers, reports: Collection[R], high: int, before: float = float("inf")
) -> R | None:
    """The report that completed the alerts, of those made up to `before` (seconds); see DEFINITION."""
    made = sorted((report for report in reports if report.seconds <= before), key=lambda each: each.seconds)
    complete = alerts_complete(observers, made, high)
    return complete or next((report for report in reversed(made) if report.subject in observers), None)


def alerts_complete(observers: Observers, reports: Iterable[R], high: int) -> R | None:
    """The first report after which every faulty member had been found faulty on H rings; None if they never had."""
    missing = {
        subject: high - sum(rings for observer, rings in by.items() if observer in observers)
        for subject, by in observers.items()
    }
    counted: set[tuple[str, str]] = set()
    for report in reports:
        edge = (report.observer, report.subject)
        if report.subject not in observers or report.observer in observers or edge in counted:
            continue
        counted.add(edge)
        missing[report.subject] -= observers[report.subject].get(report.observer, 0)
        if all(count <= 0 for count in missing.values()):
            return report
    return None

"""When were the alerts of a crash complete? One definition for the simulator and for real processes.

A function of who observes whom and of their reports, with their times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar

from membership.protocol.view.configuration import Configuration

DEFINITION: Final = (
    "after the alerts: from the moment at which observers on H rings of each faulty member had reported it (a ring "
    "whose observer is faulty itself counts) until the last survivor stands in the view without them, batching "
    "included"
)

Observers: TypeAlias = Mapping[str, Mapping[str, int]]
"""For each faulty member, its observers and on how many rings each observes it."""


class Report(Protocol):
    """`observer` has reported `subject`."""

    @property
    def seconds(self) -> float:
        """When."""

    @property
    def observer(self) -> str:
        """Name of the member that reported."""

    @property
    def subject(self) -> str:
        """Name of the member that was reported."""


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


def alerts_complete(observers: Observers, reports: Iterable[R], high: int) -> R | None:
    """The first report, of these in order of time, after which all faulty members had been reported on H rings.

    None if they never had.
    """
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

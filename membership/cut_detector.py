"""Multi-process cut detection: when do the reports amount to one clean cut?

What it is: a pure function of the alert table. A subject is stable at H rings or more, unstable in [L, H),
noise below L; a cut is proposed when something is stable and nothing is unstable.
What it is not: agreement; almost everybody sees the same cut, and the view change settles the rest.
Source: Rapid section 4.2, with implicit alerts and reinforcement. Decided beyond it:

* A lone accuser is noise however many rings it holds (in small clusters one bad link covers several rings).
* Accusations by observers that are themselves accused neither hold up nor evict a subject that no healthy
  observer accuses. If that leaves nothing at all, because everybody involved is accused, the less accused are
  believed against the more accused.
* A joiner whose name or address is taken waits until its predecessor is stable, then goes into the same cut.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from membership.alert_table import AlertTable, JoinReport, RemovalReport
from membership.configuration import Configuration
from membership.cut import Cut, Removal
from membership.member import Member
from membership.settings import Settings

Key = int | bytes
"""A subject: canonical index of a member, or incarnation of a joiner."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the reports amount to: subjects by standing, in a deterministic order."""

    stable_removals: tuple[int, ...] = ()
    unstable_removals: tuple[int, ...] = ()
    stable_joins: tuple[bytes, ...] = ()
    unstable_joins: tuple[bytes, ...] = ()
    suspects: frozenset[int] = frozenset()
    """All members whose accusations count: stable or unstable."""

    @property
    def ready(self) -> bool:
        """Whether there is a cut to propose."""
        return bool(self.stable_removals or self.stable_joins) and not self.unstable

    @property
    def unstable(self) -> tuple[Key, ...]:
        """Everything that holds the cut up."""
        return self.unstable_removals + self.unstable_joins


class CutDetector:
    """Reads one configuration's alert table."""

    def __init__(self, configuration: Configuration, table: AlertTable, settings: Settings) -> None:
        self._configuration = configuration
        self._table = table
        self._high = settings.high_watermark
        self._low = settings.low_watermark

    def assess(self) -> Assessment:
        """The standing of every subject that counts."""
        suspects = self._suspects() if self._table.removals else {}
        stable: list[int] = []
        unstable: list[int] = []
        for subject, report in suspects.items():
            member = self._configuration.members[subject]
            tally = self._with_implicit(report.rings, member, suspects)
            (stable if tally >= self._high else unstable).append(subject)
        stable_joins, unstable_joins = self._assess_joins(suspects, stable)
        return Assessment(
            tuple(sorted(stable)),
            tuple(sorted(unstable)),
            tuple(stable_joins),
            tuple(unstable_joins),
            frozenset(suspects),
        )

    def cut(self, assessment: Assessment) -> Cut:
        """The cut of an assessment that is ready."""
        removals = [
            Removal(
                self._configuration.members[subject].incarnation, bool(self._table.removals[subject].leaves)
            )
            for subject in assessment.stable_removals
        ]
        return Cut.of(self._joins_without_clashes(assessment), removals)

    def noise(self) -> list[RemovalReport]:
        """Reports about members that do not count, alone or in number."""
        return [report for report in self._table.removals.values() if not self._counts(report)]

    # Removals.

    def _counts(self, report: RemovalReport) -> bool:
        if report.rings.bit_count() < self._low:
            return False
        if report.leaves:
            return True  # first hand: the subject said so itself
        masks = self._configuration.observer_masks(self._configuration.members[report.subject])
        return len(masks) == 1 or sum(1 for _, mask in masks if mask & report.rings) > 1

    def _suspects(self) -> dict[int, RemovalReport]:
        counted = {
            subject: report for subject, report in self._table.removals.items() if self._counts(report)
        }
        believed = {
            subject: report
            for subject, report in counted.items()
            if report.leaves or any(accuser not in counted for accuser in self._accusers(report))
        }
        if believed or not counted:
            return believed
        # Everybody who accuses is accused. Believe those less accused than their subject.
        tally = {subject: report.rings.bit_count() for subject, report in counted.items()}
        return {
            subject: report
            for subject, report in counted.items()
            if any(tally[accuser] < tally[subject] for accuser in self._accusers(report))
        }

    def _accusers(self, report: RemovalReport) -> Iterator[int]:
        member = self._configuration.members[report.subject]
        for observer, mask in self._configuration.observer_masks(member):
            if mask & report.rings:
                yield observer

    def _with_implicit(self, rings: int, subject: Member, suspects: dict[int, RemovalReport]) -> int:
        """Rings that reported, counting suspected observers as if they had (Rapid: implicit alerts)."""
        tally = rings.bit_count()
        if tally >= self._high or not suspects:
            return tally
        for observer, mask in self._configuration.observer_masks(subject):
            if observer in suspects:
                tally += (mask & ~rings).bit_count()
        return tally

    # Joins.

    def _assess_joins(
        self, suspects: dict[int, RemovalReport], stable_removals: list[int]
    ) -> tuple[list[bytes], list[bytes]]:
        going = frozenset(stable_removals)
        stable = [
            incarnation
            for incarnation, report in self._table.stable_joins.items()
            if not _blocked(report, going)
        ]
        unstable: list[bytes] = []
        for incarnation, report in self._table.unstable_joins.items():
            if _blocked(report, going):
                continue
            tally = self._with_implicit(report.rings, report.member, suspects)
            (stable if tally >= self._high else unstable).append(incarnation)
        return stable, unstable

    def _joins_without_clashes(self, assessment: Assessment) -> list[Member]:
        # Two incarnations of one process can both be stable, when it restarted while it joined. One goes in,
        # chosen alike by everybody; the other is told, and asks again.
        joins: list[Member] = []
        names: set[str] = set()
        addresses: set[tuple[str, int]] = set()
        for incarnation in sorted(assessment.stable_joins):
            member = self._table.joins[incarnation].member
            if member.name not in names and member.address not in addresses:
                joins.append(member)
                names.add(member.name)
                addresses.add(member.address)
        return joins

    def missing_rings(self, key: Key) -> int:
        """Rings of a subject that have not reported."""
        report: JoinReport | RemovalReport
        if isinstance(key, bytes):
            report, member = self._table.joins[key], self._table.joins[key].member
        else:
            report, member = self._table.removals[key], self._configuration.members[key]
        missing = 0
        for _, mask in self._configuration.observer_masks(member):
            missing |= mask & ~report.rings
        return missing


def _blocked(report: JoinReport, going: frozenset[int]) -> bool:
    return any(index not in going for index in report.conflicts)

"""Multi-process cut detection: when do the reports amount to one clean cut?

A pure function of the alert table. A subject is stable at H rings or more, unstable in [L, H), noise below L. A cut is
proposed when something is stable and nothing is unstable. Almost all members see the same cut; where they differ, the
view change settles it.
Source: Rapid, section 4.2, with implicit alerts and reinforcement. Added to the paper:

* A lone accuser is noise, however many rings it holds, while another observer that is not suspected itself is silent
  (in small clusters one bad link covers several rings).
* Accusations by observers that are themselves accused neither hold up nor evict a subject that no healthy observer
  accuses. If everybody involved is accused, the less accused are believed against the more accused.
* A joiner whose name or address is taken is reported by observers that find its predecessor silent. Once it is stable,
  it takes the predecessor's place in one cut. If the observers differ, it does not hold up others for long.
"""

from collections.abc import Collection
from dataclasses import dataclass

from membership.address import Address
from membership.protocol.cut_detection.alert_table import AlertTable, JoinReport, RemovalReport
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut, Removal, Update
from membership.protocol.view.member import Member
from membership.settings import Settings

_MANY_JOINS = 16


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the reports amount to: subjects by standing.

    While a joiner is unstable there is nothing to propose, and the joins are not listed: there may be thousands.
    """

    stable_removals: tuple[int, ...] = ()
    unstable_removals: tuple[int, ...] = ()
    stable_joins: tuple[bytes, ...] = ()
    replaced: frozenset[int] = frozenset()
    """Members whose places stable joiners take."""
    joins_unstable: bool = False
    suspects: frozenset[int] = frozenset()
    """All members whose accusations count: stable or unstable."""
    awaited: int = 0
    """Reports that the unstable removals still lack, all together."""

    @property
    def ready(self) -> bool:
        """Whether there is a cut to propose."""
        return bool(self.stable_removals or self.stable_joins) and not self.held_up

    @property
    def held_up(self) -> bool:
        """Whether anything is unstable."""
        return self.joins_unstable or bool(self.unstable_removals)


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
        unstable: dict[int, int] = {}
        for subject, report in suspects.items():
            member = self._configuration.members[subject]
            tally = self._with_implicit(report.rings, member, suspects)
            if tally >= self._high:
                stable.append(subject)
            else:
                unstable[subject] = self._high - tally
        # Predecessors of restarted processes observe others on some rings, and will never report them.
        absent = {*suspects, *(i for join in self._table.contested_joins.values() for i in join.conflicts)}
        taking, waiting = self._contested_joins(absent, stable)
        replaced = frozenset(index for report in taking.values() for index in report.conflicts)
        joins = None if waiting else self._stable_joins(absent)
        return Assessment(
            tuple(sorted(stable)),
            tuple(sorted(subject for subject in unstable if subject not in replaced)),
            () if joins is None else (*self._table.stable_joins, *joins, *taking),
            replaced,
            joins is None,
            frozenset(suspects),
            sum(lacking for subject, lacking in unstable.items() if subject not in replaced),
        )

    @property
    def is_costly(self) -> bool:
        """Whether `assess` has many joiners to look at: then once per gossip tick is enough."""
        return bool(self._table.removals) and len(self._table.unstable_joins) > _MANY_JOINS

    def cut(self, assessment: Assessment) -> Cut:
        """The cut of an assessment that is ready."""
        members = self._configuration.members
        joins = self._joins_without_clashes(assessment)
        removals = [
            _removal(members[subject], self._table.removals[subject])
            for subject in assessment.stable_removals
        ]
        if len(removals) == len(members) and not joins and all(removal.left for removal in removals):
            del removals[0]  # somebody has the next view, and leaves it alone
        gone = {removal.incarnation for removal in removals}
        for joiner in joins:
            for subject in self._table.joins[joiner.incarnation].conflicts:
                if members[subject].incarnation not in gone:
                    gone.add(members[subject].incarnation)
                    removals.append(Removal(members[subject].incarnation))
        updates = [
            Update(incarnation, self._table.joins[incarnation].member.metadata)
            for incarnation in assessment.stable_joins
            if incarnation not in gone and self._configuration.index_of_incarnation(incarnation) is not None
        ]
        return Cut.of(joins, removals, updates)

    def tally(self, subject: int, suspects: Collection[int]) -> int:
        """Rings that count against a reported member: those that reported, and those of suspected observers."""
        rings = self._table.removals[subject].rings
        return self._with_implicit(rings, self._configuration.members[subject], suspects)

    def noise(self) -> list[RemovalReport]:
        """Reports about members that do not count, alone or in number."""
        counted = self._counted()
        return [report for report in self._table.removals.values() if report.subject not in counted]

    # Removals.

    def _counted(self) -> dict[int, RemovalReport]:
        """Members at L or more, without those that a lone accuser reports.

        A lone accuser, or a tally below L, counts after all when every other observer of the subject is under
        suspicion itself: nobody is left who could report it, as when nearly half of the members died at once.
        """
        counted: dict[int, RemovalReport] = {}
        lone: dict[int, RemovalReport] = {}
        for subject, report in self._table.removals.items():
            # A request is first hand: the subject said so itself, or an operator did.
            several = len(report.accusers) > 1 or report.requested
            enough = several and report.rings.bit_count() >= self._low
            (counted if enough else lone)[subject] = report
        added = True
        while lone and added:
            confirmed = {
                subject: report
                for subject, report in lone.items()
                if all(map(counted.__contains__, report.silent))
            }
            counted |= confirmed
            lone = {subject: report for subject, report in lone.items() if subject not in confirmed}
            added = bool(confirmed)
        return counted

    def _suspects(self) -> dict[int, RemovalReport]:
        counted = self._counted()
        believed = {
            subject: report
            for subject, report in counted.items()
            if report.requested or any(accuser not in counted for accuser in report.accusers)
        }
        if believed or not counted:
            return believed
        # Everybody who accuses is accused. Believe those less accused than their subject.
        tally = {subject: report.rings.bit_count() for subject, report in counted.items()}
        return {
            subject: report
            for subject, report in counted.items()
            if any(tally[accuser] < tally[subject] for accuser in report.accusers)
        }

    def _with_implicit(self, rings: int, subject: Member, absent: Collection[int]) -> int:
        """Rings that reported, counting suspected observers as if they had (Rapid: implicit alerts)."""
        tally = rings.bit_count()
        if tally >= self._high or not absent:
            return tally
        for observer, mask in self._configuration.observer_masks(subject):
            if observer in absent:
                tally += (mask & ~rings).bit_count()
        return tally

    # Joins.

    def _contested_joins(
        self, absent: Collection[int], stable_removals: Collection[int]
    ) -> tuple[dict[bytes, JoinReport], bool]:
        """Joiners that may take a member's place now; and whether another one is worth waiting for.

        It is for a while, since several processes may restart together, and when its predecessors are going
        anyway: then one cut does for all.
        """
        taking: dict[bytes, JoinReport] = {}
        waiting = False
        for incarnation, report in self._table.contested_joins.items():
            tally = self._with_implicit(report.rings, report.member, absent)
            if tally >= self._high and not self._is_lone_report(report, absent):
                taking[incarnation] = report
            elif not report.overdue or all(index in stable_removals for index in report.conflicts):
                waiting = True
        return taking, waiting

    def _is_lone_report(self, report: JoinReport, absent: Collection[int]) -> bool:
        """Whether one observer alone says so, and another one that could say it too is silent."""
        masks = self._configuration.observer_masks(report.member)
        reporting = sum(1 for _, mask in masks if mask & report.rings)
        silent = any(not mask & report.rings and observer not in absent for observer, mask in masks)
        return reporting < 2 and silent

    def _stable_joins(self, absent: Collection[int]) -> tuple[bytes, ...] | None:
        """Joiners that are stable beyond `table.stable_joins`; None if any joiner is unstable."""
        table = self._table
        if not absent:
            return None if table.unstable_joins else ()
        stable = []
        for incarnation, report in table.unstable_joins.items():
            if self._with_implicit(report.rings, report.member, absent) < self._high:
                return None
            stable.append(incarnation)
        return tuple(stable)

    def _joins_without_clashes(self, assessment: Assessment) -> list[Member]:
        # Two incarnations of one process can both be stable, when it restarted while it joined. One goes in,
        # chosen alike by everybody; the other is told, and asks again.
        joins: list[Member] = []
        taken: set[str | Address | bytes] = set()
        for incarnation in sorted(assessment.stable_joins):
            member = self._table.joins[incarnation].member
            if member in self._configuration:
                continue  # new metadata of somebody who is in
            if taken.isdisjoint(member.claims):
                joins.append(member)
                taken |= member.claims
        return joins


def _removal(member: Member, report: RemovalReport) -> Removal:
    left = bool(report.leaves)
    return Removal(member.incarnation, left, bool(report.evictions) and not left)

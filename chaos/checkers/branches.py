"""What becomes of the branches of a chain of views after recoveries: which goes on, and who should have come over.

Pure functions of who runs, where each process stands, and the latest view of each branch. That branches never merge
is an invariant; that two are left is not: an operator may well leave two behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from chaos.checkers.invariants import Lineage
from membership.protocol.recovery.operator_recovery import continues
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member

Standing = Mapping[Member, Configuration | None]
"""The processes that run, and the view in which each stands."""
LatestOf = Callable[[Lineage], Configuration]


def majority_runs(view: Configuration, running: Iterable[Member]) -> bool:
    """Whether a majority of the very incarnations in this view still runs."""
    return 2 * sum(member in view for member in running) > len(view)


def some_branch_goes_on(standing: Standing, latest_of: LatestOf) -> bool:
    """Whether a branch has a majority that still runs, both of its latest view and of the last one anybody stands in.

    A view may have died with the only processes that had it. Whoever stood in the one before can then only decide
    again, which takes a majority of that one; and nobody may stand in its branch at all.
    """
    last: dict[Lineage, Configuration] = {}
    for view in standing.values():
        if view is not None and (view.lineage not in last or view.epoch > last[view.lineage].epoch):
            last[view.lineage] = view
    return any(
        majority_runs(view, standing) and majority_runs(latest_of(lineage), standing)
        for lineage, view in last.items()
    )


def branch_to_keep(standing: Standing, latest_of: LatestOf) -> Lineage:
    """What an operator keeps: a branch that can go on, if one can; of these the last recovery, and then the larger."""
    sizes: dict[Lineage, int] = {}
    for view in standing.values():
        if view is not None:
            sizes[view.lineage] = sizes.get(view.lineage, 0) + 1

    def worth(lineage: Lineage) -> tuple[bool, int, int, Lineage]:
        return majority_runs(latest_of(lineage), standing), len(lineage), sizes[lineage], lineage

    return max(sizes, key=worth, default=())


def given_up(standing: Standing, kept: Lineage) -> list[Member]:
    """Who stands in another branch than the kept one."""
    return [member for member, view in standing.items() if view is not None and view.lineage != kept]


def strays(standing: Standing, kept: Lineage) -> list[Member]:
    """Who should have come over by itself: the kept branch was recovered from its own, and the view it stands in has
    a member that stands there."""
    there = [member for member, view in standing.items() if view is not None and view.lineage == kept]
    return [
        member
        for member, view in standing.items()
        if view is not None
        and view.lineage != kept
        and continues(kept, view.lineage)
        and any(other in view for other in there)
    ]

"""The decision table: which engine solves which assignment.

1. Min-cost flow, where the assignment is a network; not asked where few rows of different amounts meet many values.
   Where the first tiers are one: that for these, and what follows for the rows that these leave open.
2. Rows that have no room at all, or limits that want what nothing can bring: infeasible, no engine.
3. Today's choice, or a greedy one, that meets the closed-form bounds: a proof, no engine.
   Where using values costs something: first fit decreasing, below several heights of a peak that is paid for, too.
4. Where peaks are to be brought down: exchanges of rows; they may meet these bounds too.
5. Where rows may stay without a value: places are found for them, at the cost of others that matter less.
6. The linear relaxation bounds each tier.  Rounded, or solved in whole numbers over its core problem (the cells of low
   reduced cost: Balas and Zemel 1980), or improved by exchanges where the tier is a sum, it may meet these bounds: a
   proof.  So is an optimum over all cells whose reduced cost is less than what is missing to the bound.
7. Up to some thousand cells: CP-SAT, from the best choice so far and with these bounds.
8. More cells than that: exchanges find a choice where there is none yet; large neighbourhoods of the best choice are
   decided anew, until the time ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Indices,
    Limit,
    LoadCost,
    Pairs,
    Placement,
)
from mgmt.optimization.contradictions import contradicted
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import flow
from mgmt.optimization.engines.construction import first_fit, greedy, rounded
from mgmt.optimization.engines.flow.leading_tiers import solve_leading_tiers
from mgmt.optimization.engines.incumbent import Incumbent
from mgmt.optimization.engines.integer_programming import cp_sat, highs
from mgmt.optimization.engines.integer_programming.count_model import CountModel
from mgmt.optimization.engines.integer_programming.count_terms import Sum
from mgmt.optimization.engines.integer_programming.linear_relaxation import Relaxation, Relaxed
from mgmt.optimization.engines.local_search.ejection import ejections
from mgmt.optimization.engines.local_search.exchanges import exchanged, peaks_of, repaired
from mgmt.optimization.engines.local_search.neighbourhoods import nearby
from mgmt.optimization.engines.lower_bounds.closed_form import (
    bounds_of,
    limits_below,
    peak_bounds,
    wide_bound,
    wide_peak_bounds,
)
from mgmt.optimization.engines.model.cells import Cells, cells_of
from mgmt.optimization.engines.model.cost_functions import Affine, UnsuitableError, widest_shape
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses, equivalence_classes
from mgmt.optimization.engines.presolve.candidates import candidates_of
from mgmt.optimization.engines.presolve.fixing import without_implied
from mgmt.optimization.engines.presolve.normal_form import normal_form
from mgmt.optimization.engines.presolve.value_restriction import restricted

_MOST_FOR_CP_SAT = 6_000
_MOST_WITHOUT_A_CHOICE = 60_000
"""With no choice known CP-SAT is asked for one up to this size."""
_ALWAYS = 50_000
"""Cells that are looked at in the simple ways even when the time has ended."""
_FEW_CELLS = 300
"""Solved whole sooner than a flow is built for the first tiers; open ones sooner than exchanges find out."""
_MOST_CELLS = 400_000
_MOST_WRITTEN = 2_000_000
"""Cells that are written down at all."""
_MOST_TABLED = 60_000
"""Places of loads at which a cost is neither linear nor convex: each is a table for a solver."""
_MOST_PACKED = 5_000
"""Rows that are packed one by one."""
_PACKING_SHARE = 0.1
"""Of the time, for packing under limits on a peak."""
_HEIGHTS = 8
"""So many of these."""
_LEAST_SECONDS = 0.02
_ROOM_SHARE = 0.4
"""Of the time, for finding places for rows that may stay without one."""
_ROUNDING_SHARE = 0.2
"""Of the time that is left, for what comes after a relaxation that no solver comes after."""
_NARROW = 0.5
"""Candidates that are no more of the values than this have an assignment of their own."""
_EXCHANGES_SHARE = 0.85
"""Of the time, for exchanges where the objective is to bring down peaks."""
_SUMS_SHARE = 0.3
"""Of the time that is left then, for exchanges where it is a sum."""
_FAR = 0.1
"""A gap that is too large for another turn of CP-SAT."""
_FAR_SHARE = 0.9
"""Of the time that is left then, for exchanges from the choice that CP-SAT began with."""
_LATER_SHARE = 0.6
"""Of the time, for what comes after CP-SAT has been asked once."""
_CORE = 4
"""Cells per row in the core problem."""
_CORE_SHARE = 0.12
"""Of the time that is left, for the core problem."""


def solve(
    assignment: Assignment, *, deadline: Deadline, seed: int, workers: int = 1, preferred: Pairs | None = None
) -> Placement:
    """The best placement found in about that time, with a bound per tier.

    Of placements that are as good, one that moves rows in ``preferred`` pairs only is taken, where a flow finds it.

    ``choice`` is None when there provably is none.  Raises SolveTimeout when neither a placement nor that proof was
    found in time, and UnsuitableError when the assignment is for no engine here.  The answer depends on the seed
    alone wherever the time did not end first.
    """
    if not assignment.rows or not assignment.values:
        return _nothing_to_choose(assignment)
    assignment = normal_form(assignment)
    notes = []
    if assignment.conditions:
        notes.append("no network: there are conditions besides limits")
    elif _fills_up(assignment):
        notes.append("no network: amounts differ from row to row, and there are more values than rows")
    else:
        try:
            return flow.solve(assignment, preferred, deadline)  # exact at any size, so asked first
        except flow.LateFlowError as reason:
            if assignment.rows * assignment.values > _MOST_CELLS:  # for what comes now it is too late, too
                raise SolveTimeout(f"no placement was found in the time given: {reason}") from reason
            notes.append(str(reason))
        except flow.NotAFlowError as reason:
            notes.append(f"no network: {reason}")

            if assignment.rows * assignment.values <= _FEW_CELLS:
                return by_cells(assignment, notes, deadline=deadline, seed=seed, workers=workers)

            def rest(left: Assignment, start: Indices, bounds: tuple[int, ...]) -> Placement:
                known = (start, bounds)
                return by_cells(left, [], deadline=deadline, seed=seed, workers=workers, known=known)

            found = solve_leading_tiers(assignment, deadline, rest)
            if found is not None:
                return replace(found, notes=(*notes, *found.notes))
    return by_cells(assignment, notes, deadline=deadline, seed=seed, workers=workers)


def by_cells(
    assignment: Assignment,
    notes: list[str],
    *,
    deadline: Deadline,
    seed: int,
    workers: int,
    known: tuple[Indices, tuple[int, ...]] | None = None,
) -> Placement:
    """The rows of the table after the first; ``known`` is a choice, and bounds of the first tiers."""
    if not assignment.rows:
        return _nothing_to_choose(assignment)
    try:
        return _by_classes(assignment, notes, deadline, seed, workers, known)
    except TimeoutError:
        best = Incumbent(assignment, [None] * len(assignment.tiers), notes)
        best.begin(known)
        return best.placement("nothing, in the time given")


def _by_classes(
    assignment: Assignment,
    notes: list[str],
    deadline: Deadline,
    seed: int,
    workers: int,
    known: tuple[Indices, tuple[int, ...]] | None,
) -> Placement:
    classes = equivalence_classes(assignment)
    notes.append(f"{assignment.rows} rows are {classes.number} classes")
    if assignment.rows >= assignment.values and classes.number * assignment.values > _MOST_WRITTEN:
        return without_cells(classes, notes, deadline=deadline, seed=seed, known=known)
    simple = deadline.if_more(classes.number * assignment.values, _ALWAYS)
    candidates = candidates_of(classes, simple)
    notes.append(candidates.note)
    today = assignment.current[assignment.current >= 0]
    begun = np.zeros(0, np.int32) if known is None else known[0][known[0] >= 0]
    values = np.unique(np.concatenate((candidates.value, today, begun)))
    if not len(values) or len(values) > _NARROW * assignment.values:
        cells = cells_of(classes, candidates.class_, candidates.value, simple)
        return _among(cells, notes, deadline, seed, workers, known)
    place = np.searchsorted(values, candidates.value).astype(np.int32)
    cells = cells_of(restricted(classes, values), candidates.class_, place, simple)
    if known is not None:
        start = np.where(known[0] >= 0, np.searchsorted(values, known[0]), NONE)
        known = start.astype(np.int32), known[1]
    found = _among(cells, notes, deadline, seed, workers, known)
    if found.choice is None:
        return found
    return replace(found, choice=np.append(values, NONE)[found.choice].astype(np.int32))


def without_cells(
    classes: EquivalenceClasses,
    notes: list[str],
    *,
    deadline: Deadline,
    seed: int,
    known: tuple[Indices, tuple[int, ...]] | None = None,
) -> Placement:
    """Many rows among many values: a flow that leaves some tiers out, then exchanges, and no array over both.

    Written out, 10 000 rows of different amounts and 1000 values would be ten million cells.
    """
    assignment = classes.assignment
    few = replace(
        assignment, limits=tuple(without_implied(assignment.limits))
    )  # no more than what says something
    best = Incumbent(assignment, [wide_bound(classes, tier) for tier in range(len(assignment.tiers))], notes)
    search = _Search(replace(classes, assignment=few), None, best, deadline, seed)
    best.begin(known)
    if known is None:
        best.offer_all(_by_flow(few, deadline), "min-cost flow of some tiers")
    if best.choice is None:
        search.repair(deadline)
    search.exchange(1.0)
    return best.placement("closed-form bounds")


def _by_flow(assignment: Assignment, deadline: Deadline) -> Iterator[Indices]:
    """The best by those tiers that are a network, if the limits are one."""
    tiers = [tier for number, tier in enumerate(assignment.tiers) if peaks_of(assignment, number) is None]
    with suppress(flow.NotAFlowError):
        found = flow.solve(replace(assignment, tiers=tuple(tiers)), None, deadline)
        if found.choice is not None:
            yield found.choice


def _among(
    cells: Cells,
    notes: list[str],
    deadline: Deadline,
    seed: int,
    workers: int,
    known: tuple[Indices, tuple[int, ...]] | None,
) -> Placement:
    """The best among these cells."""
    if not may_be_feasible(cells):
        return Placement(None, (), (), "none: some rows or limits have no room at all", tuple(notes))
    best = Incumbent(cells.classes.assignment, bounds_of(cells, deadline.if_more(len(cells), _ALWAYS)), notes)
    search = _Search(cells.classes, cells, best, deadline, seed, workers)
    best.begin(known)
    try:
        return search.run()
    except TimeoutError:
        return best.placement(search.proof, search.size)


def _tabled_places(cells: Cells) -> int:
    """For how many places of loads solvers would be given a cost that is neither linear nor convex."""
    number = 0
    for cost in (cost for tier in cells.classes.assignment.tiers for cost in tier.costs if cost.weight):
        if not isinstance(cost, LoadCost) or cost.peak:
            continue
        with suppress(UnsuitableError):
            shape = widest_shape(cells.classes, cost)
            if not isinstance(shape, Affine) and not (cost.weight > 0 and shape.convex()):
                number += len(shape.most)
    return number


def _nothing_to_choose(assignment: Assignment) -> Placement:
    """No rows, or no values."""
    choice = np.full(assignment.rows, NONE, np.int32)
    if any(assignment.broken(choice)):
        return Placement(
            None, (), (), "none: rows that must have a value, or limits that want some, find none"
        )
    worth = assignment.worth(choice)
    return Placement(choice, worth, worth, "none needed: there is nothing to choose")


def _fills_up(assignment: Assignment) -> bool:
    """Whether amounts that differ matter more than counts: few rows among many values, filling the best of them.

    A flow counts where amounts differ, and its answer is none if it breaks a limit; here it most likely would.
    """
    if assignment.rows >= assignment.values:
        return False
    weights = (limit.load.weight[limit.load.group >= 0] for limit in assignment.limits)
    return any(len(np.unique(weight[weight > 0])) > 1 for weight in weights)


def may_be_feasible(cells: Cells) -> bool:
    """False when rows have no room in their cells, or a limit wants more than these bring, or less than they must."""
    if not cells.enough:
        return False
    for limit in cells.classes.assignment.limits:
        lower, upper = (bounds.reshape(-1) for bounds in limit.bounds)
        if bool((upper < 0).any()) or bool((lower > upper).any()):
            return False
        place, weight = cells.places(limit.load)
        counted = place != NONE
        highest = np.zeros(len(lower), np.int64)
        np.add.at(highest, place[counted], (weight * cells.most)[counted])
        if bool((lower > highest).any()) or _overfull(cells, limit, place):
            return False
    return True


def _overfull(cells: Cells, limit: Limit, place: Amounts) -> bool:
    """Whether the rows that can only be in buckets of a limit bring some group more than these may have."""
    classes = cells.classes
    own = classes.group(limit.load)
    own[cells.class_[(place == NONE) & (cells.most > 0)]] = NONE
    inside = (place != NONE) & (own[cells.class_] != NONE)
    brings = np.zeros(limit.load.groups, np.float64)
    np.add.at(brings, own[own != NONE], (classes.weight(limit.load) * classes.count)[own != NONE])
    used = np.unique(place[inside])
    room = np.zeros(limit.load.groups, np.float64)
    np.add.at(room, used // limit.load.buckets, limit.bounds[1].reshape(-1)[used])
    # In floating point; what is so near that it could be rounding is left to the engines.
    return bool((brings > room * (1 + 1e-9)).any())


@dataclass(slots=True)
class _Search:
    """The steps of the table, each of which improves the incumbent or its bounds."""

    classes: EquivalenceClasses
    _cells: Cells | None
    best: Incumbent
    deadline: Deadline
    seed: int
    workers: int = 1
    size: int = 0
    """Variables of the largest model that a solver was given."""
    proof: str = "closed-form bounds"
    """What bounds the tiers."""

    @property
    def cells(self) -> Cells:
        assert self._cells is not None
        return self._cells

    @property
    def simple(self) -> Deadline:
        """Until when the simple ways are tried."""
        return self.deadline.if_more(len(self.cells), _ALWAYS)

    def run(self) -> Placement:
        """The best among the cells.  Raises TimeoutError where the deadline passes within a step."""
        best = self.best
        if not best.proven:
            best.offer(greedy(self.classes, self.simple), "greedy")
        self.pack()
        self.narrow()
        if best.proven:
            return best.placement(self.proof, self.size)
        if len(self.cells) - self.classes.number > _FEW_CELLS:  # else CP-SAT decides it sooner
            self.exchange(_EXCHANGES_SHARE, sums=False)
        self.ejections()
        if best.proven:
            return best.placement(self.proof, self.size)
        if len(self.cells) > _MOST_CELLS:
            best.notes.append(f"{len(self.cells)} cells are more than any solver here takes")
            if best.choice is None:
                raise UnsuitableError(best.notes[-1])
            return best.placement(self.proof, self.size)
        places = _tabled_places(self.cells)
        if places > _MOST_TABLED:
            best.notes.append(
                f"{places} places of costs that are not linear are more than any solver here takes"
            )
            if best.choice is None:
                self.repair(self.deadline.part(0.5))
            self.exchange(1.0, sums=True)
            return best.placement(self.proof, self.size)
        if not self.relax():
            proof = "none: the linear relaxation has no solution"
            return Placement(None, (), (), proof, tuple(best.notes), self.size)
        self.proof = "the linear relaxation"
        self.narrow()
        if best.proven:
            return best.placement(self.proof, self.size)
        number = len(self.cells)
        if number <= _MOST_FOR_CP_SAT or (best.choice is None and number <= _MOST_WITHOUT_A_CHOICE):
            return self.by_cp_sat()
        if best.choice is None:
            self.repair(self.deadline.part(0.5))
        best.offer_all(
            nearby(self.cells, best, deadline=self.deadline, seed=self.seed, workers=self.workers),
            "large neighbourhoods",
        )
        return best.placement(self.proof, self.size)

    def narrow(self) -> None:
        """Drop cells that no optimum has: dearer than others in a tier that is as cheap as each row can be."""
        best, number = self.best, len(self.cells)
        if best.choice is None:
            return
        for at, tier in enumerate(self.classes.assignment.tiers):
            if not best.meets(at):
                break
            costs, class_ = self.cells.costs[at], self.cells.class_
            least = np.minimum.reduceat(costs, np.searchsorted(class_, np.arange(self.classes.number)))
            if best.worth[at] == tier.constant + int((least * self.classes.count).sum()) and not any(
                isinstance(cost, LoadCost) and cost.weight for cost in tier.costs
            ):
                self._cells = self.cells.only(costs == least[class_])
        if len(self.cells) < number:
            best.notes.append(
                f"{len(self.cells)} of {number} cells are as cheap as can be in the first tiers"
            )
            for at, floor in enumerate(bounds_of(self.cells, self.simple)):
                best.raise_bound(at, floor)

    def ejections(self) -> None:
        """Find places for rows without one, if the first tier is not proven and some may stay without."""
        best, current = self.best, self.classes.assignment.current
        if best.choice is None or best.open_tier != 0 or bool((best.choice != NONE).all()):
            return
        starts = [best.choice]
        if not any(self.classes.assignment.broken(current)):
            starts.insert(0, current)
        ends = [self.deadline.part(_ROOM_SHARE * (number + 1) / len(starts)) for number in range(len(starts))]
        for start, until in zip(starts, ends, strict=True):
            best.offer_all(ejections(self.classes, start, deadline=until), "making room")

    def pack(self) -> None:
        """Use few values, if the first tier that is not proven is a sum over loads that is not convex.

        Where it has a peak as well, under several limits on that (the epsilon-constraint method).
        """
        classes, best, tier = self.classes, self.best, self.best.open_tier
        if tier is None or classes.assignment.rows > _MOST_PACKED:
            return
        costs = [cost for cost in classes.assignment.tiers[tier].costs if isinstance(cost, LoadCost)]
        prices = [
            price for cost in costs if not cost.peak and (price := _opening_prices(classes, cost)) is not None
        ]
        if not prices:
            return
        total = np.add.reduce(prices)
        best.offer_all(first_fit(classes, total, self.simple), "first fit decreasing")
        with suppress(UnsuitableError):
            for peak in (cost for cost in costs if cost.peak and cost.weight > 0):
                best.offer_all(self._packed_below(peak, total), "first fit decreasing")

    def _packed_below(self, peak: LoadCost, prices: Amounts) -> Iterator[Indices]:
        """What first fit finds where a peak is no higher than several heights up to that of the best choice."""
        classes, until = self.classes, self.deadline.part(_PACKING_SHARE)
        assert self.best.choice is not None
        highest = int(np.max(peak.cost(tuple(load.of(self.best.choice) for load in peak.loads))))
        heights = np.linspace(peak_bounds(self.cells, [peak])[0], highest, _HEIGHTS).astype(np.int64)
        for height in np.unique(heights).tolist():
            limits = (*classes.assignment.limits, *limits_below(self.cells, peak, height))
            below = replace(classes, assignment=replace(classes.assignment, limits=limits))
            for choice in first_fit(below, prices):
                yield choice
                if until.passed:
                    return

    def repair(self, deadline: Deadline) -> None:
        """Find a choice where nothing else has; raises SolveTimeout when there is none."""
        self.best.offer(repaired(self.classes, deadline=deadline, seed=self.seed), "repair by exchanges")
        if self.best.choice is None:
            raise SolveTimeout("no placement was found in the time given")

    def exchange(self, share: float, *, sums: bool | None = None, start: Indices | None = None) -> None:
        """Exchange rows for a share of the time left, if the first tier that is not proven is of peaks, or of sums.

        ``start`` is where to begin, if not at the incumbent.
        """
        classes, best, tier = self.classes, self.best, self.best.open_tier
        start = best.choice if start is None else start
        if start is None or tier is None:
            return
        peaks = peaks_of(classes.assignment, tier)
        if sums is not None and (peaks is None) != sums:
            return
        known_bounds: list[int] = []
        if peaks is not None:
            known_bounds = (
                wide_peak_bounds(classes, peaks) if self._cells is None else peak_bounds(self.cells, peaks)
            )
        until = self.deadline.part(share)
        best.offer_all(
            exchanged(classes, start, tier, known_bounds, deadline=until, seed=self.seed), "exchanges"
        )

    def by_cp_sat(self) -> Placement:
        """CP-SAT on all cells; what it does not prove soon goes on from what exchanges make of its choice.

        Where the bound is far away they begin once more where CP-SAT did: its own choice is often one that no exchange
        betters.
        """
        first = self.best.choice
        try:
            found = self._ask_cp_sat(self.deadline.part(1 - _LATER_SHARE))
        except SolveTimeout:
            if self.best.choice is None:
                with suppress(SolveTimeout):
                    self.repair(self.deadline.part(0.5))
        else:
            if found.choice is None or found.proven:
                return self._decided(found)
            self.best.offer(found.choice, found.engine, quietly=True)
            for tier, (worth, bound) in enumerate(zip(found.worth, found.bounds, strict=True)):
                self.best.raise_bound(tier, bound)
                if worth != bound:
                    break  # further bounds hold for that worth alone
        if first is not None and self.best.gap > _FAR:
            self.exchange(_FAR_SHARE, sums=True, start=first)
        else:
            self.exchange(_SUMS_SHARE, sums=True)
        return self._decided(self._ask_cp_sat(self.deadline))

    def _ask_cp_sat(self, deadline: Deadline) -> Placement:
        found = cp_sat.solve(
            self.cells,
            hint=self.best.choice,
            known_bounds=self.best.bounds,
            deadline=deadline,
            seed=self.seed,
            workers=self.workers,
        )
        self.size = max(self.size, found.solver_variables)
        return found

    def _decided(self, found: Placement) -> Placement:
        best, engine = self.best, found.engine
        if found.choice is best.choice and found.choice is not None and best.found_by != engine:
            engine = f"{best.found_by}; bounds by {engine}"
        return replace(found, engine=engine, notes=tuple(best.notes), solver_variables=self.size)

    def relax(self) -> bool:
        """Bounds and choices from the linear relaxation, tier by tier; False when there is no solution."""
        cells, best = self.cells, self.best
        model = CountModel(cells, self.deadline)
        relaxation = Relaxation(model)
        kept = 1 / 2 if len(cells) <= _MOST_FOR_CP_SAT else 1 - _ROUNDING_SHARE
        if best.choice is None and not self.classes.assignment.tiers:
            relaxed = relaxation.minimize(Sum(0, [], []), None, self.deadline.part(kept))
            counts = None if relaxed is None else relaxed.counts
            if counts is not None:
                best.offer(rounded(cells, counts, self.simple), "rounding")
            elif relaxed is not None:
                return False
        for number in range(len(self.classes.assignment.tiers)):
            if self.deadline.left < _LEAST_SECONDS:
                return True
            objective = model.objective(number)
            if not best.meets(number):
                start = None if best.choice is None else cells.counts(best.choice)
                relaxed = relaxation.minimize(objective, start, self.deadline.part(kept))
                self.size = max(self.size, relaxation.largest)
                if relaxed is None:
                    return True
                if relaxed.counts is None:
                    if best.choice is not None and not number:
                        contradicted("GLOP: infeasible, though a solution is known")
                    return best.choice is not None
                best.raise_bound(number, relaxed.bound)
                best.offer(rounded(cells, relaxed.counts, self.simple), "rounding")
                if not best.meets(number):
                    self.solve_core(relaxed, number)
                if not best.meets(number) and len(cells) > _MOST_FOR_CP_SAT:
                    self.exchange(_SUMS_SHARE, sums=True)
            if not best.meets(number):
                # Bounds of lower tiers would hold for this choice only, and it may not be the last one.
                return True
            model.require_at_most(objective, best.worth[number])
        return True

    def solve_core(self, relaxed: Relaxed, number: int) -> None:
        """The core problem of a tier, in whole numbers; what no better choice may have is dropped after the last."""
        best = self.best
        kept = relaxed.most_promising(self.cells, _CORE)
        if int(kept.sum()) <= _MOST_FOR_CP_SAT:
            known = None if best.choice is None else self.cells.counts(best.choice)
            core = self.cells.only(kept if known is None else kept | (known > 0))
            with suppress(SolveTimeout, UnsuitableError):
                until = self.deadline.part(_CORE_SHARE)
                found = highs.solve(
                    core, hint=best.choice, known_bounds=best.bounds, deadline=until, seed=self.seed
                )
                best.offer(found.choice, "core problem")
        if best.choice is None or best.meets(number) or number < len(best.worth) - 1:
            return
        known = self.cells.counts(best.choice)
        kept = relaxed.may_beat(best.worth[number])
        if known is not None and not bool(kept.all()):
            best.notes.append(f"{int(kept.sum())} of {len(kept)} cells may be in a better choice")
            self._cells = self.cells.only(kept | (known > 0))


def _opening_prices(classes: EquivalenceClasses, cost: LoadCost) -> Amounts | None:
    """(V,) what using each value costs, where the first of a load costs more than what comes after it."""
    try:
        shape = widest_shape(classes, cost)
    except UnsuitableError:
        return None
    opens = shape.single and not shape.convex() and cost.weight > 0
    if not opens or cost.loads[0].groups > 1:
        return None
    return cost.weight * np.append(shape.opening(), 0)[cost.loads[0].bucket]

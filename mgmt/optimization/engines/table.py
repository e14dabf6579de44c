"""The decision table: which engine solves which assignment.

1. Min-cost flow, where the assignment is a network; not asked where few rows of different amounts meet many values.
   Where the first tiers are one: that for these, and what follows for the rows that these leave open.
2. Rows that have no room at all, or limits that want what nothing can bring: infeasible, no engine.
3. Today's choice, or a greedy one, that meets the closed-form bounds: a proof, no engine.
   Where using values costs something: first fit decreasing.
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

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

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
from mgmt.optimization.engines import cp_sat, flow, mixed_integer
from mgmt.optimization.engines.after_flow import after_flow
from mgmt.optimization.engines.bounds import floors_of, peak_floors
from mgmt.optimization.engines.candidates import candidates_of
from mgmt.optimization.engines.cells import Cells, bounds_of, cells_of
from mgmt.optimization.engines.count_model import CountModel
from mgmt.optimization.engines.exchanges import exchanged, peaks_of, repaired
from mgmt.optimization.engines.first_fit import first_fit
from mgmt.optimization.engines.greedy import greedy
from mgmt.optimization.engines.kinds import Kinds, kinds_of
from mgmt.optimization.engines.load_costs import Tabled, UnsuitableError, widest_shape
from mgmt.optimization.engines.make_room import make_room
from mgmt.optimization.engines.narrowed import narrowed
from mgmt.optimization.engines.neighbourhoods import nearby
from mgmt.optimization.engines.occupancy_limits import with_limits
from mgmt.optimization.engines.relaxation import Relaxation, Relaxed
from mgmt.optimization.engines.rounding import rounded
from mgmt.optimization.engines.tier_by_tier import Found
from mgmt.optimization.engines.unified import unified
from mgmt.optimization.engines.without_cells import without_cells

_MOST_FOR_CP_SAT = 6_000
_MOST_WITHOUT_A_CHOICE = 60_000
"""With no choice known CP-SAT is asked for one up to this size."""
_FEW_CELLS = 300
"""Solved whole sooner than a flow is built for the first tiers."""
_MOST_CELLS = 400_000
_MOST_WRITTEN = 2_000_000
"""Cells that are written down at all."""
_MOST_PACKED = 5_000
"""Rows that are packed one by one."""
_LEAST_SECONDS = 0.02
_ROOM_SHARE = 0.4
"""Of the time, for finding places for rows that may stay without one."""
_ROUNDING_SHARE = 0.2
"""Of the time that is left, for what comes after a relaxation that no solver comes after."""
UNKNOWN = -(2**62)
"""In place of a bound that nobody knows."""
_NARROW = 0.5
"""Candidates that are no more of the values than this have an assignment of their own."""
_EXCHANGES_SHARE = 0.85
"""Of the time, for exchanges where the objective is to bring down peaks."""
_SUMS_SHARE = 0.3
"""Of the time that is left then, for exchanges where it is a sum."""
_LATER_SHARE = 0.6
"""Of the time, for what comes after CP-SAT has been asked once."""
_CORE = 4
"""Cells per row in the core problem."""
_CORE_SHARE = 0.2
"""Of the time that is left, for the core problem."""


def solve(
    assignment: Assignment, *, seconds: float, seed: int, workers: int = 1, rather: Pairs | None = None
) -> Placement:
    """The best placement found in about ``seconds``, with a bound per tier.

    Of placements that are as good, one that moves rows in these pairs only is taken ``rather``, where a flow finds it.

    ``choice`` is None when there provably is none.  Raises SolveTimeout when neither a placement nor that proof was
    found in time, and UnsuitableError when the assignment is for no engine here.  The answer depends on the seed
    alone wherever the time did not end first.
    """
    deadline = time.monotonic() + seconds
    if not assignment.rows or not assignment.values:
        return _nothing_to_choose(assignment)
    assignment = unified(with_limits(assignment))
    notes = []
    if assignment.conditions:
        notes.append("no network: there are conditions besides limits")
    elif _fills_up(assignment):
        notes.append("no network: amounts differ from row to row, and there are more values than rows")
    else:
        try:
            return flow.solve(
                assignment, rather, flow.Patience(deadline)
            )  # exact at any size, so asked first
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

            found = after_flow(assignment, flow.Patience(deadline), rest)
            if found is not None:
                return replace(found, notes=(*notes, *found.notes))
    return by_cells(assignment, notes, deadline=deadline, seed=seed, workers=workers)


def by_cells(
    assignment: Assignment,
    notes: list[str],
    *,
    deadline: float,
    seed: int,
    workers: int,
    known: tuple[Indices, tuple[int, ...]] | None = None,
) -> Placement:
    """The rows of the table after the first; ``known`` is a choice, and bounds of the first tiers."""
    if not assignment.rows:
        return _nothing_to_choose(assignment)
    kinds = kinds_of(assignment)
    notes.append(f"{assignment.rows} rows are {kinds.number} kinds")
    if assignment.rows >= assignment.values and kinds.number * assignment.values > _MOST_WRITTEN:
        found = without_cells(kinds, known, deadline=deadline, seed=seed)
        if found is None:
            raise SolveTimeout("no placement was found in the time given")
        return replace(found, notes=tuple(notes))
    candidates = candidates_of(kinds)
    notes.append(candidates.note)
    today = assignment.current[assignment.current >= 0]
    begun = np.zeros(0, np.int32) if known is None else known[0][known[0] >= 0]
    values = np.unique(np.concatenate((candidates.value, today, begun)))
    if not len(values) or len(values) > _NARROW * assignment.values:
        cells = cells_of(kinds, candidates.kind, candidates.value)
        return _search(cells, notes, deadline, seed, workers, known)
    place = np.searchsorted(values, candidates.value).astype(np.int32)
    cells = cells_of(narrowed(kinds, values), candidates.kind, place)
    if known is not None:
        start = np.where(known[0] >= 0, np.searchsorted(values, known[0]), NONE)
        known = start.astype(np.int32), known[1]
    found = _search(cells, notes, deadline, seed, workers, known)
    if found.choice is None:
        return found
    return replace(found, choice=np.append(values, NONE)[found.choice].astype(np.int32))


def _search(
    cells: Cells,
    notes: list[str],
    deadline: float,
    seed: int,
    workers: int,
    known: tuple[Indices, tuple[int, ...]] | None,
) -> Placement:
    """The same among these cells."""
    if not keepable(cells):
        return Placement(None, (), (), "none: some rows or limits have no room at all", tuple(notes))
    search = _Search(cells, deadline, notes)
    if known is not None:
        search.offer(known[0], "min-cost flow")
        search.floors[: len(known[1])] = known[1]
    search.offer(cells.kinds.assignment.current, "today's choice")
    if not search.proven:
        search.offer(greedy(cells.kinds), "greedy")
    search.pack()
    search.narrow()
    if search.proven:
        return search.placement("closed-form bounds")
    search.exchange(seed, _EXCHANGES_SHARE, sums=False)
    search.make_room()
    if search.proven:
        return search.placement("closed-form bounds")
    cells = search.cells
    if len(cells) > _MOST_CELLS:
        notes.append(f"{len(cells)} cells are more than any solver here takes")
        if search.best is None:
            raise UnsuitableError(notes[-1])
        return search.placement("closed-form bounds")
    if not search.relax(seed):
        return Placement(
            None, (), (), "none: the linear relaxation has no solution", tuple(notes), search.size
        )
    search.narrow()
    if search.proven:
        return search.placement("the linear relaxation")
    cells = search.cells
    if len(cells) <= _MOST_FOR_CP_SAT or (search.best is None and len(cells) <= _MOST_WITHOUT_A_CHOICE):
        return search.by_cp_sat(seed, workers)
    search.repair(seed)
    if search.best is None:
        raise SolveTimeout("no placement was found in the time given")
    search.look_nearby(seed, workers)
    return search.placement("the linear relaxation")


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


def keepable(cells: Cells) -> bool:
    """False when rows have no room in their cells, or a limit wants more than these bring, or less than they must."""
    if not cells.enough:
        return False
    for limit in cells.kinds.assignment.limits:
        lower, upper = (bounds.reshape(-1) for bounds in bounds_of(limit))
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
    kinds = cells.kinds
    own = kinds.group(limit.load)
    own[cells.kind[(place == NONE) & (cells.most > 0)]] = NONE
    inside = (place != NONE) & (own[cells.kind] != NONE)
    brings = np.zeros(limit.load.groups, np.float64)
    np.add.at(brings, own[own != NONE], (kinds.weight(limit.load) * kinds.count)[own != NONE])
    used = np.unique(place[inside])
    room = np.zeros(limit.load.groups, np.float64)
    np.add.at(room, used // limit.load.buckets, bounds_of(limit)[1].reshape(-1)[used])
    # In floating point; what is so near that it could be rounding is left to the engines.
    return bool((brings > room * (1 + 1e-9)).any())


@dataclass(slots=True)
class _Search:
    """The best choice so far, and the bounds."""

    cells: Cells
    deadline: float
    notes: list[str]
    best: Indices | None = None
    worth: tuple[int, ...] = ()
    found_by: str = ""
    size: int = 0
    floors: list[int | None] = field(default_factory=list)
    """Per tier; from the second on they hold among the choices that are as good as ``best`` in those before."""

    def __post_init__(self) -> None:
        self.floors = floors_of(self.cells)

    @property
    def proven(self) -> bool:
        return self.best is not None and self.worth == tuple(self.floors)

    def narrow(self) -> None:
        """Drop cells that no optimum has: dearer than others in a tier that is as cheap as each row can be."""
        number = len(self.cells)
        if self.best is None:
            return
        for at, tier in enumerate(self.cells.kinds.assignment.tiers):
            if self.worth[at] != self.floors[at]:
                break
            costs, kind = self.cells.costs[at], self.cells.kind
            least = np.minimum.reduceat(costs, np.searchsorted(kind, np.arange(self.cells.kinds.number)))
            if self.worth[at] == tier.constant + int((least * self.cells.kinds.count).sum()) and not any(
                isinstance(cost, LoadCost) and cost.weight for cost in tier.costs
            ):
                self.cells = self.cells.only(costs == least[kind])
        if len(self.cells) < number:
            self.notes.append(
                f"{len(self.cells)} of {number} cells are as cheap as can be in the first tiers"
            )
            self.floors = [
                new if old is None or (new is not None and new > old) else old
                for old, new in zip(self.floors, floors_of(self.cells), strict=True)
            ]

    def offer(self, choice: Indices | None, by: str, *, quietly: bool = False) -> None:
        """Take a choice if it keeps the limits and is the best so far."""
        assignment = self.cells.kinds.assignment
        if choice is None or any(assignment.broken(choice)):
            return
        worth = assignment.worth(choice)
        if self.best is None or worth < self.worth:
            self.best, self.worth, self.found_by = choice, worth, by
            if not quietly:
                self.notes.append(f"{by}: {_in_words(worth)}")

    def make_room(self) -> None:
        """Find places for rows without one, if the first tier is not proven and some may stay without."""
        assignment = self.cells.kinds.assignment
        if self.best is None or self.worth[:1] == tuple(self.floors[:1]) or bool((self.best != NONE).all()):
            return
        left = self.deadline - time.monotonic()
        starts = [self.best]
        if not any(assignment.broken(assignment.current)):
            starts.insert(0, assignment.current)
        for number, start in enumerate(starts):
            until = self.deadline - left * (1 - _ROOM_SHARE * (number + 1) / len(starts))
            for choice in make_room(self.cells.kinds, start, deadline=until):
                self.offer(choice, "making room", quietly=True)
        if self.found_by == "making room":
            self.notes.append(f"{self.found_by}: {_in_words(self.worth)}")

    def pack(self) -> None:
        """Use few values, if the first tier that is not proven is a sum over loads that is not convex."""
        kinds = self.cells.kinds
        if self.best is None or self.proven or kinds.assignment.rows > _MOST_PACKED:
            return
        tiers = enumerate(zip(self.worth, self.floors, strict=True))
        costs = kinds.assignment.tiers[next(at for at, (own, floor) in tiers if own != floor)].costs
        if any(isinstance(cost, LoadCost) and not cost.peak and _opens(kinds, cost) for cost in costs):
            for choice in first_fit(kinds):
                self.offer(choice, "first fit decreasing")

    def repair(self, seed: int) -> None:
        """Find a choice where nothing else has."""
        if self.best is None:
            until = self.deadline - (self.deadline - time.monotonic()) / 2
            self.offer(repaired(self.cells.kinds, deadline=until, seed=seed), "repair by exchanges")

    def exchange(self, seed: int, share: float, *, sums: bool) -> None:
        """Exchange rows for a share of the time left, if the first tier that is not proven is of peaks, or of sums."""
        kinds = self.cells.kinds
        if self.best is None or self.proven:
            return
        tiers = enumerate(zip(self.worth, self.floors, strict=True))
        tier = next(at for at, (own, floor) in tiers if own != floor)
        peaks = peaks_of(kinds.assignment, tier)
        if (peaks is None) != sums:
            return
        until = self.deadline - (self.deadline - time.monotonic()) * (1 - share)
        floors = [] if peaks is None else peak_floors(self.cells, peaks)
        begun = self.worth
        for choice in exchanged(kinds, self.best, tier, floors, deadline=until, seed=seed):
            self.offer(choice, "exchanges", quietly=True)
            if self.proven:
                break
        if self.worth != begun:
            self.notes.append(f"{self.found_by}: {_in_words(self.worth)}")

    def by_cp_sat(self, seed: int, workers: int) -> Placement:
        """CP-SAT on all cells; what it does not prove soon goes on from what exchanges make of its choice."""
        until = self.deadline - (self.deadline - time.monotonic()) * _LATER_SHARE
        try:
            found = self._ask_cp_sat(until, seed, workers)
        except SolveTimeout:
            self.repair(seed)
        else:
            if found.choice is None or found.worth == found.bounds:
                return self._decided(found)
            self.offer(found.choice, "CP-SAT on counts", quietly=True)
            for tier, (worth, bound) in enumerate(zip(found.worth, found.bounds, strict=True)):
                known = self.floors[tier]
                self.floors[tier] = bound if known is None else max(known, bound)
                if worth != bound:
                    break  # further bounds hold for that worth alone
        self.exchange(seed, _SUMS_SHARE, sums=True)
        return self._decided(self._ask_cp_sat(self.deadline, seed, workers))

    def _ask_cp_sat(self, deadline: float, seed: int, workers: int) -> Found:
        found = cp_sat.solve(
            self.cells, hint=self.best, floors=self.floors, deadline=deadline, seed=seed, workers=workers
        )
        self.size = max(self.size, found.variables)
        return found

    def _decided(self, found: Found) -> Placement:
        engine = "CP-SAT on counts"
        if found.choice is self.best and found.choice is not None and self.found_by != engine:
            engine = f"{self.found_by}; bounds by CP-SAT on counts"
        return Placement(found.choice, found.worth, found.bounds, engine, tuple(self.notes), self.size)

    def look_nearby(self, seed: int, workers: int) -> None:
        """Decide parts of the best choice anew until the time ends."""
        assert self.best is not None
        begun = self.worth
        found = nearby(self.cells, self.best, self.floors, deadline=self.deadline, seed=seed, workers=workers)
        for choice in found:
            self.offer(choice, "large neighbourhoods", quietly=True)
        if self.worth != begun:
            self.notes.append(f"{self.found_by}: {_in_words(self.worth)}")

    def relax(self, seed: int) -> bool:
        """Bounds and choices from the linear relaxation, tier by tier; False when there is no solution."""
        cells = self.cells
        model = CountModel(cells)
        tiers = len(cells.kinds.assignment.tiers)
        relaxation = Relaxation(model)
        kept = 1 / 2 if len(cells) <= _MOST_FOR_CP_SAT else _ROUNDING_SHARE
        for number in range(tiers):
            objective = model.objective(number)
            left = self.deadline - time.monotonic()
            if left < _LEAST_SECONDS:
                return True
            if self.best is None or self.worth[number] != self.floors[number]:
                start = None if self.best is None else cells.counts(self.best)
                relaxed = relaxation.minimize(objective, start, self.deadline - left * kept)
                self.size = max(self.size, relaxation.largest)
                if relaxed is None:
                    return True
                if relaxed.counts is None:
                    return number > 0
                if relaxed.bound is not None:
                    known = self.floors[number]
                    self.floors[number] = relaxed.bound if known is None else max(known, relaxed.bound)
                choice = rounded(cells, relaxed.counts)
                if choice is not None:
                    self.offer(choice, "rounding")
                if not self._met(number):
                    self.solve_core(relaxed, number, seed)
                if not self._met(number) and len(cells) > _MOST_FOR_CP_SAT:
                    self.exchange(seed, _SUMS_SHARE, sums=True)
            if self.best is None:
                return True
            if self.worth[number] != self.floors[number]:
                # Bounds of lower tiers would hold for this choice only, and it may not be the last one.
                return True
            model.require_at_most(objective, self.worth[number])
        return True

    def _met(self, number: int) -> bool:
        return self.best is not None and self.worth[number] == self.floors[number]

    def solve_core(self, relaxed: Relaxed, number: int, seed: int) -> None:
        """The core problem of a tier, in whole numbers; what no better choice may have is dropped after the last."""
        kept = relaxed.most_promising(self.cells, _CORE)
        if int(kept.sum()) <= _MOST_FOR_CP_SAT:
            known = None if self.best is None else self.cells.counts(self.best)
            core = self.cells.only(kept if known is None else kept | (known > 0))
            until = self.deadline - (self.deadline - time.monotonic()) * (1 - _CORE_SHARE)
            with suppress(SolveTimeout, UnsuitableError):
                found = mixed_integer.solve(
                    core, hint=self.best, floors=self.floors, deadline=until, seed=seed
                )
                self.offer(found.choice, "core problem")
        if self.best is None or self._met(number) or number < len(self.worth) - 1:
            return
        known = self.cells.counts(self.best)
        kept = relaxed.may_beat(self.worth[number])
        if known is not None and not bool(kept.all()):
            self.notes.append(f"{int(kept.sum())} of {len(kept)} cells may be in a better choice")
            self.cells = self.cells.only(kept | (known > 0))

    def placement(self, proof: str) -> Placement:
        """The best choice, with what there is of bounds."""
        assert self.best is not None
        bounds = tuple(
            UNKNOWN if floor is None else min(floor, worth)
            for floor, worth in zip(self.floors, self.worth, strict=True)
        )
        engine = f"{self.found_by}; bounds by {proof}"
        return Placement(self.best, self.worth, bounds, engine, tuple(self.notes), self.size)


def _opens(kinds: Kinds, cost: LoadCost) -> bool:
    """Whether the first of a load costs more than what comes after it."""
    try:
        shape = widest_shape(kinds, cost)
    except UnsuitableError:
        return False
    return isinstance(shape, Tabled) and shape.single and cost.weight > 0 and not shape.convex()


def _in_words(worth: tuple[int, ...]) -> str:
    return "costs " + ", ".join(map(str, worth)) if worth else "keeps the limits"

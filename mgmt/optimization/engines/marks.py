"""Rows that choose values, some of which are marked besides: copies of segments, and which of them is the primary.

Two assignments over the same rows and values: ``places`` says where a row is, ``marks`` which rows are marked, and
where those are (no value: not marked).  All tiers of ``places`` come before those of ``marks``.

Both at once are no network.  But either alone is one, and each bounds the whole: no answer is better than the places
would be without marks, or the marks without places.  So each is solved alone, and then it is tried

1. whether marks that need only room that is free, or moves that are made anyhow, can be had in places as good;
2. what the marks cost among the best places found;
3. how well they could do at all where rows can be in the best places (a better bound), and whether there are places
   as good around these: most rows can be in one place only, so little is left to choose (where much moves, this first);
4. where that leaves few values open, both at once (``joint``), from the best answer so far.

The first answer that meets the bounds is the optimum.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import NONE, Amounts, Assignment, Indices, Mask, Placement
from mgmt.optimization.engines import cp_sat
from mgmt.optimization.engines.cells import all_candidates, cells_of
from mgmt.optimization.engines.fixing import rest_of
from mgmt.optimization.engines.flow.counts import Places
from mgmt.optimization.engines.joint import apart, joint_assignment, joint_choice, patterns
from mgmt.optimization.engines.kinds import kinds_of
from mgmt.optimization.engines.load_costs import UnsuitableError
from mgmt.optimization.engines.marks_among import marks_among
from mgmt.optimization.engines.ranks import firsts, joint_ranks
from mgmt.optimization.engines.table import solve
from mgmt.optimization.engines.unified import unified

_MOST_PAIRS = 1 << 22
"""Rows times values, where it is told for each pair whether it can be."""
_MOST_CLASSED = 1 << 26
"""The same where it is told for classes of rows."""
_MOST_NEAR = 1 << 19
"""Moves times values: where there are more, what is near to them is dearer than what the best places leave open."""
_MOST_JOINT_CELLS = 40_000
_LEAST_SECONDS = 0.1
_SAMPLED = 40
"""Of so many groups of rows one may change to make way for others."""


@dataclass(frozen=True, slots=True, eq=False)
class MarkedPlacement:
    """Where the rows are and which are marked; None if there is no such choice."""

    places: Placement
    marks: Placement
    """Its choice has a value where a row is marked: the one it has in ``places``."""

    @property
    def proven(self) -> bool:
        return self.places.proven and self.marks.proven


def solve_marked(
    places: Assignment, marks: Assignment, *, seconds: float, seed: int, workers: int = 1
) -> MarkedPlacement | None:
    """The best places and marks; None if there are none.

    Raises UnsuitableError when one of the two is for no engine, or nothing can be said of both together.
    """
    if marks.conditions:
        raise UnsuitableError("conditions on marks")
    marks = _where_allowed(marks, places.row_class, places.allowed)
    search = _Search(places, marks, time.monotonic() + seconds, seed, workers)
    return search.run()


class _Optimal:
    """Which values rows can have in the best places."""

    def __init__(self, row_class: Indices, allowed: Mask) -> None:
        self.row_class = row_class
        self.allowed = allowed
        """(C, V)"""
        self.choices: Amounts = allowed.sum(axis=1)[row_class]
        """(R,) how many values each row can have."""
        only = np.where(self.choices == 1, allowed.argmax(axis=1)[row_class], NONE)
        self.settled: Indices = only.astype(np.int32)
        """(R,) the value of a row that can have no other."""


class _Search:
    """The best answer so far, and what bounds it."""

    def __init__(
        self, places: Assignment, marks: Assignment, deadline: float, seed: int, workers: int
    ) -> None:
        self._places = places
        self._marks = marks
        self._deadline = deadline
        self._seed = seed
        self._workers = workers
        self._placed: Placement
        """The best places, whatever the marks."""
        self._floors: tuple[int, ...]
        """Of the marks: what they cost at least among the best places, tier by tier as in ``Placement``."""
        self._optimal: _Optimal | None = None
        """What rows can have in the best places, once it is known; the marks are only there then."""
        self._best: tuple[Placement, Placement] | None = None
        self._longest = 0.0
        """Seconds, that one assignment took."""

    def run(self) -> MarkedPlacement | None:
        self._placed = self._solve(self._places)
        if self._placed.choice is None:
            return None
        alone = self._solve(self._marks)
        if alone.choice is None:
            return None
        self._floors = alone.bounds
        for _ in self._attempts(self._placed.choice, alone):
            if self._best is None:
                continue
            if self._late or not self._placed.proven or self._best[1].worth == self._floors:
                break
        if self._best is None:
            raise UnsuitableError("no marks fit the best places")
        return self._answer(*self._best)

    def _attempts(self, choice: Indices, alone: Placement) -> Iterator[None]:
        """Better answers and bounds, the cheapest to come by first; after each it may be enough."""
        assert alone.choice is not None
        if bool(((alone.choice < 0) | (alone.choice == choice)).all()):
            self._offer(self._placed, alone)
        yield
        places = self._places
        few = places.rows * places.values <= _MOST_PAIRS
        moves = int(np.count_nonzero(choice != places.current))
        many = not few and moves * places.values > _MOST_NEAR
        if many:
            yield from self._among_optima()
        # Where much moves, what is near to it is too much to begin with.
        quick = few or moves * places.values <= _MOST_PAIRS
        if not quick or self._late:
            self._offer(self._placed, self._solve(marks_among(self._marks, choice)))
            yield
        free = patterns(_free_values(places)) if few else _nearby(places, choice)
        self._turn(self._solve(_where_allowed(self._marks, *free)), near=not few)
        yield
        if quick:
            self._offer(self._placed, self._solve(marks_among(self._marks, choice)))
            yield
        if not many:
            yield from self._among_optima()
        if self._optimal is None:
            return
        self._turn(self._solve(_where_allowed(self._marks, *free)))
        yield
        if few:
            self._both_at_once(self._optimal)

    def _among_optima(self) -> Iterator[None]:
        """Marks where rows can be in the best places, and places that have the marked rows there."""
        rows, values = self._places.rows, self._places.values
        if self._placed.optima is None or not self._placed.proven or rows * values > _MOST_CLASSED:
            return
        optimal = _Optimal(*self._placed.optima())
        if int((optimal.choices > 1).sum()) * values > _MOST_PAIRS:
            return
        narrowed = _where_allowed(self._marks, optimal.row_class, optimal.allowed)
        alone = self._solve(narrowed)
        if alone.choice is None:
            return
        self._optimal, self._marks = optimal, narrowed
        self._floors = max(self._floors, alone.bounds)
        yield
        self._turn(alone)
        yield

    @property
    def _late(self) -> bool:
        """Flows cannot be stopped in the middle, so none is begun that may not end in time."""
        return time.monotonic() + self._longest > self._deadline

    def _solve(self, assignment: Assignment) -> Placement:
        began = time.monotonic()
        seconds = max(_LEAST_SECONDS, self._deadline - began)
        found = solve(assignment, seconds=seconds, seed=self._seed, workers=self._workers)
        self._longest = max(self._longest, time.monotonic() - began)
        return found

    def _offer(self, placed: Placement, marked: Placement) -> None:
        if marked.choice is not None and (self._best is None or marked.worth < self._best[1].worth):
            self._best = placed, marked

    def _answer(self, placed: Placement, marked: Placement) -> MarkedPlacement:
        assert placed.choice is not None
        assert marked.choice is not None
        choice = np.where(marked.choice >= 0, placed.choice, NONE).astype(np.int32)
        bounds: list[int] = []
        for place, worth in enumerate(marked.worth):
            if list(marked.worth[:place]) == bounds:
                bounds.append(min(worth, self._floors[place]))
            else:  # that floor holds for marks that are better in the tiers before; this one for all
                bounds.append(min(worth, self._floor_of(place)))
        placed, marked = replace(placed, optima=None), replace(marked, optima=None)
        return MarkedPlacement(placed, replace(marked, choice=choice, bounds=tuple(bounds)))

    def _floor_of(self, place: int) -> int:
        return self._solve(replace(self._marks, tiers=(self._marks.tiers[place],))).bounds[0]

    # ---- marks first --------------------------------------------------------------------------------

    def _turn(self, first: Placement, *, near: bool = False) -> None:
        """Look for places as good as the best that have the marked rows where these marks want them.

        ``near``: of the best places only those change that are beside one which moves, and a few more to make way.
        """
        places = self._places
        if first.choice is None or places.conditions or (self._best is not None and self._late):
            return
        marked = first.choice >= 0
        if not bool(places.allowed[places.row_class[marked], first.choice[marked]].all()):
            return
        fixed = first.choice
        if self._optimal is not None:
            fixed = np.where(marked, fixed, self._optimal.settled)
        if near:
            assert self._placed.choice is not None
            moves = (self._placed.choice != places.current) | (marked & (fixed != self._placed.choice))
            group, groups = _group_of(places)
            more = (group < groups) & (group % _SAMPLED == _SAMPLED - 1)
            open_rows = marked | more | _beside(places, moves)
            fixed = np.where(open_rows, fixed, self._placed.choice)
        fixed = fixed.astype(np.int32)
        try:
            around = self._solve(rest_of(places, fixed))
        except UnsuitableError:
            return
        if around.choice is None or around.worth != self._placed.worth:
            return
        choice = fixed.copy()
        choice[fixed < 0] = around.choice
        engine = self._placed.engine if near else around.engine
        self._offer(replace(self._placed, choice=choice, engine=engine), first)

    # ---- both at once -------------------------------------------------------------------------------

    def _both_at_once(self, optimal: _Optimal) -> None:
        """CP-SAT on what is open among the best places."""
        if 2 * int(optimal.choices.sum()) > _MOST_JOINT_CELLS:
            return
        places, marks, reached = self._places, self._marks, len(self._places.tiers)
        open_to, markable = optimal.allowed[optimal.row_class], marks.allowed[marks.row_class]
        joint = unified(joint_assignment(places, marks, open_to, markable))
        kinds = kinds_of(joint)
        hint = None
        if self._best is not None:
            placed, marked = (placement.choice for placement in self._best)
            assert placed is not None
            assert marked is not None
            hint = joint_choice(placed, marked, places.values)
        try:
            found = cp_sat.solve(
                cells_of(kinds, *all_candidates(kinds)),
                hint=hint,
                floors=(*self._placed.bounds, *self._floors),
                deadline=self._deadline,
                seed=self._seed,
                workers=1,  # more of them share the time, and the proof is the work of one
            )
        except (SolveTimeout, UnsuitableError):
            return
        if found.choice is None:
            return
        place, mark = apart(found.choice, places.values)
        worth, bounds = found.worth[reached:], found.bounds[reached:]
        engine = "CP-SAT on places and marks at once"
        self._offer(
            replace(self._placed, choice=place),
            Placement(mark, worth, bounds, engine, solver_variables=found.variables),
        )
        # A bound speaks of choices as good as this one in the tiers before, so those after an open one say nothing.
        proven = 0
        while proven < len(worth) and worth[proven] == bounds[proven]:
            proven += 1
        self._floors = max(self._floors, (*bounds[: proven + 1], *self._floors[proven + 1 :]))


def _where_allowed(marks: Assignment, row_class: Indices, allowed: Mask) -> Assignment:
    """The marks with the values narrowed to what rows of these classes may have."""
    joint, number = joint_ranks([marks.row_class, row_class], marks.rows)
    first = firsts(joint, number)
    both = marks.allowed[marks.row_class[first]] & allowed[row_class[first]]
    return replace(marks, row_class=joint.astype(np.int32), allowed=both)


def _beside(places: Assignment, some: Mask) -> Mask:
    """(rows,) whether a row is one of these, or in a group with one of them."""
    group, groups = _group_of(places)
    touched = np.zeros(groups + 1, np.bool_)
    touched[group[some]] = True
    touched[groups] = False
    return some | touched[group]


def _group_of(places: Assignment) -> tuple[Indices, int]:
    """(rows,) by which rows are limited together, the finest that there is, and how many there are; the last: none."""
    loads = [limit.load for limit in places.limits if limit.load.groups > 1]
    if not loads:
        return np.zeros(places.rows, np.int32), 0
    finest = max(loads, key=lambda load: load.groups)
    return np.where(finest.group >= 0, finest.group, finest.groups).astype(np.int32), finest.groups


def _nearby(places: Assignment, choice: Indices) -> tuple[Indices, Mask]:
    """For each row, where it is or where this choice moves one of its group to: classes (R,), and values (C, V)."""
    moved = np.flatnonzero((choice != places.current) & (choice >= 0))
    near = _beside(places, choice != places.current)
    # A class for each value that rows are at, and one for each row near a move.
    row_class = np.where(places.current >= 0, places.current, places.values).astype(np.int32)
    row_class[near] = places.values + 1 + np.arange(int(near.sum()))
    allowed = np.zeros((int(row_class.max(initial=0)) + 1, places.values), np.bool_)
    staying = places.current >= 0
    allowed[row_class[staying], places.current[staying]] = True
    allowed[row_class[moved], choice[moved]] = True
    group, groups = _group_of(places)
    goals = moved[group[moved] < groups]
    # Pairs of a row near a move and a move of its group.
    rows = np.flatnonzero(near & (group < groups))
    rows, goals = rows[np.argsort(group[rows], kind="stable")], goals[np.argsort(group[goals], kind="stable")]
    first, last = (np.searchsorted(group[goals], group[rows], side) for side in ("left", "right"))
    number = last - first
    offset = np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)
    rows, values = np.repeat(rows, number), choice[goals[np.repeat(first, number) + offset]]
    free = _free_for(places, rows, values)
    allowed[row_class[rows[free]], values[free]] = True
    return row_class, allowed


def _free_for(places: Assignment, rows: Places, values: Places) -> Mask:
    """For pairs of a row and a value, whether limits leave room there when all other rows stay where they are."""
    free = np.ones(len(rows), np.bool_)
    current = places.current
    for limit in places.limits:
        load = limit.load
        held = np.flatnonzero((load.group >= 0) & (current >= 0))
        held = held[load.bucket[current[held]] >= 0]
        key, place = np.unique(
            load.group[held].astype(np.int64) * load.buckets + load.bucket[current[held]], return_inverse=True
        )
        total = np.append(np.bincount(place, load.weight[held], len(key)).astype(np.int64), 0)
        group, bucket = load.group[rows].astype(np.int64), load.bucket[values]
        counted = (group >= 0) & (bucket >= 0)
        asked = np.where(counted, group * load.buckets + bucket, NONE)
        at = np.minimum(np.searchsorted(key, asked), max(len(key) - 1, 0))
        known = key[at] == asked if len(key) else np.zeros(len(rows), np.bool_)
        taken = total[np.where(known, at, len(key))]
        here = (current[rows] >= 0) & (load.bucket[np.maximum(current[rows], 0)] == bucket)
        taken = taken + np.where(here, 0, load.weight[rows])
        upper = np.broadcast_to(limit.upper, (load.groups, load.buckets))
        free &= ~counted | (taken <= upper[np.maximum(group, 0), np.maximum(bucket, 0)])
    return free


def _free_values(places: Assignment) -> Mask:
    """(rows, values) where a row could be if all other rows stayed where they are, as far as limits tell."""
    here = np.arange(places.values)
    free = places.allowed[places.row_class].copy()
    current = np.where(
        (places.current >= 0) & free[np.arange(places.rows), np.maximum(places.current, 0)],
        places.current,
        NONE,
    )
    for limit in places.limits:
        load = limit.load
        if load.groups == 1 or bool((load.group < 0).all()):
            continue
        upper = np.broadcast_to(limit.upper, (load.groups, load.buckets))
        bucket = load.bucket[here]
        own = np.where(current >= 0, load.bucket[np.maximum(current, 0)], NONE)
        rows = np.flatnonzero(load.group >= 0)
        loads = load.of(current.astype(np.int32))
        held = loads[load.group[rows]][:, np.maximum(bucket, 0)]
        held = held - np.where(own[rows][:, None] == bucket[None], load.weight[rows][:, None], 0)
        room = upper[load.group[rows]][:, np.maximum(bucket, 0)] >= held + load.weight[rows][:, None]
        free[rows] &= room | (bucket < 0)[None]
    return free

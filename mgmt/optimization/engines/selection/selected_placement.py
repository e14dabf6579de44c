"""Rows that choose values, some of which are selected besides: replicas of segments, and which of them is the primary.

Two assignments over the same rows and values: ``places`` says where a row is, ``selection`` which rows are selected,
and where these are (no value: not selected).  The tiers of places come before those of the selection, but for later
ones.

Both together are no network.  But either alone is one, and each bounds the whole: no answer is better than the places
would be without a selection, or the selection without places.  So each is solved alone, the selection preferably among
the rows that move anyhow, and then it is tried, until an answer meets the bounds:

1. whether the best places, or some as good around the moves, have the selected rows where the selection wants them;
2. what the selection costs among the best places found;
3. how good it could be at all where rows can be in the best places (a better bound), and whether there are places
   as good around it: most rows can be in one place only, so little is left to choose;
4. both together (``joint_assignment``), among what the best places leave open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import (
    NONE,
    UNKNOWN,
    Amounts,
    Assignment,
    Indices,
    Mask,
    Optima,
    Pairs,
    Placement,
)
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.dense_ranks import firsts, joint_ranks
from mgmt.optimization.engines.engine_choice import solve
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.engines.presolve.fixing import rest_of, without_implied
from mgmt.optimization.engines.selection.joint_assignment import apart, solve_jointly
from mgmt.optimization.engines.selection.neighbouring_moves import beside, group_of, neighbouring_moves

_MOST_PAIRS = 1 << 22
"""Rows times values, where it is told for each pair whether it can be."""
_MOST_CLASSED = 1 << 26
"""The same where it is told for classes of rows."""
_MOST_JOINT_CELLS = 120_000
_LEAST_SECONDS = 0.1
_BEFORE_SHARE = 0.4
"""Of the time, for the tiers before later ones of places."""
_MAKING_WAY = (40, 6)
"""Of so many groups of rows one may change to make way for others."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectedPlacement:
    """Where the rows are and which are selected; None if there is no such choice."""

    places: Placement
    selection: Placement
    """Its choice has a value where a row is selected: the one it has in ``places``."""

    @property
    def proven(self) -> bool:
        return self.places.proven and self.selection.proven


def solve_selection(
    places: Assignment,
    selection: Assignment,
    *,
    deadline: Deadline,
    seed: int,
    workers: int = 1,
    later: int = 0,
) -> SelectedPlacement | None:
    """The best places and selection; None if there are none.  ``later`` tiers of places come after those of selection.

    Raises UnsuitableError when one of the two is for no engine, or nothing can be said of both together.
    """
    if selection.conditions:
        raise UnsuitableError("conditions on selection")
    selection = _where_allowed(selection, places.row_class, places.allowed)
    if not later:
        return _Search(places, selection, deadline, seed, workers).run()
    before = replace(places, tiers=places.tiers[:-later])
    first = _Search(before, selection, deadline.part(_BEFORE_SHARE), seed, workers).run()
    return None if first is None else _with_later(first, places, selection, later, deadline, seed, workers)


def _with_later(
    first: SelectedPlacement,
    places: Assignment,
    selection: Assignment,
    later: int,
    deadline: Deadline,
    seed: int,
    workers: int,
) -> SelectedPlacement:
    """The best by the later tiers, too, if the selection is as good there; else the one before, with what bounds it."""
    assert first.places.choice is not None
    try:
        whole = _Search(places, selection, deadline, seed, workers).run()
    except (SolveTimeout, UnsuitableError):
        whole = None
    if whole is None:
        bounds = (*first.places.bounds, *([UNKNOWN] * later))
        return replace(first, places=_counted(first.places, places, bounds))
    same = whole.places.worth[:-later] == first.places.worth
    # What bounds the later tiers, whatever the selection, bounds them where these are at their best.
    bounds = (*first.places.bounds, *(whole.places.bounds[-later:] if same else [UNKNOWN] * later))
    if same and whole.selection.worth <= first.selection.worth:
        selected = replace(whole.selection, bounds=first.selection.bounds)
        return SelectedPlacement(replace(whole.places, bounds=bounds), selected)
    return replace(first, places=_counted(first.places, places, bounds))


def _counted(found: Placement, places: Assignment, bounds: tuple[int, ...]) -> Placement:
    """A placement with what it is worth in further tiers."""
    assert found.choice is not None
    worth = places.worth(found.choice)
    return replace(found, worth=worth, bounds=tuple(map(min, bounds, worth)))


class _Optimal:
    """Which values rows can have in the best places."""

    def __init__(self, optima: Optima) -> None:
        row_class, allowed = optima.row_class, optima.allowed
        self.optima = optima
        self.choices: Amounts = allowed.sum(axis=1)[row_class]
        """(R,) how many values each row can have."""
        only = np.where(self.choices == 1, allowed.argmax(axis=1)[row_class], NONE)
        self.settled: Indices = only.astype(np.int32)
        """(R,) the value of a row that can have no other."""


class _Search:
    """The best answer so far, and what bounds it."""

    def __init__(
        self, places: Assignment, selection: Assignment, deadline: Deadline, seed: int, workers: int
    ) -> None:
        self._places = places
        self._selection = selection
        self._deadline = deadline
        self._seed = seed
        self._workers = workers
        self._placed: Placement
        """The best places, whatever the selection."""
        self._near: Pairs
        """Where rows could be as well, beside those that move to the best places."""
        self._bounds: tuple[int, ...]
        """Of the selection: what it costs at least among the best places, tier by tier as in ``Placement``."""
        self._optimal: _Optimal | None = None
        """What rows can have in the best places, once it is known; selected rows are only there then."""
        self._best: tuple[Placement, Placement] | None = None
        self._longest = 0.0
        """Seconds, that one assignment took."""

    def run(self) -> SelectedPlacement | None:
        self._placed = self._solve(self._places)
        if self._placed.choice is None:
            return None
        self._near = neighbouring_moves(self._places, self._placed.choice)
        alone = self._solve(self._selection, preferred=self._near)
        if alone.choice is None:
            return None
        self._bounds = alone.bounds
        attempts = (
            partial(self._with_places_of, alone),
            self._among_placed,
            self._among_optima,
            self._jointly,
        )
        for attempt in attempts:
            if self._enough:
                break
            try:
                attempt()
            except (SolveTimeout, TimeoutError) as error:
                if self._best is None:
                    raise SolveTimeout("no selection was found in the time given") from error
                break
        if self._best is None:
            raise UnsuitableError("no selection fits the best places")
        return self._answer(*self._best)

    @property
    def _enough(self) -> bool:
        """Whether the best answer cannot be made better, or there is no time for it."""
        if self._best is None:
            return False
        return self._late or not self._placed.proven or self._best[1].worth == self._bounds

    @property
    def _few(self) -> bool:
        """Whether it can be told for each pair of a row and a value whether it can be."""
        return self._places.rows * self._places.values <= _MOST_PAIRS

    # ---- attempts -----------------------------------------------------------------------------------

    def _with_places_of(self, selected: Placement) -> None:
        """The best places, or others as good, that have the selected rows where this selection wants them."""
        choice, placed, places = selected.choice, self._placed.choice, self._places
        if choice is None or placed is None:
            return
        there = choice >= 0
        if bool((choice[there] == placed[there]).all()):
            self._offer(self._placed, selected)
        elif not places.conditions and bool(places.allowed[places.row_class[there], choice[there]].all()):
            for fixed in self._fixings(choice, placed):
                if not self._enough and self._place_around(selected, fixed):
                    break

    def _among_placed(self) -> None:
        """The best selection in the best places found: no row has another value then."""
        placed, values = self._placed.choice, self._places.values
        assert placed is not None
        only = np.eye(values + 1, values, dtype=np.bool_)  # the last is for rows without a value
        there = np.where(placed >= 0, placed, values).astype(np.int32)
        self._offer(self._placed, self._solve(_where_allowed(self._selection, there, only)))

    def _among_optima(self) -> None:
        """A selection where rows can be in the best places, and places that have the selected rows there."""
        rows, values = self._places.rows, self._places.values
        if self._placed.optima is None or not self._placed.proven or rows * values > _MOST_CLASSED:
            return
        optimal = _Optimal(self._placed.optima())
        if int((optimal.choices > 1).sum()) * values > _MOST_PAIRS:
            return
        restricted = _where_allowed(self._selection, optimal.optima.row_class, optimal.optima.allowed)
        alone = self._solve(restricted, preferred=self._near)
        if alone.choice is None:
            return
        self._optimal, self._selection = optimal, restricted
        self._bounds = max(self._bounds, alone.bounds)
        if not self._enough:
            self._with_places_of(alone)

    @property
    def _late(self) -> bool:
        """Flows cannot be stopped in the middle, so none is begun that may not end in time."""
        return self._deadline.left <= self._longest

    def _solve(self, assignment: Assignment, preferred: Pairs | None = None) -> Placement:
        began = self._deadline.left
        found = solve(
            assignment, deadline=self._deadline, seed=self._seed, workers=self._workers, preferred=preferred
        )
        self._longest = max(self._longest, began - self._deadline.left)
        return found

    def _offer(self, placed: Placement, selected: Placement) -> None:
        if selected.choice is not None and (self._best is None or selected.worth < self._best[1].worth):
            self._best = placed, selected

    def _answer(self, placed: Placement, selected: Placement) -> SelectedPlacement:
        assert placed.choice is not None
        assert selected.choice is not None
        choice = np.where(selected.choice >= 0, placed.choice, NONE).astype(np.int32)
        bounds: list[int] = []
        for place, worth in enumerate(selected.worth):
            if list(selected.worth[:place]) == bounds:
                bounds.append(min(worth, self._bounds[place]))
            else:  # that floor holds for selections that are better in the tiers before; this one for all
                bounds.append(min(worth, self._bound_of(place)))
        placed, selected = replace(placed, optima=None), replace(selected, optima=None)
        return SelectedPlacement(placed, replace(selected, choice=choice, bounds=tuple(bounds)))

    def _bound_of(self, place: int) -> int:
        try:
            return self._solve(replace(self._selection, tiers=(self._selection.tiers[place],))).bounds[0]
        except SolveTimeout:
            return UNKNOWN

    # ---- selection first --------------------------------------------------------------------------------

    def _fixings(self, choice: Indices, placed: Indices) -> Iterator[Indices]:
        """(rows,) where rows are to be, selected ones where the selection has them; NONE for those to be placed anew.

        At first only rows change that are beside one which moves, and a few more to make way, then some more of these.
        """
        selected = choice >= 0
        fixed = choice if self._optimal is None else np.where(selected, choice, self._optimal.settled)
        moves = (placed != self._places.current) | (selected & (fixed != placed))
        group, groups = group_of(self._places)
        moving = selected | beside(self._places, moves)
        for one_of in _MAKING_WAY:
            more = (group < groups) & (group % one_of == one_of - 1)
            yield np.where(moving | more, fixed, placed)
        if self._few or self._optimal is not None:
            yield fixed

    def _place_around(self, selected: Placement, fixed: Indices) -> bool:
        """Place the other rows around these; whether that is as good as the best places."""
        try:
            around = self._solve(rest_of(self._places, fixed.astype(np.int32)))
        except UnsuitableError:
            return False
        if around.choice is None or around.worth != self._placed.worth:
            return False
        choice = fixed.astype(np.int32)
        choice[fixed < 0] = around.choice
        self._offer(replace(self._placed, choice=choice), selected)
        return True

    # ---- both together -----------------------------------------------------------------------------

    def _jointly(self) -> None:
        """All that is open among the best places, and among selections as good as the best in the tiers known."""
        optimal = self._optimal
        if optimal is None or not self._few or 2 * int(optimal.choices.sum()) > _MOST_JOINT_CELLS:
            return
        among = replace(
            self._places, limits=(*without_implied(self._places.limits), *optimal.optima.limits), tiers=()
        )
        # What duality tells of the best places is nearly always enough to be one; else their costs are said, too.
        for places in (among, replace(among, tiers=self._places.tiers)):
            advanced = True
            while advanced and not self._enough:
                first, selection = self._open_selection()
                found = solve_jointly(
                    places,
                    selection,
                    optimal.optima,
                    hint=self._best_choices,
                    known_bounds=(*self._placed.bounds[: len(places.tiers)], *self._bounds[first:]),
                    deadline=self._deadline,
                    seed=self._seed,
                )
                if found is None:
                    return
                advanced = self._take(found, len(places.tiers), first)

    def _open_selection(self) -> tuple[int, Assignment]:
        """The selection up to the first tier that is open, without those before that it reaches alone as well.

        With the place of the first tier that is left; what those before demand is said by limits.
        """
        worth = () if self._best is None else self._best[1].worth
        selection, closed = self._selection, _alike(worth, self._bounds)
        first, optima = closed, None
        while first:
            alone = self._solve(replace(selection, tiers=selection.tiers[:first]))
            if alone.optima is None or not alone.proven:
                first = 0
            elif alone.worth == self._bounds[:first]:
                optima = alone.optima()
                break
            else:
                first = _alike(alone.worth, self._bounds)
        tiers = selection.tiers[first : closed + 1]
        if optima is None:
            return first, replace(selection, tiers=tiers)
        restricted = _where_allowed(selection, optima.row_class, optima.allowed)
        return first, replace(restricted, limits=(*restricted.limits, *optima.limits), tiers=tiers)

    def _take(self, found: Placement, before_selection: int, first: int) -> bool:
        """Learn from an answer for the tiers of selection from this one on; whether it is of best places, and new."""
        assert found.choice is not None
        place, selected_at = apart(found.choice, self._places.values)
        worth, before = self._selection.worth(selected_at), (self._bounds, self._best)
        for tier, bound in enumerate(found.bounds[before_selection:], first):
            if bound > self._bounds[tier]:
                # The floors after it were for selections that cannot be.
                later = (self._bound_of(number) for number in range(tier + 1, len(worth)))
                self._bounds = (*self._bounds[:tier], bound, *later)
            if worth[tier] != self._bounds[tier]:
                break
        if self._places.worth(place) != self._placed.worth or worth[:first] != self._bounds[:first]:
            return False
        engine = f"{found.engine}, places and selection together"
        selected = replace(found, choice=selected_at, worth=worth, bounds=self._bounds, engine=engine)
        self._offer(replace(self._placed, choice=place), selected)
        return before != (self._bounds, self._best)

    @property
    def _best_choices(self) -> tuple[Indices, Indices] | None:
        """The best places and selection so far."""
        if self._best is None:
            return None
        placed, selected = (placement.choice for placement in self._best)
        assert placed is not None
        assert selected is not None
        return placed, selected


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """In how many tiers, from the first on, two are the same."""
    differs = (place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differs, min(len(one), len(other)))


def _where_allowed(selection: Assignment, row_class: Indices, allowed: Mask) -> Assignment:
    """The selection with the values narrowed to what rows of these classes may have."""
    joint, number = joint_ranks([selection.row_class, row_class], selection.rows)
    first = firsts(joint, number)
    both = selection.allowed[selection.row_class[first]] & allowed[row_class[first]]
    return replace(selection, row_class=joint.astype(np.int32), allowed=both)

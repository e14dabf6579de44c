"""The parts of the engines, each for itself: kinds, bounds, greedy, the relaxation, exchanges."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mgmt.optimization.assignment import (
    NONE,
    Assignment,
    Either,
    Indices,
    Limit,
    Load,
    LoadCost,
    RowCost,
    Tier,
)
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import solve
from mgmt.optimization.engines.construction import greedy, rounded
from mgmt.optimization.engines.delta_evaluation.partial_solution import PartialSolution
from mgmt.optimization.engines.engine_choice import by_cells, may_be_feasible
from mgmt.optimization.engines.integer_programming import cp_sat
from mgmt.optimization.engines.integer_programming.count_model import CountModel
from mgmt.optimization.engines.integer_programming.linear_relaxation import Relaxation
from mgmt.optimization.engines.local_search.exchanges import Search, exchanged
from mgmt.optimization.engines.lower_bounds.closed_form import bounds_of, peak_bounds
from mgmt.optimization.engines.model.cells import Cells, all_candidates, cells_of
from mgmt.optimization.engines.model.cost_functions import same_load
from mgmt.optimization.engines.model.equivalence import equivalence_classes
from mgmt.optimization.engines.presolve.normal_form import with_one_load_each
from tests.budget import budgeted
from tests.mgmt.engines.random_assignments import Maker, brute_force
from tests.mgmt.engines.test_against_brute_force import cp_sat_alone


def cells_for(assignment: Assignment) -> Cells:
    classes = equivalence_classes(assignment)
    return cells_of(classes, *all_candidates(classes))


def never() -> Deadline:
    return Deadline.after(3600)


def only_tier(assignment: Assignment, number: int) -> Assignment:
    return Assignment(
        assignment.values,
        assignment.row_class,
        assignment.allowed,
        assignment.required,
        assignment.current,
        assignment.limits,
        (assignment.tiers[number],),
    )


def balance(rows: int, values: int, seed: int) -> Assignment:
    """Rows of two amounts spread over values so that the highest of each is least; some must be apart."""
    random = np.random.default_rng(seed)
    app = (np.arange(rows) // 4).astype(np.int32)
    everyone = np.zeros(rows, np.int32)
    node = np.arange(values, dtype=np.int32)
    loads = [
        Load(everyone, 1, node, values, random.integers(1, 20, rows // 4 + 1)[app].astype(np.int64))
        for _ in range(2)
    ]
    apart = Load(
        np.where(app % 2, NONE, app // 2).astype(np.int32),
        rows // 8 + 1,
        node,
        values,
        np.ones(rows, np.int64),
    )
    zero, one = np.zeros((1, 1), np.int64), np.ones((1, 1), np.int64)
    least = Load(everyone, 1, node, values, np.ones(rows, np.int64))
    peaks = tuple(LoadCost(f"peak {n}", 1 + n, (load,), lambda x: x[0], True) for n, load in enumerate(loads))
    return Assignment(
        values,
        everyone,
        np.ones((1, values), np.bool_),
        np.ones(rows, np.bool_),
        np.full(rows, NONE, np.int32),
        (Limit("apart", apart, zero, one), Limit("some", least, one, one * rows)),
        (Tier(1, peaks),),
    )


def test_rows_that_nothing_tells_apart_are_one_kind_and_move_as_little_as_they_can() -> None:
    everyone = np.zeros(6, np.int32)
    moves = RowCost(
        "moves", 1, everyone, np.zeros((1, 3), np.int64), np.zeros(1, np.int64), np.ones(6, np.int64)
    )
    assignment = Assignment(
        3,
        everyone,
        np.ones((1, 3), np.bool_),
        np.ones(6, np.bool_),
        np.array([0, 0, 1, 1, 2, NONE], np.int32),
        (),
        (Tier(1, (moves,)),),
    )
    classes = equivalence_classes(assignment)
    assert classes.number == 1
    choice = classes.expand(np.zeros(2, np.int32), np.array([0, 1], np.int32), np.array([1, 5]))
    assert np.bincount(choice).tolist() == [1, 5]
    assert assignment.worth(choice) == (3,), "one of value 0 stays, and both of value 1"


def test_what_a_row_gets_for_moving_tells_rows_apart() -> None:
    everyone = np.zeros(2, np.int32)
    rewarded = RowCost(
        "moves", -1, everyone, np.zeros((1, 2), np.int64), np.zeros(1, np.int64), np.ones(2, np.int64)
    )
    assignment = Assignment(
        2,
        everyone,
        np.ones((1, 2), np.bool_),
        np.ones(2, np.bool_),
        np.array([0, 1], np.int32),
        (),
        (Tier(1, (rewarded,)),),
    )
    assert equivalence_classes(assignment).number == 2


@pytest.mark.parametrize("chunk", range(2))
def test_bounds_are_below_every_choice_and_what_is_found_keeps_the_limits(chunk: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(5000 + 100 * chunk, 5060 + 100 * chunk):
        assignment = Maker(seed).assignment()
        expected = brute_force(assignment)
        cells = cells_for(assignment)
        if not may_be_feasible(cells):
            assert expected is None
            continue
        found = greedy(cells.classes)
        if found is not None:
            assert not list(assignment.broken(found)), f"seed {seed}"
            outcomes["greedy"] += 1
        if expected is None:
            continue
        for number, floor in enumerate(bounds_of(cells)):
            alone = brute_force(only_tier(assignment, number))
            assert alone is not None
            assert floor is None or floor <= alone[0], f"seed {seed}"
            outcomes["met" if floor == alone[0] else "below"] += 1
        model = CountModel(cells)
        relaxed = Relaxation(model).minimize(model.objective(0), None, never())
        assert relaxed is not None
        assert relaxed.counts is not None
        assert relaxed.bound is not None
        assert relaxed.bound <= expected[0], f"seed {seed}"
        outcomes["tight"] += relaxed.bound == expected[0]
        choice = rounded(cells, relaxed.counts)
        assert choice is None or not list(assignment.broken(choice)), f"seed {seed}"
        better = relaxed.may_beat(expected[0] + 1)
        known_bounds = [None] * len(expected)
        best = cp_sat.solve(
            cells.only(better), hint=None, known_bounds=known_bounds, deadline=never(), seed=0, workers=1
        )
        assert best.worth[0] == expected[0], f"seed {seed}: what no better choice may have was part of one"
        outcomes["dropped"] += not bool(better.all())
    assert outcomes["dropped"] >= 10
    assert outcomes["greedy"] >= 20
    assert outcomes["met"] >= 20
    assert outcomes["tight"] >= 15


def test_greedy_places_a_row_that_wants_another_beside_it_after_that_one() -> None:
    """Whichever is harder to place: here the one that comes first has no room before the other is there."""
    values = 3
    one, other = (
        Load(group, 1, np.arange(values, dtype=np.int32), values, np.ones(2, np.int64))
        for group in (np.array([0, NONE], np.int32), np.array([NONE, 0], np.int32))
    )
    zero = np.zeros((1, 1), np.int64)
    beside = Either("beside", (Limit("beside", one, zero, zero), Limit("beside", other, zero + 1, zero + 9)))
    few = np.array([[True, True, False], [True, True, True]])
    assignment = Assignment(
        values,
        np.arange(2, dtype=np.int32),
        few,
        np.ones(2, np.bool_),
        np.full(2, NONE, np.int32),
        (),
        (),
        (beside,),
    )
    found = greedy(cells_for(assignment).classes)
    assert found is not None
    assert found[0] == found[1]


def test_greedy_places_rows_that_nothing_counts_as_it_would_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assignments = [Maker(seed, most_rows=9).assignment() for seed in range(6000, 6300)]
    found = [greedy(cells_for(assignment).classes) for assignment in assignments]
    strokes = []
    add = PartialSolution.add

    def adds(self: PartialSolution, class_: int, value: int, rows: int = 1) -> None:
        strokes.append(rows)
        add(self, class_, value, rows)

    monkeypatch.setattr(PartialSolution, "add", adds)
    again = [greedy(cells_for(assignment).classes) for assignment in assignments]
    assert max(strokes) > 1
    monkeypatch.setattr(PartialSolution, "counts", lambda *_: True)
    strokes.clear()
    singly = [greedy(cells_for(assignment).classes) for assignment in assignments]
    assert max(strokes) == 1
    for one, other, third in zip(found, again, singly, strict=True):
        assert (one is None) == (other is None) == (third is None)
        if one is not None and other is not None and third is not None:
            assert one.tolist() == other.tolist() == third.tolist()


def test_columns_that_come_in_later_give_the_same_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    rows, values = 40, 60
    everyone = np.zeros(rows, np.int32)
    weight = random.integers(3, 9, 10)[np.arange(rows) // 4].astype(np.int64)
    load = Load(everyone, 1, np.arange(values, dtype=np.int32), values, weight)
    cost = RowCost(
        "price",
        1,
        everyone,
        random.integers(0, 1000, (1, values)),
        np.zeros(1, np.int64),
        np.zeros(rows, np.int64),
    )
    assignment = Assignment(
        values,
        everyone,
        np.ones((1, values), np.bool_),
        np.ones(rows, np.bool_),
        np.full(rows, NONE, np.int32),
        (Limit("room", load, np.array([[0]]), np.array([[10]])),),
        (Tier(1, (cost,)),),
    )
    cells = cells_for(assignment)
    model = CountModel(cells)
    at_once = Relaxation(model).minimize(model.objective(0), None, never())
    start = greedy(cells.classes)
    assert start is not None
    counts = cells.counts(start)
    monkeypatch.setattr("mgmt.optimization.engines.integer_programming.linear_relaxation._SIFTED_ABOVE", 10)
    monkeypatch.setattr("mgmt.optimization.engines.integer_programming.linear_relaxation._FIRST", 1)
    sifting = Relaxation(model)
    sifted = sifting.minimize(model.objective(0), counts, never())
    assert at_once is not None
    assert sifted is not None
    assert sifted.bound == at_once.bound
    assert sifting.largest < len(cells)


@pytest.mark.parametrize("seed", budgeted(range(3), 1, in_test=1))
def test_exchanges_bring_peaks_down_and_keep_the_limits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgmt.optimization.engines.local_search.exchanges._GIVES_UP", 400)
    assignment = balance(48, 8, seed)
    cells = cells_for(assignment)
    start = greedy(cells.classes)
    assert start is not None
    known_bounds = peak_bounds(
        cells, [cost for cost in assignment.tiers[0].costs if isinstance(cost, LoadCost)]
    )
    worth = assignment.worth(start)
    better = list(exchanged(cells.classes, start, 0, known_bounds, deadline=never(), seed=seed))
    for choice in better:
        assert not list(assignment.broken(choice))
        assert assignment.worth(choice) < worth
        worth = assignment.worth(choice)
    again = list(exchanged(cells.classes, start, 0, known_bounds, deadline=never(), seed=seed))
    assert [choice.tolist() for choice in again] == [choice.tolist() for choice in better]
    lowest = known_bounds[0] + 2 * known_bounds[1]
    assert lowest <= worth[0] <= lowest * 1.05


def test_what_can_be_in_few_buckets_only_may_be_too_much_for_them() -> None:
    """Three rows may be at two of four values, which take one row each; with a further value they would fit."""
    class_of = np.array([0, 0, 0, 1, 1], np.int32)
    load = Load(np.zeros(5, np.int32), 1, np.array([0, 1, 2, NONE], np.int32), 3, np.ones(5, np.int64))
    one = np.ones((1, 3), np.int64)

    def of(*own: bool, required: bool = True) -> Assignment:
        allowed = np.array([own, (True, True, True, True)])
        none = np.full(5, NONE, np.int32)
        limits = (Limit("one each", load, 0 * one, one),)
        return Assignment(4, class_of, allowed, np.full(5, required), none, limits, ())

    assert not may_be_feasible(cells_for(of(True, True, False, False)))
    assert solve(of(True, True, False, False), deadline=Deadline.after(60), seed=0).choice is None
    assert may_be_feasible(cells_for(of(True, True, True, False)))
    assert may_be_feasible(cells_for(of(True, True, False, True)))
    assert may_be_feasible(cells_for(of(True, True, False, False, required=False)))


def tight(rows: int, values: int, seed: int) -> Assignment:
    """Two halves of the values, of which one wants half of the rows and the other takes no more; values take few."""
    random = np.random.default_rng(seed)
    everyone = np.zeros(rows, np.int32)
    node, half = np.arange(values, dtype=np.int32), (np.arange(values) % 2).astype(np.int32)
    weight = random.integers(1, 9, rows).astype(np.int64)
    ones, pairs = np.ones(rows, np.int64), (np.arange(rows) // 2).astype(np.int32)
    limits = (
        Limit("half", Load(everyone, 1, half, 2, ones), np.array([[rows // 2, 0]]), np.array([[rows] * 2])),
        Limit(
            "few", Load(everyone, 1, node, values, ones), np.array([[1]]), np.array([[rows // values + 1]])
        ),
        Limit("apart", Load(pairs, rows, node, values, ones), np.array([[0]]), np.array([[1]])),
    )
    height = LoadCost(
        "height", 3, (Load(everyone, 1, node, values, weight),), lambda load: load[0], peak=True
    )
    none = np.full(rows, NONE, np.int32)
    allowed = np.ones((1, values), np.bool_)
    required = np.ones(rows, np.bool_)
    return Assignment(values, everyone, allowed, required, none, limits, (Tier(1, (height,)),))


@pytest.mark.parametrize("seed", range(5))
def test_exchanges_keep_limits_that_leave_little_room(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgmt.optimization.engines.local_search.exchanges._GIVES_UP", 300)
    assignment = tight(24, 6, seed)
    cells = cells_for(assignment)
    start = greedy(cells.classes)
    assert start is not None
    steps = Search.step
    made: list[Indices] = []

    def watched(search: Search) -> None:
        steps(search)
        made.append(search.choice.copy())

    monkeypatch.setattr(Search, "step", watched)
    list(exchanged(cells.classes, start, 0, [0], deadline=never(), seed=seed))
    assert len({tuple(choice.tolist()) for choice in made}) > 20
    for choice in made:
        assert not list(assignment.broken(choice))


@pytest.mark.parametrize(
    ("rows", "values", "required"), [(0, 3, True), (0, 0, True), (2, 0, True), (2, 0, False)]
)
def test_where_there_is_nothing_to_choose(rows: int, values: int, required: bool) -> None:
    everyone = np.zeros(rows, np.int32)
    load = Load(everyone, 1, np.arange(values, dtype=np.int32), values, np.ones(rows, np.int64))
    cost = RowCost(
        "price",
        1,
        everyone,
        np.ones((1, values), np.int64),
        np.full(1, 7, np.int64),
        np.zeros(rows, np.int64),
    )
    assignment = Assignment(
        values,
        everyone,
        np.ones((1, values), np.bool_),
        np.full(rows, required),
        np.full(rows, NONE, np.int32),
        (Limit("room", load, np.array([[0]]), np.array([[2]])),),
        (Tier(1, (cost,), 4),),
    )
    placement = solve(assignment, deadline=Deadline.after(60), seed=0)
    if rows and required:
        assert placement.choice is None
    else:
        assert placement.choice is not None
        assert placement.worth == placement.bounds == (4 + 7 * rows,)


def test_rows_that_pay_for_company_are_proven_without_a_solver() -> None:
    """Each row may stay without a value at a price in the first tier; a value costs more with each row it has."""
    random = np.random.default_rng(3)
    rows, values = 12, 6
    everyone = np.zeros(rows, np.int32)
    load = Load(everyone, 1, np.arange(values, dtype=np.int32), values, np.ones(rows, np.int64))
    nothing = np.zeros(rows, np.int64)
    left_out = RowCost(
        "left out", 1, everyone, np.zeros((1, values), np.int64), np.ones(1, np.int64), nothing
    )
    price = RowCost("price", 1, everyone, random.integers(0, 9, (1, values)), np.zeros(1, np.int64), nothing)
    company = LoadCost("company", 2, (load,), lambda loads: loads[0] * loads[0], peak=False)
    assignment = Assignment(
        values,
        (np.arange(rows, dtype=np.int32) % 2).astype(np.int32),
        np.array([[True] * values, [True, True, True, True, True, False]]),
        np.zeros(rows, np.bool_),
        np.full(rows, NONE, np.int32),
        (Limit("room", load, np.array([[0]]), np.array([[4]])),),
        (Tier(1, (left_out,)), Tier(2, (price, company))),
    )
    placement = by_cells(assignment, [], deadline=never(), seed=0, workers=1)
    assert placement.proven
    assert placement.solver_variables == 0
    assert any("as cheap as can be in the first tiers" in note for note in placement.notes)
    assert placement.worth == cp_sat_alone(assignment, 0).worth


@pytest.mark.parametrize("proof", [True, False])
def test_a_relaxation_without_solution_is_believed_with_a_proof_only(
    proof: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one class have too little room where they may be, all of it in parts of rows."""
    rows, values = 30, 8
    everyone = np.zeros(rows, np.int32)
    weight = np.random.default_rng(0).integers(5, 15, rows).astype(np.int64)
    row_class = (np.arange(rows, dtype=np.int32) % 2).astype(np.int32)
    half = int(weight[row_class == 1].sum()) // 4
    room = np.array([[half - 1] * 4 + [1000] * 4], np.int64)
    load = Load(everyone, 1, np.arange(values, dtype=np.int32), values, weight)
    cost = RowCost(
        "price", 1, everyone, np.arange(values)[None], np.zeros(1, np.int64), np.zeros(rows, np.int64)
    )
    assignment = Assignment(
        values,
        row_class,
        np.array([[True] * 8, [True] * 4 + [False] * 4]),
        np.ones(rows, np.bool_),
        np.full(rows, NONE, np.int32),
        (Limit("room", load, np.array([[0]]), room),),
        (Tier(1, (cost,)),),
    )
    if not proof:
        monkeypatch.setattr(
            "mgmt.optimization.engines.integer_programming.linear_relaxation.Program._impossible",
            lambda program, duals: False,
        )
    placement = by_cells(assignment, [], deadline=never(), seed=0, workers=1)
    assert placement.choice is None
    assert ("relaxation" in placement.engine) == proof


def test_the_same_seed_gives_the_same_choice() -> None:
    for seed in range(20):
        assignment = Maker(seed).assignment()
        once, again = (solve(assignment, deadline=Deadline.after(3600), seed=5) for _ in range(2))
        assert (once.choice is None) == (again.choice is None)
        assert once.choice is None or once.choice.tolist() == again.choice.tolist()


def test_without_time_the_simple_ways_still_answer_with_bounds() -> None:
    assignment = balance(48, 8, 0)
    placement = solve(assignment, deadline=Deadline.after(0), seed=0)
    assert placement.choice is not None
    assert not list(assignment.broken(placement.choice))
    assert placement.bounds <= placement.worth == assignment.worth(placement.choice)
    known_bounds = bounds_of(cells_for(assignment))
    assert placement.bounds[0] >= (known_bounds[0] or 0) > 0


def test_loads_that_are_the_same_become_one_and_others_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of thousands of loads each used to be compared with each."""
    compared = 0

    def counted(one: Load, other: Load) -> bool:
        nonlocal compared
        compared += 1
        return same_load(one, other)

    monkeypatch.setattr("mgmt.optimization.engines.presolve.normal_form.same_load", counted)
    rows, none = np.arange(200), np.full(200, NONE, np.int32)
    bucket, weight, most = np.arange(3, dtype=np.int32), np.ones(200, np.int64), np.ones((1, 1), np.int64)

    def limit(row: int) -> Limit:
        return Limit(
            f"{row}",
            Load(np.where(rows == row, 0, NONE).astype(np.int32), 1, bucket, 3, weight),
            0 * most,
            most,
        )

    limits = tuple(limit(row % 100) for row in range(200))
    required, allowed = np.ones(200, np.bool_), np.ones((1, 3), np.bool_)
    found = with_one_load_each(Assignment(3, np.zeros(200, np.int32), allowed, required, none, limits, ()))
    assert compared == 100
    assert [id(one.load) for one in found.limits[100:]] == [id(one.load) for one in found.limits[:100]]
    assert all(same_load(one.load, other.load) for one, other in zip(limits, found.limits, strict=True))

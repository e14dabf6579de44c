"""What is read off functions of loads, against every load there is; and engines that see no tables of them."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from mgmt.optimization.assignment import LoadCost
from mgmt.optimization.engines.model import cost_functions
from mgmt.optimization.engines.model.cost_functions import Curve, Reach, Shape, UnsuitableError
from mgmt.optimization.engines.model.load_analysis import Analysis, Range
from mgmt.optimization.load_functions import LoadFunction, LoadNumber, Positive, Quotient, greatest, parts_of
from tests.budget import budgeted
from tests.mgmt.engines.random_functions import CurveMaker, FunctionMaker
from tests.mgmt.engines.test_against_brute_force import (
    Engine,
    check,
    cp_sat_alone,
    mixed_integer_alone,
    table,
    without_flow,
)


def every_value(shape: Shape, function: LoadFunction) -> list[list[int]]:
    """Of each place what it costs with no step, one, and so on."""
    ((reach),) = shape.reaches
    whole = [
        np.broadcast_to(function((np.full(reach.most.shape, steps * reach.step),)), reach.most.shape)
        for steps in range(int(reach.most.max()) + 1)
    ]
    flat = np.array(whole).reshape(len(whole), -1)
    return [flat[: most + 1, place].tolist() for place, most in enumerate(reach.most.reshape(-1).tolist())]


def agrees(sound: bool, told: bool, true: bool) -> bool:
    """What is told is true; and where all is known, what is true is told."""
    return told == true if sound else (true or not told)


def check_curve(curve: Curve, seed: str) -> str:
    values = every_value(curve, curve.function)
    exact = curve.resolved
    rises = [np.diff(of_place) for of_place in values]
    assert agrees(exact, curve.growing(), all((rise >= 0).all() for rise in rises)), seed
    falls = all((rise <= 0).all() for rise in rises)
    assert agrees(exact, curve.falling(), falls), seed
    convex = all((np.diff(rise) >= 0).all() for rise in rises)
    assert agrees(exact, curve.convex(), convex), seed
    if curve.superadditive():
        for of_place in values:
            for one in range(len(of_place)):
                for other in range(len(of_place) - one):
                    assert of_place[one + other] - of_place[0] >= (
                        of_place[one] + of_place[other] - 2 * of_place[0]
                    ), seed
    for told, true in (
        (curve.lowest(), [min(of_place) for of_place in values]),
        (-curve.highest(), [-max(of_place) for of_place in values]),
        (curve.opening(), [min(of_place[1:] or of_place) - of_place[0] for of_place in values]),
    ):
        assert (told == true).all() if exact else (told <= true).all(), seed
    for weight in (1, -2):
        for told, of_place in zip(curve.share(weight).tolist(), values, strict=True):
            shares = [weight * (at - of_place[0]) / step for step, at in enumerate(of_place) if step]
            assert told <= min(shares, default=np.inf) + 1e-9, seed
    for height in (-3, 0, 2, 7):
        for place, (room, steps) in enumerate(
            zip(curve.room_below(height).tolist(), curve.steps_below(height).tolist(), strict=True)
        ):
            below = [step for step, at in enumerate(values[place]) if at <= height]
            assert room >= max(below, default=-1), seed
            assert steps <= min(below, default=steps), seed
    if convex and curve.convex():
        check_level(curve, values, seed)
    return "convex" if convex else "resolved" if exact else "bounded"


def check_level(curve: Curve, values: list[list[int]], seed: str) -> None:
    """As many of the cheapest steps as a group must take, and those that cost less than nothing."""
    groups, buckets = curve.reaches[0].most.shape
    for needed in (0, 1, 3, 50):
        best = sum(of_place[0] for of_place in values)
        for group in range(groups):
            of_group = values[group * buckets : (group + 1) * buckets]
            steps = sorted(int(step) for of_place in of_group for step in np.diff(of_place))
            best += sum(step for number, step in enumerate(steps) if number < needed or step < 0)
        assert curve.level(np.full(groups, needed)) == best, seed


@pytest.mark.parametrize("chunk", budgeted(range(30), 2))
def test_a_curve_is_what_every_load_says(chunk: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(50 * chunk, 50 * chunk + 50):
        random = Random(seed)
        shape = random.choice(((1, 1), (1, 3), (2, 2)))
        most = np.array([[random.randint(0, 12) for _ in range(shape[1])] for _ in range(shape[0])])
        function = FunctionMaker(random, shape).function(random.randint(1, 3))
        seen[check_curve(Curve((Reach(random.choice((1, 3)), most),), function), f"seed {seed}")] += 1
    assert seen["convex"] >= 10, seen
    assert seen["resolved"] + seen["bounded"] >= 5, seen


@pytest.mark.parametrize("size", [2**31, 2**53, 2**60])
def test_large_loads_are_no_floating_point_numbers(size: int) -> None:
    """At the places where something changes, and one beside them."""
    room = np.array([[size // 3, size - 1]])
    load = LoadNumber(0)
    above, share = greatest(load - room, 0), (load * 3).over(size - 1)
    full = Positive(load - room + 1)
    assert (load * 3).magnitude([float(size)]) <= 2**62
    curve = Curve((Reach(1, np.full((1, 2), size)),), above)
    assert curve.resolved
    assert curve.convex()
    assert curve.growing()
    assert curve.room_below(0).tolist() == room[0].tolist()
    assert curve.room_below(5).tolist() == [size // 3 + 5, size]
    assert curve.highest().tolist() == [size - size // 3, 1]
    assert curve.level(np.array([size + size // 3 + 10])) == 11
    shares = Curve((Reach(1, np.full((1, 2), size)),), share)
    assert shares.growing()
    assert not shares.convex()
    assert shares.superadditive()
    assert shares.room_below(2).tolist() == [size - 2] * 2
    assert shares.highest().tolist() == [3 * size // (size - 1)] * 2
    filled = Curve((Reach(1, np.full((1, 2), size)),), full)
    assert filled.room_below(0).tolist() == (room[0] - 1).tolist()
    assert filled.opening().tolist() == [0, 0]


def test_a_square_of_large_loads_is_spread_evenly() -> None:
    size = 2**30
    curve = Curve((Reach(1, np.full((1, 4), size)),), LoadNumber(0) * LoadNumber(0))
    assert curve.convex()
    assert curve.superadditive()
    assert curve.level(np.array([size + 3])) == 3 * (size // 4 + 1) ** 2 + (size // 4) ** 2


def shape_of(function: LoadFunction, most: int) -> Shape:
    cost = LoadCost("cost", 1, (), function, False)
    return cost_functions._shape_within(cost, (Reach(1, np.full((1, 2), most)),))


def test_numbers_that_leave_64_bits_are_for_no_engine() -> None:
    with pytest.raises(UnsuitableError, match="62 bits"):
        shape_of(LoadNumber(0) * LoadNumber(0), 2**31 + 1)


def test_pairs_are_whole_and_convex() -> None:
    load = LoadNumber(0)
    curve = Curve((Reach(1, np.full((1, 1), 10**9)),), (load * (load - 1)).over(2))
    assert curve.resolved
    assert curve.convex()
    odd = Curve((Reach(1, np.full((1, 1), 10**9)),), (load * load).over(2))
    assert not odd.resolved
    assert not odd.convex()
    assert odd.growing()


def test_a_quotient_by_nothing_is_one_by_1() -> None:
    load = np.array([[0, 1, -5]])
    assert Quotient(LoadNumber(0), LoadNumber(1))((np.array([[7, 7, 7]]), load)).tolist() == [[7, 7, -1]]


def test_the_greatest_of_functions_is_several_peaks() -> None:
    loads = tuple(object() for _ in range(3))
    function = greatest(LoadNumber(2) + 1, LoadNumber(0) * LoadNumber(2))
    first, second = parts_of(LoadCost("peak", 2, loads, function, True))  # type: ignore[arg-type]
    assert (first.loads, second.loads) == (loads[2:], (loads[0], loads[2]))
    numbers = np.array([[3]]), np.array([[5]])
    assert (first.cost(numbers[1:]).item(), second.cost(numbers).item()) == (6, 15)


@pytest.mark.parametrize("chunk", budgeted(range(30), 2))
@pytest.mark.parametrize("engine", [table, without_flow, cp_sat_alone, mixed_integer_alone])
def test_engines_find_the_optimum_without_tables(
    engine: Engine, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_functions, "_FEW_ENTRIES", -1)
    outcomes: Counter[str] = Counter()
    for seed in range(25 * chunk, 25 * chunk + 25):
        try:
            outcomes[check(engine, CurveMaker(seed, most_rows=4).assignment(), seed)] += 1
        except UnsuitableError:
            outcomes["unsuitable"] += 1
    assert outcomes["solved"] >= 3, outcomes


@pytest.mark.parametrize("divisor", [2, -2])
def test_an_exact_quotient_of_a_product_has_bounds_of_its_own(divisor: int) -> None:
    """Those of the product were taken for it: a bound that no plan keeps."""
    one, other = LoadNumber(0), LoadNumber(1)
    function = ((one * 2 + 20) * (other + 10)).over(divisor)
    none, most = np.zeros((1, 1, 1), np.int64), np.full((1, 1, 1), 40, np.int64)
    found = Analysis(Range((1, 1), (none, none), (most, most))).of(function)
    loads = np.divmod(np.arange(41 * 41).reshape(-1, 1), 41)
    values = np.broadcast_to(function(loads), (41 * 41, 1)).ravel().tolist()
    assert found.low.min() <= min(values)
    assert found.high.max() >= max(values)
    assert bool(found.rises.all()) <= (divisor > 0)

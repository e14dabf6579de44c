"""Places and flags together, against trying every choice; and primaries of a datastore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

from mgmt.optimization.assignment import (
    NONE,
    Assignment,
    Indices,
    Limit,
    Load,
    LoadCost,
    Pairs,
    RowCost,
    Tier,
)
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import flow
from mgmt.optimization.engines.flow import NotAFlowError
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.engines.selection import selected_placement as selection_search
from mgmt.optimization.engines.selection.selected_placement import solve_selection
from tests.mgmt.engines.random_assignments import kept_choices
from tests.mgmt.engines.random_replicas import amounts, distance, replicas
from tests.mgmt.engines.test_flow import Cluster


def primaries(places: Assignment, segment: Indices, was: np.ndarray, least: int) -> Assignment:
    """One marked row per segment; hosts near their share of them, on copies that exist, few changes."""
    rows, values = places.rows, places.values
    ones, nothing = np.ones(rows, np.int64), np.zeros(rows, np.int64)
    segments = int(segment.max()) + 1
    whole, host = np.zeros(values, np.int32), np.arange(values, dtype=np.int32)
    per_host = Load(np.zeros(rows, np.int32), 1, host, values, ones)
    fresh = 1 - np.eye(values + 1, values, dtype=np.int64)  # the last: of no host today, so never counted
    fresh[values] = 0
    today = np.where(places.current >= 0, places.current, values).astype(np.int32)
    lost = np.stack([np.zeros(values, np.int64), np.zeros(values, np.int64)])
    return Assignment(
        values,
        np.zeros(rows, np.int32),
        np.ones((1, values), np.bool_),
        np.zeros(rows, np.bool_),
        places.current,
        (Limit("one", Load(segment, segments, whole, 1, ones), amounts(1), amounts(1)),),
        (
            Tier(14, (LoadCost("even", 1, (per_host,), distance(amounts(least), 0, False), False),)),
            Tier(15, (RowCost("fresh", 1, today, fresh, np.zeros(values + 1, np.int64), nothing),)),
            Tier(16, (RowCost("changes", 1, was.astype(np.int32), lost, amounts(0, 1), nothing),)),
        ),
    )


def brute_force(places: Assignment, selection: Assignment) -> tuple[int, ...] | None:
    best: tuple[int, ...] | None = None
    for choice in kept_choices(places):
        first = places.worth(choice)
        if best is not None and first > best[: len(first)]:
            continue
        for values in product(*((NONE, value) if value >= 0 else (NONE,) for value in choice.tolist())):
            selected = np.array(values, np.int32)
            if any(selection.broken(selected)):
                continue
            worth = first + selection.worth(selected)
            best = worth if best is None else min(best, worth)
    return best


def outcome_of(seed: int, **sizes: int) -> str:
    """Whether the best flags among the best places are found and proven, as trying every choice finds them."""
    random = Random(seed)
    rows = random.randint(2, sizes.get("rows", 5))
    places = replicas(random, rows=rows, values=random.randint(2, sizes.get("values", 3)))
    segment = np.sort(np.array([random.randrange(2) for _ in range(rows)], np.int32))
    _, segment = np.unique(segment, return_inverse=True)
    was = np.array([random.random() < 0.5 for _ in range(rows)])
    selection = primaries(places, segment.astype(np.int32), was, random.randint(0, 1))
    expected = brute_force(places, selection)
    try:
        found = solve_selection(places, selection, deadline=Deadline.after(20), seed=0)
    except UnsuitableError:
        return "unsuitable"
    if expected is None:
        assert found is None, f"seed {seed}"
        return "infeasible"
    assert found is not None, f"seed {seed}"
    assert found.places.choice is not None
    assert found.selection.choice is not None
    assert not list(places.broken(found.places.choice))
    assert not list(selection.broken(found.selection.choice))
    selected = found.selection.choice >= 0
    assert (found.selection.choice[selected] == found.places.choice[selected]).all()
    worth = places.worth(found.places.choice) + selection.worth(found.selection.choice)
    assert worth == found.places.worth + found.selection.worth
    assert worth >= expected, f"seed {seed}"
    assert found.places.bounds + found.selection.bounds <= expected, f"seed {seed}"
    assert found.proven, f"seed {seed}"
    assert worth == expected, f"seed {seed}"
    return "at once" if found.selection.engine.startswith("HiGHS") else "proven"


def test_the_best_selection_among_the_best_places_is_proven() -> None:
    outcomes = Counter(outcome_of(seed) for seed in range(60))
    assert outcomes["proven"] + outcomes["at once"] >= 15, outcomes
    assert outcomes["unsuitable"] <= 3, "no flags fit the best places"
    assert outcomes["infeasible"] >= 3, outcomes


@pytest.mark.slow("240 random problems")
def test_they_are_by_the_joint_program_where_nothing_else_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_search._Search, "_with_places_of", lambda search, selected: None)
    outcomes = Counter(outcome_of(seed) for seed in range(1000, 1240))
    assert outcomes["at once"] >= 15, outcomes
    assert outcomes["unsuitable"] <= 6, "no flags fit the best places"


def test_preferred_pairs_are_taken_where_that_costs_no_more() -> None:
    """As good as any, and where flags of these rows and values alone are as good, it is these."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        random = Random(seed)
        rows, values = random.randint(3, 6), random.randint(2, 3)
        places = replicas(random, rows=rows, values=values)
        segment = np.sort(np.array([random.randrange(3) for _ in range(rows)], np.int32))
        _, segment = np.unique(segment, return_inverse=True)
        was = np.array([random.random() < 0.5 for _ in range(rows)])
        selection = primaries(places, segment.astype(np.int32), was, random.randint(0, 1))
        drawn = [pair for pair in product(range(rows), range(values)) if random.random() < 0.4]
        preferred = Pairs(*np.array(drawn, np.int32).reshape(-1, 2).T)
        free, led = flow.solve(selection), flow.solve(selection, preferred)
        assert led.worth == led.bounds == free.worth, f"seed {seed}"
        assert led.choice is not None
        assert not list(selection.broken(led.choice))
        assert selection.worth(led.choice) == led.worth
        narrow = np.zeros((rows, values), np.bool_)
        narrow[preferred.row, preferred.value] = True
        staying = np.flatnonzero(places.current >= 0)
        narrow[staying, places.current[staying]] = True
        alone = flow.solve(replace(selection, row_class=np.arange(rows, dtype=np.int32), allowed=narrow))
        if alone.choice is None or alone.worth != free.worth:
            seen["dearer"] += 1
            continue
        seen["as good"] += 1
        selected = np.flatnonzero(led.choice >= 0)
        if all(len(set(was[segment == one].tolist())) == 1 for one in set(segment.tolist())):
            continue  # copies that are all alike are counted another way, which leads nobody
        assert narrow[selected, led.choice[selected]].all(), f"seed {seed}"
        assert free.choice is not None
        others = np.flatnonzero(free.choice >= 0)
        seen["led"] += not narrow[others, free.choice[others]].all()
    assert min(seen["dearer"], seen["as good"], seen["led"]) >= 10, seen


def datastore(segments: int, racks: list[int]) -> tuple[Cluster, Indices, np.ndarray]:
    """A settled cluster: where the copies are, and which are primaries."""
    cluster = Cluster(racks, segments)
    segment = np.repeat(np.arange(segments, dtype=np.int32), 3)
    places = cluster.assignment()
    fresh = primaries(places, segment, np.zeros(3 * segments, np.bool_), segments // len(cluster.rack))
    found = solve_selection(places, fresh, deadline=Deadline.after(20), seed=0)
    assert found is not None
    assert found.places.choice is not None
    assert found.selection.choice is not None
    return cluster, found.places.choice, found.selection.choice >= 0


@pytest.mark.parametrize("racks", [[4, 4, 4], [4, 4, 4, 4], [6, 5, 3, 2]], ids=str)
@pytest.mark.parametrize("event", ["host", "rack", "hosts"])
def test_primaries_are_proven_at_a_hundred_segments(event: str, racks: list[int]) -> None:
    cluster, before, was = datastore(100, racks)
    segment = np.repeat(np.arange(100, dtype=np.int32), 3)
    if event == "host":
        cluster.usable[5] = False
    elif event == "rack":
        cluster.usable[: racks[0]] = False
    else:
        cluster.rack = np.append(cluster.rack, [0, 1]).astype(np.int32)
        cluster.usable = np.ones(len(cluster.rack), np.bool_)
    places = cluster.assignment(before, tolerance=1)
    selection = primaries(places, segment, was, 100 // int(cluster.usable.sum()))
    found = solve_selection(places, selection, deadline=Deadline.after(20), seed=0)
    if event == "rack" and len(racks) == 3:
        assert found is None, "two racks left for three copies"
        return
    assert found is not None
    assert found.proven, (found.selection.worth, found.selection.bounds)


def test_where_pairs_are_too_many_to_tell_what_is_near_moves_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """New hosts get their share of primaries by copies that move anyhow."""
    monkeypatch.setattr(selection_search, "_MOST_PAIRS", 150_000)
    cluster, before, was = datastore(1500, [10] * 10)
    cluster.rack = np.append(cluster.rack, [0, 3]).astype(np.int32)
    cluster.usable = np.ones(102, np.bool_)
    places = cluster.assignment(before, tolerance=1)
    selection = primaries(places, np.repeat(np.arange(1500, dtype=np.int32), 3), was, 14)
    found = solve_selection(places, selection, deadline=Deadline.after(20), seed=0)
    assert found is not None
    assert found.proven, (found.selection.worth, found.selection.bounds)
    assert found.places.choice is not None
    assert not list(places.broken(found.places.choice))
    assert places.worth(found.places.choice) == found.places.bounds


def test_where_much_moves_what_the_best_places_leave_open_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rack of unequal ones is lost: it is told what cannot be better, and no other rows have to change."""
    fixings = selection_search._Search._fixings

    def within_optima(
        search: selection_search._Search, choice: Indices, placed: Indices
    ) -> Iterator[Indices]:
        return iter(()) if search._optimal is None else fixings(search, choice, placed)

    monkeypatch.setattr(selection_search._Search, "_fixings", within_optima)
    monkeypatch.setattr(selection_search, "_MOST_PAIRS", 50_000)
    cluster, before, was = datastore(600, [15, 12, 9, 8, 6, 5, 5])
    cluster.usable[15:27] = False
    places = cluster.assignment(before, tolerance=3)
    selection = primaries(places, np.repeat(np.arange(600, dtype=np.int32), 3), was, 12)
    assert places.rows * places.values > 50_000
    found = solve_selection(places, selection, deadline=Deadline.after(20), seed=0)
    assert found is not None
    assert found.proven, (found.selection.worth, found.selection.bounds)
    assert found.places.choice is not None
    assert found.selection.choice is not None
    assert not list(places.broken(found.places.choice))
    assert not list(selection.broken(found.selection.choice))
    selected = found.selection.choice >= 0
    assert np.array_equal(found.selection.choice[selected], found.places.choice[selected])
    assert places.worth(found.places.choice) == found.places.bounds
    assert selection.worth(found.selection.choice) == found.selection.bounds
    monkeypatch.setattr(selection_search, "_MOST_CLASSED", 0)
    without = solve_selection(places, selection, deadline=Deadline.after(20), seed=0)
    assert without is not None
    assert not without.proven


def test_what_is_no_network_is_said() -> None:
    cluster = Cluster([2, 2], 2, per_rack=2)
    places = cluster.assignment()
    segment = np.repeat(np.arange(2, dtype=np.int32), 3)
    selection = primaries(places, segment, np.zeros(6, np.bool_), 1)
    impossible = replace(selection.limits[0], lower=amounts(4), upper=amounts(4))
    assert (
        solve_selection(places, replace(selection, limits=(impossible,)), deadline=Deadline.after(5), seed=0)
        is None
    )
    assert issubclass(NotAFlowError, UnsuitableError)

"""Networks: what the solver is spared, and what no cheapest flow can change."""

from __future__ import annotations

from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ortools.graph.python import min_cost_flow

from mgmt.optimization.assignment import Amounts
from mgmt.optimization.engines.flow import arc_pricing
from mgmt.optimization.engines.flow.components import components_of
from mgmt.optimization.engines.flow.network import Network
from mgmt.optimization.engines.flow.solver import cheapest_flow

NODES = 6


@st.composite
def graphs(draw: st.DrawFn, most: int = 14) -> list[tuple[int, int]]:
    node = st.integers(0, NODES - 1)
    return draw(st.lists(st.tuples(node, node), max_size=most))


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[tuple[int, int, int, int, int]], list[int]]:
    """Arcs (tail, head, lower, upper, cost) that lead from small nodes to large ones, and supplies."""
    arcs = []
    for _ in range(draw(st.integers(1, 9))):
        tail = draw(st.integers(0, NODES - 2))
        head = draw(st.integers(tail + 1, NODES - 1))
        lower = draw(st.sampled_from([0, 0, 0, 1]))
        arcs.append((tail, head, lower, lower + draw(st.integers(0, 2)), draw(st.integers(-3, 3))))
    supply = [draw(st.sampled_from([0, 0, 1, 2])) for _ in range(NODES - 1)]
    return arcs, [*supply, -sum(supply)]


def columns(arcs: list[tuple[int, ...]]) -> list[Amounts]:
    return [np.array(column, np.int64) for column in zip(*arcs, strict=True)]


def flows(arcs: list[tuple[int, int, int, int, int]], supply: list[int]) -> list[tuple[int, ...]]:
    """All the flows there are."""
    found = []
    for flow in product(*(range(lower, upper + 1) for _, _, lower, upper, _ in arcs)):
        rest = list(supply)
        for (tail, head, *_), units in zip(arcs, flow, strict=True):
            rest[tail] -= units
            rest[head] += units
        if not any(rest):
            found.append(flow)
    return found


@given(graphs())
def test_components_are_what_reaches_each_other(arcs: list[tuple[int, int]]) -> None:
    reach = np.eye(NODES, dtype=np.bool_)
    for tail, head in arcs:
        reach[tail, head] = True
    for middle in range(NODES):
        reach |= reach[:, middle, None] & reach[None, middle]
    tails, heads = columns(arcs) if arcs else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    component = components_of(tails, heads, NODES)
    assert np.array_equal(component[:, None] == component[None], reach & reach.T)


@given(networks())
def test_a_cheapest_flow_is_one_on_fewer_arcs_too(
    network: tuple[list[tuple[int, int, int, int, int]], list[int]],
) -> None:
    arcs, supply = network
    costs = [sum(a[4] * units for a, units in zip(arcs, flow, strict=True)) for flow in flows(arcs, supply)]
    found = cheapest_flow(*columns(arcs), np.array(supply, np.int64))
    if not costs:
        assert found is None
        return
    assert found is not None
    assert tuple(found.tolist()) in flows(arcs, supply)
    assert sum(a[4] * units for a, units in zip(arcs, found.tolist(), strict=True)) == min(costs)


@given(networks())
def test_what_cheapest_flows_have_on_an_arc_is_within_its_bounds(
    network: tuple[list[tuple[int, int, int, int, int]], list[int]],
) -> None:
    """And where all have the same on it, the bounds say so."""
    arcs, supply = network
    tails, heads, lower, upper, cost = columns(arcs)
    built = Network(2)
    second = cost * tails % 3
    built.add(tails, heads, upper, lower, np.stack([cost, second]))
    found = built.cheapest(np.array(supply, np.int64))
    every = np.array(flows(arcs, supply), np.int64).reshape(-1, len(arcs))
    if not len(every):
        assert found is None
        return
    ranks = [tuple(row) for row in np.stack([every @ cost, every @ second], axis=1).tolist()]
    best = every[[rank == min(ranks) for rank in ranks]]
    assert found is not None
    assert any(np.array_equal(found, row) for row in best)
    least, most = built.extremes()
    assert bool((least <= best.min(axis=0)).all())
    assert bool((most >= best.max(axis=0)).all())
    unused = best.max(axis=0) == 0
    assert np.array_equal(most == 0, unused), "an arc is open only where a cheapest flow uses it"


@given(networks(), st.lists(st.booleans(), min_size=9, max_size=9))
def test_arcs_left_out_at_first_are_missed_where_they_make_it_cheaper(
    network: tuple[list[tuple[int, int, int, int, int]], list[int]], left_out: list[bool]
) -> None:
    arcs, supply = network
    spare = np.array([out and arc[2] == 0 for out, arc in zip(left_out, arcs, strict=False)])
    costs = [sum(a[4] * units for a, units in zip(arcs, flow, strict=True)) for flow in flows(arcs, supply)]
    with patch.object(arc_pricing, "FEW", 0):
        found = arc_pricing.cheapest_on_few(*columns(arcs), np.array(supply, np.int64), spare, trial=False)
        trial = arc_pricing.cheapest_on_few(*columns(arcs), np.array(supply, np.int64), spare, trial=True)
    assert (found is None) == (not costs)
    for flow in (found, trial):
        if flow is not None:
            assert tuple(flow.tolist()) in flows(arcs, supply)
            assert sum(a[4] * units for a, units in zip(arcs, flow.tolist(), strict=True)) == min(costs)


@given(
    networks(),
    st.lists(st.booleans(), min_size=9, max_size=9),
    st.lists(st.integers(-3, 3), min_size=9, max_size=9),
)
def test_a_cheapest_flow_is_found_whatever_costs_are_tried_first(
    network: tuple[list[tuple[int, int, int, int, int]], list[int]], spared: list[bool], tried: list[int]
) -> None:
    arcs, supply = network
    spare = np.array([out and arc[2] == 0 for out, arc in zip(spared, arcs, strict=False)])
    every = np.array(flows(arcs, supply), np.int64).reshape(-1, len(arcs))
    light = np.array(tried[: len(arcs)], np.int64)
    costs = columns(arcs)[4]
    for sparing in (False, True):
        found = arc_pricing.cheapest_on_few(
            *columns(arcs), np.array(supply, np.int64), spare, trial=False, sparing=sparing, light=light
        )
        assert (found is None) == (not len(every))
        if found is not None:
            assert found.tolist() in every.tolist()
            assert int(found @ costs) == (every @ costs).min()


@given(networks(), st.lists(st.booleans(), min_size=9, max_size=9))
def test_arcs_to_be_spared_carry_as_little_as_in_any_cheapest_flow(
    network: tuple[list[tuple[int, int, int, int, int]], list[int]], spared: list[bool]
) -> None:
    arcs, supply = network
    spare = np.array([out and arc[2] == 0 for out, arc in zip(spared, arcs, strict=False)])
    every = np.array(flows(arcs, supply), np.int64).reshape(-1, len(arcs))
    found = arc_pricing.cheapest_on_few(
        *columns(arcs), np.array(supply, np.int64), spare, trial=False, sparing=True
    )
    if found is None:
        assert not len(every)
        return
    paid = every @ columns(arcs)[4]
    best = every[paid == paid.min()]
    assert found.tolist() in best.tolist()
    assert int(found[spare].sum()) == best[:, spare].sum(axis=1).min()


def test_the_solver_is_asked_for_few_arcs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three choices of the same two ends, each along a node of its own, are one arc."""
    asked: list[int] = []

    class Spied(min_cost_flow.SimpleMinCostFlow):
        def add_arcs_with_capacity_and_unit_cost(self, tails: Amounts, *others: Amounts) -> object:
            asked.append(len(tails))
            return super().add_arcs_with_capacity_and_unit_cost(tails, *others)

    monkeypatch.setattr(min_cost_flow, "SimpleMinCostFlow", Spied)
    arcs = [
        (0, 1, 0, 1, 5),
        (0, 2, 0, 1, 3),
        (0, 3, 0, 1, 4),
        *((middle, 4, 0, 1, 0) for middle in (1, 2, 3)),
    ]
    flow = cheapest_flow(*columns(arcs), np.array([1, 0, 0, 0, -1], np.int64))
    assert flow is not None
    assert flow.tolist() == [0, 1, 0, 0, 1, 0]
    assert asked == [1]

"""Min-cost flow: against trying every choice, what it refuses, and what it decides at size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Assignment,
    Indices,
    Limit,
    Load,
    LoadCost,
    RowCost,
    Tier,
)
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines import flow, solve
from mgmt.optimization.engines.flow import LateFlowError, NotAFlowError, network, solver
from mgmt.optimization.engines.flow import arc_pricing as spare_arcs
from mgmt.optimization.engines.flow.solver import ALWAYS, ARCS_PER_SECOND, check_time
from tests.budget import budgeted
from tests.mgmt.engines.random_assignments import Maker, brute_force, kept_choices
from tests.mgmt.engines.random_replicas import amounts, distance, replicas


def check(assignment: Assignment, seed: int) -> str:
    expected = brute_force(assignment)
    try:
        placement = flow.solve(assignment)
    except NotAFlowError as reason:
        return str(reason)
    if expected is None:
        assert placement.choice is None, f"seed {seed}"
        return "infeasible"
    assert placement.choice is not None, f"seed {seed}: called infeasible, but {expected} can be reached"
    assert not list(assignment.broken(placement.choice)), f"seed {seed}"
    assert placement.worth == assignment.worth(placement.choice) == expected, f"seed {seed}"
    assert placement.proven, f"seed {seed}"
    return "solved"


def small(seed: int) -> Assignment:
    random = Random(seed)
    return replicas(random, rows=random.randint(1, 6), values=random.randint(1, 4))


@pytest.mark.parametrize("chunk", budgeted(range(4), 0, in_test=2))
def test_the_answer_is_what_enumeration_finds(chunk: int) -> None:
    outcomes = Counter(check(small(seed), seed) for seed in range(100 * chunk, 100 * chunk + 60))
    assert outcomes["solved"] >= 15
    assert outcomes["infeasible"] >= 5
    refused = set(outcomes) - {"solved", "infeasible"}
    assert refused <= {"rows that are counted together may not choose, pay or count alike"}, "an optional pin"
    assert sum(outcomes[reason] for reason in refused) <= 6


@pytest.mark.parametrize("chunk", range(2))
def test_whatever_it_takes_on_it_solves(chunk: int) -> None:
    """Assignments of any structure: most are refused, none is answered wrongly."""
    outcomes = Counter(check(Maker(seed).assignment(), seed) for seed in range(100 * chunk, 100 * chunk + 60))
    assert outcomes["solved"] >= 5
    assert len(outcomes) > 4, "several reasons to refuse"


def test_tiers_whose_weights_do_not_fit_are_solved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LARGEST_COST", 3000)
    solved = Counter(check(small(seed), seed) for seed in range(1000, 1080))
    assert solved["solved"] >= 20


@pytest.mark.slow("300 random problems against enumeration")
def test_the_values_of_optima_hold_every_best_choice() -> None:
    """And seldom more: what is open beyond them is what linear duality cannot tell."""
    told = wanted = 0
    for seed in range(300):
        assignment = small(seed)
        try:
            solved = flow.solve(assignment)
        except NotAFlowError:
            continue
        choices = [(assignment.worth(choice), choice) for choice in kept_choices(assignment)]
        expected = min((worth for worth, _ in choices), default=None)
        if expected is None or solved.optima is None:
            assert (expected is None) == (solved.choice is None), f"seed {seed}"
            continue
        optima = solved.optima()
        found = optima.allowed[optima.row_class]
        used = np.zeros_like(found)
        for worth, choice in choices:
            if worth == expected:
                placed = np.flatnonzero(choice >= 0)
                used[placed, choice[placed]] = True
                assert not any(limit.broken(choice).any() for limit in optima.limits), f"seed {seed}"
        assert not bool((used & ~found).any()), f"seed {seed}"
        told, wanted = told + int(found.sum()), wanted + int(used.sum())
    assert told <= 1.05 * wanted


def test_what_most_segments_could_do_is_left_out_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_arcs, "FEW", 0)
    solved = Counter(check(small(seed), seed) for seed in range(1100, 1180))
    assert solved["solved"] >= 20
    cluster = Cluster([5] * 6, 200)
    before = solved_choice(cluster.assignment())
    cluster.rack = np.append(cluster.rack, [0, 1, 2]).astype(np.int32)
    cluster.usable = np.ones(33, np.bool_)
    few = flow.solve(cluster.assignment(before))
    monkeypatch.setattr(spare_arcs, "FEW", 10**9)
    assert few.proven
    assert few.worth == flow.solve(cluster.assignment(before)).worth


# ---- a datastore --------------------------------------------------------------------------------------


class Cluster:
    """Segments of three copies on hosts in racks: at most one copy per rack, even shares, fewest moves."""

    def __init__(
        self, racks: list[int], segments: int, usable: list[bool] | None = None, per_rack: int = 1
    ) -> None:
        self.rack = np.repeat(np.arange(len(racks), dtype=np.int32), racks)
        self.segments = segments
        self.usable = np.ones(len(self.rack), np.bool_) if usable is None else np.array(usable)
        self.per_rack = per_rack

    def assignment(self, current: Indices | None = None, tolerance: int = 0) -> Assignment:
        hosts, rows = len(self.rack), 3 * self.segments
        segment = np.repeat(np.arange(self.segments, dtype=np.int32), 3)
        nothing, ones, alike = (
            np.zeros((1, hosts), np.int64),
            np.ones(rows, np.int64),
            np.zeros(rows, np.int32),
        )
        host = np.arange(hosts, dtype=np.int32)
        today = np.full(rows, NONE, np.int32) if current is None else current
        by_host = Load(alike, 1, np.where(self.usable, host, NONE).astype(np.int32), hosts, ones)
        even = distance(amounts(rows // int(self.usable.sum())), tolerance, True)
        nobody = np.zeros(1, np.int64)
        return Assignment(
            hosts,
            alike,
            self.usable[None],
            np.ones(rows, np.bool_),
            today,
            (
                Limit("hosts", Load(segment, self.segments, host, hosts, ones), amounts(0), amounts(1)),
                Limit("racks", Load(segment, self.segments, self.rack, len(np.unique(self.rack)), ones), amounts(0),
                      amounts(self.per_rack)),
            ),
            (
                Tier(1, (LoadCost("balance", 1, (by_host,), even, False),)),
                Tier(2, (RowCost("moves", 1, alike, nothing, nobody, (today >= 0).astype(np.int64)),)),
            ),
        )  # fmt: skip

    def loads(self, choice: Indices) -> list[int]:
        return np.bincount(choice, minlength=len(self.rack)).tolist()


def solved_choice(assignment: Assignment) -> Indices:
    placement = flow.solve(assignment)
    assert placement.choice is not None
    assert placement.proven
    assert not list(assignment.broken(placement.choice))
    return placement.choice


def test_a_lost_host_costs_its_copies_and_no_more() -> None:
    cluster = Cluster([5] * 4, 100)
    before = solved_choice(cluster.assignment())
    assert cluster.loads(before) == [15] * 20
    cluster.usable[7] = False
    after = solved_choice(cluster.assignment(before, tolerance=4))
    assert np.array_equal(before != after, before == 7)


def test_racks_of_unequal_size_are_as_even_as_the_racks_allow() -> None:
    cluster = Cluster([8, 6, 4, 2], 50)
    loads = cluster.loads(solved_choice(cluster.assignment()))
    assert sum(loads[:8]) == 50, "a rack takes one copy of each segment at most"
    assert set(loads[:8]) == {6, 7}
    assert set(loads[8:]) == {8, 9}


def test_the_third_rack_lost_is_no_placement() -> None:
    cluster = Cluster([3, 3, 3], 20)
    before = solved_choice(cluster.assignment())
    cluster.usable[6:] = False
    assert flow.solve(cluster.assignment(before)).choice is None


def test_two_copies_in_a_rack_are_on_two_hosts() -> None:
    """Units of one segment in one pool: dealt out so that they never meet."""
    cluster = Cluster([3, 3], 40, per_rack=2)
    before = solved_choice(cluster.assignment())
    cluster.usable[1] = False
    after = solved_choice(cluster.assignment(before))
    assert all(len(set(hosts)) == 3 for hosts in after.reshape(-1, 3).tolist())


def test_where_dealing_out_fails_every_pair_gets_its_arc() -> None:
    """A rack must take two copies of each segment, and one of its two hosts may hold one copy in all."""
    cluster = Cluster([2, 1], 3, per_rack=2)
    assignment = cluster.assignment()
    everyone = np.zeros(9, np.int32)
    host = np.arange(3, dtype=np.int32)
    room = Limit("room", Load(everyone, 1, host, 3, np.ones(9, np.int64)), amounts(0), amounts(1, 9, 9))
    assert flow.solve(replace(assignment, limits=(*assignment.limits, room))).choice is None


def test_unequal_sizes_are_counted_and_then_checked() -> None:
    cluster = Cluster([2, 2, 2], 4)
    assignment = cluster.assignment()
    sizes = np.repeat(np.array([1, 1, 1, 9], np.int64), 3)
    by_host = Load(np.zeros(12, np.int32), 1, np.arange(6, dtype=np.int32), 6, sizes)
    roomy = Limit("bytes", by_host, amounts(0), amounts(*[12] * 6))
    solved_choice(replace(assignment, limits=(*assignment.limits, roomy)))
    none = Limit("bytes", by_host, amounts(0), amounts(*[1] * 6))
    assert flow.solve(replace(assignment, limits=(*assignment.limits, none))).choice is None
    tight = Limit("bytes", by_host, amounts(0), amounts(9, 9, 9, 2, 2, 2))
    try:
        choice = flow.solve(replace(assignment, limits=(*assignment.limits, tight))).choice
    except NotAFlowError as reason:
        assert "bytes would be broken" in str(reason)  # noqa: PT017 - either is right
    else:
        assert choice is not None


# ---- what is refused ----------------------------------------------------------------------------------


def row(values: int = 3, rows: int = 4) -> Assignment:
    return Assignment(
        values,
        np.zeros(rows, np.int32),
        np.ones((1, values), np.bool_),
        np.ones(rows, np.bool_),
        np.full(rows, NONE, np.int32),
        (),
        (),
    )


def load(group: list[int], bucket: list[int], weight: list[int] | None = None) -> Load:
    return Load(
        np.array(group, np.int32),
        max(group) + 1,
        np.array(bucket, np.int32),
        max(bucket) + 1,
        np.array(weight or [1] * len(group), np.int64),
    )


def paying(cost: LoadCost) -> Assignment:
    return replace(row(), tiers=(Tier(1, (cost,)),))


def concave(loads: tuple[Amounts, ...]) -> Amounts:
    found: Amounts = -(loads[0] ** 2)
    return found


def plain(loads: tuple[Amounts, ...]) -> Amounts:
    return loads[0]


def together(loads: tuple[Amounts, ...]) -> Amounts:
    return loads[0] + loads[1]


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (paying(LoadCost("c", 1, (load([0] * 4, [0, 1, 2]),), concave, False)), "c is not convex"),
        (paying(LoadCost("c", -1, (load([0] * 4, [0, 1, 2]),), lambda x: x[0] ** 2, False)), "c is not convex"),
        (paying(LoadCost("c", 1, (load([0] * 4, [0, 1, 2]),), plain, True)), "c is a peak"),
        (paying(LoadCost("c", 1, (load([0] * 4, [0, 1, 2], [1, 1, 1, 2]),), plain, False)), "amounts that differ"),
        (
            paying(LoadCost("c", 1, (load([0] * 4, [0, 0, 1]), load([0] * 4, [0, 1, 1])), together, False)),
            "two different loads",
        ),
        (
            replace(row(), limits=tuple(
                Limit(name, load([0] * 4, buckets), amounts(0), amounts(2))
                for name, buckets in (("one", [0, 0, 1]), ("other", [0, 1, 1]))
            )),
            "one and other count across each other",
        ),
        (
            replace(row(), allowed=np.array([[True] * 3, [True, True, False]]),
                    row_class=np.array([0, 1, 0, 1], np.int32),
                    limits=(Limit("l", load([0, 0, 1, 1], [0, 1, 2]), amounts(0), amounts(1)),)),
            "may not choose, pay or count alike",
        ),
    ],
)  # fmt: skip
def test_what_is_no_network_is_refused_with_the_reason(assignment: Assignment, reason: str) -> None:
    with pytest.raises(NotAFlowError, match=reason):
        flow.solve(assignment)


# ---- time ---------------------------------------------------------------------------------------------


def test_a_flow_is_begun_only_where_there_is_time_for_it() -> None:
    now = 9.0
    deadline = Deadline(10.0, clock=lambda: now)
    check_time(ARCS_PER_SECOND, deadline)
    with pytest.raises(LateFlowError, match="longer than the time that is left"):
        check_time(ARCS_PER_SECOND + 1, deadline)
    now = 11.0
    check_time(ALWAYS, deadline)
    with pytest.raises(LateFlowError):
        check_time(ALWAYS + 1, deadline)


def test_where_there_is_no_time_for_a_flow_some_placement_is_found_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No second is given: a network of few arcs is solved all the same."""
    more = Cluster([20] * 5, 400).assignment()
    assert solve(more, deadline=Deadline.after(0), seed=0).engine == "min-cost flow"
    monkeypatch.setattr(solver, "ALWAYS", 100)
    found = solve(more, deadline=Deadline.after(0), seed=0)
    assert found.engine != "min-cost flow"
    assert any("takes longer than the time that is left" in note for note in found.notes)
    assert found.choice is not None
    assert not any(more.broken(found.choice))
    exact = flow.solve(more)
    assert found.bounds <= exact.worth <= found.worth


def test_what_is_too_large_for_any_other_engine_ends_when_time_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "ALWAYS", 100)
    with pytest.raises(SolveTimeout, match="takes longer than the time that is left"):
        solve(Cluster([40] * 5, 1000).assignment(), deadline=Deadline.after(0), seed=0)

"""Clashes of assignments on counts: against enumeration, and at size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgmt.compiler.model import Model
from mgmt.optimization.assignment import UNLIMITED, Amounts, Assignment, Indices, Limit, Load, Mask, Skew
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.infeasibility import assignment_core, count_problem
from mgmt.optimization.infeasibility.assignment_core import find_clash, least_gives
from mgmt.optimization.infeasibility.closed_form import blocked_alone
from mgmt.optimization.infeasibility.constraint_instances import Ban, ConstraintSet, Instance
from mgmt.optimization.infeasibility.count_problem import Answer, solve
from mgmt.optimization.infeasibility.limit_overflow import overflow
from tests.mgmt.support import database
from tests.mgmt.test_relaxations import assert_each_helps, infeasible


def holds(constraints: ConstraintSet, choice: tuple[int, ...], some: tuple[Instance, ...]) -> bool:
    """Whether a choice (V: no value) satisfies these constraints."""
    chosen = np.array([value if value < constraints.values else -1 for value in choice], np.int32)
    for instance in some:
        if instance.is_ban:
            ban = constraints.bans[instance.source]
            if any(
                ban.row_class[row] == instance.group and ban.forbidden[instance.group, value]
                for row, value in enumerate(choice)
            ):
                return False
        elif instance.is_skew:
            if _above_the_least(constraints.skews[instance.source], chosen)[instance.bucket] > 0:
                return False
        else:
            lower, upper = constraints.limits[instance.source].bounds
            load = constraints.limits[instance.source].load.of(chosen)[instance.group, instance.bucket]
            if not lower[instance.group, instance.bucket] <= load <= upper[instance.group, instance.bucket]:
                return False
    return True


def _above_the_least(skew: Skew, chosen: Indices) -> list[int]:
    """Per bucket by how much it is above what may be."""
    (load,) = skew.load.of(chosen).tolist()
    least = min((own + base for own, base in zip(load, skew.base.tolist(), strict=True)), default=0)
    return [
        0 if own <= excused else max(0, own + above - least)
        for own, above, excused in zip(load, skew.above.tolist(), skew.excused.tolist(), strict=True)
    ]


def alike(rows: int, values: int, nullable: bool) -> tuple[Indices, Mask]:
    """That rows may choose any value, or none if they are nullable."""
    return np.zeros(rows, np.int32), np.append(np.ones(values, np.bool_), nullable)[None, :]


def choices(constraints: ConstraintSet) -> list[tuple[int, ...]]:
    """All that may be chosen whatever is dropped (V: no value)."""
    options = (np.flatnonzero(constraints.allowed[each]).tolist() for each in constraints.row_class)
    return list(product(*options))


def possible(constraints: ConstraintSet, some: tuple[Instance, ...]) -> bool:
    return any(holds(constraints, choice, some) for choice in choices(constraints))


def everything(constraints: ConstraintSet) -> tuple[Instance, ...]:
    limits = [
        Instance(limit.name, place, group, bucket)
        for place, limit in enumerate(constraints.limits)
        for group in range(limit.load.groups)
        for bucket in range(limit.load.buckets)
    ]
    skews = [
        Instance(skew.name, place, -1, bucket)
        for place, skew in enumerate(constraints.skews)
        for bucket in range(skew.load.buckets)
    ]
    return (*constraints.all_bans(), *limits, *skews)


@st.composite
def random_constraints(draw: st.DrawFn) -> ConstraintSet:
    rows, values = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    limits = []
    for name in range(draw(st.integers(0, 3))):
        groups, buckets = draw(st.integers(1, 2)), draw(st.integers(1, values))
        load = Load(
            np.array(draw(st.lists(st.integers(-1, groups - 1), min_size=rows, max_size=rows)), np.int32),
            groups,
            np.array(
                draw(st.lists(st.integers(-1, buckets - 1), min_size=values, max_size=values)), np.int32
            ),
            buckets,
            np.array(draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)), np.int64),
        )
        cells = st.lists(st.integers(0, 4), min_size=groups * buckets, max_size=groups * buckets)
        lower = np.array(draw(cells), np.int64).reshape(groups, buckets) // 3
        upper = lower + np.array(draw(cells), np.int64).reshape(groups, buckets)
        limits.append(Limit(f"limit {name}", load, lower, upper))
    bans = []
    for name in range(draw(st.integers(0, 2))):
        kinds = draw(st.integers(1, 2))
        forbidden = draw(
            st.lists(st.booleans(), min_size=kinds * (values + 1), max_size=kinds * (values + 1))
        )
        classes = draw(st.lists(st.integers(-1, kinds - 1), min_size=rows, max_size=rows))
        bans.append(
            Ban(f"ban {name}", np.array(classes, np.intp), np.array(forbidden).reshape(kinds, values + 1))
        )
    skews = [draw(random_skew(rows, values, f"skew {name}")) for name in range(draw(st.integers(0, 2)))]
    allowed = st.lists(st.booleans(), min_size=values + 1, max_size=values + 1)
    table = np.array(draw(st.lists(allowed, min_size=1, max_size=2)))
    if draw(st.booleans()):  # else hardly any clash is of demands alone
        table[:, :-1] = True
    row_class = draw(st.lists(st.integers(0, len(table) - 1), min_size=rows, max_size=rows))
    return ConstraintSet(np.array(row_class), table, tuple(limits), tuple(bans), tuple(skews))


@st.composite
def random_skew(draw: st.DrawFn, rows: int, values: int, name: str) -> Skew:
    buckets = draw(st.integers(1, values + 1))

    def drawn(each: st.SearchStrategy[int], number: int = buckets) -> Amounts:
        return np.array(draw(st.lists(each, min_size=number, max_size=number)), np.int64)

    load = Load(
        drawn(st.integers(-1, 0), rows).astype(np.int32),
        1,
        drawn(st.integers(-1, buckets - 1), values).astype(np.int32),
        buckets,
        drawn(st.integers(0, 2), rows),
    )
    base = drawn(st.sampled_from([0, 0, 1, 2, int(UNLIMITED)]))
    above = drawn(st.sampled_from([-2, -1, 0, 1, -int(UNLIMITED)]))
    return Skew(name, load, base, above, drawn(st.integers(-1, 1)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_constraints())
def test_a_clash_is_found_when_there_is_one_and_is_minimal(constraints: ConstraintSet) -> None:
    found = find_clash(constraints, deadline=Deadline.after(60))
    assert (found is None) == possible(constraints, everything(constraints))
    if found is None:
        return
    assert found.minimal
    assert not possible(constraints, found.instances)
    if not choices(constraints):
        assert not found.instances
    for instance in found.instances:
        assert possible(constraints, tuple(other for other in found.instances if other != instance))
    names = {instance.constraint for instance in found.instances}
    for name in names:
        assert possible(
            constraints, tuple(d for d in everything(constraints) if d.constraint in names - {name})
        )


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_constraints(), st.integers(0, 2**32))
def test_rows_that_demands_keep_from_every_value_by_themselves(constraints: ConstraintSet, seed: int) -> None:
    random = Random(seed)
    some = [instance for instance in everything(constraints) if random.random() < 0.7]

    def kept_from(row: int, value: int, instance: Instance) -> bool:
        if instance.is_ban:
            ban = constraints.bans[instance.source]
            return bool(ban.row_class[row] == instance.group and ban.forbidden[instance.group, value])
        if instance.is_skew or value == constraints.values:
            return False
        limit = constraints.limits[instance.source]
        inside = limit.load.group[row] == instance.group and limit.load.bucket[value] == instance.bucket
        weight = limit.load.weight[row]
        return bool(inside and weight > 0 and limit.bounds[1][instance.group, instance.bucket] < weight)

    expected = [
        all(
            any(kept_from(row, value, instance) for instance in some)
            for value in np.flatnonzero(constraints.allowed[constraints.row_class[row]]).tolist()
        )
        for row in range(constraints.rows)
    ]
    assert blocked_alone(constraints, some).tolist() == expected


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_constraints(), st.booleans())
def test_what_gives_is_enough_and_the_least(constraints: ConstraintSet, whole: bool) -> None:
    found = find_clash(constraints, deadline=Deadline.after(60))
    if found is None or not found.instances:
        return
    name = found.instances[0].constraint
    gives = least_gives(
        constraints, frozenset({name}), found.instances, whole=whole, deadline=Deadline.after(60)
    )
    others = tuple(instance for instance in everything(constraints) if instance.constraint != name)
    costs = [
        _cost(constraints, choice, name, whole)
        for choice in choices(constraints)
        if holds(constraints, choice, others)
    ]
    known = [cost for cost in costs if cost is not None]
    if gives is None:
        assert not known
        return
    skews = {give.instance.source: give.above for give in gives if give.instance.is_skew and not give.waived}
    others_give = [give for give in gives if not (give.instance.is_skew and not give.waived)]
    total = sum(skews.values()) + sum(
        give.above + give.below + len(give.rows) + (give.waived and not give.rows) for give in others_give
    )
    assert total == min(known)


def _cost(constraints: ConstraintSet, choice: tuple[int, ...], name: str, whole: bool) -> int | None:
    """What a constraint must give for a choice: rows and groups, or amounts; None where an amount is no help."""
    chosen = np.array([value if value < constraints.values else -1 for value in choice], np.int32)
    total = 0
    for ban in constraints.bans:
        broken = sum(
            ban.row_class[row] >= 0 and bool(ban.forbidden[ban.row_class[row], value])
            for row, value in enumerate(choice)
        )
        if ban.name == name and broken and not whole:
            return None
        total += broken if ban.name == name else 0
    for skew in constraints.skews:
        if skew.name == name:
            missed = np.array(_above_the_least(skew, chosen))
            total += int((missed > 0).sum() if whole else missed.max())  # one number raises all buckets
    for limit in constraints.limits:
        if limit.name == name:
            lower, upper = limit.bounds
            load = limit.load.of(chosen)
            missed = np.maximum(load - upper, 0) + np.maximum(lower - load, 0)
            total += int((missed > 0).sum() if whole else missed.sum())
    return total


SCHEMA = """
CREATE TABLE node (name TEXT PRIMARY KEY, disk TEXT NOT NULL, cpu INTEGER NOT NULL);
CREATE TABLE pod (id INTEGER PRIMARY KEY, cpu INTEGER NOT NULL, wants TEXT, app INTEGER NOT NULL, node TEXT,
  variable__node TEXT NOT NULL REFERENCES node (name));
"""
POLICY = """
CREATE CONSTRAINT capacity AS
SELECT node.name, node.cpu FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu CHECK sum(pod.cpu) <= node.cpu;
CREATE CONSTRAINT selector AS
SELECT pod.id, pod.wants FROM pod JOIN node ON pod.variable__node = node.name
WHERE pod.wants IS NOT NULL CHECK node.disk = pod.wants;
CREATE CONSTRAINT apart AS
SELECT pod.app, node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.name CHECK count(*) <= 1;
"""


def test_at_a_thousand_nodes_the_core_has_its_rows_and_what_is_offered_helps() -> None:
    """Ten pods of one application want the disks that eight nodes of a thousand have."""
    rows = {
        "node": [{"name": f"n{i:03}", "disk": "ssd" if i < 8 else "hdd", "cpu": 20} for i in range(1000)],
        "pod": [
            {"id": i, "cpu": 2, "wants": "ssd" if i % 5 == 0 else None, "app": i % 5, "node": None}
            for i in range(50)
        ],
    }
    model = Model.build(database(SCHEMA, rows), POLICY)  # type: ignore[arg-type]
    error = infeasible(model, budget=60)
    assert error.minimal
    core = {member.constraint: member for member in error.core}
    assert set(core) == {"selector", "apart"}
    assert {row["id"] for row in core["selector"].rows} == {i for i in range(50) if i % 5 == 0}
    assert {row["name"] for row in core["apart"].rows} == {f"n{i:03}" for i in range(8)}
    assert core["apart"].clash == "together they need at least 10 and allow 8"
    offered = [str(relaxation) for relaxation in error.relaxations]
    assert "add 2 rows of node like n000" in offered
    assert any(text.startswith("drop selector for id ") for text in offered)
    assert not any("less may do" in text for text in offered)
    assert_each_helps(model, error)


def test_of_many_rows_the_one_is_told_that_fits_nowhere() -> None:
    """All fifty pods may choose alike; one of them needs more than any node of a thousand has."""
    rows = {
        "node": [{"name": f"n{i:03}", "disk": "hdd", "cpu": 20} for i in range(1000)],
        "pod": [
            {"id": i, "cpu": 21 if i == 7 else 2, "wants": "hdd", "app": i, "node": None} for i in range(50)
        ],
    }
    rule = "CREATE CONSTRAINT placed AS SELECT id FROM pod CHECK variable__node IS NOT NULL;"
    schema = SCHEMA.replace("variable__node TEXT NOT NULL", "variable__node TEXT")
    assert schema != SCHEMA
    error = infeasible(Model.build(database(schema, rows), POLICY + rule), budget=60)  # type: ignore[arg-type]
    core = {member.constraint: member for member in error.core}
    assert (error.minimal, set(core), core["capacity"].count) == (True, {"capacity", "placed"}, 1000)
    assert core["placed"].rows == ({"id": 7},)


SPREAD_SCHEMA = """
CREATE TABLE team (name TEXT PRIMARY KEY, skew INTEGER NOT NULL);
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL, room INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, team TEXT NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
SPREAD_POLICY = """
CREATE CONSTRAINT room AS SELECT host.name, host.room FROM task JOIN host ON task.variable__host = host.name
  GROUP BY host.name, host.room CHECK count(*) <= host.room;
CREATE VIEW held AS SELECT team.name AS team, team.skew, host.rack, count(*) AS tasks
  FROM team JOIN task ON task.team = team.name JOIN host ON task.variable__host = host.name
  GROUP BY team.name, team.skew, host.rack;
CREATE VIEW least AS SELECT team, min(tasks) AS tasks FROM held GROUP BY team;
CREATE CONSTRAINT even AS SELECT held.team, held.skew, held.rack FROM held JOIN least ON least.team = held.team
  CHECK held.tasks - least.tasks <= held.skew;
"""


@pytest.mark.slow("a thousand nodes, and a solve for each relaxation")
def test_a_clash_with_a_skew_at_a_thousand_nodes_has_its_rows_and_what_is_offered_helps() -> None:
    """Of the third rack three hosts have room for two tasks each, so it takes too few of each team's 25."""
    rows = {
        "team": [{"name": team, "skew": 1} for team in "st"],
        "host": [
            {"name": f"h{i:03}", "rack": "xyz"[i % 3], "room": 0 if i % 3 == 2 and i > 8 else 2}
            for i in range(1000)
        ],
        "task": [{"id": i, "team": "st"[i % 2], "host": None} for i in range(50)],
    }
    model = Model.build(database(SPREAD_SCHEMA, rows), SPREAD_POLICY)  # type: ignore[arg-type]
    error = infeasible(model, budget=60)
    assert error.minimal
    core = {member.constraint: member for member in error.core}
    assert (core["room"].count, core["even"].count) == (333, 2)
    assert {row["rack"] for row in core["even"].rows} == {"x", "y"}
    assert len({row["team"] for row in core["even"].rows}) == 1
    assert [str(relaxation).split(" by ")[0] for relaxation in error.relaxations][:1] == ["raise h002.room"]
    assert "add 5 rows of host like h002" in [str(relaxation) for relaxation in error.relaxations]
    assert_each_helps(model, error)


def test_demands_that_are_alike_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twenty racks two have hardly any room; one host after the other would take hundreds of models."""
    host = np.arange(1000, dtype=np.int32)
    team = (np.arange(300) % 3).astype(np.int32)
    one = np.ones(300, np.int64)
    room = np.where((host % 20 < 2) & (host > 40), 0, 2)
    limits = (
        Limit(
            "room",
            Load(np.zeros(300, np.int32), 1, host, 1000, one),
            np.zeros((1, 1), np.int64),
            room[None].astype(np.int64),
        ),
    )
    zero = np.zeros(20, np.int64)
    skews = tuple(
        Skew(
            f"even {number}",
            Load(np.where(team == number, 0, -1).astype(np.int32), 1, (host % 20).astype(np.int32), 20, one),
            zero,
            zero - 1,
            zero - 1,
        )
        for number in range(3)
    )
    asked: list[int] = []

    def counted(constraints: ConstraintSet, some: Sequence[Instance], seconds: float) -> Answer:
        asked.append(len(some))
        return solve(constraints, some, seconds)

    monkeypatch.setattr(assignment_core, "solve", counted)
    constraints = ConstraintSet(*alike(300, 1000, False), limits, (), skews)
    found = find_clash(constraints, deadline=Deadline.after(60))
    assert found is not None
    assert found.minimal
    grown = asked.index(len(found.instances) - 1)
    assert grown < 30, "before the first instance is tried alone"
    assert sum(1 for instance in found.instances if instance.is_limit) <= 100


@pytest.mark.slow("4000 rows and 2000 values")
def test_what_is_too_much_for_all_hosts_together_is_seen_at_once() -> None:
    load = Load(
        np.zeros(4000, np.int32), 1, np.arange(2000, dtype=np.int32), 2000, np.full(4000, 6, np.int64)
    )
    zero = np.zeros((1, 1), np.int64)
    short = Limit("room", load, zero, np.full((1, 2000), 11, np.int64))
    found = find_clash(ConstraintSet(*alike(4000, 2000, False), (short,), ()), deadline=Deadline.after(60))
    assert found is not None
    assert (len(found.instances), found.minimal) == (2000, True)
    tiny = Limit("room", load, zero, np.full((1, 2000), 5, np.int64))
    assert (
        find_clash(ConstraintSet(*alike(4000, 2000, False), (tiny,), ()), deadline=Deadline.after(60))
        == found
    ), "no row fits anywhere"


def short_of_room(pods: int, cpu: int, nodes: int, room: int) -> Model:
    """Pods of about so much on as many nodes with about so much room."""
    rows = {
        "node": [{"name": f"n{i:03}", "disk": "hdd", "cpu": room + i % 3} for i in range(nodes)],
        "pod": [{"id": i, "cpu": cpu + i % 2, "wants": None, "app": i, "node": None} for i in range(pods)],
    }
    return Model.build(database(SCHEMA, rows), POLICY)  # type: ignore[arg-type]


@pytest.mark.slow("a thousand nodes")
def test_what_helps_where_a_thousand_nodes_are_too_small_together() -> None:
    model = short_of_room(2250, 5, 1000, 11)
    error = infeasible(model, budget=60)
    assert [(member.constraint, member.count) for member in error.core] == [("capacity", 1000)]
    assert error.minimal
    offered = [str(relaxation) for relaxation in error.relaxations]
    assert [text.split(" ")[0] for text in offered] == ["raise", "add", "drop"]
    assert [text.endswith("(less may do)") for text in offered] == [True, False, True]
    assert_each_helps(model, error)


@pytest.mark.slow("a thousand pods, and a solve for each relaxation")
def test_what_helps_where_too_few_pods_fit_on_a_node() -> None:
    """There is room enough for all of them in all, and on each node for one and a half."""
    model = short_of_room(1030, 10, 1000, 16)
    error = infeasible(model, budget=60)
    assert [(member.constraint, member.count) for member in error.core] == [("capacity", 1000)]
    assert error.minimal
    assert "add 30 rows of node like n000" in [str(relaxation) for relaxation in error.relaxations]
    assert_each_helps(model, error)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_constraints())
def test_what_overflows_is_above_some_limits_and_nothing_else(constraints: ConstraintSet) -> None:
    assignment = Assignment(
        constraints.values,
        constraints.row_class.astype(np.int32),
        constraints.allowed[:, :-1],
        ~constraints.allowed[constraints.row_class, -1],
        np.full(constraints.rows, -1, np.int32),
        constraints.limits,
        (),
    )
    names = {"limit 0", "limit 2"}
    found = overflow(assignment, names, deadline=Deadline.after(60))
    if found is None:
        return
    kept = tuple(limit for limit in constraints.limits if limit.name not in names)
    assert not list(replace(assignment, limits=kept).broken(found.choice))
    excess = {
        (place, group, bucket): int(load[group, bucket] - limit.bounds[1][group, bucket])
        for place, limit in enumerate(constraints.limits)
        if limit.name in names
        for load in [limit.load.of(found.choice)]
        for group in range(limit.load.groups)
        for bucket in range(limit.load.buckets)
    }
    assert {(place, group, bucket): above for place, group, bucket, above in found.above} == {
        place: above for place, above in excess.items() if above > 0
    }


def test_as_few_buckets_as_can_be_take_what_is_too_much() -> None:
    """Of three rows for two places of one, one is too much; two that must be apart overflow two places."""
    ones, one = np.ones(4, np.int64), np.ones((1, 1), np.int64)
    room = Limit("room", Load(np.zeros(4, np.int32), 1, np.arange(2, dtype=np.int32), 2, ones), 0 * one, one)
    pairs = np.array([0, 0, 1, 1], np.int32)
    apart = Limit("apart", Load(pairs, 2, np.arange(2, dtype=np.int32), 2, ones), 0 * one, one)
    required = np.ones(4, np.bool_)
    none = np.full(4, -1, np.int32)
    everything = np.ones((1, 2), np.bool_)
    free = Assignment(2, np.zeros(4, np.int32), everything, required, none, (room,), ())
    found = overflow(free, {"room"}, deadline=Deadline.after(60))
    assert found is not None
    assert [above for *_, above in found.above] == [2]
    found = overflow(replace(free, limits=(room, apart)), {"room"}, deadline=Deadline.after(60))
    assert found is not None
    assert [above for *_, above in found.above] == [1, 1]


def test_what_is_too_much_for_the_buckets_that_bans_leave_is_seen_with_them() -> None:
    """Half of 2000 buckets may not be chosen, by two bans of which one alone would do."""
    rows, values = 3000, 2000
    load = Load(
        np.zeros(rows, np.int32), 1, np.arange(values, dtype=np.int32), values, np.ones(rows, np.int64)
    )
    zero = np.zeros((1, 1), np.int64)
    room = Limit("room", load, zero, np.full((1, values), 2, np.int64))
    forbidden = np.append(np.arange(values) % 2 == 1, True)[None, :]
    nobody = np.zeros((1, values + 1), np.bool_)
    nobody[0, 1::2] = np.arange(values // 2) % 2 == 0
    bans = (Ban("some", np.zeros(rows, np.intp), nobody), Ban("odd", np.zeros(rows, np.intp), forbidden))
    found = find_clash(ConstraintSet(*alike(rows, values, True), (room,), bans), deadline=Deadline.after(600))
    assert found is not None
    assert found.minimal
    assert [instance for instance in found.instances if instance.is_ban] == [Instance("odd", 1, 0, -1)]
    assert [instance.bucket for instance in found.instances if not instance.is_ban] == list(
        range(0, values, 2)
    )


@pytest.mark.slow("350 000 cells: it has to be as large as that")
def test_what_is_too_large_to_look_at_rows_is_told_by_constraints() -> None:
    """That pods must be on one node is no limit on loads, and cell by cell there are 350 000 of them.

    Nine seconds, for it has to be as large as that.
    """
    rows = {
        "node": [{"name": f"n{i:03}", "disk": "hdd", "cpu": 20} for i in range(1000)],
        "pod": [{"id": i, "cpu": 1, "wants": None, "app": 0, "node": None} for i in range(350)],
    }
    together = """
    CREATE CONSTRAINT together AS SELECT app FROM pod GROUP BY app CHECK count(DISTINCT variable__node) = 1;
    """
    model = Model.build(database(SCHEMA, rows), POLICY + together)  # type: ignore[arg-type]
    error = infeasible(model, budget=60)
    assert error.minimal
    assert "together" in error.constraints
    assert len(set(error.constraints) & {"capacity", "apart"}) == 1, "either clashes with it"
    assert len(error.constraints) == 2
    assert not any(member.rows for member in error.core)


def test_a_model_that_there_is_no_time_to_build_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task is a kind of its own, and every host: 12 000 cells, where a minute is enough for 6000."""
    monkeypatch.setattr(count_problem, "CELLS_PER_SECOND", 100)
    tasks, hosts = 60, 200
    one_each = Load(
        np.arange(tasks, dtype=np.int32),
        tasks,
        np.arange(hosts, dtype=np.int32),
        hosts,
        np.ones(tasks, np.int64),
    )
    zero, one = np.zeros((1, 1), np.int64), np.ones((1, 1), np.int64)
    constraints = ConstraintSet(*alike(tasks, hosts, False), (Limit("once", one_each, zero, one),), ())
    some = [Instance("once", 0, task, host) for task, host in product(range(tasks), range(hosts))]
    assert solve(constraints, some, Deadline.after(60)).clashes is None
    assert solve(constraints, some[: 10 * hosts], Deadline.after(60)).clashes is False

"""What clashes among lifted demands, and what they must give, against the same problem cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from mgmt.compiler.infeasibility.clashes import slack_of_cells
from mgmt.compiler.infeasibility.lifted_clash import LiftedClash
from mgmt.compiler.model import Model
from mgmt.compiler.parts.encoded_part import EncodedPart
from mgmt.optimization.backends import AnswerStatus
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.infeasibility.constraint_instances import Instance
from mgmt.optimization.infeasibility.problem_core import restricted
from mgmt.optimization.problem import Problem, Tag
from mgmt.state.database import Database
from tests.budget import budgeted
from tests.mgmt.support import database
from tests.mgmt.test_assignment_clash import POLICY, SCHEMA
from tests.mgmt.test_relaxations import (
    CROWDED,
    ROOMS,
    RULES,
    SPARE,
    assert_each_helps,
    infeasible,
    random_state,
)

BACKEND = CpSatBackend()


def encoded(state: Database, policy: str) -> EncodedPart:
    model = Model.build(state, policy)
    with state.snapshot() as snapshot:
        part = EncodedPart.encode(snapshot, model.program, model.catalog, None, BACKEND)
        _ = part.encoding.problem  # cell by cell, while the state is there
        return part


def clash_of(part: EncodedPart) -> LiftedClash | None:
    assert part.cells is not None
    return LiftedClash.of(part.encoding, part.cells, BACKEND, deadline=Deadline.after(60), seed=0)


def clashes(problem: Problem, rows: Sequence[Tag]) -> bool:
    answer = BACKEND.load(restricted(problem, rows=frozenset(rows))).minimize(None, {}, 60, 0, 1)
    assert answer.status is not AnswerStatus.UNKNOWN
    return answer.status is AnswerStatus.INFEASIBLE


def rows_of(clash: LiftedClash, instance: Instance) -> list[Tag]:
    """All the rows that an instance is."""
    choosers = [-1]
    if instance.is_ban:
        classes = clash.lifted.constraints.bans[instance.source].row_class
        choosers = [row for row, kind in enumerate(classes.tolist()) if kind == instance.group]
    rows = {row for chooser in choosers for row in clash.lifted.rows_of(instance, chooser).tolist()}
    return [Tag(instance.constraint, row) for row in sorted(rows)]


def assert_the_least(part: EncodedPart, clash: LiftedClash, name: str, *, whole: bool) -> None:
    """What a constraint must give is what it must cell by cell."""
    told = [
        clash.slack({name}, Deadline.after(60), whole=whole),
        slack_of_cells(
            part.encoding.problem, BACKEND, {name}, whole=whole, deadline=Deadline.after(60), seed=0
        ),
    ]
    assert all(slack is None or slack.least for slack in told)
    worth = [slack and sum(give.above + give.below + give.waived for give in slack.gives) for slack in told]
    # Of two cells of which one may hold an amount says nothing, where of a count it does.
    assert worth[1] in {None, worth[0]}, name


@pytest.mark.parametrize("chunk", budgeted(range(6), 1))
def test_the_rows_of_a_clash_do_and_no_instance_of_it_can_be_spared(chunk: int) -> None:
    found = 0
    for seed in range(20 * chunk, 20 * chunk + 20):
        rows, policy = random_state(seed)
        for task in rows["task"]:
            task["weight"] = int(str(task["weight"])) * Random(seed).randint(1, 3)
        part = encoded(database(CROWDED, rows), policy)
        clash, problem = clash_of(part), part.encoding.problem
        if clash is None:
            continue
        found += 1
        assert clash.minimal
        told = {instance: rows_of(clash, instance) for instance in clash.clashing.instances}
        assert all(told.values())
        assert clashes(problem, [tag for tags in told.values() for tag in tags]), f"seed {seed}"
        for instance in told:
            others = {tag for other, tags in told.items() if other != instance for tag in tags}
            assert not clashes(problem, [*others]), f"seed {seed}: {instance}"
        if clash.certain:
            banned = {instance.constraint for instance in told if instance.is_ban}
            for name in set(clash.core) - banned:
                assert_the_least(part, clash, name, whole=False)
                assert_the_least(part, clash, name, whole=True)
    assert found >= 5


def test_what_gives_is_told_of_the_side_and_in_the_amounts_of_the_row() -> None:
    """The sum is on the right, and of weights that are all multiples of 5."""
    rows = {
        "rack": [{"name": "r0", "power": 13}, {"name": "r1", "power": 8}],
        "host": [{"name": f"h{n}", "rack": f"r{n}"} for n in range(2)],
        "used": [{"rack": "r0", "power": 4}, {"rack": "r1", "power": 1}],
        "task": [{"id": i, "power": 5, "host": None} for i in range(3)],
    }
    clash = clash_of(encoded(database(ROOMS, rows), SPARE))  # type: ignore[arg-type]
    assert clash is not None
    (member,) = clash.members({})
    assert [row["left_over"] for row in member.rows] == [9, 7]
    slack = clash.slack({"power"}, Deadline.after(60), whole=False)
    assert slack is not None
    assert [(give.above, give.below, clash.rows["power"][give.tag.row]["rack"]) for give in slack.gives] == [
        (0, 1, "r0")
    ]


def test_what_several_rows_forbid_a_row_is_told_as_what_they_have_in_common() -> None:
    """A REASON may speak of what only each of them has."""
    rows = {
        "node": [{"name": f"n{i}", "disk": "hdd", "cpu": 20} for i in range(5)],
        "pod": [{"id": i, "cpu": 2, "wants": "ssd", "app": i, "node": None} for i in range(2)],
    }
    rule = POLICY.replace(
        "CHECK node.disk = pod.wants;",
        "CHECK node.disk = pod.wants REASON '{id} wants {wants}, but {name}';",
    ).replace("SELECT pod.id, pod.wants", "SELECT pod.id, pod.wants, node.name")
    state = database(SCHEMA, rows)  # type: ignore[arg-type]
    clash = clash_of(encoded(state, rule))
    assert clash is not None
    queries = {query.name: query for query in Model.build(state, rule).queries}
    (member,) = clash.members(queries)  # type: ignore[arg-type]
    assert member.rows == ({"id": 0, "wants": "ssd"}, {"id": 1, "wants": "ssd"})
    assert member.reason == "0 wants ssd, but n0; 1 wants ssd, but n0"


def test_of_pairs_that_are_to_be_apart_it_is_told_which_to_let_go() -> None:
    """Five tasks of one application on two hosts: three of them clash, and two and three may share the hosts."""
    rows = {
        "rack": [{"name": "r0", "power": 9}],
        "host": [{"name": f"h{n}", "rack": "r0", "size": 9, "up": True} for n in range(2)],
        "task": [{"id": n, "weight": 1, "app": 0, "host": None} for n in range(5)],
    }
    policy = f"CREATE CONSTRAINT pairs AS {RULES['pairs']};"
    model = Model.build(database(CROWDED, rows), policy)  # type: ignore[arg-type]
    error = infeasible(model)
    assert [(member.constraint, member.count) for member in error.core] == [("pairs", 3)]
    assert error.minimal
    dropped = [each for each in error.relaxations if each.waivers]
    assert [len(waiver.rows) for each in dropped for waiver in each.waivers] == [4]
    assert_each_helps(model, error)

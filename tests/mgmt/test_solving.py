"""Solving: verification, infeasible cores, budgets, determinism."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import mgmt
from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, SolveTimeout, VerificationError
from mgmt.optimization.backends import Answer, AnswerStatus
from mgmt.optimization.backends.cp_sat import CpSatBackend, CpSatSession
from mgmt.solution import SolveStatus
from mgmt.source_text import SourceText
from tests.mgmt.support import UNHURRIED, database

pytestmark = pytest.mark.usefixtures("each_database")

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL, size INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, weight INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
POLICY = """\
CREATE CONSTRAINT room AS
SELECT host.name, host.size FROM task JOIN host ON task.variable__host = host.name
GROUP BY host.name, host.size CHECK sum(weight) <= host.size;

CREATE CONSTRAINT apart AS
SELECT host.rack FROM task JOIN host ON task.variable__host = host.name
GROUP BY host.rack CHECK count(*) <= 1;

CREATE CONSTRAINT no_harm AS SELECT * FROM task CHECK weight > 0;

CREATE CONSTRAINT stay AS SELECT * FROM task WHERE variable__host <> host MINIMIZE count(*);
"""


def state_of(tasks: int, hosts: int = 4, racks: int = 2, size: int = 10) -> mgmt.Database:
    rows = {
        "host": [{"name": f"h{i}", "rack": f"r{i % racks}", "size": size} for i in range(hosts)],
        "task": [{"id": i, "weight": 1 + i, "host": None} for i in range(tasks)],
    }
    return database(SCHEMA, rows)  # type: ignore[arg-type]


def test_an_infeasible_state_names_the_clashing_constraints_with_places_and_rows() -> None:
    model = Model.build(state_of(3), SourceText("rules.sql", POLICY))
    with pytest.raises(InfeasibleError) as caught:
        model.solve(UNHURRIED)
    assert caught.value.constraints == ("apart",), "three tasks, two racks; nothing else is to blame"
    assert caught.value.minimal
    (member,) = caught.value.core
    assert str(member) == "apart (rules.sql:5:1)"
    assert {row["rack"] for row in member.rows} == {"r0", "r1"}
    assert "apart (rules.sql:5:1)" in str(caught.value)


def test_a_core_of_several_constraints_is_minimal() -> None:
    policy = POLICY + "CREATE CONSTRAINT home AS SELECT * FROM task CHECK variable__host IN ('h0', 'h2');"
    with pytest.raises(InfeasibleError) as caught:
        Model.build(state_of(2), policy).solve(UNHURRIED)
    assert set(caught.value.constraints) == {"apart", "home"}, "h0 and h2 share a rack"


class LyingSession(CpSatSession):
    """Flips one answer after the solver gave it."""

    def minimize(self, *arguments: object) -> Answer:  # type: ignore[override]
        answer = super().minimize(*arguments)  # type: ignore[arg-type]
        assert answer.values is not None
        values = answer.values.copy()
        values[1], values[2] = 1 - values[1], 1 - values[2]
        return Answer(answer.status, values, answer.bound)


class LyingBackend(CpSatBackend):
    def load(self, problem):  # type: ignore[no-untyped-def]
        return LyingSession(problem)


def test_the_database_catches_a_solver_that_errs_and_keeps_the_evidence() -> None:
    state = state_of(2, hosts=2)
    model = Model.build(
        state,
        POLICY + "CREATE CONSTRAINT h AS SELECT * FROM task CHECK id = 1 OR variable__host = 'h0';",
        backend=LyingBackend(),
    )
    with pytest.raises(VerificationError, match="database rejects") as caught:
        model.solve(seed=4)
    bundle = caught.value.bundle
    assert bundle["seed"] == 4
    assert bundle["policies"][0][1].startswith("CREATE CONSTRAINT room")
    assert b'"tables"' in bytes(bundle["database"])
    assert set(bundle["assignments"]) == {"task.variable__host"}


class SleepySession(CpSatSession):
    """Has no time for anything."""

    def minimize(self, *arguments: object) -> Answer:  # type: ignore[override]
        return Answer(AnswerStatus.UNKNOWN)


class SleepyBackend(CpSatBackend):
    def load(self, problem):  # type: ignore[no-untyped-def]
        return SleepySession(problem)


def test_no_solution_in_time_is_a_timeout_not_an_answer() -> None:
    with pytest.raises(SolveTimeout):
        Model.build(state_of(2), POLICY, backend=SleepyBackend()).solve(budget=0.2)


class HastySession(CpSatSession):
    """Finds solutions and never proves anything."""

    def minimize(self, *arguments: object) -> Answer:  # type: ignore[override]
        answer = super().minimize(None, *arguments[1:])  # type: ignore[arg-type]
        return Answer(AnswerStatus.FEASIBLE, answer.values, -7)


class HastyBackend(CpSatBackend):
    def load(self, problem):  # type: ignore[no-untyped-def]
        return HastySession(problem)


def test_a_solution_without_proof_says_so() -> None:
    policy = POLICY.replace("CHECK count(*) <= 1", "CHECK count(*) <= 9") + (
        "CREATE CONSTRAINT low AS SELECT * FROM task JOIN host ON variable__host = name MAXIMIZE "
        "sum(weight * size) - 7 TIER 2;"
    )
    solution = Model.build(state_of(2), policy, backend=HastyBackend()).solve(budget=0.3)
    assert solution.status is SolveStatus.FEASIBLE
    assert solution.gap > 0
    (low,) = [objective for objective in solution.objectives if objective.name == "low"]
    assert not low.proven


def test_the_state_that_changed_meanwhile_does_not_disturb_a_solve() -> None:
    state = state_of(2)

    class Meddling(CpSatBackend):
        def load(self, problem):  # type: ignore[no-untyped-def]
            state.execute("DELETE FROM task")
            return super().load(problem)

    solution = Model.build(state, POLICY, backend=Meddling()).solve()
    assert len(solution.deltas) == 2
    with pytest.raises(mgmt.StalePlanError):
        state.apply(solution)


def test_applying_a_solution_makes_the_next_one_unchanged() -> None:
    state = state_of(2)
    model = Model.build(state, POLICY)
    state.apply(model.solve())
    assert model.solve().status is SolveStatus.UNCHANGED


@pytest.mark.slow("two interpreters")
def test_equal_seeds_give_equal_answers_also_across_processes() -> None:
    program = (
        "from tests.mgmt.test_solving import *;"
        "s = Model.build(state_of(6, hosts=9, racks=7), POLICY).solve(seed=3, budget=30);"
        "print([(d.primary_key, d.new) for d in s.deltas])"
    )
    outputs = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1


def test_importing_mgmt_loads_no_solver_no_parser_and_no_arrays() -> None:
    heavy = ["ortools", "sqlglot", "numpy", "pandas"]
    program = f"import sys, mgmt, mgmt.state.database; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_public_name_can_be_had_and_nothing_else() -> None:
    assert len(set(mgmt.__all__)) == len(mgmt.__all__)
    for name in mgmt.__all__:
        assert getattr(mgmt, name) is not None
    assert set(mgmt._HOME_OF) == set(mgmt.__all__)
    with pytest.raises(AttributeError):
        mgmt.nothing_of_the_kind  # noqa: B018 - the access is the test


_ON = "FROM task JOIN host ON variable__host = name"


@pytest.mark.parametrize(
    ("policy", "unit"),
    [
        (f"SELECT name, sum(memory) AS total {_ON} GROUP BY name MINIMIZE max(total)", "memory"),
        (f"SELECT name, count(*) AS n {_ON} GROUP BY name MINIMIZE max(n)", "rows of task"),
        ("SELECT DISTINCT variable__host FROM task MINIMIZE count(*)", ""),
        ("WITH w AS (SELECT variable__host AS h, sum(memory) AS l FROM task GROUP BY 1) SELECT h FROM w"
         " MINIMIZE max(l)", "memory"),
        ("SELECT id FROM task WHERE variable__host <> host MINIMIZE count(*)", "rows of task"),
        ("SELECT id FROM task WHERE variable__host <> host MINIMIZE sum(memory + 1)", ""),
    ],
)  # fmt: skip
def test_an_objective_has_a_unit_that_people_know(policy: str, unit: str) -> None:
    """Not ``aggregate_2``, nor rows of a view that nobody wrote."""
    state = database(
        "CREATE TABLE host (name TEXT PRIMARY KEY); CREATE TABLE task (id INTEGER PRIMARY KEY, memory INTEGER NOT NULL,"
        " host TEXT, variable__host TEXT NOT NULL REFERENCES host (name));"
    )
    state.execute("INSERT INTO host VALUES ('h0'), ('h1')")
    state.execute("INSERT INTO task (id, memory, host) VALUES (1, 2, 'h0'), (2, 3, 'h0')")
    (objective,) = Model.build(state, f"CREATE CONSTRAINT c AS {policy};").solve(UNHURRIED).objectives
    assert objective.unit == unit

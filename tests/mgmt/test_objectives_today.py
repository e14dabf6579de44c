"""What today's values are worth by the model is what the database says of them, and nothing is taken for kept by it."""

from __future__ import annotations

import pytest

from mgmt.compiler.decisions import Assignments, Decided, no_assignments
from mgmt.compiler.model import Model
from mgmt.compiler.parts.encoded_part import EncodedPart
from mgmt.compiler.verification.oracle import Verdict
from mgmt.errors import UnsupportedConstructError
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.deadline import Deadline
from mgmt.state.database import Snapshot
from tests.mgmt.policy_grammar import NULLABLE, SCHEMA, PolicyMaker
from tests.mgmt.support import database

SMALL = """
CREATE TABLE host (name TEXT PRIMARY KEY, up BOOLEAN NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, host TEXT,
  variable__host TEXT NOT NULL DOMAIN (SELECT name FROM host WHERE name <> 'gone'));
"""
RULES = """
CREATE CONSTRAINT only_up AS SELECT id FROM task JOIN host ON variable__host = host.name CHECK host.up;
CREATE CONSTRAINT stays AS SELECT id FROM task MAXIMIZE sum(variable__host = host);
"""


def encoded(model: Model, snapshot: Snapshot) -> tuple[EncodedPart, Assignments, bool]:
    """All of a model, with today's values, and whether every variable has one that needs one."""
    part = EncodedPart.encode(snapshot, model.program, model.catalog, None, CpSatBackend())
    today = no_assignments(snapshot.schema)
    return part, today, part.current(today)


@pytest.mark.parametrize("schema", [SCHEMA, NULLABLE], ids=["assigned", "nullable"])
def test_they_are_worth_what_the_database_says(schema: str) -> None:
    told = 0
    for seed in range(20):
        maker = PolicyMaker(seed)
        state = database(schema, maker.data())
        state.execute("UPDATE host SET variable__leader = size IS NOT NULL")
        state.execute("UPDATE task SET variable__extra = (SELECT max(size) FROM host)")
        state.execute("UPDATE task SET host = (SELECT min(name) FROM host) WHERE host IS NULL AND id % 3 < 2")
        try:
            model = Model.build(state, maker.policies())
        except UnsupportedConstructError:
            continue
        with state.snapshot() as snapshot:
            part, today, complete = encoded(model, snapshot)
            worth = part.objectives_today() if complete else None
            if worth is not None:
                told += 1
                assert worth == model.oracle.examine(snapshot, today).objectives
    assert told >= 5, "the generator makes too few states in which everything has a value"


def test_values_that_may_not_be_chosen_are_left_to_the_database() -> None:
    state = database(SMALL, {"host": [{"name": name, "up": True} for name in ("a", "gone")]})
    state.insert("task", [{"id": 1, "host": "gone"}])
    with state.snapshot() as snapshot:
        part, _, complete = encoded(Model.build(state, RULES), snapshot)
        assert complete
        assert part.objectives_today() is None


def test_what_is_broken_today_is_not_kept_because_it_is_worth_most() -> None:
    state = database(SMALL, {"host": [{"name": name, "up": name != "a"} for name in "ab"]})
    state.insert("task", [{"id": 1, "host": "a"}])
    for up, host in ((False, "b"), (True, "a")):
        state.execute(f"UPDATE host SET up = {up} WHERE name = 'a'")
        with state.snapshot() as snapshot:
            part, _, _ = encoded(Model.build(state, RULES), snapshot)
            worth = part.objectives_today()
            assert worth == {"stays": 1}
            found = part.solve(Verdict((), worth), deadline=Deadline.after(20), seed=0, workers=1)
            assert isinstance(found, Decided)
            assert found.assignments["task", "variable__host"] == {(1,): host}


def test_nor_where_nothing_is_to_be_had_for_it() -> None:
    state = database(SMALL, {"host": [{"name": name, "up": name != "a"} for name in "ab"]})
    state.insert("task", [{"id": 1, "host": "a"}])
    only_up = RULES.splitlines()[1]
    with state.snapshot() as snapshot:
        part, _, _ = encoded(Model.build(state, only_up), snapshot)
        assert part.objectives_today() == {}
        found = part.solve(Verdict((), {}), deadline=Deadline.after(20), seed=0, workers=1)
        assert isinstance(found, Decided)
        assert found.assignments["task", "variable__host"] == {(1,): "b"}

"""The greatest of what choices cost, bands and budgets: the value that the constraint model finds cell by cell."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.optimization.backends.cp_sat import CpSatBackend
from tests.mgmt.support import UNHURRIED, database

SCHEMA = """
CREATE TABLE node (name TEXT PRIMARY KEY, price INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, app TEXT NOT NULL, size INTEGER NOT NULL,
  variable__node TEXT REFERENCES node (name));
CREATE TABLE app (name TEXT PRIMARY KEY);
"""
ROWS = {
    "node": [{"name": f"n{n}", "price": 2 * n - 1} for n in range(4)],
    "task": [{"id": n, "app": f"a{n % 2}", "size": 1 + n % 3} for n in range(4)],
    "app": [{"name": "a0"}, {"name": "a1"}],
}
PLACED = "FROM task JOIN node ON task.variable__node = node.name"
UNPLACED = "FROM task WHERE variable__node IS NULL"
OF_APPS = f"CREATE VIEW w AS SELECT task.app, max(node.price) AS most {PLACED} GROUP BY task.app;"
LOADS = f"CREATE VIEW l AS SELECT node.name, count(*) AS tasks, sum(task.size) AS size {PLACED} GROUP BY node.name;"
# What is NULL over no rows makes all NULL that stands beside it, unless it is taken for 0.
OBJECTIVES = (
    f"{PLACED} MINIMIZE max(node.price)",
    f"{PLACED} MINIMIZE max(node.price) + 3",
    f"{PLACED} MINIMIZE max(node.price) - 2 * count(*)",
    f"{PLACED} MINIMIZE coalesce(max(node.price), 0) - count(*)",
    f"{PLACED} MAXIMIZE min(node.price * task.size)",
    f"{PLACED} MAXIMIZE max(node.price - task.size) + 3",
    f"{PLACED} GROUP BY task.app MINIMIZE max(node.price) + 3",
    f"{PLACED} GROUP BY task.app MINIMIZE max(node.price * task.size)",
    f"{OF_APPS} FROM w MINIMIZE sum(most + 1)",
    f"{OF_APPS} FROM w MINIMIZE sum(most) + max(most)",
    f"MINIMIZE (SELECT max(node.price) {PLACED}) + (SELECT count(*) {UNPLACED})",
    f"MINIMIZE coalesce((SELECT max(node.price) {PLACED}), 0) + (SELECT 2 * count(*) {UNPLACED})",
    f"{OF_APPS} MINIMIZE (SELECT max(most) FROM w) + (SELECT count(*) {UNPLACED})",
    f"{LOADS} FROM app MINIMIZE (SELECT max(size) FROM l) - (SELECT min(size) FROM l)",
    f"{LOADS} FROM app WHERE name = 'a0' MINIMIZE 2 * (SELECT max(tasks) FROM l) - (SELECT max(size) FROM l)",
    f"{LOADS} FROM app WHERE name = 'none' MINIMIZE (SELECT max(size) FROM l)",
    f"{LOADS} FROM l AS a, l AS b MINIMIZE max(abs(a.size - b.size))",
    "FROM task AS a JOIN task AS b ON a.variable__node = b.variable__node MINIMIZE sum(a.size * b.size)",
)
CHECKS = (
    f"{PLACED} GROUP BY task.app CHECK max(node.price) - min(node.price) BETWEEN 0 AND 2",
    f"{PLACED} GROUP BY task.app CHECK sum(node.price) <= 1",
    f"{PLACED} GROUP BY task.app CHECK sum(node.price * task.size) >= 9",
    f"{PLACED} GROUP BY task.app CHECK coalesce(max(node.price), 7) <= 6",
    f"{PLACED} CHECK coalesce(min(node.price), 0) = 3",
    f"{LOADS} FROM l AS a, l AS b CHECK a.tasks - b.tasks <= 1",
    f"{LOADS} FROM app CHECK (SELECT max(size) FROM l) <= 3",
)
APART = """FROM task AS a JOIN node AS x ON a.variable__node = x.name
  JOIN task AS b ON b.app = a.app AND a.size < b.size JOIN node AS y ON b.variable__node = y.name"""
PAIRS = (
    f"{APART} CHECK x.price < y.price",
    f"{APART} CHECK x.price + y.price > 3",
    f"{APART} CHECK x.price <> y.price + 2",
)


def statement(name: str, demand: str) -> str:
    views, _, rest = demand.rpartition(";")
    return f"{views}{';' if views else ''} CREATE CONSTRAINT {name} AS SELECT 1 AS one {rest.strip()};"


def values(schema: str, policies: str, backend: CpSatBackend | None) -> list[int] | None:
    try:
        solution = Model.build(database(schema, ROWS), policies, backend=backend).solve(
            UNHURRIED, clashes=False
        )
    except InfeasibleError:
        return None
    assert solution.gap == 0, policies
    return [objective.after for objective in solution.objectives]


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("demand", [*OBJECTIVES, *CHECKS, *PAIRS])
def test_the_value_is_that_of_the_constraint_model(demand: str, nullable: bool) -> None:
    schema = SCHEMA if nullable else SCHEMA.replace("variable__node TEXT", "variable__node TEXT NOT NULL")
    policies = statement("demand", demand)
    if demand not in OBJECTIVES:
        policies += statement("cheap", f"{PLACED} MINIMIZE sum(node.price * task.size) - 4 * count(*)")
    assert values(schema, policies, None) == values(schema, policies, CpSatBackend())

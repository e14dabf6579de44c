"""DISTINCT over variables beside keys, equalities and outer joins: which columns settle others must not change answers.

Random small states and policies; enumeration with plain SQL is the judge.
"""

from __future__ import annotations

from random import Random

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.solution import Value
from tests.budget import budgeted
from tests.mgmt.support import brute_force, database, solution_value

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL, size INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, app TEXT NOT NULL, weight INTEGER NOT NULL,
  variable__host TEXT {} REFERENCES host (name));
CREATE TABLE label (task INTEGER, app TEXT, key TEXT);
"""
JOINS = (
    "JOIN label l ON l.task = t.id",
    "JOIN label l ON l.app = t.app",
    "LEFT JOIN label l ON l.task = t.id",
    "RIGHT JOIN label l ON l.task = t.id",
    "JOIN label l ON l.task = t.id AND l.key = 'k'",
    "JOIN label l ON l.app = t.app OR l.task = t.id",
)
FILTERS = ("", "WHERE t.variable__host <> 'a'", "WHERE t.weight > 1", "WHERE l.task = t.id")
COLUMNS = ("t.id", "t.app", "t.weight", "l.task", "l.key", "l.app AS lapp")
SECOND = (
    "",
    "CREATE VIEW w AS SELECT DISTINCT v.{k}, h.rack, v.place FROM v JOIN host h ON h.name = v.place;",
    "CREATE VIEW w AS SELECT DISTINCT a.{k}, b.place, a.place AS mine FROM v a JOIN v b ON a.{k} = b.{k};",
)
DEMANDS = (
    "SELECT * FROM {v} CHECK count(*) <= {n}",
    "SELECT * FROM {v} MAXIMIZE count(*)",
    "SELECT * FROM {v} MINIMIZE count(*)",
    "SELECT {v}.{k} FROM {v} GROUP BY {v}.{k} CHECK count(*) = {n}",
    "SELECT * FROM task CHECK variable__host IN (SELECT {v}.place FROM {v} WHERE {v}.{k} IS NOT NULL)",
    "SELECT place FROM {v} GROUP BY place STRICT GROUPS CHECK count(*) >= 2",
)
CHEAPEST = """CREATE CONSTRAINT o AS SELECT * FROM task JOIN host ON variable__host = name
MINIMIZE sum(size * weight) TIER 2;"""


def rows(random: Random) -> dict[str, list[dict[str, Value]]]:
    labels = range(random.randint(0, 4))
    return {
        "host": [
            {"name": name, "rack": random.choice(["r1", "r2"]), "size": random.randint(1, 4)} for name in "ab"
        ],
        "task": [{"id": n, "app": random.choice("xy"), "weight": random.randint(1, 3)} for n in range(3)],
        "label": [
            {
                "task": random.choice([0, 1, 2, None]),
                "app": random.choice(["x", "y", None]),
                "key": random.choice("kl"),
            }
            for _ in labels
        ],
    }


def policy(random: Random) -> str:
    columns = random.sample(COLUMNS, random.randint(1, 4))
    view = f"CREATE VIEW v AS SELECT DISTINCT {', '.join(columns)}, t.variable__host AS place "
    view += f"FROM task t {random.choice(JOINS)} {random.choice(FILTERS)};"
    key = random.choice(columns).split(" AS ")[-1].split(".")[-1]
    second = random.choice(SECOND).format(k=key)
    demand = random.choice(DEMANDS).format(v="w" if second else "v", k=key, n=random.randint(1, 3))
    return f"{view}{second}CREATE CONSTRAINT c AS {demand};{CHEAPEST}"


def compare(seed: int) -> None:
    random = Random(seed)
    state = database(SCHEMA.format(random.choice(["NOT NULL", ""])), rows(random))
    text = policy(random)
    model = Model.build(state, text)
    expected = brute_force(model, state)
    try:
        found = solution_value(model, model.solve(budget=30, clashes=False))
    except InfeasibleError:
        found = None
    assert found == (expected[0] if expected is not None else None), text


@pytest.mark.parametrize("chunk", budgeted(range(4), 1))
def test_distinct_views_mean_what_they_mean_in_sql(chunk: int) -> None:
    for seed in range(10 * chunk, 10 * chunk + 10):
        compare(seed)


@pytest.mark.parametrize("chunk", budgeted(range(4, 40), 1))
def test_many_more(chunk: int) -> None:
    for seed in range(10 * chunk, 10 * chunk + 10):
        compare(seed)

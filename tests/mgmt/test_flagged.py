"""A choice and a flag beside it: solved together by engines, with the same answers as by a constraint model."""

from __future__ import annotations

from random import Random

import pytest

import mgmt
from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.solution import SolveStatus
from tests.budget import budgeted

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL, alive BOOLEAN NOT NULL);
CREATE TABLE copy (
    segment TEXT NOT NULL,
    slot INTEGER NOT NULL,
    host TEXT,
    variable__host TEXT NOT NULL REFERENCES host (name),
    leads BOOLEAN NOT NULL,
    variable__leads BOOLEAN NOT NULL CURRENT leads,
    PRIMARY KEY (segment, slot)
);
"""
PLACES = """
CREATE CONSTRAINT apart AS SELECT segment, host.rack FROM copy JOIN host ON copy.variable__host = host.name
GROUP BY segment, host.rack CHECK count(*) <= 1;
CREATE CONSTRAINT alive AS SELECT segment FROM copy JOIN host ON copy.variable__host = host.name
WHERE NOT host.alive CHECK FALSE;
CREATE CONSTRAINT even AS SELECT name FROM load MINIMIZE sum(copies * copies) TIER 1;
CREATE CONSTRAINT stay AS SELECT segment FROM copy WHERE variable__host <> host MINIMIZE count(*) TIER 2;
"""
LOADS = """
CREATE VIEW load AS SELECT host.name AS name, count(*) AS copies,
    count(*) FILTER (WHERE copy.variable__leads) AS leaders
FROM copy JOIN host ON copy.variable__host = host.name GROUP BY host.name;
"""
FLAGS = """
CREATE CONSTRAINT one AS SELECT segment FROM copy GROUP BY segment
CHECK count(*) FILTER (WHERE variable__leads) = 1;
CREATE CONSTRAINT even_leaders AS SELECT name FROM load MINIMIZE sum(leaders * leaders) TIER 3;
CREATE CONSTRAINT old_leaders AS SELECT segment FROM copy
WHERE variable__leads AND variable__host <> host MINIMIZE count(*) TIER 4;
CREATE CONSTRAINT same_leaders AS SELECT segment FROM copy
WHERE leads AND NOT variable__leads MINIMIZE count(*) TIER 5;
"""


def cluster(seed: int, schema: str = SCHEMA) -> mgmt.Database:
    random = Random(seed)
    database = mgmt.Database()
    database.load_schema(schema)
    hosts = random.randint(2, 5)
    database.insert(
        "host",
        [
            {"name": f"h{n}", "rack": f"r{n % random.randint(1, 3)}", "alive": random.random() < 0.9}
            for n in range(hosts)
        ],
    )
    rows = []
    for segment in range(random.randint(1, 4)):
        copies = random.randint(1, 2)
        leader = random.randint(0, copies)
        for slot in range(copies):
            host = random.choice([None, *(f"h{n}" for n in range(hosts))])
            rows.append({"segment": f"s{segment}", "slot": slot, "host": host, "leads": slot == leader})
    database.insert("copy", rows)
    return database


def worths(model: Model) -> tuple[int, ...] | None:
    try:
        solution = model.solve(budget=30)
    except InfeasibleError:
        return None
    assert solution.status is not SolveStatus.FEASIBLE
    return tuple(objective.after for objective in solution.objectives)


@pytest.mark.parametrize("chunk", budgeted(range(3), 2))
def test_engines_and_the_constraint_model_find_the_same(chunk: int) -> None:
    feasible = 0
    for seed in range(10 * chunk, 10 * chunk + 10):
        database = cluster(seed)
        policies = LOADS + PLACES + FLAGS
        expected = worths(Model.build(database, policies, backend=CpSatBackend()))
        assert worths(Model.build(database, policies)) == expected, f"seed {seed}"
        feasible += expected is not None
    assert feasible >= 4


def test_places_have_tiers_after_those_of_flags() -> None:
    """The best by these where the flags are as good: by engines mostly, and always what the constraint model finds."""
    later = """
        CREATE CONSTRAINT level AS SELECT host.name FROM copy JOIN host ON copy.variable__host = host.name
        GROUP BY host.name MINIMIZE max(sum(copy.slot * 3 + 1)) TIER 6;
    """
    by_engines = 0
    for seed in range(4):
        database = cluster(seed)
        policies = LOADS + PLACES + FLAGS + later
        fast, slow = Model.build(database, policies), Model.build(database, policies, backend=CpSatBackend())
        expected = worths(slow)
        assert worths(fast) == expected, f"seed {seed}"
        if expected is not None:
            by_engines += "flags: " in str(fast.solve(budget=30).statistics["backend"])
    assert by_engines >= 2


@pytest.mark.parametrize(
    "demand",
    [
        "CREATE CONSTRAINT x AS SELECT segment FROM copy WHERE variable__host <> host AND NOT variable__leads "
        "MINIMIZE count(*) TIER 6",
        "CREATE CONSTRAINT x AS SELECT name FROM load MINIMIZE sum(copies * leaders) TIER 2",
        "CREATE CONSTRAINT x AS SELECT slot FROM copy CHECK variable__leads OR variable__host <> 'h1'",
        "CREATE CONSTRAINT x AS SELECT segment FROM copy WHERE variable__leads CHECK variable__host <> 'h0'",
    ],
)
def test_where_rows_without_a_flag_matter_the_answers_are_the_same(demand: str) -> None:
    for seed in range(4):
        database = cluster(seed)
        policies = LOADS + PLACES + FLAGS + demand
        expected = worths(Model.build(database, policies, backend=CpSatBackend()))
        assert worths(Model.build(database, policies)) == expected, f"seed {seed}"


def test_two_flags_beside_one_choice() -> None:
    """One set of flags is no selection among places any more where another one follows the same choice."""
    key = "PRIMARY KEY (segment, slot)"
    schema = SCHEMA.replace(key, f"variable__votes BOOLEAN NOT NULL, {key}")
    votes = """
        CREATE CONSTRAINT few AS SELECT host.name FROM copy JOIN host ON copy.variable__host = host.name
        GROUP BY host.name CHECK count(*) FILTER (WHERE copy.variable__votes) <= 1;
        CREATE CONSTRAINT some AS SELECT segment FROM copy GROUP BY segment
        CHECK count(*) FILTER (WHERE variable__votes) >= 1;
    """
    for seed in (0, 3):
        database = cluster(seed, schema)
        policies = LOADS + PLACES + FLAGS + votes
        expected = worths(Model.build(database, policies, backend=CpSatBackend()))
        assert expected is not None
        assert worths(Model.build(database, policies)) == expected, f"seed {seed}"

"""A choice and a flag beside it: solved together in columns, with the same answers as cell by cell."""

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


def cluster(seed: int) -> mgmt.Database:
    random = Random(seed)
    database = mgmt.Database()
    database.load_schema(SCHEMA)
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
def test_columns_and_cells_find_the_same(chunk: int) -> None:
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


def flagged(policies: str) -> str:
    """Empty if every demand on the flag is one on flagged rows, else the reason."""
    database = cluster(0)
    (part,) = Model.build(database, LOADS + PLACES + policies).partition.parts
    assert part.flagged is not None
    return "; ".join(part.flagged.reasons.values())


def test_demands_on_flagged_rows_are_recognised() -> None:
    assert flagged(FLAGS) == ""


@pytest.mark.parametrize(
    "demand",
    [
        "CREATE CONSTRAINT x AS SELECT segment FROM copy WHERE variable__host <> host AND NOT variable__leads "
        "MINIMIZE count(*) TIER 6",
        "CREATE CONSTRAINT x AS SELECT name FROM load MINIMIZE sum(copies * leaders) TIER 6",
        "CREATE CONSTRAINT x AS SELECT slot FROM copy CHECK variable__leads OR variable__host <> 'h1'",
    ],
)
def test_where_rows_without_a_flag_matter_it_is_said(demand: str) -> None:
    assert flagged(FLAGS + demand) == "the places of rows that are not flagged matter"

"""Tables without rows beside others: the cells of their choices begin where those of the next table do."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.explaining.policies.lint import lint
from mgmt.optimization.backends.cp_sat import CpSatBackend
from tests.mgmt.support import UNHURRIED, database

HOSTS = "CREATE TABLE host (name TEXT PRIMARY KEY, price INTEGER NOT NULL, room INTEGER NOT NULL);"
PLACED = "CREATE TABLE {table} (id INTEGER PRIMARY KEY, host TEXT, lead BOOLEAN, {variables});"
HOST = "variable__host TEXT NOT NULL REFERENCES host (name)"
PRICE = "CREATE CONSTRAINT p{0} AS SELECT id FROM {0} JOIN host ON variable__host = host.name MINIMIZE sum(price);"


def rows(**placed: list[str]) -> dict[str, list[dict[str, object]]]:
    return {
        "host": [{"name": f"h{number}", "price": number, "room": 9} for number in range(4)],
        **{
            table: [{"id": number, "host": host, "lead": True} for number, host in enumerate(hosts)]
            for table, hosts in placed.items()
        },
    }


@pytest.mark.parametrize("hosts", [["h0", "h3", "h3"], ["h0", "h0", "h0"]])
def test_what_the_others_choose_is_theirs(hosts: list[str]) -> None:
    """The first table is empty; a state was taken for an optimum."""
    schema = HOSTS + "".join(PLACED.format(table=table, variables=HOST) for table in "abc")
    loads = " UNION ALL ".join(f"SELECT variable__host AS h FROM {table}" for table in "abc")
    policy = f"""CREATE VIEW loads AS {loads};
        CREATE CONSTRAINT room AS SELECT host.name FROM loads JOIN host ON h = host.name
          GROUP BY host.name, host.room CHECK count(*) <= host.room;
        {PRICE.format("b")} {PRICE.format("c")}"""
    state = database(schema, rows(b=["h0", "h0"], c=hosts))
    found = [
        [
            (each.name, each.before, each.after)
            for each in Model.build(state, policy, backend=backend).solve(UNHURRIED).objectives
        ]
        for backend in (None, CpSatBackend())
    ]
    assert found[0] == found[1] == [("pb", 0, 0), ("pc", sum(int(host[1:]) for host in hosts), 0)]


def test_flags_of_an_empty_table_are_not_those_of_the_next() -> None:
    variables = f"{HOST}, variable__lead BOOLEAN NOT NULL"
    schema = HOSTS + "".join(PLACED.format(table=table, variables=variables) for table in "ab")
    policy = "".join(
        f"""CREATE CONSTRAINT room_{table} AS SELECT host.name FROM {table} JOIN host ON variable__host = host.name
              WHERE variable__lead GROUP BY host.name, host.room CHECK count(*) <= host.room;
            CREATE CONSTRAINT one_{table} AS SELECT id FROM {table}
              CHECK count(*) FILTER (WHERE variable__lead) = {number};
            {PRICE.format(table)}"""
        for table, number in (("a", 0), ("b", 1))
    )
    model = Model.build(database(schema, rows(b=["h2", "h2"])), policy)
    assert [each.after for each in model.solve(UNHURRIED).objectives] == [0, 0]
    assert any("pa (a is empty)" in finding.message for finding in lint(model))

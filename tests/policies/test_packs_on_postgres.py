"""The packs over rows in PostgreSQL: they have the same optimum, and plans are written back there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing

import psycopg
import pytest

import mgmt
from bench.policies import workloads
from mgmt.compiler.model import Model
from mgmt.language.policy_packs import load_pack
from mgmt.solution import SolveStatus, Value
from mgmt.state.schema import SqlType
from tests.policies.test_borg import machine, running, task
from tests.policies.test_borg import state as borg_state
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

Rows = Mapping[str, Iterable[Mapping[str, Value]]]


def datastore() -> Rows:
    flags = dict.fromkeys(("drained", "layout_server", "sequencer"), False)
    return {
        "host": [
            {
                "name": f"n{n}",
                "rack": f"r{n % 3}",
                "zone": "z",
                "capacity_bytes": 10**9,
                "alive": n != 4,
                **flags,
            }
            for n in range(6)
        ],
        "segment": [{"key": f"s{n}", "bytes": 1000 + n, "replication_factor": 3} for n in range(5)],
        "replica": [
            {"segment": f"s{n}", "slot": slot, "host": f"n{(n + slot) % 6}", "is_primary": slot == 0}
            for n in range(5)
            for slot in range(3)
        ],
    }


def borg() -> Rows:
    return borg_state(
        [
            running("r", "a", 60, 60),
            task("p", "production", 70),
            task("q", "batch", 30),
            task("s", "monitoring", 50),
        ],
        [machine("a"), machine("b", rack="s"), machine("c", rack="s", power="x")],
    )


WORKLOADS: dict[str, tuple[str, Callable[[], Rows]]] = {
    "datastore": ("datastore", datastore),
    "borg": ("borg", borg),
    "kubernetes, spare capacity": ("kubernetes", lambda: workloads.node_scaling(12, 4, 50, 1)),
    "kubernetes, affinity": ("kubernetes", lambda: workloads.apps(1, 3, 3, 6)),
    "kubernetes, preemption": ("kubernetes", lambda: workloads.preemption(1, 4, 4)),
    "vm_balance": ("vm_balance", lambda: workloads.virtual_machines(1, 4, 14, 3)),
}


TYPES = {
    SqlType.INTEGER: "bigint",
    SqlType.TEXT: "text",
    SqlType.BOOLEAN: "boolean",
    SqlType.REAL: "double precision",
}


def on_server(here: mgmt.Database, server: PostgresServer) -> str:
    """The same tables, without the variable columns, and the same rows; their address."""
    url = server.url(server.new_namespace())
    with psycopg.connect(url) as connection:
        for table in here.schema.tables:
            kept = [column for column in table.columns if not column.is_variable]
            columns = ", ".join(f'"{column.name}" {TYPES[column.type]}' for column in kept)
            connection.execute(f"CREATE TABLE {table.name} ({columns})".encode())
            names, marks = ", ".join(f'"{column.name}"' for column in kept), ", ".join("%s" for _ in kept)
            rows = here.execute(f"SELECT {names} FROM {table.name}")
            connection.cursor().executemany(f"INSERT INTO {table.name} VALUES ({marks})".encode(), rows)
    return url


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_optimum_is_the_same_and_is_written_back(workload: str, postgres_server: PostgresServer) -> None:
    name, make = WORKLOADS[workload]
    pack = load_pack(name)
    here = mgmt.Database()
    here.load_schema(pack.schema)
    here.replace_rows(make())
    url = on_server(here, postgres_server)
    with closing(mgmt.Database(url)) as there:
        there.load_schema(pack.schema)
        model = Model.build(there, pack)
        plan, other = model.solve(budget=60), Model.build(here, pack).solve(budget=60)
        assert plan.status is other.status is not SolveStatus.FEASIBLE
        assert plan.objectives == other.objectives
        there.apply(plan)
        assert model.solve(budget=60).deltas == ()
    for delta in plan.deltas:
        table = there.schema.table(delta.table)
        same = " AND ".join(f'"{key}" = %s' for key in table.primary_key)
        with psycopg.connect(url) as connection:
            found = f'SELECT "{delta.column}" FROM {table.name} WHERE {same}'.encode()
            assert connection.execute(found, delta.primary_key).fetchall() == [(delta.new,)]
    here.close()

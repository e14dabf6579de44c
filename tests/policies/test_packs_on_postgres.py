"""The packs on PostgreSQL: the same rows have the same optimum there, and plans are written back into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

import mgmt
from bench import workloads
from mgmt.compiler.model import Model
from mgmt.language.policies import load_pack
from mgmt.solution import SolveStatus, Value
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


@pytest.fixture(params=WORKLOADS)
def databases(
    request: pytest.FixtureRequest, postgres_server: PostgresServer
) -> Iterator[tuple[list[mgmt.Database], mgmt.PolicyPack]]:
    """The same rows in SQLite and in PostgreSQL."""
    name, make = WORKLOADS[request.param]
    pack, rows = load_pack(name), make()
    addresses = (":memory:", postgres_server.url(postgres_server.new_namespace()))
    made = [mgmt.Database(address) for address in addresses]
    for database in made:
        database.load_schema(pack.schema)
        database.replace_rows(rows)
    yield made, pack
    for database in made:
        database.close()


def test_both_databases_have_the_same_optimum(
    databases: tuple[list[mgmt.Database], mgmt.PolicyPack],
) -> None:
    made, pack = databases
    models = [Model.build(database, pack) for database in made]
    solutions = [model.solve(budget=60) for model in models]
    assert solutions[1].status is solutions[0].status is not SolveStatus.FEASIBLE
    assert solutions[1].objectives == solutions[0].objectives
    for database, solution in zip(made, solutions, strict=True):
        assert database.apply(solution) == solution.version + 1
    again = models[1].solve(budget=60)
    assert again.status is not SolveStatus.FEASIBLE
    assert [o.after for o in again.objectives] == [o.after for o in models[0].solve(budget=60).objectives]

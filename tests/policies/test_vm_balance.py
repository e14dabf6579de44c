"""The vm_balance pack: a test for each rule that fails without it.  Hosts have 100 of everything."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mgmt.compiler.model import Model
from mgmt.language.policy_packs import load_pack
from mgmt.solution import Solution, SolveStatus, Value
from tests.policies.scenario import Pack

Row = dict[str, Value]


@pytest.fixture(scope="module")
def cluster() -> Pack:
    return Pack("vm_balance", "vm", "controllable__host")


def host(name: str, **more: Value) -> Row:
    return {"name": name, "cpu": 100, "memory": 100, **more}


def vm(name: str, where: str, cpu: int = 10, memory: int = 0, **more: Value) -> Row:
    return {"name": name, "cpu": cpu, "memory": memory, "host": where, **more}


def state(
    machines: Iterable[Row], hosts: Iterable[Row] = (), **tables: list[Row]
) -> dict[str, Iterable[Row]]:
    return {"host": list(hosts) or [host("a"), host("b")], "vm": list(machines), **tables}


def rule(name: str, *machines: str) -> list[Row]:
    return [{"rule": name, "vm": machine} for machine in machines]


def after(solution: Solution) -> dict[str, int]:
    """The objectives; utilisation in thousandths."""
    found = {objective.name: objective.after for objective in solution.objectives}
    return {name: value // 10**6 if "utilisation" in name else value for name, value in found.items()}


FOUR = [vm("p", "a", 40), vm("q", "a", 30), vm("r", "a", 20), vm("s", "b", 10)]


def test_a_cluster_in_order_is_left_as_it_is(cluster: Pack) -> None:
    solution = cluster.solve(state([vm("p", "a"), vm("q", "b")]))
    assert (solution.status, solution.deltas) == (SolveStatus.UNCHANGED, ())


def test_the_spread_becomes_as_small_as_it_can_be(cluster: Pack) -> None:
    solution = cluster.solve(state(FOUR))
    assert after(solution) == {
        "machines_off_their_preferred_hosts": 0,
        "highest_utilisation": 500,
        "lowest_utilisation": 500,
        "fewest_migrations": 1,
    }
    assert [(delta.primary_key, delta.new) for delta in solution.deltas] == [(("p",), "b")]


def test_hosts_of_different_sizes_are_compared_by_the_share_that_is_used(cluster: Pack) -> None:
    hosts = [host("a"), host("b", cpu=300)]
    machines = [vm(f"v{number}", "a", 20) for number in range(4)]
    found = cluster.places(state(machines, hosts))
    assert sorted(found.values()) == ["a", "b", "b", "b"], "both are used to a fifth"


def test_cpu_capacity(cluster: Pack) -> None:
    rows = state([vm("p", "a", 60), vm("q", "a", 60), vm("r", "b", 60)])
    assert cluster.clash(rows) == {"cpu_capacity"}
    assert set(cluster.places(without="cpu_capacity").values()) == {"a", "b"}


def test_memory_capacity(cluster: Pack) -> None:
    """By their cpu, the two that need much memory would share a host."""
    rows = state([vm("p", "a", 10, 60), vm("q", "a", 10, 60), vm("r", "b", 20, 30)])
    cluster.needs("memory_capacity", rows, lambda found: found["p"] != found["q"])


def test_a_machine_counts_with_nine_tenths_of_its_window(cluster: Pack) -> None:
    """Ten samples, of which one is a peak: r counts with 20, and so does not go with q."""
    window: list[Row] = [{"vm": "r", "at": at, "cpu": 20} for at in range(9)]
    rows = state(
        [vm("p", "a", 30), vm("q", "b", 10), vm("r", "b", 99)],
        vm_usage=[*window, {"vm": "r", "at": 9, "cpu": 99}],
    )
    solution = cluster.solve(rows)
    assert after(solution)["highest_utilisation"] == 300
    assert solution.deltas == ()
    assert cluster.clash({**rows, "vm_usage": (), "vm": [vm(name, "b", 99) for name in "pqr"]}) == {
        "cpu_capacity"
    }


def test_cpu_reservations(cluster: Pack) -> None:
    """By what they use, all could stay; what they were promised no host has."""
    rows = state([vm(name, "a", 0, cpu_reservation=60) for name in "pq"])
    cluster.needs("cpu_reservations", rows, lambda found: found["p"] != found["q"])


def test_memory_reservations(cluster: Pack) -> None:
    rows = state([vm(name, "a", 0, memory_reservation=60) for name in "pq"])
    cluster.needs("memory_reservations", rows, lambda found: found["p"] != found["q"])


def test_room_is_kept_for_the_loss_of_hosts(cluster: Pack) -> None:
    """With one of three hosts lost, two thirds of each may be promised: what one holds fits on the others."""
    hosts = [host("a"), host("b"), host("c")]
    machines = [vm(name, "a", 0, memory_reservation=33) for name in "pqr"]
    rows = state(machines, hosts, failover=[{"hosts": 1}])
    assert max(map(list(cluster.places(rows).values()).count, "abc")) == 2
    assert set(cluster.places(state(machines, hosts)).values()) == {"a"}, "without it they stay"
    crowded = [*machines, vm("s", "a", 0, memory_reservation=33)]
    assert cluster.clash(state(crowded, hosts, failover=[{"hosts": 2}])) == {"memory_reservations"}


def test_affinity(cluster: Pack) -> None:
    rows = state(FOUR, together=rule("t", "p", "q"))
    cluster.needs("affinity", rows, lambda found: found["p"] == found["q"])


def test_anti_affinity(cluster: Pack) -> None:
    rows = state(FOUR, apart=rule("t", "q", "r"))
    cluster.needs("anti_affinity", rows, lambda found: found["q"] != found["r"])


def test_host_affinity(cluster: Pack) -> None:
    rows = state(FOUR, allowed_host=[{"vm": "p", "host": "a"}, {"vm": "s", "host": "a"}])
    cluster.needs("host_affinity", rows, lambda found: found["p"] == found["s"] == "a")


def test_storage_and_networks_are_reached(cluster: Pack) -> None:
    rows = state(
        [vm("p", "a", 50), vm("q", "a", 40)],
        host_access=[{"host": "a", "resource": "ds1"}, {"host": "b", "resource": "ds2"}],
        vm_access=[{"vm": "p", "resource": "ds1"}, {"vm": "q", "resource": "ds1"}],
    )
    cluster.needs("storage_and_networks_are_reached", rows, lambda found: found == {"p": "a", "q": "a"})


def test_some_machines_stay(cluster: Pack) -> None:
    rows = state([vm("p", "a", 40, stays=True), vm("q", "a", 40, stays=True), vm("r", "a", 10)])
    cluster.needs("some_machines_stay", rows, lambda found: found["p"] == found["q"] == "a")
    hosts = [host("a", maintenance=True), host("b")]
    clash = cluster.clash(state([vm("p", "a", stays=True)], hosts))
    assert clash == {"some_machines_stay", "hosts_in_maintenance_are_emptied"}


def test_machines_off_their_preferred_hosts(cluster: Pack) -> None:
    """They are followed before balance, and given up before a rule."""
    preferred = [{"vm": "p", "host": "a"}, {"vm": "q", "host": "a"}]
    rows = state([vm("p", "a", 50), vm("q", "a", 40)], preferred_host=preferred)
    cluster.needs("machines_off_their_preferred_hosts", rows, lambda found: found == {"p": "a", "q": "a"})
    apart = cluster.solve({**rows, "apart": rule("r", "p", "q")})
    assert after(apart)["machines_off_their_preferred_hosts"] == 1


def test_hosts_in_maintenance_are_emptied(cluster: Pack) -> None:
    hosts = [host("a", maintenance=True), host("b"), host("c")]
    rows = state(FOUR, hosts)
    cluster.needs("hosts_in_maintenance_are_emptied", rows, lambda found: "a" not in found.values())
    assert after(cluster.solve(rows))["lowest_utilisation"] == 500, "the empty host does not count"


def test_limited_migrations(cluster: Pack) -> None:
    machines = [vm(f"v{number}", "a", 10) for number in range(6)]
    rows = state(machines, migration_limit=[{"migrations": 2}])
    cluster.needs("limited_migrations", rows, lambda found: list(found.values()).count("b") == 2)
    assert sorted(cluster.places(state(machines)).values()) == ["a"] * 3 + ["b"] * 3, "no row, no limit"


def test_a_limit_that_leaves_no_way_is_named(cluster: Pack) -> None:
    hosts = [host("a", maintenance=True), host("b")]
    rows = state(FOUR, hosts, migration_limit=[{"migrations": 2}])
    assert cluster.clash(rows) == {"hosts_in_maintenance_are_emptied", "limited_migrations"}


def test_highest_utilisation(cluster: Pack) -> None:
    """The emptiest host cannot be helped, so without this objective nobody minds the fullest."""
    hosts = [host("a"), host("b"), host("c")]
    others = [vm("q", "b", 10), vm("s", "c", 40), vm("t", "c", 40)]
    allowed: list[Row] = [{"vm": row["name"], "host": where} for row in others for where in "bc"]
    rows = state([vm("p", "a", 10), *others], hosts, allowed_host=allowed)
    cluster.needs("highest_utilisation", rows, lambda found: _range(found, rows) == (100, 500))


def test_lowest_utilisation(cluster: Pack) -> None:
    hosts = [host("a"), host("b"), host("c")]
    rows = state([vm("p", "a", 50), vm("q", "b", 20), vm("r", "b", 20)], hosts)
    cluster.needs("lowest_utilisation", rows, lambda found: _range(found, rows) == (200, 500))


def _range(found: dict[str, str], rows: dict[str, Iterable[Row]]) -> tuple[int, int]:
    loads = {str(row["name"]): 0 for row in rows["host"]}
    for row in rows["vm"]:
        loads[found[str(row["name"])]] += int(str(row["cpu"])) * 10
    return min(loads.values()), max(loads.values())


def test_fewest_migrations(cluster: Pack) -> None:
    """One large machine or two small ones make it even; that the large one moves is this objective's doing."""
    rows = state([vm("p", "a", 20), vm("q", "a", 10), vm("r", "a", 10), vm("s", "b", 0)])
    solution = cluster.solve(rows)
    assert [delta.primary_key for delta in solution.deltas] == [("p",)]
    stays = (
        "CREATE CONSTRAINT p_stays AS SELECT name FROM vm WHERE name = 'p' CHECK controllable__host = host"
    )
    pinned = Model.build(cluster.database, [load_pack("vm_balance"), stays]).solve(budget=60)
    assert after(pinned) == {**after(solution), "fewest_migrations": 2}

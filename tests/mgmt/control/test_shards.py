"""The loop and the policies with an engine of one process per copy, whose keys are divided into slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from mgmt.placement.intent import Intent
from mgmt.solving.placement_solver import PolicySolver
from tests.fake_adapter import Copy, FakeEngine
from tests.mgmt.control.harness import SETTINGS, Harness, harness, make_hosts

# A busy machine must not change what is decided here.
PATIENT = replace(SETTINGS, solve_budget=60.0, longest_solve_budget=60.0)
SHARDS = Intent.initial(3, replication_factor=2, expect=6)


def holding(chains: dict[str, str], servers: int) -> Callable[[FakeEngine], None]:
    """Six hosts with so many servers each, and copies where somebody put them; n1 and n4 share a rack, and so on."""

    def prepare(engine: FakeEngine) -> None:
        engine.servers = dict.fromkeys(engine.up, servers)
        size = engine.bytes_per_segment
        for key, hosts in chains.items():
            engine.segments[key] = [Copy(host, in_sync=True, bytes=size) for host in hosts.split()]

    return prepare


def chains(cluster: Harness) -> dict[str, str]:
    return {key: " ".join(cluster.engine.chain(key)) for key in sorted(cluster.engine.segments)}


async def test_the_life_of_a_small_cluster_with_two_servers_on_each_host(autojump_clock: object) -> None:
    """Six hosts in three racks, three shards of two copies: a host dies, another is drained, one more dies."""
    async with harness(
        make_solver=PolicySolver, settings=PATIENT, initial=SHARDS, prepare=holding({}, 2)
    ) as cluster:
        cluster.check_placement()
        primaries = Counter(cluster.engine.chain(key)[0] for key in cluster.engine.segments)
        assert max(primaries.values()) == 1
        assert [cluster.load(host) for host in cluster.hosts] == [1] * 6
        cluster.lose("n5")
        await cluster.settled()
        cluster.check_placement()
        assert [plan.data["moves"] for plan in cluster.of_kind("plan-done")[1:]] == [1]
        await cluster.controller.requests.drain("n1")
        await cluster.settled()
        cluster.check_placement()
        assert cluster.load("n1") == 0
        cluster.lose("n3")  # then every server is in use
        await cluster.settled()
        cluster.check_placement()
        assert [cluster.load(host) for host in ("n2", "n4", "n6")] == [2, 2, 2]
        assert cluster.engine.exchanged == []


async def test_a_full_cluster_is_made_rack_safe_by_the_smallest_exchange(autojump_clock: object) -> None:
    """s00 has both its copies in one rack, and every server is in use: a replica of another shard takes one's place."""
    before = {"s00": "n1 n4", "s01": "n2 n5", "s02": "n3 n6"}
    async with harness(
        make_solver=PolicySolver,
        settings=PATIENT,
        initial=replace(SHARDS, paused=True),
        prepare=holding(before, 1),
        placed=False,
    ) as cluster:
        cluster.change({host.name: host for host in make_hosts(6, 3)})
        await cluster.until(lambda: cluster.controller.status()["paused"])
        dry = await cluster.controller.requests.plan()
        # Three shards of which each has to leave its rack with one copy: a circle of three, and nothing smaller.
        assert len(dry.plan.moves) == 3
        assert all(move.required for move in dry.plan.moves)
        assert dry.plan.primaries == ()
        assert [set(keys) for keys in dry.plan.exchanges] == [{"s00", "s01", "s02"}]
        assert dry.plan.during.under_replicated == 3
        text = dry.text()
        assert (
            "wave 1 is an exchange, for no host has a server to spare: s00, s01, s02 have a complete" in text
        )
        assert "segment s00 has 1 complete copies fewer than it may" in text
        assert dry.to_json()["exchanges"] == [{"wave": 1, "segments": ["s00", "s01", "s02"]}]
        assert chains(cluster) == before

        await cluster.controller.requests.apply()
        await cluster.until(lambda: cluster.controller.status()["rack_violations"] == 0)
        await cluster.until(lambda: cluster.controller.status()["under_replicated"] == 0)
        cluster.check_placement()
        assert sorted(cluster.engine.exchanged) == ["s00", "s01", "s02"]
        assert [cluster.engine.chain(key)[0] for key in before] == ["n1", "n2", "n3"], "nobody lost a primary"

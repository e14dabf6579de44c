"""The loop and the policies with an engine of one process per copy, whose keys are divided into slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio

from mgmt.errors import InvalidRequestError, UndecidedError
from mgmt.placement.hash_slot_assignment import even, fault_of, number_of
from mgmt.placement.intent import Intent
from tests.fake_adapter import Copy, FakeEngine
from tests.mgmt.control.harness import SETTINGS, Harness, harness, make_hosts, pack_solver

# A busy machine must not change what is decided here.
PATIENT = replace(SETTINGS, solve_budget=60.0, longest_solve_budget=60.0)
SHARDS = Intent.initial(3, replication_factor=2, expect=6)


def holding(chains: dict[str, str], servers: int) -> Callable[[FakeEngine], None]:
    """Six hosts with so many servers each, and copies where somebody put them; n1 and n4 share a rack, and so on."""

    def prepare(engine: FakeEngine) -> None:
        engine.slot_count = 16384
        engine.slots = dict(even(chains, 16384)) if chains else {}
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
        make_solver=pack_solver, settings=PATIENT, initial=SHARDS, prepare=holding({}, 2)
    ) as cluster:
        cluster.check_placement()
        primaries = Counter(cluster.engine.chain(key)[0] for key in cluster.engine.segments)
        assert max(primaries.values()) == 1
        assert [cluster.load(host) for host in cluster.hosts] == [1] * 6
        assert cluster.engine.slots == even(["s00", "s01", "s02"], 16384)
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
        make_solver=pack_solver,
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


async def test_shards_come_and_go_with_their_slots(autojump_clock: object) -> None:
    """The least movement; one that is given up is removed once it holds nothing, and nothing moves after that."""
    async with harness(
        make_solver=pack_solver, settings=PATIENT, initial=SHARDS, prepare=holding({}, 2)
    ) as cluster:
        engine, requests = cluster.engine, cluster.controller.requests
        await requests.pause()
        assert await requests.resize(4) == 3
        dry = await requests.plan()
        assert [(move.source, move.destination, move.slots) for move in dry.plan.slots] == [
            ("s00", "s03", 1365),
            ("s01", "s03", 1365),
            ("s02", "s03", 1366),
        ]
        assert "1365 slots  s00 -> s03  about 249 bytes" in dry.text()
        assert "4096 slots to move" in dry.text()
        assert dry.to_json()["slots"][0] == {"from": "s00", "to": "s03", "slots": 1365, "bytes": 249}
        assert len(engine.segments) == 3
        await requests.resume()
        await cluster.until(lambda: number_of(engine.slots.get("s03", ())) == 4096)
        await cluster.settled()
        cluster.check_placement()
        assert fault_of(engine.slots, 16384) == ""

        assert await requests.resize(3) == 4
        await cluster.until(lambda: len(engine.segments) == 3)
        await cluster.settled()
        assert set(engine.slots) == {"s00", "s01", "s02"}
        assert fault_of(engine.slots, 16384) == ""
        plans = len(cluster.of_kind("plan"))
        await cluster.more_rounds(5)
        assert len(cluster.of_kind("plan")) == plans
        with pytest.raises(InvalidRequestError):
            await requests.resize(0)


async def test_slots_move_from_busy_shards_when_an_operator_asks(autojump_clock: object) -> None:
    async with harness(
        make_solver=pack_solver, settings=PATIENT, initial=SHARDS, prepare=holding({}, 2)
    ) as cluster:
        engine, requests = cluster.engine, cluster.controller.requests
        engine.loads = {"s00": 8000.0, "s01": 1000.0, "s02": 3000.0}
        before = dict(engine.slots)
        dry = await requests.rebalance(confirmed=False)
        assert {move.source for move in dry.plan.slots} == {"s00"}
        await cluster.more_rounds(2)
        assert engine.slots == before, "nobody has confirmed it"
        await requests.rebalance(confirmed=True)
        with pytest.raises(UndecidedError, match="on their way"):
            await requests.rebalance(confirmed=False)
        await cluster.until(lambda: engine.slots != before)
        await cluster.settled()
        busy = 8000 * number_of(engine.slots["s00"]) / number_of(before["s00"])
        assert busy == pytest.approx(4000 * 1.05, rel=0.001)
        assert fault_of(engine.slots, 16384) == ""


async def test_slots_that_somebody_else_moves_are_told_and_brought_back(autojump_clock: object) -> None:
    async with harness(
        make_solver=pack_solver, settings=PATIENT, initial=SHARDS, prepare=holding({}, 2)
    ) as cluster:
        engine = cluster.engine
        before = dict(engine.slots)
        await cluster.more_rounds()
        engine.slots |= {"s00": ((0, 5000),), "s01": ((5001, before["s01"][0][1]),)}
        await cluster.until(lambda: bool(cluster.of_kind("drift")))
        assert cluster.of_kind("drift")[0].data["changes"] == ["460 slots: s00 -> s01"]
        await cluster.until(lambda: engine.slots == before)
        await cluster.settled()


async def test_a_log_has_no_slots_to_even_out(autojump_clock: object) -> None:
    async with harness() as cluster:
        with pytest.raises(InvalidRequestError, match="slots"):
            await cluster.controller.requests.rebalance(confirmed=True)


def failing_over(engine: FakeEngine) -> None:
    holding({}, 2)(engine)
    engine.fails_over = True


async def test_a_lost_primary_is_replaced_before_anything_else(autojump_clock: object) -> None:
    """Look, repair, done: nothing else takes time between the view and the new primary, though a solve takes 0.2 s."""
    async with harness(
        make_solver=pack_solver, settings=PATIENT, initial=SHARDS, prepare=failing_over
    ) as cluster:
        engine = cluster.engine
        primary, replica = engine.chain("s01")
        assert primary != "n1", "the controller stays"
        solves, calls = cluster.controller.statistics()["solves"], 0

        def count() -> None:
            nonlocal calls
            calls += 1

        cluster.kill(primary)
        cluster.nodes["n1"].adapter.on_call = count
        before = trio.current_time()
        cluster.remove(primary)
        with trio.fail_after(1):
            while engine.chain("s01")[0] != replica:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.0001)
        elapsed = trio.current_time() - before
        assert elapsed - calls * 0.002 <= engine.failover_seconds + 0.005 + 0.0002
        assert cluster.controller.statistics()["solves"] == solves
        await cluster.settled()
        cluster.check_placement()
        kinds = [event.data["kind"] for event in cluster.of_kind("step-started")]
        assert kinds.index("failover") < kinds.index("copy")


async def test_a_shard_that_cannot_fail_over_is_a_question_and_the_others_go_on(
    autojump_clock: object,
) -> None:
    async with harness(
        make_solver=pack_solver, settings=PATIENT, initial=SHARDS, prepare=failing_over
    ) as cluster:
        engine = cluster.engine
        stuck = next(key for key in engine.segments if "n1" not in engine.chain(key))
        primary = engine.chain(stuck)[0]
        engine.segments[stuck][1].in_sync = False  # it never was: nobody may promote it
        before = engine.chain(stuck)
        others = [key for key in engine.segments if key != stuck]
        lost_too = next(host for key in others for host in engine.chain(key) if host not in ("n1", *before))
        cluster.lose(primary, lost_too)
        await cluster.until(lambda: cluster.controller.status()["phase"] == "asking operators")
        assert all(len(engine.in_sync(key)) == 2 for key in others)
        assert engine.chain(stuck) == before, "it is left as it is"
        status = cluster.controller.status()
        (asked,) = status["asks"]
        assert asked["segment"] == stuck
        assert asked["text"] in status["last_error"]
        assert "bring its primary back" in asked["text"]
        assert len(cluster.of_kind("asks")) == 1

        rounds, failed = cluster.rounds(), len(cluster.of_kind("step-failed"))
        await trio.sleep(300.0)
        assert cluster.rounds() - rounds <= 300 / SETTINGS.round_interval + 12, "it does not spin"
        assert len(cluster.of_kind("step-failed")) - failed <= 12
        engine.segments[stuck][1].in_sync = True  # it was complete after all
        await cluster.settled(within=300)
        assert cluster.controller.status()["asks"] == []
        cluster.check_placement()


FOUND = {"s00": "n1 n4", "s01": "n2 n5", "s02": "n3 n6"}


def found(engine: FakeEngine) -> None:
    holding(FOUND, 1)(engine)
    engine.fails_over = True


async def observed(cluster: Harness) -> None:
    cluster.change({host.name: host for host in make_hosts(6, 3)})
    await cluster.until(lambda: cluster.controller.status()["phase"] == "observing")


@pytest.mark.slow("the pack is solved for each question")
async def test_a_cluster_that_somebody_else_made_is_only_observed(autojump_clock: object) -> None:
    """Its shards are the intent; not even a lost primary is replaced, and what its operators change is followed."""
    async with harness(
        make_solver=pack_solver,
        settings=PATIENT,
        initial=replace(SHARDS, observing=True, segments=("x",)),
        prepare=found,
        placed=False,
    ) as cluster:
        engine = cluster.engine
        await observed(cluster)
        assert dict(Intent.from_mapping(engine.intent).slots) == even(FOUND, 16384)
        assert len(engine.roles.layout_servers) == 5, "those are the plane's own"
        status = cluster.controller.status()
        assert (status["observing"], status["rack_violations"], status["settled"]) == (True, 3, False)
        dry = await cluster.controller.requests.plan()
        assert len(dry.plan.moves) == 3
        assert "observing: nothing is changed until `rota apply`" in dry.text()
        assert dry.to_json()["observing"]
        (why,) = [await cluster.controller.requests.why("s00")]
        assert why.lines

        engine.slots |= {"s00": ((0, 5000),), "s01": ((5001, 10921),)}
        await cluster.until(lambda: bool(cluster.of_kind("drift")))
        await cluster.until(lambda: engine.intent["slots"]["s00"] == [[0, 5000]])
        lost = engine.chain("s01")[0]
        cluster.lose(lost)
        await cluster.more_rounds(5)
        assert chains(cluster) == FOUND
        assert {event.data["kind"] for event in cluster.of_kind("step-started")} <= {"open"}
        assert cluster.of_kind("plan") == []

        await cluster.controller.requests.resume()
        await cluster.until(lambda: engine.chain("s01")[0] != lost)
        assert not cluster.controller.status()["observing"]


async def test_apply_makes_an_observed_cluster_rack_safe(autojump_clock: object) -> None:
    async with harness(
        make_solver=pack_solver,
        settings=PATIENT,
        initial=replace(SHARDS, observing=True),
        prepare=found,
        placed=False,
    ) as cluster:
        await observed(cluster)
        shown = await cluster.controller.requests.plan()
        await cluster.controller.requests.apply(shown.plan.digest)
        await cluster.settled()
        cluster.check_placement()
        assert cluster.engine.slots == even(FOUND, 16384)
        assert not cluster.controller.status()["observing"]


async def test_an_engine_with_slots_nowhere_is_not_adopted(autojump_clock: object) -> None:
    def broken(engine: FakeEngine) -> None:
        found(engine)
        engine.slots["s02"] = ((10923, 16383),)

    async with harness(initial=replace(SHARDS, observing=True), prepare=broken, placed=False) as cluster:
        cluster.change({host.name: host for host in make_hosts(6, 3)})
        await cluster.until(lambda: bool(cluster.of_kind("trouble")))
        (trouble,) = cluster.of_kind("trouble")
        assert trouble.text == "the engine cannot be adopted as it is: 10922-10922 is in no segment"
        assert cluster.engine.started == []
        cluster.engine.slots["s02"] = ((10922, 16383),)
        await cluster.until(lambda: cluster.controller.status()["phase"] == "observing")

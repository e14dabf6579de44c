"""A lost primary, on real servers: who takes over and how fast, who never may, and what it leaves half done."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import trio

from datastore_adapter.interface import Done, Failed, ReplicaState, StepStatus
from tests.slots import traps
from tests.slots.controllers import Controller, chains_of, placement, story
from tests.slots.servers import Fleet, Options, Server, running, wait_until

pytestmark = pytest.mark.engine

QUICK = Options(node_timeout=5.0)
SLOTS = {"s00": [(0, 5460)], "s01": [(5461, 10921)], "s02": [(10922, 16383)]}
CHAINS = {"s00": "n0 n1", "s01": "n1 n2", "s02": "n2 n0"}


@pytest.fixture
def fleet(engine: str) -> Iterator[Fleet]:
    """Three shards as in ``CHAINS``: the first server of a host is a primary, the second a replica."""
    with running(engine, {"n0": 2, "n1": 2, "n2": 2}, QUICK) as servers:
        first, second, third = servers.hosts.values()
        servers.create([[first[0], second[1]], [second[0], third[1]], [third[0], first[1]]])
        yield servers


async def failed_over(controller: Controller) -> list[StepStatus]:
    graph = await controller.adapter.repair(await controller.observed())
    return [await controller.finish(step) for step in graph.steps if step.kind == "failover"]


@pytest.mark.parametrize("is_true_replica_there", [True, False])
def test_a_replica_that_never_synced_is_not_promoted(fleet: Fleet, is_true_replica_there: bool) -> None:
    """The first of the traps: the servers themselves would let it win."""
    primary, true, stranger = fleet.hosts["n0"][0], fleet.hosts["n1"][1], fleet.hosts["n2"][1]
    data = fleet.fill(300)
    controller = Controller(fleet)

    async def main() -> None:
        await controller.agree(
            placement({**CHAINS, "s00": "n0 n2 n1"})
        )  # the policies would prefer the stranger
        await controller.observed()
        await trio.to_thread.run_sync(traps.never_synced, stranger, primary)
        fleet.kill("n0")
        if not is_true_replica_there:
            true.kill()
        controller.tell(["n1", "n2"])
        (status,) = await failed_over(controller)
        if is_true_replica_there:
            assert status == Done()
            assert chains_of(await controller.observed())["s00"].split()[0] == "n1"
            fleet.wait_until_served()
            assert fleet.lost(data) == []
        else:
            assert isinstance(status, Failed)
            assert (status.code, status.retryable) == ("asks", False)
            assert "n2 has another history than its primary had: it never synchronized" in status.message
            assert "bring n0 back" in status.message
            assert stranger.me().primary_id == primary.node_id, "nothing was done to it"

    story(controller, main)


@pytest.mark.parametrize("seed", range(4))
def test_in_random_orders_of_events_no_key_is_lost_or_it_is_asked(fleet: Fleet, seed: int) -> None:
    """Writes, samples, links that end, a replica that is given to the shard and taken away again, and then the loss."""
    chance = random.Random(seed)
    primary, true, stranger = fleet.hosts["n0"][0], fleet.hosts["n1"][1], fleet.hosts["n2"][1]
    home = stranger.me().primary_id
    data = fleet.fill(200)
    controller = Controller(fleet)

    def happen(number: int) -> None:
        event = chance.choice(["write", "drop", "give", "take back"])
        if event == "write":
            data.update(fleet.fill(20, prefix=f"{number}"))
        elif event == "drop":
            chance.choice([true, stranger]).call("CLIENT", "KILL", "TYPE", "master")
        else:
            stranger.call("CLUSTER", "REPLICATE", primary.node_id if event == "give" else home)

    async def main() -> None:
        await controller.observed()
        for number in range(8):
            happen(number)
            if chance.random() < 0.5:
                await controller.observed()
        # What a primary has answered for and not sent yet is lost with it, whoever takes over.
        await trio.to_thread.run_sync(
            wait_until,
            lambda: true.key_count == primary.key_count,
            "the true replica has all that was written",
        )
        await trio.to_thread.run_sync(traps.never_synced, stranger, primary)
        fleet.kill("n0")
        controller.tell(["n1", "n2"])
        (status,) = await failed_over(controller)
        if status == Done():
            await trio.to_thread.run_sync(fleet.wait_until_served)
            assert fleet.lost(data) == []
        else:
            assert isinstance(status, Failed)
            assert status.code == "asks", status
            assert true.key_count, "the true replica still has what it had"

    story(controller, main)


def test_without_a_majority_of_the_primaries_nobody_can_be_elected_and_it_says_so(fleet: Fleet) -> None:
    controller = Controller(fleet)

    async def main() -> None:
        await controller.observed()
        for host in ("n0", "n1"):
            fleet.hosts[host][0].kill()
        controller.tell(["n1", "n2"])
        (status,) = await failed_over(controller)
        assert isinstance(status, Failed)
        assert not status.retryable
        assert status.message.startswith(
            "1 of 3 primaries answer, which is no majority, so that nobody can be elected"
        )
        assert "bring one of n0, n1 back" in status.message

    story(controller, main)


def test_what_nobody_has_seen_of_the_primary_is_a_question(fleet: Fleet) -> None:
    """A controller that was started after the loss knows nothing of what there was."""
    fleet.kill("n0")
    controller = Controller(fleet)

    async def main() -> None:
        controller.tell(["n1", "n2"])
        observation = await controller.observed()
        (segment,) = (each for each in observation.segments if each.key == "s00")
        assert segment.replicas[0].state is ReplicaState.GONE
        (status,) = await failed_over(controller)
        assert isinstance(status, Failed)
        assert "what its primary had written is not known here" in status.message

    story(controller, main)


def half_moved(fleet: Fleet, moved: int = 4) -> tuple[Server, Server, dict[str, str]]:
    data = fleet.fill(10, prefix="{one slot}")
    source = next(server for server in fleet.primaries().values() if server.key_count)
    target = next(server for server in fleet.primaries().values() if server is not source)
    traps.half_moved(source, target, list(data), moved)
    return source, target, data


@pytest.mark.parametrize("moved", [0, 4, 10])
def test_a_slot_left_half_way_is_brought_forward(fleet: Fleet, moved: int) -> None:
    _, _, data = half_moved(fleet, moved)
    controller = Controller(fleet)

    async def main() -> None:
        assert any("are open at" in notice for notice in (await controller.observed()).notices)
        await controller.repair()
        assert fleet.open_slots() == []
        fleet.wait_until_served()
        assert fleet.lost(data) == []

    story(controller, main)


@pytest.mark.parametrize("lost", ["source", "target"])
def test_a_slot_is_finished_although_one_of_its_two_primaries_was_lost(fleet: Fleet, lost: str) -> None:
    """The new primary knows nothing of the slot on its way; and on Redis who imports it believes nobody about it."""
    source, target, data = half_moved(fleet)
    dies = source if lost == "source" else target
    controller = Controller(fleet)

    async def main() -> None:
        await controller.observed()
        replica = next(server for server in fleet.running if server.me().primary_id == dies.node_id)
        wait_until(lambda: replica.key_count == dies.key_count, "the replica has everything")
        await controller.observed()
        fleet.kill(dies.host)
        controller.tell([host for host in fleet.hosts if host != dies.host])
        await controller.repair()
        assert fleet.open_slots() == []
        fleet.wait_until_served()
        assert fleet.lost(data) == []

    story(controller, main)


def test_a_primary_that_comes_back_goes_where_the_plan_wants_it(engine: str) -> None:
    options = Options(node_timeout=5.0, is_durable=True)
    with running(engine, {"n0": 1, "n1": 1, "n2": 1, "n3": 1}, options) as fleet:
        hosts = [fleet.hosts[name][0] for name in fleet.hosts]
        fleet.create([[hosts[0], hosts[3]], [hosts[1]], [hosts[2]]])
        data = fleet.fill(200)
        controller = Controller(fleet)

        async def main() -> None:
            await controller.observed()
            fleet.kill("n0")
            controller.tell(["n1", "n2", "n3"])
            await controller.repair()
            assert chains_of(await controller.observed())["s00"] == "n3"
            fleet.restart("n0")
            controller.tell(["n0", "n1", "n2", "n3"])
            with trio.fail_after(20):
                while chains_of(await controller.observed())["s00"] != "n3 n0":  # noqa: ASYNC110
                    await trio.sleep(0.05)
            await controller.reach(placement({"s00": "n3", "s01": "n1", "s02": "n2"}))
            assert len(hosts[0].nodes()) == 1, "it is free again"
            assert fleet.lost(data) == []

        story(controller, main)

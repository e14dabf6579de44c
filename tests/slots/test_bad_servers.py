"""What cannot be managed is said in one clear line, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from datastore_adapter.interface import Done, Failed, Observation, Refusal
from datastore_adapter.slots.settings import EngineAccess
from tests.own_addresses import own_host
from tests.slots import certificates
from tests.slots.controllers import PATIENT, Controller, chains_of, placement, story
from tests.slots.servers import (
    Fleet,
    Options,
    Server,
    introduce,
    program,
    running,
    wait_until,
)

pytestmark = pytest.mark.engine

TWO = placement({"s00": "n0", "s01": "n1"})


def states(servers: Sequence[Server]) -> list[tuple[object, ...]]:
    return [
        (server.node_id, server.key_count, sorted(n.node_id for n in server.nodes().values()))
        for server in servers
    ]


@pytest.fixture
def pair(engine: str) -> Iterator[Fleet]:
    """A cluster of two primaries."""
    with running(engine, {"n0": 2, "n1": 1}) as fleet:
        fleet.create([[fleet.hosts["n0"][0]], [fleet.hosts["n1"][0]]])
        yield fleet


@pytest.mark.parametrize(("user", "password"), [("", ""), ("", "wrong"), ("rota", "wrong"), ("nobody", "x")])
def test_whoever_is_not_let_in_does_not_take_it_for_an_empty_cluster(
    engine: str, user: str, password: str
) -> None:
    with running(engine, ["n0", "n1"], Options(user="rota", password="right")) as fleet:
        fleet.create([[fleet.hosts["n0"][0]], [fleet.hosts["n1"][0]]])
        stranger = Controller(fleet, access=EngineAccess(user, password))

        async def main() -> None:
            reason = await stranger.reason()
            assert "does not let us in" in reason
            assert "check the engine's user and password" in reason
            assert password not in reason or not password
            assert "\n" not in reason

        story(stranger, main)


def test_with_the_right_user_and_password_slots_and_copies_move(engine: str) -> None:
    with running(engine, {"n0": 1, "n1": 1, "n2": 1}, Options(user="rota", password="right")) as fleet:
        controller = Controller(fleet, access=EngineAccess("rota", "right"))

        async def main() -> None:
            await controller.reach(TWO)
            data = fleet.fill(100)
            halves = {"s00": [(0, 8091)], "s01": [(8092, 16383)]}
            await controller.reach(placement({"s00": "n0", "s01": "n1 n2"}, halves))
            assert fleet.lost(data) == []

        story(controller, main)


def test_tls(tmp_path: Path) -> None:
    if program("redis") is None:
        pytest.skip("there is no redis-server here: `make system` installs it")
    files = certificates.make(tmp_path, [own_host()])
    with running("redis", {"n0": 1, "n1": 1, "n2": 1}, Options(tls=files)) as fleet:
        controller = Controller(fleet, access=EngineAccess(ca_file=files["ca"]))
        stranger = Controller(fleet, access=EngineAccess(is_tls=True))

        async def main() -> None:
            halves = {"s00": [(0, 8091)], "s01": [(8092, 16383)]}
            await controller.reach(TWO)
            data = fleet.fill(100)
            await controller.reach(placement({"s00": "n0", "s01": "n1 n2"}, halves))
            assert fleet.lost(data) == []
            assert "check the engine's certificates" in await stranger.reason()

        story(controller, main)


def test_servers_that_are_no_cluster(engine: str) -> None:
    with running(engine, ["n0", "n1"], Options(is_cluster=False)) as fleet:
        controller = Controller(fleet)

        async def main() -> None:
            reason = await controller.reason()
            assert "is no cluster server; start it with `cluster-enabled yes`" in reason

        story(controller, main)


def test_a_port_where_something_else_listens() -> None:
    with running("valkey", ["n0"]) as fleet:
        controller = Controller(fleet)

        async def main() -> None:
            async def shout(stream: trio.SocketStream) -> None:
                await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

            async with trio.open_nursery() as nursery:
                listener, *_ = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), shout, 0)
                port = listener.socket.getsockname()[1]
                fleet.hosts["n0"][0].ip, fleet.hosts["n0"][0].port = "127.0.0.1", port
                reason = await controller.reason()
                assert f"127.0.0.1:{port}" in reason
                nursery.cancel_scope.cancel()

        story(controller, main)


def test_replicas_that_may_move_by_themselves(engine: str) -> None:
    with running(engine, ["n0", "n1"], Options(more=("cluster-allow-replica-migration yes",))) as fleet:
        controller = Controller(fleet)

        async def main() -> None:
            observation = await controller.observed()
            assert "CONFIG SET cluster-allow-replica-migration no" in observation.notices[0]
            (step,) = (s for s in controller.adapter.lower(observation, TWO).steps if s.kind == "create")
            refusal = controller.adapter.precheck(step, observation)
            assert isinstance(refusal, Refusal)
            assert refusal.message == observation.notices[0]
            for server in fleet.servers:
                server.call("CONFIG", "SET", "cluster-allow-replica-migration", "no")
            await controller.reach(TWO)

        story(controller, main)


def test_a_server_of_another_cluster_or_with_keys_of_its_own_is_left_alone(engine: str) -> None:
    with running(engine, {"n0": 1, "n1": 1, "n2": 2, "n3": 1}) as fleet:
        first, second, stranger, other = (
            fleet.hosts[h][i] for h, i in (("n0", 0), ("n1", 0), ("n2", 0), ("n3", 0))
        )
        fleet.create([[first], [second]])
        introduce([stranger, other])
        stranger.call("CLUSTER", "ADDSLOTSRANGE", 0, 99)
        layout_adapter = fleet.hosts["n2"][1]
        layout_adapter.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: layout_adapter.info_of_cluster()["cluster_state"] == "ok", "it takes keys")
        layout_adapter.call("SET", "a", "b")
        layout_adapter.call("CLUSTER", "DELSLOTSRANGE", 0, 16383)
        controller = Controller(fleet)
        before = states(fleet.servers)

        async def main() -> None:
            observation = await controller.observed()
            assert observation.servers["n2"] == 0
            notices = "\n".join(observation.notices)
            assert f"{stranger.address} on n2 answers for another cluster" in notices
            assert f"{layout_adapter.address} on n2 belongs to no cluster and holds 1 keys" in notices
            target = placement({"s00": "n0 n2", "s01": "n1"})
            status = await controller.run(controller.adapter.lower(observation, target).steps[0])
            assert isinstance(status, Failed)
            assert status.message == "n2 has no server to spare for 1 copies"
            assert (await controller.adapter.repair(observation)).steps == ()
            assert states(fleet.servers) == before

        story(controller, main)


def test_slots_that_are_wanted_twice(pair: Fleet) -> None:
    controller = Controller(pair)

    async def main() -> None:
        observation = await controller.observed()
        twice = placement({"s00": "n0", "s01": "n1"}, {"s00": [(0, 9000)], "s01": [(9000, 16383)]})
        with pytest.raises(ValueError, match="slot 9000 stands there twice"):
            controller.adapter.lower(observation, twice)
        beyond = placement({"s00": "n0", "s01": "n1"}, {"s00": [(0, 9000)], "s01": [(9001, 16384)]})
        with pytest.raises(ValueError, match="9001-16384 are no slots"):
            controller.adapter.lower(observation, beyond)

    story(controller, main)


def test_a_server_that_was_forgotten_is_of_use_again_unless_only_it_has_the_slots(pair: Fleet) -> None:
    spare = pair.hosts["n0"][1]
    controller = Controller(pair)

    async def main() -> None:
        await controller.reach(placement({"s00": "n0", "s01": "n1 n0"}))
        assert len(spare.nodes()) == 3
        for server in pair.running:
            if server is not spare:
                server.call("CLUSTER", "FORGET", spare.node_id)
        assert (await controller.observed()).servers["n0"] == 2
        await controller.repair()
        assert len(spare.nodes()) == 1
        assert chains_of(await controller.observed()) == {"s00": "n0", "s01": "n1"}

    story(controller, main)


def test_a_primary_without_slots_stays_what_it_is_until_it_is_of_use(pair: Fleet) -> None:
    first, idle = pair.hosts["n0"]
    introduce([*pair.hosts["n1"], first, idle])
    node_id, controller = idle.node_id, Controller(pair)

    async def main() -> None:
        observation = await controller.reach(TWO)
        assert chains_of(observation) == {"s00": "n0", "s01": "n1"}
        assert observation.servers == {"n0": 2, "n1": 1}
        assert len(first.nodes()) == 3
        await controller.reach(placement({"s00": "n0", "s01": "n1 n0"}))
        assert (idle.node_id, idle.me().primary_id) == (node_id, pair.hosts["n1"][0].node_id)

    story(controller, main)


def test_a_key_too_big_to_be_moved_without_silence(engine: str) -> None:
    """Where slots are moved key by key the source answers nobody while a big one goes."""
    with running(engine, {"n0": 1, "n1": 1}) as fleet:
        controller = Controller(fleet, settings=replace(PATIENT, largest_key=50_000))

        async def main() -> None:
            await controller.reach(TWO)
            first = fleet.hosts["n0"][0]
            data = fleet.fill(200)
            slots = {key: first.call("CLUSTER", "KEYSLOT", key) for key in first.call("KEYS", "*")}
            big, slot = min(slots.items(), key=lambda item: item[1])
            first.call("SET", big, "x" * 100_000)
            data[big] = "x" * 100_000
            ranges = {"s00": [(slot + 1, 8191)], "s01": [(0, slot), (8192, 16383)]}
            target = placement({"s00": "n0", "s01": "n1"}, ranges)
            halves = {"s00": [(0, 8191)], "s01": [(8192, 16383)]}
            await controller.agree(target, slots=halves)
            (step,) = controller.adapter.lower(await controller.observed(), target).steps
            status = await controller.run(step)
            if engine == "valkey":
                assert status == Done()
            else:
                assert isinstance(status, Failed)
                assert (status.code, status.retryable) == ("huge_key", False)
                assert big in status.message
                assert fleet.open_slots() == []
            assert fleet.lost(data) == []

        story(controller, main)


def test_a_minority_says_nothing_about_the_cluster(engine: str) -> None:
    with running(engine, ["n0", "n1", "n2"]) as fleet:
        fleet.create([[fleet.hosts[name][0]] for name in fleet.hosts])
        fleet.kill("n1")
        fleet.kill("n2")
        controller = Controller(fleet)

        async def main() -> None:
            assert (await controller.reason()).startswith("1 of 3 servers of the cluster answered")
            fleet.kill("n0")
            assert "does not answer" in await controller.reason()
            assert not isinstance(await controller.adapter.observe(), Observation)

        story(controller, main)

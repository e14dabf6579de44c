"""The traps are as deep as `traps` says: in each, data is lost or looks lost by a command that says OK."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from valkey import ResponseError
from valkey.crc import key_slot

from tests.slots import traps
from tests.slots.servers import Fleet, Server, program, running, wait_until

pytestmark = pytest.mark.engine

KEYS_OF_ONE_SLOT = "{one slot}"


@pytest.fixture
def fleet(engine: str) -> Iterator[Fleet]:
    """Three shards with one replica each: primaries on n0, n1, n2, their replicas on n1, n2, n0."""
    with running(engine, {"n0": 2, "n1": 2, "n2": 2}) as servers:
        servers.create_evenly(shards=3, replicas=1)
        yield servers


@pytest.fixture
def redis() -> Iterator[Fleet]:
    """The same, of Redis: for what only slots that are moved key by key have."""
    if program("redis") is None:
        pytest.skip("there is no redis-server here: `make system` installs it")
    with running("redis", {"n0": 2, "n1": 2, "n2": 2}) as servers:
        servers.create_evenly(shards=3, replicas=1)
        yield servers


def replica_of(fleet: Fleet, primary: Server) -> Server:
    return next(server for server in fleet.running if server.me().primary_id == primary.node_id)


def moving(fleet: Fleet, moved: int) -> tuple[Server, Server, dict[str, str], int]:
    """Ten keys of one slot on their way: from whom, to whom, the keys, the slot."""
    data = fleet.fill(10, prefix=KEYS_OF_ONE_SLOT)
    source = next(server for server in fleet.primaries().values() if server.key_count)
    target = next(server for server in fleet.primaries().values() if server is not source)
    return source, target, data, traps.half_moved(source, target, list(data), moved)


def test_a_replica_that_never_synced_wins_the_election_and_the_shard_is_lost(fleet: Fleet) -> None:
    data = fleet.fill(300)
    first, second, _ = (servers[0] for servers in fleet.hosts.values())
    true, stranger = replica_of(fleet, first), replica_of(fleet, second)
    held = first.key_count
    assert held > 50
    wait_until(lambda: true.key_count == held, "the true replica has everything")
    traps.never_synced(stranger, first)
    assert stranger.info("replication")["master_link_status"] == "down"
    traps.promoted(fleet, stranger)
    wait_until(lambda: true.is_synced_replica, "the true replica follows whoever was promoted")
    assert true.key_count == stranger.key_count != held
    assert len(fleet.lost(data)) == held


def test_a_slot_that_is_called_stable_in_the_middle_of_its_way_hides_what_was_moved(redis: Fleet) -> None:
    source, target, data, slot = moving(redis, moved=4)
    for server in (source, target):
        server.call("CLUSTER", "SETSLOT", slot, "STABLE")
    assert redis.open_slots() == []
    assert redis.lost(data) == list(data)[:4]


def test_the_new_primary_of_a_source_that_died_knows_nothing_of_the_slot_on_its_way(redis: Fleet) -> None:
    source, target, data, slot = moving(redis, moved=4)
    heir = replica_of(redis, source)
    source.kill()
    traps.promoted(redis, heir)
    assert redis.open_slots() == [f"{target.address} [{slot}-<-{source.node_id}]"]
    assert redis.lost(data) == list(data)[:4]
    # Whoever imports a slot believes nobody about it any more, so that the servers never agree by themselves.
    assert slot in target.nodes()[source.node_id].held()
    assert redis.owners()[slot] == heir.node_id


def test_a_source_that_still_holds_keys_does_not_give_the_slot_away(redis: Fleet) -> None:
    source, target, _, slot = moving(redis, moved=4)
    with pytest.raises(ResponseError, match="Can't assign hashslot"):
        source.call("CLUSTER", "SETSLOT", slot, "NODE", target.node_id)


def test_several_keys_of_a_slot_that_is_half_moved_are_to_be_asked_for_later(redis: Fleet) -> None:
    source, _, data, _ = moving(redis, moved=4)
    with pytest.raises(ResponseError, match="TRYAGAIN"):
        source.call("MGET", *list(data)[3:5])


def test_a_primary_that_was_stopped_and_goes_on_answers_what_is_old_but_nothing_under_wait(
    fleet: Fleet,
) -> None:
    """It does not know yet that another one leads: who must not lose writes asks for `WAIT 1`."""
    (key,) = fleet.fill(1)
    primary = fleet.with_id(fleet.owners()[key_slot(key.encode())])
    heir = replica_of(fleet, primary)
    with socket.create_connection((primary.ip, primary.port), 10.0) as client:
        client.sendall(b"PING\r\n")
        assert client.recv(16) == b"+PONG\r\n"
        primary.pause()
        # These wait in its socket, before all that the other servers have to say to it.
        client.sendall(f"GET {key}\r\nSET {key} lost\r\nWAIT 1 1000\r\n".encode())
        heir.call("CLUSTER", "FAILOVER", "FORCE")
        wait_until(lambda: bool(heir.me().slots), f"{heir} leads")
        heir.call("SET", key, "new")
        primary.resume()
        with client.makefile("rb") as answers:
            read = answers.readline()
            if not read.startswith(b"-MOVED"):  # it has heard of nothing yet
                assert (read, answers.readline()) == (b"$14\r\n", b"value 0 of key\r\n")
            written, acknowledged = answers.readline(), answers.readline()
            assert written[:1] in b"+-"
            assert not acknowledged.startswith(b":1")
    fleet.wait_until_served()
    assert heir.call("GET", key) == "new"


def test_a_primary_that_was_emptied_keeps_its_replica_and_neither_is_taken_by_another(engine: str) -> None:
    with running(engine, {"n0": 2, "n1": 2}) as fleet:
        (first, replica), (second, other) = fleet.hosts.values()
        fleet.create([[first, replica], [second, other]], slots=[[(0, 9)], [(10, 16383)]])
        with pytest.raises(ResponseError):  # it has slots
            first.call("CLUSTER", "REPLICATE", second.node_id)
        with pytest.raises(ResponseError):  # it would be a chain
            other.call("CLUSTER", "REPLICATE", replica.node_id)
        for slot in range(10):
            for server in (second, first):
                server.call("CLUSTER", "SETSLOT", slot, "NODE", second.node_id)
        fleet.wait_until_served()
        assert first.me().slots == ()
        assert replica.me().primary_id == first.node_id
        assert "master" in first.me().flags

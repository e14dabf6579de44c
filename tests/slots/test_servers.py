"""The helper itself: what other tests of this folder take for granted."""

from __future__ import annotations

from pathlib import Path

import pytest
from valkey import AuthenticationError
from valkey import ConnectionError as ServerGoneError

from tests.own_addresses import own_host
from tests.slots import certificates
from tests.slots.servers import SLOTS, Options, program, running

pytestmark = pytest.mark.engine


def test_a_cluster_serves_loses_a_host_and_has_it_back(engine: str) -> None:
    with running(engine, ["n0", "n1", "n2"], Options(is_durable=True)) as fleet:
        fleet.create_evenly(shards=3, replicas=0)
        data = fleet.fill(300)
        assert len(fleet.primaries()) == 3
        assert fleet.lost({**data, "key:1": "another value"}) == ["key:1"], "each key is looked at"
        (server,) = fleet.hosts["n1"]
        node_id, held = server.node_id, server.key_count
        server.stop()
        with pytest.raises(ServerGoneError):
            server.call("PING")
        fleet.restart("n1")
        assert (server.node_id, server.key_count) == (node_id, held)
        fleet.wait_until_served()
        assert set(fleet.owners()) == set(range(SLOTS))
        assert fleet.lost(data) == []
    assert fleet.running == ()


def test_replicas_follow_with_an_acl_user_and_nobody_else_is_let_in(engine: str) -> None:
    with running(engine, ["n0", "n1"], Options(user="rota", password="of-the-test")) as fleet:
        (primary,), (replica,) = fleet.hosts.values()
        fleet.create([[primary, replica]])
        assert replica.me().primary_id == primary.node_id
        with pytest.raises(AuthenticationError):
            primary.call("AUTH", "rota", "another")


def test_servers_that_speak_tls_only(tmp_path: Path) -> None:
    if program("redis") is None:
        pytest.skip("there is no redis-server here: `make system` installs it")
    files = certificates.make(tmp_path, [own_host()])
    with running("redis", ["n0", "n1"], Options(tls=files)) as fleet:
        (primary,), (replica,) = fleet.hosts.values()
        fleet.create([[primary, replica]])
        data = fleet.fill(20)
        assert fleet.lost(data) == []
        assert replica.is_synced_replica

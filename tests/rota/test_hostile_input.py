"""Bad input against real agent processes: refused in one clear line or dropped and counted, never a crash."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from rota.errors import ApiError
from rota.local.cluster import ClusterPlan, LocalCluster, open_local_cluster

pytestmark = pytest.mark.socket

ONE = {"nodes": 1, "racks": 1, "segments": 4, "replication_factor": 1}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with open_local_cluster(ClusterPlan(tmp_path, **ONE)) as cluster:
        await cluster.wait_until(
            lambda answers: answers["n1"]["state"] == "member", timeout=20, what="one agent on its own"
        )
        yield cluster


async def run_agent(*arguments: str, directory: Path) -> tuple[int, str]:
    """An agent that is expected to give up by itself."""
    done = await trio.run_process(
        [sys.executable, "-m", "rota", "agent", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0",
         "--name", "stranger", "--data-dir", str(directory), "--join-timeout", "3", "--preset", "local", *arguments],
        capture_stdout=True, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode()


def last_line(output: str) -> str:
    assert "Traceback" not in output
    return output.strip().splitlines()[-1]


async def test_random_bytes_are_counted_and_change_nothing(cluster: LocalCluster) -> None:
    agent = cluster.agents["n1"]
    generator = random.Random(7)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for length in (0, 1, 4, 40, 400, 1400, 9000):
            for _ in range(20):
                sender.sendto(generator.randbytes(length), agent.address)
                sender.sendto(b"rota" + generator.randbytes(length), agent.address)

    def counted(answers: dict[str, dict[str, object]]) -> bool:
        dropped = answers["n1"]["dropped"]
        assert isinstance(dropped, dict)
        return sum(dropped.values()) >= 200

    answers = await cluster.wait_until(counted, timeout=10, what="counting what was dropped")
    assert answers["n1"]["state"] == "member"
    assert answers["n1"]["epoch"] == 0


async def test_random_bytes_on_the_stream_port(cluster: LocalCluster) -> None:
    agent = cluster.agents["n1"]
    for payload in (b"GET / HTTP/1.0\r\n\r\n", os.urandom(5000), b"rota" + os.urandom(100), b""):
        stream = await trio.open_tcp_stream(agent.address.host, agent.address.port)
        async with stream:
            with trio.fail_after(10):
                # The agent may hang up at any byte, so also before the sender has said that it is done.
                try:
                    await stream.send_all(payload)
                    await stream.send_eof()
                    while await stream.receive_some():
                        pass
                except trio.BrokenResourceError:
                    pass
    cluster.check_processes()
    assert (await agent.get("/v1/status"))["state"] == "member"


async def test_a_seed_that_is_not_rota(tmp_path: Path) -> None:
    """An HTTP server stands where the seed should be."""
    async with trio.open_nursery() as nursery:

        async def answer(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            await stream.aclose()

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        port = listener.socket.getsockname()[1]
        status, output = await run_agent("--seed", f"127.0.0.1:{port}", directory=tmp_path / "d")
        nursery.cancel_scope.cancel()
    assert status == 1
    assert f"127.0.0.1:{port}" in last_line(output)
    assert "not rota" in last_line(output) or "not a rota" in last_line(output)


async def test_nobody_at_the_seed(tmp_path: Path) -> None:
    status, output = await run_agent("--seed", "127.0.0.1:9", directory=tmp_path / "d")
    assert status == 1
    assert "127.0.0.1:9" in last_line(output)


async def test_a_foreign_cluster_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    """A host whose data belongs to one cluster never joins another."""
    directory = tmp_path / "stranger"
    directory.mkdir()
    (directory / "agent.json").write_text('{"cluster_id": "%s", "name": "stranger"}' % ("ab" * 16))
    status, output = await run_agent("--seed", str(cluster.agents["n1"].address), directory=directory)
    assert status == 1
    assert "cluster" in last_line(output)
    assert (await cluster.agents["n1"].get("/v1/status"))["size"] == 1


async def test_two_agents_cannot_share_an_address_or_a_directory(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    agent = cluster.agents["n1"]
    status, output = await run_agent("--listen", str(agent.address), directory=tmp_path / "d")
    assert status == 1
    assert str(agent.address) in last_line(output)
    status, output = await run_agent("--api", str(agent.api), directory=tmp_path / "e")
    assert status == 1
    assert "--api" in last_line(output)
    status, output = await run_agent("--seed", str(agent.address), "--name", "n1", directory=tmp_path / "n1")
    assert status == 1
    assert last_line(output).startswith("rota: ")


async def test_requests_that_make_no_sense(cluster: LocalCluster) -> None:
    agent = cluster.agents["n1"]
    await cluster.wait_until(
        lambda answers: answers["n1"]["control"]["settled"], timeout=20, what="a placement"
    )
    with pytest.raises(ApiError, match="no host 'n9'"):
        await agent.post("/v1/drain", {"host": "n9"})
    with pytest.raises(ApiError, match="stream's name"):
        await agent.get("/v1/log/%20")
    with pytest.raises(ApiError, match="404"):
        await agent.get("/v1/nonsense")


HOSTILE_BODIES = [
    ("/v1/tags", b'{"set": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"),
    ("/v1/keys", b"[" * 30_000),
    ("/v1/map/m", b'{"action":' * 6_000),
    ("/v1/segments", b'{"count": true}'),
    ("/v1/drain", b'{"host": "\xff"}'),
]


async def test_hostile_bodies_are_refused_in_json(cluster: LocalCluster) -> None:
    """One agent hears all of them, and is there for the next one."""

    def post(path: str, body: bytes) -> tuple[int, bytes]:
        request = urllib.request.Request(f"http://{cluster.agents['n1'].api}{path}", data=body, method="POST")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    for path, body in HOSTILE_BODIES:
        status, answer = await trio.to_thread.run_sync(post, path, body)
        assert status == 400, (path, answer)
        assert json.loads(answer)["code"] == "bad_request", path

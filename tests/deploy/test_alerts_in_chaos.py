"""Each alert fires in a chaos scenario on real agents, and stops after it.

What the agents' metrics say meanwhile is recorded, and `promtool` puts the alerts to it.  A scenario lasts a minute,
alerts wait for minutes: a sample, taken twice a second, stands for as much time as is said here.

Not here: `RotaDefect`, for which there must be a defect, and those of the HTTP interface (`test_three_hosts`,
`tests.rota.test_http_server`).
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from valkey import Valkey
from valkey.exceptions import ConnectionError as ValkeyConnectionError

from membership import Address
from rota.local.cluster import ClusterPlan, open_local_cluster
from tests.deploy.recording import Recorder, Series, record, rules_test
from tests.deploy.test_monitoring import ALERTS, run

pytestmark = [pytest.mark.sweep, pytest.mark.system, pytest.mark.timeout(600)]

WANTED = set(re.findall(r"\brota_\w+", ALERTS.read_text()))
LOG = ("--store", "log")
SCENARIOS = (
    (("quorum-loss", *LOG), 5, "15s", "RotaAgentDown RotaQuorumLost"),
    (("rack-loss", *LOG), 6, "60s", "RotaRackViolations RotaInfeasible RotaNotReady"),
    (("rolling-restart", *LOG), 4, "10s", "RotaUnderReplicated RotaMembershipChanges"),
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

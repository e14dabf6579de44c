"""What `deploy/` holds for those who watch a cluster, checked by the programs it is made for."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from membership import Address
from rota.access.access import Access
from rota.http.api import build_application
from rota.http.server import serve
from rota.local.cluster import ClusterPlan, LocalCluster, is_settled, open_local_cluster
from tests.own_addresses import own_address
from tests.rota.test_api import FakeNode

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus/alerts.yml"
PATIENCE = 60.0

pytestmark = pytest.mark.system


def run(*command: str, cwd: Path = DEPLOY / "prometheus", given: str | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_configuration_and_the_alerts_are_sound_and_each_alert_begins_and_ends() -> None:
    run("promtool", "check", "config", "prometheus.yml")
    run("promtool", "test", "rules", "alerts_test.yml")
    alerts = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    assert alerts == set(re.findall(r"\bRota\w+", (DEPLOY / "prometheus/alerts_test.yml").read_text()))


def test_the_unit_is_sound_and_hardened(tmp_path: Path) -> None:
    unit = tmp_path / "rota-agent.service"
    text = (DEPLOY / "systemd/rota-agent.service").read_text()
    unit.write_text(text.replace("/opt/rota/bin/rota", "/bin/true"))
    assert run("systemd-analyze", "verify", str(unit)) == ""
    exposure = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(unit))
    assert float(re.findall(r"Overall exposure level for \S+: ([\d.]+)", exposure)[0]) < 2.5


def configured(cluster: LocalCluster, directory: Path) -> Path:
    """All agents are scraped twice a second; what takes minutes to be an alert takes a second here."""
    directory.mkdir()
    alerts = re.sub(r"for: \w+", "for: 1s", ALERTS.read_text())
    (directory / "alerts.yml").write_text(alerts)
    targets = ", ".join(str(agent.api) for agent in cluster.agents.values())
    configuration = (DEPLOY / "prometheus/prometheus.yml").read_text()
    configuration = configuration.replace("15s", "500ms").replace("- 127.0.0.1:7947", f"[{targets}]")
    configuration = re.sub(r"targets:\s+\[", "targets: [", configuration)
    (directory / "prometheus.yml").write_text(configuration)
    return directory


@asynccontextmanager
async def prometheus(directory: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Prometheus with the configuration of this directory."""
    address = own_address()
    async with trio.open_nursery() as nursery:
        command = [
            "prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address={address}",
        ]  # fmt: skip
        with (directory / "log").open("wb") as log:
            process = await nursery.start(partial(trio.run_process, command, stdout=log, stderr=log))
        async with httpx.AsyncClient(base_url=f"http://{address}/api/v1/") as client:
            yield client
        process.terminate()


async def answer(client: httpx.AsyncClient, query: str) -> dict[str, float]:
    """What an expression is now, by alert or else by metric."""
    with trio.move_on_after(1):
        try:
            result = (await client.get("query", params={"query": query})).json()["data"]["result"]
        except (httpx.HTTPError, KeyError, json.JSONDecodeError):
            return {}  # it is still starting
        return {each["metric"].get("alertname", ""): float(each["value"][1]) for each in result}
    return {}


async def until(client: httpx.AsyncClient, query: str, wanted: dict[str, float]) -> None:
    seen: dict[str, float] = {}
    with trio.move_on_after(PATIENCE):
        while (seen := await answer(client, query)) != wanted:  # noqa: ASYNC110  # it tells nobody by itself
            await trio.sleep(0.2)
        return
    pytest.fail(f"{query} is {seen}, not {wanted}")


FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


def metrics_named(dashboard: Any) -> set[str]:
    """In the expressions of the dashboard's panels and in the alerts."""
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    texts += re.findall(r"expr: (.*)", ALERTS.read_text())
    return {name for text in texts for name in re.findall(r"\brota_\w+", text)}


async def test_prometheus_reads_a_cluster_and_is_alarmed_while_a_majority_is_gone(tmp_path: Path) -> None:
    async with (
        open_local_cluster(ClusterPlan(tmp_path / "cluster", nodes=3, racks=3, segments=3)) as cluster,
        prometheus(configured(cluster, tmp_path / "prometheus")) as client,
    ):
        settled = lambda answers: any(map(is_settled, answers.values()))  # noqa: E731
        await cluster.wait_until(settled, timeout=PATIENCE, what="a placement")
        await until(client, "sum(up)", {"": 3})
        await until(client, "sum(rota_view_members)", {"": 9})
        await until(client, FIRING, {})
        agent = cluster.agents["n1"]
        text = (await client.get(f"http://{agent.api}/metrics")).text
        run("promtool", "check", "metrics", given=text)
        unseen = {
            # Of Valkey and Redis, and of what does not happen here.
            "rota_engine_servers", "rota_engine_servers_running", "rota_shard_operations_per_second",
            "rota_shard_copies_in_sync", "rota_server_defects_total", "rota_certificate_expiry_timestamp_seconds",
        }  # fmt: skip
        dashboard = json.loads((DEPLOY / "grafana/rota.json").read_text())
        assert metrics_named(dashboard) - set(re.findall(r"^rota_\w+", text, re.MULTILINE)) == unseen
        for name in ("n2", "n3"):
            cluster.kill(name)
            await cluster.agents[name].process.wait()
        firing = (
            'count by (alertname) (ALERTS{alertstate="firing", alertname=~"RotaAgentDown|RotaQuorumLost"})'
        )
        await until(client, firing, {"RotaAgentDown": 2, "RotaQuorumLost": 1})
        for name in ("n2", "n3"):
            await cluster.start_one(name)
        await until(client, firing, {})


class OneMember(FakeNode):
    """Its view has one member, whose agent answers here."""

    at: str

    def members(self) -> dict[str, Any]:
        own = {"name": "n1", "address": "127.0.0.1:1", "http": f"http://{self.at}", "tags": {"rack": "r1"}}
        return {"epoch": 3, "members": [own]}


async def test_prometheus_finds_the_agents_by_any_of_them(tmp_path: Path) -> None:
    node, access = OneMember(), Access()
    async with trio.open_nursery() as nursery:
        served = partial(serve, build_application(node, access), Address("127.0.0.1", 0), access, None)
        node.at = str(await nursery.start(served))
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 500ms}\n"
            "scrape_configs:\n"
            "- job_name: rota\n"
            f"  http_sd_configs: [{{url: 'http://{node.at}/v1/sd/prometheus'}}]\n"
        )
        async with prometheus(tmp_path) as client:
            await until(client, f'up{{job="rota", instance="{node.at}", member="n1", rack="r1"}}', {"": 1})
        nursery.cancel_scope.cancel()

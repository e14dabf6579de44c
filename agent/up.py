"""``rota up``: a local cluster in the foreground, with a live table of who is in and who does what."""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import trio

from agent.api_client import DEFAULT_URL
from agent.errors import ApiError, LocalClusterError
from agent.interruption import until_interrupted
from agent.local_cluster import ClusterPlan, LocalCluster, open_local_cluster
from agent.output import as_json
from membership import Address

REFRESH = 1.0


@contextlib.contextmanager
def _directory(wanted: Path | None) -> Any:
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="rota-up-") as made:
            yield Path(made)
        return
    if wanted.exists() and any(wanted.iterdir()):
        raise LocalClusterError(
            f"{wanted} is not empty; starting an earlier cluster again is not there in this version: "
            "name another folder or remove it"
        )
    wanted.mkdir(parents=True, exist_ok=True)
    yield wanted


def _default_api_if_free() -> Address:
    """The first agent takes the commands' default address, so that they need no --api."""
    default = Address.parse(DEFAULT_URL.removeprefix("http://"))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(default)
        except OSError:
            return Address(default.host, 0)
    return default


async def run_up(nodes: int, racks: int, loss: float, directory: Path | None, json_wanted: bool) -> None:
    """Start, show, and at Ctrl-C leave."""
    with _directory(directory) as place:
        plan = ClusterPlan(place, nodes=nodes, racks=racks, loss=loss, first_api=_default_api_if_free())
        async with until_interrupted():
            click.echo(f"starting {nodes} agents in {racks} racks …", err=True)
            async with open_local_cluster(plan) as cluster:
                if json_wanted:
                    agents = [{"name": a.name, "rack": a.rack, "address": str(a.address), "api": f"http://{a.api}"}
                              for a in cluster.agents.values()]  # fmt: skip
                    click.echo(as_json({"directory": str(place), "agents": agents}))
                try:
                    await _show(cluster, quiet=json_wanted)
                finally:
                    with trio.CancelScope(shield=True):
                        await cluster.stop()
    click.echo("all agents have left", err=True)


async def _show(cluster: LocalCluster, quiet: bool) -> None:
    first = next(iter(cluster.agents.values()))
    if quiet or not sys.stdout.isatty():
        click.echo(f"http://{first.api}/ answers; logs in {cluster.plan.directory}; Ctrl-C ends it", err=True)
        while True:
            _report_ended(cluster)
            await trio.sleep(REFRESH)
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            live.update(await _picture(cluster), refresh=True)
            await trio.sleep(REFRESH)


def _report_ended(cluster: LocalCluster) -> None:
    for agent in cluster.agents.values():
        if not agent.alive and not agent.expected_to_end:
            agent.expected_to_end = True
            click.echo(
                f"agent {agent.name} ended with status {agent.process.returncode} (log: {agent.log})",
                err=True,
            )


async def _picture(cluster: LocalCluster) -> Any:
    from rich.table import Table
    from rich.text import Text

    live = cluster.live()
    if not live:
        return Text("no agent is left; Ctrl-C ends it")
    statuses = await cluster.statuses()
    layout = await _layout(cluster)
    title = "joining …"
    for status in statuses.values():
        if status["epoch"] is not None:
            title = f"view {status['epoch']}, {status['size']} members, controller {status['controller'] or 'none'}"
            break
    if layout is not None:
        title += f", layout epoch {layout['layout_epoch']}, {layout['open_moves']} open moves"
    table = Table(
        "host", "rack", "state", "replicas", "primaries", "roles", "http", title=title, title_justify="left"
    )
    for agent in sorted(cluster.agents.values(), key=lambda agent: (len(agent.name), agent.name)):
        state = statuses.get(agent.name, {}).get("state", "starting") if agent.alive else "gone"
        replicas, primaries, roles = _duties(layout, agent.name)
        table.add_row(
            agent.name, agent.rack, Text(state, style="red" if state == "gone" else ""), str(replicas), str(primaries),
            roles, f"http://{agent.api}",
        )  # fmt: skip
    return table


async def _layout(cluster: LocalCluster) -> dict[str, Any] | None:
    for agent in cluster.live():
        with contextlib.suppress(ApiError):
            layout: dict[str, Any] = await agent.get("/v1/layout")
            return layout
    return None


def _duties(layout: dict[str, Any] | None, host: str) -> tuple[int, int, str]:
    if layout is None:
        return 0, 0, ""
    replicas = [
        replica
        for segment in layout["segments"]
        for replica in segment["replicas"]
        if replica["host"] == host
    ]
    primaries = sum(1 for replica in replicas if replica["role"] == "primary")
    roles = [
        role.replace("_", " ")[:-1]
        for role in ("layout_servers", "sequencers")
        if host in layout["roles"][role]
    ]
    return len(replicas), primaries, ", ".join(roles)

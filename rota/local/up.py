"""``rota up``: a local cluster in the foreground, with a live table of who is in and who does what."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import trio

from membership import Address
from rota.client.api_client import ApiClient
from rota.client.contexts import forget_local, local_agents, remember_local
from rota.client.target import DEFAULT_URL, Target
from rota.errors import ApiError, LocalClusterError, UsageProblem
from rota.local import cluster_file
from rota.local.cluster import ClusterPlan, LocalCluster, check_store, open_local_cluster
from rota.local.interruption import until_interrupted
from rota.terminal.output import as_json

REFRESH = 1.0
JOIN_TIMEOUT = 60.0
PROBE_TIMEOUT = 2.0
"""Seconds that the agents which commands would ask have for an answer."""


@contextlib.contextmanager
def _directory(wanted: Path | None) -> Iterator[Path]:
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="rota-up-") as made:
            yield Path(made)
        return
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        in_use = any(wanted.iterdir())
    except OSError as error:
        raise UsageProblem(f"--dir {wanted}: {error.strerror}; name a folder that can be written") from error
    if in_use and not (wanted / cluster_file.FILE).exists():
        raise LocalClusterError(
            f"{wanted} is not empty, and `rota up` has not started a cluster there: name another folder"
        )
    with _to_ourselves(wanted):
        yield wanted


@contextlib.contextmanager
def _to_ourselves(directory: Path) -> Iterator[None]:
    """Nobody else starts agents there meanwhile: they would join those that run, and end with the second `rota up`."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise LocalClusterError(
            f"{directory} is in use by another `rota up`: stop that, or name another folder"
        ) from None
    finally:
        os.close(descriptor)


def _plan(place: Path, nodes: int | None, racks: int | None, loss: float, store: str | None) -> ClusterPlan:
    """A new cluster, or the one of this folder.  Raises :class:`UsageProblem` when it is asked for as another."""
    before = cluster_file.load(place)
    if before is None:
        # The first agent takes the commands' default address if it can, so that its console is where people look.
        default = Address.parse(DEFAULT_URL.removeprefix("http://"))
        fresh = ClusterPlan(place, loss=loss, first_api=default, store=store or "log")
        return replace(fresh, nodes=nodes or fresh.nodes, racks=racks or fresh.racks)
    size = len(before.places)
    if nodes not in (None, size) or racks not in (None, before.racks) or store not in (None, before.store):
        raise UsageProblem(
            f"--dir {place}: the cluster there has {size} agents in {before.racks} racks, and its store is "
            f"{before.store}; leave --nodes, --racks and --store out to start it again, or name another folder"
        )
    return ClusterPlan(
        place,
        nodes=size,
        racks=before.racks,
        loss=loss,
        store=before.store,
        places=before.places,
        first_api=next((place.api for place in before.places.values()), None),
    )


async def run_up(
    nodes: int | None,
    racks: int | None,
    store: str | None,
    loss: float,
    directory: Path | None,
    json_wanted: bool,
) -> None:
    """Start, show, and at Ctrl-C leave.  None: as the folder says, or the default.

    Raises :class:`LocalClusterError` when no agent is left before.
    """
    with _directory(directory) as place:
        plan = _plan(place, nodes, racks, loss, store)
        check_store(plan.store)
        async with until_interrupted():
            again = " again" if plan.places else ""
            click.echo(f"starting {plan.nodes} agents in {plan.racks} racks{again} …", err=True)
            async with open_local_cluster(plan) as cluster:
                cluster.remember()
                agents = [f"http://{agent.api}" for agent in cluster.in_order()]
                is_asked = await trio.to_thread.run_sync(_are_asked_by_default, agents)
                for line in _where_it_is(agents[0], f"http://{plan.first_api}", is_asked):
                    click.echo(line, err=True)
                live = sys.stdout.isatty() and not json_wanted
                if not live:  # who reads on after that wants to ask; on a terminal the table tells
                    await cluster.wait_together(JOIN_TIMEOUT)
                if json_wanted:
                    document: dict[str, Any] = {
                        "directory": str(place),
                        "console": f"{agents[0]}/",
                        "store": plan.store,
                        "agents": [
                            {"name": a.name, "rack": a.rack, "address": str(a.address), "api": api}
                            for a, api in zip(cluster.in_order(), agents, strict=True)
                        ],
                    }
                    if plan.store != "log":
                        document["password_file"] = str(cluster.password_file)
                    click.echo(as_json(document))
                try:
                    await _show(cluster, live=live)
                finally:
                    if is_asked:
                        forget_local()
                    leaving = len(cluster.live())
                    with trio.CancelScope(shield=True):
                        await cluster.stop()
    ended = plan.nodes - leaving
    click.echo(
        f"{leaving} agents have left, {ended} had ended before" if ended else "all agents have left", err=True
    )


def _are_asked_by_default(agents: list[str]) -> bool:
    """See to it that commands that are told of no agent ask these: not while they ask others, which answer."""
    others = [other for other in local_agents() if other not in agents]
    if others and _answers(others):
        return False
    return remember_local(agents) or agents[0] == DEFAULT_URL


def _answers(agents: list[str]) -> bool:
    """Whether one of them is an agent, of whomever it takes orders."""
    try:
        ApiClient(Target(",".join(agents)), timeout=PROBE_TIMEOUT).get("/v1/status")
    except UsageProblem:
        return False  # what is remembered is no address
    except ApiError as error:
        return error.status in (401, 403)
    return True


def _where_it_is(first: str, wanted: str, is_asked: bool) -> Iterator[str]:
    """What whoever types commands in another terminal has to know, if anything."""
    if first != wanted:
        yield f"{wanted} is taken: n1 serves HTTP at {first} instead"
    if not is_asked:
        yield f"commands ask other agents by default; for this cluster, type  export ROTA_API={first}"


async def _show(cluster: LocalCluster, live: bool) -> None:
    first = cluster.in_order()[0]
    if not live:
        click.echo(
            f"console: http://{first.api}/ answers; logs in {cluster.plan.directory}{_password(cluster)}; "
            "Ctrl-C ends it",
            err=True,
        )
        while True:
            _report_ended(cluster)
            _check_any_left(cluster)
            await trio.sleep(REFRESH)
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as table:
        while True:
            table.update(await _picture(cluster), refresh=True)
            _check_any_left(cluster)
            await trio.sleep(REFRESH)


def _check_any_left(cluster: LocalCluster) -> None:
    if not cluster.live():
        last = cluster.in_order()[-1]
        raise LocalClusterError(
            f"all agents have ended; the log of {last.name} ends with:\n{last.last_lines()}"
        )


def _password(cluster: LocalCluster) -> str:
    return "" if cluster.plan.store == "log" else f"; the servers' password in {cluster.password_file}"


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

    if not cluster.live():
        return Text("no agent is left")
    statuses = await cluster.statuses()
    layout = await _layout(cluster)
    table = Table(
        *("host", "rack", "state", "replicas", "primaries", "roles", "http"),
        title=_title(statuses, layout),
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        caption=f"console: http://{cluster.live()[0].api}/; logs {cluster.plan.directory}{_password(cluster)}; "
        "Ctrl-C ends it",
        caption_justify="left",
    )
    controllers = {status["controller"] for status in statuses.values()}
    for agent in cluster.in_order():
        state = statuses.get(agent.name, {}).get("state", "starting") if agent.alive else "gone"
        style = "red" if state == "gone" else ""
        table.add_row(
            agent.name,
            agent.rack,
            Text(state, style=style),
            *_duties(layout, agent.name, agent.name in controllers),
            str(agent.api),
        )
    return table


def _title(statuses: Mapping[str, Any], layout: Mapping[str, Any] | None) -> Any:
    from rich.text import Text

    status = next((status for status in statuses.values() if status["epoch"] is not None), None)
    if status is None:
        return Text("joining …")
    title = Text(
        f"view {status['epoch']}, {status['size']} members, controller {status['controller'] or 'none'}"
    )
    if layout is not None:
        title.append(f", layout epoch {layout['layout_epoch']}, {layout['open_moves']} open moves")
    if not any(status["quorum"] for status in statuses.values()):
        title.append(
            "  quorum LOST: more than half of the members are gone, nothing can change", style="bold red"
        )
    return title


async def _layout(cluster: LocalCluster) -> dict[str, Any] | None:
    for agent in cluster.live():
        with contextlib.suppress(ApiError):
            layout: dict[str, Any] = await agent.get("/v1/layout")
            return layout
    return None


def _duties(layout: Mapping[str, Any] | None, host: str, is_controller: bool) -> tuple[str, str, str]:
    """Replicas, primaries and roles of ``host``; question marks while no layout can be read."""
    held = ["controller"] if is_controller else []
    if layout is None:
        return "?", "?", ", ".join(held)
    replicas = [
        replica
        for segment in layout["segments"]
        for replica in segment["replicas"]
        if replica["host"] == host
    ]
    primaries = sum(1 for replica in replicas if replica["role"] == "primary")
    held += [
        role.replace("_", " ")[:-1]
        for role in ("layout_servers", "sequencers")
        if host in layout["roles"][role]
    ]
    return str(len(replicas)), str(primaries), ", ".join(held)

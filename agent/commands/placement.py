"""Who does what: ``rota layout``, ``rota plan``, ``rota drain``, ``rota undrain``."""

from __future__ import annotations

from typing import Any

import click

from agent.api_client import ApiClient
from agent.commands.options import api_option, json_option
from agent.output import emit, table


@click.group()
def layout() -> None:
    """Segments, replicas by rack, roles."""


@layout.command()
@api_option
@json_option
def show(api: str, json_wanted: bool) -> None:
    """The layout as it stands: one line per segment, the primary first."""
    emit(ApiClient(api).get("/v1/layout"), json_wanted, _show_layout)


def _show_layout(answer: dict[str, Any]) -> None:
    if not answer["segments"]:
        click.echo("no segment is placed yet; `rota status` says what it waits for")
        return
    racks = sorted({replica["rack"] for segment in answer["segments"] for replica in segment["replicas"]})
    table(
        ("segment", *(rack or "(gone)" for rack in racks), "primary"),
        [
            (segment["key"], *(_cell(segment, rack) for rack in racks), segment["replicas"][0]["host"])
            for segment in answer["segments"]
        ],
        title=f"layout epoch {answer['layout_epoch']}",
    )
    for role, hosts in answer["roles"].items():
        in_order = hosts if role == "sequencers" else sorted(hosts)  # the first sequencer is the active one
        click.echo(f"{role.replace('_', ' '):<16}{', '.join(in_order) or 'none'}")
    if answer["drained"]:
        click.echo(f"{'drained':<16}{', '.join(answer['drained'])}")
    click.echo(
        f"{'rules':<16}{answer['rack_violations']} rack violations, "
        f"{answer['under_replicated']} under-replicated segments"
    )


def _cell(segment: dict[str, Any], rack: str) -> str:
    """The hosts of one rack that hold the segment; what is not in sync is marked."""
    held = [replica for replica in segment["replicas"] if replica["rack"] == rack]
    return " ".join(
        replica["host"] + ("" if replica["state"] == "in_sync" else f" ({replica['state']})")
        for replica in held
    )


@click.command()
@api_option
@json_option
def plan(api: str, json_wanted: bool) -> None:
    """A dry run: what the controller would do now, and why.  Nothing is changed."""
    answer = ApiClient(api, timeout=60.0).get("/v1/plan")
    emit(answer, json_wanted, lambda value: click.echo(value["text"]))


@click.command(short_help="Empty a host: its replicas and roles move elsewhere.")
@click.argument("host")
@api_option
@json_option
def drain(host: str, api: str, json_wanted: bool) -> None:
    """Empty HOST: its replicas and roles move elsewhere, one plan, nothing lost.

    The placement is solved first.  If the policies cannot all hold without the host, the drain is refused
    with the names of those that clash, and nothing moves.
    """
    answer = ApiClient(api, timeout=90.0).post("/v1/drain", {"host": host})
    emit(
        answer,
        json_wanted,
        lambda _: click.echo(f"{host} is being drained; follow it with `rota events --follow`"),
    )


@click.command()
@click.argument("host")
@api_option
@json_option
def undrain(host: str, api: str, json_wanted: bool) -> None:
    """Let HOST hold replicas again."""
    answer = ApiClient(api, timeout=90.0).post("/v1/undrain", {"host": host})
    emit(answer, json_wanted, lambda _: click.echo(f"{host} takes part again"))


COMMANDS = (layout, plan, drain, undrain)

"""Who does what: ``rota layout``, ``rota drain``, ``rota undrain``, ``rota pin``, ``rota unpin``."""

from __future__ import annotations

import time
from typing import Any

import click

from agent.api_client import ApiClient
from agent.commands.options import AGREED_TIMEOUT, api_option, json_option
from agent.errors import AgentError
from agent.output import emit, table
from agent.plan_progress import share_of
from agent.progress import Progress

POLL_INTERVAL = 0.5
"""Seconds between two looks at the layout."""


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


@click.command(short_help="Empty a host: its replicas and roles move elsewhere.")
@click.argument("host")
@click.option("--wait", is_flag=True, help="Return only when the host holds nothing any more.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="With --wait: give up waiting after this; the drain goes on.",
)
@api_option
@json_option
def drain(host: str, wait: bool, timeout: float, api: str, json_wanted: bool) -> None:
    """Empty HOST: its replicas and roles move elsewhere, one plan, nothing lost.

    The placement is solved first.  If the policies cannot all hold without the host, the drain is refused
    with the names of those that clash, and nothing moves.

    \b
    Examples:
      rota drain n3
      rota drain n3 --wait && rota leave --api 127.0.0.1:7957
    """
    client = ApiClient(api, timeout=AGREED_TIMEOUT)
    answer = client.post("/v1/drain", {"host": host})
    if wait:
        with Progress(f"drain {host}", quiet=json_wanted) as progress:
            _wait_until_empty(client, host, timeout, progress)
        answer["empty"] = True
    text = f"{host} is empty" if wait else f"{host} is being drained; follow it with `rota events --follow`"
    emit(answer, json_wanted, lambda _: click.echo(text))


def _wait_until_empty(client: ApiClient, host: str, timeout: float, progress: Progress) -> None:
    deadline = time.monotonic() + timeout
    told = None
    while held := _held(client.get("/v1/layout"), host):
        control = client.get("/v1/control")
        share, words = share_of(control["progress"])
        progress.share(share, words or f"holds {', '.join(held)}")
        if held != told:
            told = held
            progress.say(f"{host} still holds {', '.join(held)}")
        if control["paused"]:
            raise AgentError(
                f"{host} is not emptied while the loop is paused; `rota resume`, or `rota apply` for this once"
            )
        if time.monotonic() >= deadline:
            raise AgentError(
                f"{host} is not empty after {timeout:g} s (it holds {', '.join(held)}); the drain goes on: "
                "look at `rota status` and `rota events`"
            )
        time.sleep(POLL_INTERVAL)


def _held(layout: dict[str, Any], host: str) -> list[str]:
    """What a host still holds, in words."""
    replicas = sum(
        replica["host"] == host for segment in layout["segments"] for replica in segment["replicas"]
    )
    held = [f"{replicas} replicas"] if replicas else []
    return held + [role.replace("_", " ")[:-1] for role, hosts in layout["roles"].items() if host in hosts]


@click.command()
@click.argument("host")
@api_option
@json_option
def undrain(host: str, api: str, json_wanted: bool) -> None:
    """Let HOST hold replicas again."""
    answer = ApiClient(api, timeout=AGREED_TIMEOUT).post("/v1/undrain", {"host": host})
    emit(answer, json_wanted, lambda _: click.echo(f"{host} takes part again"))


@click.command(short_help="Keep a copy of a segment on a host.")
@click.argument("segment")
@click.argument("host")
@api_option
@json_option
def pin(segment: str, host: str, api: str, json_wanted: bool) -> None:
    """Keep a copy of SEGMENT on HOST from now on; it is moved there if it is not there yet.

    Solved first: refused with the names of the policies that clash, and then nothing changes. While the host is
    away the pin rests.

    \b
    Examples:
      rota pin s03 n4
      rota unpin s03 n4
    """
    answer = ApiClient(api, timeout=AGREED_TIMEOUT).post("/v1/pin", {"segment": segment, "host": host})
    emit(answer, json_wanted, lambda _: click.echo(f"a copy of {segment} stays on {host}"))


@click.command()
@click.argument("segment")
@click.argument("host")
@api_option
@json_option
def unpin(segment: str, host: str, api: str, json_wanted: bool) -> None:
    """Let the copy of SEGMENT on HOST move again.

    \b
    Example:
      rota unpin s03 n4
    """
    answer = ApiClient(api, timeout=AGREED_TIMEOUT).post("/v1/unpin", {"segment": segment, "host": host})
    emit(answer, json_wanted, lambda _: click.echo(f"{segment} may leave {host}"))


COMMANDS = (layout, drain, undrain, pin, unpin)

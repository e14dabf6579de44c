"""Who does what: ``rota layout``, ``rota drain``, ``rota undrain``, ``rota pin``, ``rota unpin``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import click

from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.completion import complete_hosts, complete_segments
from rota.commands.options import AGREED_TIMEOUT, agreed, api_option, json_option
from rota.errors import AgentError, ReportedFailure
from rota.terminal.output import away_text, emit, field, room_for_last, size, table
from rota.terminal.plan_progress import share_of
from rota.terminal.progress import Progress

HISTORY: Final = 10
"""Columns before what is told of a version."""
POLL_INTERVAL = 0.5
"""Seconds between two looks at the layout."""


@click.group(short_help="Segments or shards, replicas by rack, roles.")
def layout() -> None:
    """Segments or shards, replicas by rack, roles; and how they came about.

    \b
    Examples:
      rota layout show
      rota layout history --limit 5
      rota layout diff 3 7
    """


@layout.command(short_help="The layout as it stands, a line per segment or shard.")
@api_option
@json_option
def show(api: Target, json_wanted: bool) -> None:
    """The layout as it stands: one line per segment, or per shard with its slots.

    \b
    Examples:
      rota layout show
      rota layout show --json | jq -r '.segments[].replicas[0].host'
    """
    emit(ApiClient(api).get("/v1/layout"), json_wanted, _show_layout)


@layout.command(short_help="Divide the data among another number of segments, or shards.")
@click.argument("count", type=click.IntRange(min=1))
@api_option
@json_option
def segments(count: int, api: Target, json_wanted: bool) -> None:
    """Divide the data among COUNT segments from now on.

    The log is striped over them from its tail on: what is written stays where it is, and segments too many are
    retired: they keep their records, take no more, and vanish once those are trimmed. Of Valkey and Redis they are
    shards: slots move to new ones, as few as can be, and from those too many, which vanish once they hold none.
    Solved first: refused with the names of the policies that clash, and then nothing changes.

    \b
    Examples:
      rota layout segments 24
      rota layout segments 4; rota plan
    """
    answer = agreed(api, "/v1/segments", {"count": count})
    emit(
        answer,
        json_wanted,
        lambda answer: click.echo(f"the data is divided among {count} segments (before: {answer['before']})"),
    )


@layout.command(short_help="Move slots from busy shards to others.")
@click.option("--yes", is_flag=True, help="Do it; without, only what would be done is told.")
@api_option
@json_option
def rebalance(yes: bool, api: Target, json_wanted: bool) -> None:
    """Make the shards of Valkey or Redis equally busy: slots move from busy ones to others, as few as can be.

    By the operations per second that the servers count now, so ask under the usual load. Nothing is rebalanced
    without being asked for: moving slots has its price, and loads change.

    \b
    Examples:
      rota layout rebalance
      rota layout rebalance --yes
    """
    answer = agreed(api, "/v1/layout/rebalance", {"confirmed": yes})
    emit(answer, json_wanted, lambda value: click.echo(value["text"]))
    if not yes and answer["slots"]:
        raise ReportedFailure("nothing was changed; with --yes it is done")


@layout.command("recover", short_help="Go on without a majority of the layout servers.")
@click.option("--yes", is_flag=True, help="Do it; without, only what would be done is told.")
@api_option
@json_option
def recover_layout(yes: bool, api: Target, json_wanted: bool) -> None:
    """Go on with the hosts of the view: a majority of the layout servers is lost for good.

    No program can know that; you can. Every host of the view must answer. The latest layout that they know goes on at
    an epoch that the lost servers cannot reach, with layout servers among them; what the lost ones decided last may
    be missing. If one comes back after all, it takes the new layout. Refused while a majority is in the view.

    \b
    Example:
      rota layout recover --yes
    """
    answer = agreed(api, "/v1/layout/recover", {"confirmed": yes})

    def show(answer: dict[str, Any]) -> None:
        epoch, hosts = answer["layout_epoch"], ", ".join(answer["hosts"])
        if answer["recovered"]:
            click.echo(f"the layout begins again at epoch {epoch}, with {hosts}")
        else:
            click.echo(f"the layout would go on from epoch {epoch}, the latest known to {hosts}")
            for risk in answer["risks"]:
                click.echo(f"  {risk}")

    emit(answer, json_wanted, show)
    if not yes:
        raise ReportedFailure("nothing was changed; with --yes it is done")


def _show_layout(answer: dict[str, Any]) -> None:
    if not answer["segments"]:
        click.echo("no segment is placed yet; `rota status` says what it waits for")
        return
    has_slots = any(segment["slots"] for segment in answer["segments"])
    known_only = " (the latest known)" if answer.get("known_only") else ""
    click.echo(f"layout epoch {answer['layout_epoch']}{known_only}")
    _show_segments(answer["segments"], has_slots)
    for role, hosts in answer["roles"].items():
        if role == "log_units" and has_slots:
            continue
        in_order = hosts if role == "sequencers" else sorted(hosts)  # the first sequencer is the active one
        click.echo(f"{role.replace('_', ' '):<16}{', '.join(in_order) or 'none'}")
    for segment in answer["segments"]:
        for away in segment["away"]:
            click.echo(f"{'unreadable':<16}{away_text(segment['key'], away)}")
    if answer["drained"]:
        click.echo(f"{'drained':<16}{', '.join(answer['drained'])}")
    if answer["servers"]:
        click.echo(f"{'free servers':<16}{_free_servers(answer)}")
    for notice in answer["notices"]:
        click.echo(f"{'notice':<16}{notice}")
    click.echo(
        f"{'rules':<16}{answer['rack_violations']} rack violations, "
        f"{answer['under_replicated']} under-replicated {'shards' if has_slots else 'segments'}"
    )


def _show_segments(segments: Sequence[dict[str, Any]], has_slots: bool) -> None:
    """A column for each rack, if there is room for all of them; else all copies of a segment in one."""
    racks = sorted({replica["rack"] for segment in segments for replica in segment["replicas"]})
    name, more = ("shard", ("slots", "bytes", "ops/s")) if has_slots else ("segment", ())
    by_rack = (name, *(rack or "(gone)" for rack in racks), "primary", *more)
    rows = [
        (
            _key(segment),
            *(
                " ".join(_copy(copy) for copy in segment["replicas"] if copy["rack"] == rack)
                for rack in racks
            ),
            next((copy["host"] for copy in segment["replicas"] if copy["role"] == "primary"), "none"),
            *(_numbers(segment) if has_slots else ()),
        )
        for segment in segments
    ]
    if room_for_last((*by_rack, ""), [(*row, "") for row in rows]) >= 0:
        table(by_rack, rows)
        return
    copies = [
        "  ".join(f"{copy['rack'] or '(gone)'}:{_copy(copy)}" for copy in segment["replicas"])
        for segment in segments
    ]
    together = [(row[0], *row[1 + len(racks) :], text) for row, text in zip(rows, copies, strict=True)]
    table((name, "primary", *more, "copies"), together)


def _numbers(shard: dict[str, Any]) -> tuple[str, str, str]:
    """Slots, bytes and load of a shard."""
    slots = sum(last - first + 1 for first, last in shard["slots"])
    ranges = ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in shard["slots"][:4]
    )
    more = ", ..." if len(shard["slots"]) > 4 else ""
    return f"{slots} ({ranges}{more})" if slots else "none", size(shard["bytes"]), f"{shard['load']:.0f}"


def _free_servers(answer: dict[str, Any]) -> str:
    """Per host how many of its servers hold no copy."""
    held = Counter(copy["host"] for segment in answer["segments"] for copy in segment["replicas"])
    free = {host: count - held[host] for host, count in sorted(answer["servers"].items())}
    return ", ".join(f"{host} {count}" for host, count in free.items() if count > 0) or "none"


def _key(segment: dict[str, Any]) -> str:
    return f"{segment['key']} (retired)" if segment["retired"] else str(segment["key"])


def _copy(replica: dict[str, Any]) -> str:
    """Its host; what is not in sync is marked."""
    return str(replica["host"]) + ("" if replica["state"] == "in_sync" else f" ({replica['state']})")


@layout.command(short_help="The last versions: when, by whom, what changed and why.")
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many, the latest."
)
@api_option
@json_option
def history(limit: int, api: Target, json_wanted: bool) -> None:
    """The last versions of the layout: when, by whom, what changed and why; the latest first.

    Every host keeps the last 256 documents; what is shown is what those that answer have together.

    \b
    Example:
      rota layout history --limit 5
    """
    answer = ApiClient(api).get("/v1/layout/history")
    answer["versions"] = answer["versions"][:limit]
    emit(answer, json_wanted, _show_history)


def _show_history(answer: dict[str, Any]) -> None:
    for version in answer["versions"]:
        about = filter(None, (f"epoch {version['epoch']}", _moment(version["at"]), version["by"]))
        click.echo("  ".join(about))
        field("  changed", version["what"] or _unchanged(version), HISTORY)
        if why := _why(version):
            field("  why", why, HISTORY)


def _moment(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _unchanged(version: dict[str, Any]) -> str:
    return "(the oldest that is kept)" if version["since"] is None else "the same"


def _why(version: dict[str, Any]) -> str:
    asked = f"asked for at {version['asked_at']}" if version["asked_at"] else ""
    return ": ".join(filter(None, (asked, version["why"])))


@layout.command()
@click.argument("before", type=click.IntRange(0))
@click.argument("after", type=click.IntRange(0))
@api_option
@json_option
def diff(before: int, after: int, api: Target, json_wanted: bool) -> None:
    """What differs between two layout epochs, BEFORE and AFTER.

    \b
    Example:
      rota layout diff 3 7
    """
    emit(ApiClient(api).get(f"/v1/layout/diff/{before}/{after}"), json_wanted, _show_difference)


def _show_difference(answer: dict[str, Any]) -> None:
    changed = answer["difference"]
    for side in ("from", "to"):
        version = answer[side]
        about = "  ".join(filter(None, (_moment(version["at"]), version["by"], _why(version))))
        click.echo(f"{side:<6}layout epoch {version['epoch']}  {about}")
    if not answer["what"]:
        click.echo("they are the same")
        return
    for segment in changed["segments"]:
        hosts = [f"+ {host}" for host in segment["added"]] + [f"- {host}" for host in segment["removed"]]
        primary = segment["primary"]
        if primary is not None:
            hosts.append(f"primary {primary['from'] or 'none'} -> {primary['to'] or 'none'}")
        click.echo(f"{segment['segment']:<12}{'  '.join(hosts)}")
    for move in changed["slots"]:
        click.echo(f"{move['to']:<12}+ {move['slots']} slots of {move['from'] or 'nobody'}")
    intent = changed["intent"] if "intent" in changed else changed["wishes"]  # as an agent of 0.1 calls it
    for names in (*changed["roles"], *intent):
        words = [f"+ {name}" for name in names["added"]] + [f"- {name}" for name in names["removed"]]
        click.echo(f"{names['what']:<20}{'  '.join(words)}")


@click.command(short_help="Empty a host: its replicas and roles move elsewhere.")
@click.argument("host", shell_complete=complete_hosts)
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
def drain(host: str, wait: bool, timeout: float, api: Target, json_wanted: bool) -> None:
    """Empty HOST: its replicas and roles move elsewhere, one plan, nothing lost.

    The placement is solved first.  If the policies cannot all hold without the host, the drain is refused
    with the names of those that clash, and nothing moves.

    \b
    Examples:
      rota drain n3
      rota drain n3 --wait && rota leave --api 127.0.0.1:7957
    """
    client = ApiClient(api, timeout=AGREED_TIMEOUT)
    answer = agreed(api, "/v1/drain", {"host": host})
    if wait:
        with Progress(f"drain {host}", quiet=json_wanted) as progress:
            _wait_until_empty(client, host, timeout, progress)
        answer["empty"] = True

    def show(_: dict[str, Any]) -> None:
        if wait:
            click.echo(f"{host} is empty")
        elif client.get("/v1/control")["paused"]:
            remedy = "`rota resume`, or `rota apply` for this once"
            click.echo(f"{host} is emptied once the loop is no longer paused: {remedy}")
        else:
            click.echo(f"{host} is being drained; follow it with `rota events --follow`")

    emit(answer, json_wanted, show)


def _wait_until_empty(client: ApiClient, host: str, timeout: float, progress: Progress) -> None:
    deadline = time.monotonic() + timeout
    told = None
    while held := _held(layout_in_force(client), host):
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


def layout_in_force(client: ApiClient) -> dict[str, Any]:
    """For who acts upon it; raises :class:`AgentError` where only the latest known is to be had."""
    answer: dict[str, Any] = client.get("/v1/layout")
    if answer.get("known_only"):
        raise AgentError("; ".join(answer["notices"]))
    return answer


def _held(layout: dict[str, Any], host: str) -> list[str]:
    """What a host still holds, in words.  A log unit that holds nothing may stay one: it keeps nobody from leaving."""
    replicas = sum(
        replica["host"] == host for segment in layout["segments"] for replica in segment["replicas"]
    )
    held = [f"{replicas} replicas"] if replicas else []
    roles = [role for role in ("layout_servers", "sequencers") if host in layout["roles"][role]]
    return held + [role.replace("_", " ")[:-1] for role in roles]


@click.command()
@click.argument("host", shell_complete=complete_hosts)
@api_option
@json_option
def undrain(host: str, api: Target, json_wanted: bool) -> None:
    """Let HOST hold replicas again.

    \b
    Example:
      rota undrain n3
    """
    answer = agreed(api, "/v1/undrain", {"host": host})
    emit(answer, json_wanted, lambda _: click.echo(f"{host} takes part again"))


@click.command(short_help="Keep a copy of a segment on a host.")
@click.argument("segment", shell_complete=complete_segments)
@click.argument("host", shell_complete=complete_hosts)
@api_option
@json_option
def pin(segment: str, host: str, api: Target, json_wanted: bool) -> None:
    """Keep a copy of SEGMENT on HOST from now on; it is moved there if it is not there yet.

    Solved first: refused with the names of the policies that clash, and then nothing changes. While the host is
    away the pin rests.

    \b
    Examples:
      rota pin s03 n4
      rota unpin s03 n4
    """
    answer = agreed(api, "/v1/pin", {"segment": segment, "host": host})
    emit(answer, json_wanted, lambda _: click.echo(f"a copy of {segment} stays on {host}"))


@click.command()
@click.argument("segment", shell_complete=complete_segments)
@click.argument("host", shell_complete=complete_hosts)
@api_option
@json_option
def unpin(segment: str, host: str, api: Target, json_wanted: bool) -> None:
    """Let the copy of SEGMENT on HOST move again.

    \b
    Example:
      rota unpin s03 n4
    """
    answer = agreed(api, "/v1/unpin", {"segment": segment, "host": host})
    emit(answer, json_wanted, lambda _: click.echo(f"{segment} may leave {host}"))


COMMANDS = (layout, drain, undrain, pin, unpin)

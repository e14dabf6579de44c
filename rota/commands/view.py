"""Who is in: ``rota members``, ``rota status``, ``rota events``, ``rota suspicions``."""

from __future__ import annotations

import datetime
import json
from typing import Any

import click

from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.options import api_option, json_option, watch_option
from rota.errors import ApiError
from rota.terminal.output import away_text, emit, short_id, size, table
from rota.terminal.plan_progress import share_of
from rota.terminal.watching import watch


@click.command()
@api_option
@json_option
def members(api: Target, json_wanted: bool) -> None:
    """The view: epoch, id and every member with its tags.

    \b
    Examples:
      rota members
      rota members --json | jq '.members[].name'
    """
    emit(ApiClient(api).get("/v1/members"), json_wanted, _show_members)


def _show_members(answer: dict[str, Any]) -> None:
    click.echo(f"view {answer['epoch']} ({short_id(answer['id'])}), {len(answer['members'])} members")
    table(
        ("member", "address", "state", "since view", "incarnation", "tags"),
        [
            (
                member["name"],
                member["address"],
                member["state"],
                member["joined_epoch"],
                short_id(member["incarnation"]),
                " ".join(f"{key}={_tag(key, value)}" for key, value in sorted(member["tags"].items())),
            )
            for member in answer["members"]
        ],
    )


def _tag(key: str, value: str) -> str:
    return size(int(value)).replace(" ", "") if key == "capacity" and value.isdigit() else value


@click.command(short_help="Health: quorum, controller, layout, open moves.")
@watch_option
@api_option
@json_option
def status(watched: bool, api: Target, json_wanted: bool) -> None:
    """Health: quorum, controller, layout epoch, open moves, what was dropped and why.

    \b
    Examples:
      rota status
      rota status --watch
      rota status --json | jq '.dropped'
    """
    if watched:
        watch(lambda: _status(api), _show_status, json_wanted=json_wanted)
    emit(_status(api), json_wanted, _show_status)


def _status(api: Target) -> dict[str, Any]:
    client = ApiClient(api)
    answer: dict[str, Any] = client.get("/v1/status")
    if answer["controller"] and answer["controller"] != answer["name"]:
        # What an agent that stands by knows of the layout is some seconds old; the controller knows better.
        try:
            answer["control"] = client.get("/v1/control")
        except ApiError as error:
            answer["control"]["last_error"] = str(error)
    return answer


def _show_status(answer: dict[str, Any]) -> None:
    def line(name: str, value: object) -> None:
        click.echo(f"{name:<14}{value}")

    version = f", rota {answer['version']}" if "version" in answer else ""  # agents of 0.1 do not say
    line("agent", f"{answer['name']} at {answer['address']}, {answer['state']}{version}")
    if answer["epoch"] is None:
        line("view", "none yet; " + answer["state"])
        return
    line("view", f"{answer['epoch']} ({short_id(answer['id'])}), {answer['size']} members")
    line("quorum", "yes" if answer["quorum"] else "LOST: this side keeps its last view and changes nothing")
    if "ensemble" in answer:
        line("ensemble", ", ".join(f"{voter['name']} at {voter['address']}" for voter in answer["ensemble"]))
        line("encryption", _encryption(answer.get("keys")))
        _show_dropped(answer)
        return
    line("controller", answer["controller"] or "none")
    line("encryption", _encryption(answer.get("keys")))
    if answer["control"] is None:
        line("layout", "this agent runs without the store")
        _show_dropped(answer)
        return
    control = answer["control"]
    if answer["engine"] is not None:
        line("servers", _servers(answer["engine"]))
    line("layout", _layout(control))
    if control["shards"]:
        slots = sum(shard["slots"] for shard in control["shards"])
        line("shards", f"{len(control['shards'])}, with {slots} slots")
    if not answer["quorum"]:
        line("", "what follows is as of the last time a majority answered")
    line("open moves", control["open_moves"])
    if control["progress"] is not None:
        share, words = share_of(control["progress"])
        line("progress", f"{share:.0%}, {words}")
    if control["observing"]:
        line("observing", "nothing of the engine is changed until `rota apply` or `rota resume`")
    for question in control["asks"]:
        line("asks", question["text"])
    if control["paused"]:
        line("paused", "no data is moved until `rota resume`")
    if control.get("held"):
        line("held back", control["held"]["text"])
    for away in control["away"]:
        line("unreadable", away_text(away["segment"], away))
    for disk in control.get("disks", ()):
        relief = (
            "no more records there, its copies go elsewhere"
            if disk["relieved"]
            else "too few others would be left to relieve it"
        )
        line(f"{disk['state']} disk", f"{disk['host']}: {disk['reason']}; {relief}")
    if "disks" not in control and control["full"]:  # a controller of 0.1
        line("full disks", f"{', '.join(control['full'])}: no more records there, their copies go elsewhere")
    if control["frozen"]:
        told = ", ".join(f"{host} ({left:.0f} s)" for host, left in sorted(control["frozen"].items()))
        line("frozen", f"{told}: came back, nothing new for them so long")
    if control["drains"]:
        drained = sorted(control["drains"].items())
        line("drained", ", ".join(f"{host} ({left} copies left)" if left else host for host, left in drained))
    if control["pins"]:
        line("pinned", ", ".join(f"{pin['segment']} to {pin['host']}" for pin in control["pins"]))
    unit = "shards" if control["shards"] else "segments"
    line(
        "rules",
        f"{control['rack_violations']} rack violations, {control['under_replicated']} under-replicated {unit}",
    )
    if control.get("last_error"):
        line("trouble", control["last_error"])
    _show_dropped(answer)


def _layout(control: dict[str, Any]) -> str:
    epoch = f"epoch {control['layout_epoch']}" if control["layout_epoch"] >= 0 else "none yet"
    if not (lost := control.get("layout_servers_lost")):
        return epoch
    return (
        f"{epoch}, LOST its majority: layout servers {', '.join(lost)}; `rota layout recover` goes on without"
    )


def _servers(engine: dict[str, Any]) -> str:
    addresses = ", ".join(engine["servers"])
    if engine["running"] is None:
        return f"adopted: {addresses}"
    restarts = f", {engine['restarts']} restarts" if engine["restarts"] else ""
    return f"{engine['name']}: {addresses}; {engine['running']} run{restarts}"


def _show_dropped(answer: dict[str, Any]) -> None:
    dropped = {reason: count for reason, count in answer["dropped"].items() if count}
    what = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items())) or "nothing"
    click.echo(f"{'dropped':<14}{what}")


def _encryption(keys: dict[str, Any] | None) -> str:
    if keys is None:
        return "none: packets travel in clear"
    more = len(keys["installed"]) - 1
    return f"key {keys['primary']}" + (f", {more} more installed" if more else "")


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on as things happen, until Ctrl-C.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events with a higher number.")
@api_option
@json_option
def events(follow: bool, after: int, api: Target, json_wanted: bool) -> None:
    """What happened: view changes, plans, steps, refusals.  With --follow --json: one JSON object a line.

    \b
    Examples:
      rota events --follow
      rota events --json | jq '.events[].text'
    """
    client = ApiClient(api, timeout=3600.0 if follow else 30.0)
    if not follow:
        emit(client.get("/v1/events", after=after), json_wanted, _show_events)
        return
    for event in client.follow("/v1/events", after=after):
        click.echo(json.dumps(event)) if json_wanted else _show_event(event)


def _show_events(answer: dict[str, Any]) -> None:
    for event in answer["events"]:
        _show_event(event)


def _show_event(event: dict[str, Any]) -> None:
    time = datetime.datetime.fromtimestamp(event["time"]).strftime("%H:%M:%S.%f")[:-3]
    click.echo(f"{time}  {event['kind']:<20}{event['text']}")


@click.command(short_help="Who suspects whom now, and why no view change yet.")
@api_option
@json_option
def suspicions(api: Target, json_wanted: bool) -> None:
    """Who suspects whom now: reports and tallies, votes, and why there is no new view yet.

    As far as the agent that answers knows: gossip brings every member the same within a second.

    \b
    Examples:
      rota suspicions
      rota suspicions --json | jq '.reason'

    """
    emit(ApiClient(api).get("/v1/suspicions"), json_wanted, _show_suspicions)


def _show_suspicions(answer: dict[str, Any]) -> None:
    click.echo(
        f"view {answer['epoch']}, {answer['size']} members; {answer['high']} of {answer['rings']} reports remove "
        f"a member, fewer than {answer['low']} are noise"
    )
    if answer["suspects"]:
        table(
            ("suspect", "reports", "standing", "for", "by (rings)"),
            [
                (
                    suspect["name"],
                    f"{suspect['tally']} of {answer['rings']}",
                    {"leave": "leaves", "evict": "to be evicted"}.get(suspect["wish"], suspect["standing"]),
                    f"{suspect['age']:.1f} s",
                    " ".join(f"{each['name']} ({len(each['rings'])})" for each in suspect["accusers"]),
                )
                for suspect in answer["suspects"]
            ],
        )
    for vote in answer["votes"]:
        changes = (("without", vote["removes"]), ("with", vote["joins"]), ("new tags of", vote["updates"]))
        what = "; ".join(f"{word} {', '.join(names[:12])}" for word, names in changes if names)
        click.echo(f"{vote['votes']} of {answer['fast_quorum']} votes: {what or 'a cut not seen here yet'}")
    if answer["joiners_in_all"]:
        names = ", ".join(f"{joiner['name']} ({joiner['reports']})" for joiner in answer["joiners"][:12])
        click.echo(f"{answer['joiners_in_all']} on the way in (reports): {names}")
    for own in answer["own"]:
        found = "found faulty" if own["failed"] else "some probes lost of late"
        click.echo(f"probes of {answer['agent']}: {own['name']}: {found}")
    if answer["reason"]:
        click.echo(f"no new view yet: {answer['reason']}")
    elif not answer["own"]:
        click.echo("nobody suspects anybody")


COMMANDS = (members, status, events, suspicions)

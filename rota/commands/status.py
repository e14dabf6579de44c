"""How things are: ``rota status``, for people and as a health check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.options import api_option, json_option, watch_option
from rota.errors import ApiError, ReportedFailure
from rota.terminal.output import ago, away_text, emit, field, short_id
from rota.terminal.plan_progress import share_of
from rota.terminal.refusals import refusal_in_words
from rota.terminal.watching import watch

NAMED = 4
"""Of segments and hosts, in one line; the JSON document has all."""


@click.command(short_help="Health: quorum, controller, layout, open moves.")
@watch_option
@api_option
@json_option
def status(watched: bool, api: Target, json_wanted: bool) -> None:
    """Health: quorum, controller, layout epoch, open moves, who is gone, what was dropped and why.

    Ends with status 1 where the agent is in no view, no majority is in reach, the store does not answer, or segments
    have fewer copies than they should.

    \b
    Examples:
      rota status
      rota status --watch
      rota status --json | jq '.former'
      rota status > /dev/null || echo "look at the cluster"
    """
    if watched:
        watch(lambda: _status(api), _show_status, json_wanted=json_wanted)
    answer = _status(api)
    emit(answer, json_wanted, _show_status)
    if wrong := list(_complaints(answer)):
        raise ReportedFailure(f"not healthy: {'; '.join(wrong)}")


def _complaints(answer: dict[str, Any]) -> Iterator[str]:
    """What makes this no healthy cluster."""
    if answer["epoch"] is None:
        yield f"{answer['name']} is in no view ({answer['state']})"
        return
    if not answer["quorum"]:
        yield "no majority is within reach"
    control = answer["control"]
    if control is None:
        return
    if control.get("layout_servers_lost") or control.get("phase") == "engine unreachable":
        yield "the store does not answer"
    if control["away"]:
        yield f"records of {_some([away['segment'] for away in control['away']])} cannot be read"
    if control["under_replicated"]:
        unit = "shards" if control["shards"] else "segments"
        yield f"{control['under_replicated']} under-replicated {unit}"


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
    version = f", rota {answer['version']}" if "version" in answer else ""  # agents of 0.1 do not say
    where = f" at {answer['address']}" if answer["address"] else ""
    field("agent", f"{answer['name']}{where}, {answer['state']}{version}")
    if answer["epoch"] is None:
        field("view", "none yet: it is about to join")
        return
    field("view", f"{answer['epoch']} ({short_id(answer['id'])}), {answer['size']} members")
    field("quorum", "yes" if answer["quorum"] else _lost_quorum(answer))
    if former := answer.get("former"):
        went = [f"{each['name']} {_how(each['how'])} {ago(each['time'])}" for each in former]
        field("gone", f"{_some(went)}; `rota members --all` has all")
    if short := answer.get("short_racks"):
        field("racks", _some([_short_rack(each) for each in short]))
    if "ensemble" in answer:
        field("ensemble", ", ".join(f"{voter['name']} at {voter['address']}" for voter in answer["ensemble"]))
        field("encryption", _encryption(answer.get("keys")))
        _show_risks(answer)
        return
    field("controller", answer["controller"] or "none")
    field("encryption", _encryption(answer.get("keys")))
    if answer["control"] is None:
        field("layout", "this agent runs without the store")
        _show_risks(answer)
        return
    control = answer["control"]
    if answer["engine"] is not None:
        field("servers", _servers(answer["engine"]))
    field("layout", _layout(control))
    if control["shards"]:
        slots = sum(shard["slots"] for shard in control["shards"])
        field("shards", f"{len(control['shards'])}, with {slots} slots")
    if not answer["quorum"]:
        field("", "what follows is as of the last time a majority answered")
    field("open moves", control["open_moves"])
    if control["progress"] is not None:
        share, words = share_of(control["progress"])
        field("progress", f"{share:.0%}, {words}")
    if control["observing"]:
        field("observing", "nothing of the engine is changed until `rota apply` or `rota resume`")
    for question in control["asks"]:
        field("asks", question["text"])
    if control["paused"]:
        field("paused", "no data is moved until `rota resume`")
    if control.get("held"):
        field("held back", control["held"]["text"])
    for away in control["away"]:
        field("unreadable", away_text(away["segment"], away))
    for disk in control.get("disks", ()):
        relief = (
            "no more records there, its copies go elsewhere"
            if disk["relieved"]
            else "too few others would be left to relieve it"
        )
        field(f"{disk['state']} disk", f"{disk['host']}: {disk['reason']}; {relief}")
    if "disks" not in control and control["full"]:  # a controller of 0.1
        field("full disks", f"{', '.join(control['full'])}: no more records there, their copies go elsewhere")
    if control["frozen"]:
        told = ", ".join(f"{host} ({left:.0f} s)" for host, left in sorted(control["frozen"].items()))
        field("frozen", f"{told}: came back, nothing new for them so long")
    if control["drains"]:
        drained = sorted(control["drains"].items())
        field(
            "drained", ", ".join(f"{host} ({left} copies left)" if left else host for host, left in drained)
        )
    if control["pins"]:
        field("pinned", ", ".join(f"{pin['segment']} to {pin['host']}" for pin in control["pins"]))
    unit = "shards" if control["shards"] else "segments"
    field(
        "rules",
        f"{control['rack_violations']} rack violations, {control['under_replicated']} under-replicated {unit}",
    )
    for trouble in _told_troubles(control.get("troubled", ())):
        field("", trouble)
    if control.get("last_error"):
        field("trouble", control["last_error"])
    _show_risks(answer)


def _lost_quorum(answer: dict[str, Any]) -> str:
    text = "LOST: this side keeps its last view and changes nothing"
    if not (silent := answer.get("silent")):
        return text
    return (
        f"{text}; silent: {_some(silent)}. Start those again; if they never come back, "
        "`rota recover --survivors` with all others goes on without them"
    )


def _short_rack(rack: dict[str, Any]) -> str:
    return f"{rack['rack']} is without {', '.join(rack['gone'])} ({rack['hosts']} left)"


def _how(how: str) -> str:
    return {"evicted": "was evicted"}.get(how, how)


def _told_troubles(troubled: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Which segments break which rule."""
    short = [each for each in troubled if each["copies"] < each["wanted"]]
    crowded = [each for each in troubled if each["crowded"]]
    if short:
        told = [f"{each['segment']} ({each['copies']} of {each['wanted']})" for each in short]
        yield f"too few copies: {_some(told)}"
    if crowded:
        told = [f"{each['segment']} ({', '.join(each['crowded'])})" for each in crowded]
        yield f"too many copies in one rack: {_some(told)}"


def _told_losses(answer: dict[str, Any]) -> Iterator[str]:
    """What the loss of one more host or rack would break."""
    control = answer["control"] or {}
    for each in (*answer.get("at_risk", ()), *control.get("at_risk", ())):  # agents of 0.1 do not say
        yield f"{each['what']} {_any_of(each['names'])} lost: {each['breaks']}"
    if "at_risk" not in control:
        short = [each for each in control.get("troubled", ()) if each["copies"] < each["wanted"]]
        last = Counter(each["hosts"][0] for each in short if len(each["hosts"]) == 1)
        for host, count in sorted(last.items())[:NAMED]:
            yield f"with {host} the last copy of {count} would be lost"


def _any_of(names: Sequence[str]) -> str:
    if len(names) > NAMED:
        return f"{', '.join(names[:NAMED])} or one of {len(names) - NAMED} more"
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


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


def _show_risks(answer: dict[str, Any]) -> None:
    """What could break next, and what was dropped."""
    for number, loss in enumerate(_told_losses(answer)):
        field("" if number else "at risk", loss)
    dropped = {reason: count for reason, count in answer["dropped"].items() if count}
    what = "; ".join(refusal_in_words(*each) for each in sorted(dropped.items())) or "nothing"
    field("dropped", what)


def _encryption(keys: dict[str, Any] | None) -> str:
    if keys is None:
        return "none: packets travel in clear"
    more = len(keys["installed"]) - 1
    return f"key {keys['primary']}" + (f", {more} more installed" if more else "")


COMMANDS = (status,)

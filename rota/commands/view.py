"""Who is in, and what happens: ``rota members``, ``rota events``, ``rota suspicions``."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import click

from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.options import api_option, json_option
from rota.terminal.output import WIDEST, ago, emit, room_for_last, short_id, shortened, size, table

LEAST_TAGS: Final = 10
"""Columns of a host's tags that are shown in any case."""


@click.command(short_help="Who is in, where, and at which version.")
@click.option("--all", "with_former", is_flag=True, help="Also who failed, left or was evicted, and when.")
@click.option("--wide", is_flag=True, help="All tags, and states, first views and incarnations.")
@api_option
@json_option
def members(with_former: bool, wide: bool, api: Target, json_wanted: bool) -> None:
    """The view: epoch, id and every member with its HTTP address, version and tags.

    \b
    Examples:
      rota members
      rota members --all
      rota members --json | jq '.members[].name'
    """
    answer = ApiClient(api).get("/v1/members")
    emit(answer, json_wanted, partial(_show_members, wide=wide))
    if with_former and not json_wanted:
        _show_former(answer, wide)


def _show_members(answer: dict[str, Any], *, wide: bool = False) -> None:
    click.echo(f"view {answer['epoch']} ({short_id(answer['id'])}), {len(answer['members'])} members")

    def row(member: dict[str, Any]) -> tuple[Any, ...]:
        where = (member.get("http") or "").removeprefix("http://")
        found = (member["name"], member["address"], where, member.get("version") or "")
        more = (member["state"], member["joined_epoch"], short_id(member["incarnation"])) if wide else ()
        return (*found, *more, _tags(member["tags"]))

    more = ("state", "since view", "incarnation") if wide else ()
    _show_hosts(("member", "address", "http", "rota", *more, "tags"), map(row, answer["members"]), wide)


def _show_former(answer: dict[str, Any], wide: bool) -> None:
    former = answer.get("former", ())
    click.echo()
    if not former:
        click.echo("nobody has gone in the last 72 hours, as far as this agent saw")
        return
    click.echo("gone in the last 72 hours, as far as this agent saw")
    rows = [
        (
            each["name"],
            each["address"],
            each["how"],
            ago(each["time"]),
            each["epoch"],
            _tags(each["tags"]),
        )
        for each in former
    ]
    _show_hosts(("member", "address", "how", "when", "view", "tags"), rows, wide)


def _show_hosts(columns: Sequence[str], rows: Iterable[Sequence[Any]], wide: bool) -> None:
    """A line for each; the tags, which are last, are cut where there is no room for them, unless ``wide``."""
    rows = list(rows)
    room = WIDEST if wide else max(LEAST_TAGS, room_for_last(columns, rows))
    table(columns, [(*row[:-1], shortened(row[-1], room)) for row in rows], wide=wide)


def _tags(tags: dict[str, str]) -> str:
    """The rack first, and what every host has last."""
    order = sorted(tags, key=lambda key: (key != "rack", key == "capacity", key))
    return " ".join(f"{key}={_tag(key, tags[key])}" for key in order)


def _tag(key: str, value: str) -> str:
    return size(int(value)).replace(" ", "") if key == "capacity" and value.isdigit() else value


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


def _standing(suspect: dict[str, Any]) -> str:
    request = suspect["request"] if "request" in suspect else suspect["wish"]  # as an agent of 0.1 calls it
    return {"leave": "leaves", "evict": "to be evicted"}.get(request, str(suspect["standing"]))


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
                    _standing(suspect),
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


COMMANDS = (members, events, suspicions)

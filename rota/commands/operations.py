"""Operating on the membership: ``rota evict``, ``rota leave``, ``rota tag``, ``rota recover``."""

from __future__ import annotations

from typing import Any

import click

from rota.agent.settings import parse_tag
from rota.client.target import Target
from rota.commands.completion import complete_hosts
from rota.commands.options import agreed, api_option, json_option
from rota.errors import ReportedFailure, UsageProblem
from rota.terminal.output import emit, short_id


@click.command(short_help="Remove a host from the cluster, healthy or not.")
@click.argument("host", shell_complete=complete_hosts)
@api_option
@json_option
def evict(host: str, api: Target, json_wanted: bool) -> None:
    """Remove HOST from the cluster, healthy or not: one view change, announced to everybody as `evicted`.

    Its agent ends and does not come back by itself; start it again to have it join anew. A majority must agree: if
    it is lost for good, use `rota recover`. To empty a host first, use `rota drain HOST --wait`.

    \b
    Example:
      rota evict n3
    """
    answer = agreed(api, "/v1/evict", {"host": host})
    emit(answer, json_wanted, lambda value: click.echo(f"{host} is evicted, view {value['epoch']}"))


@click.command(short_help="Have an agent leave the cluster gracefully.")
@api_option
@json_option
def leave(api: Target, json_wanted: bool) -> None:
    """Have the agent at --api leave the cluster gracefully, and end: one view change, announced as `left`.

    Exit status 1 when it has ended, but the others did not agree in time, or there was nobody who could: the last
    member of a centralised cluster stays listed.

    \b
    Example:
      rota leave --api 127.0.0.1:7957
    """
    answer = agreed(api, "/v1/leave", {})

    def show(value: dict[str, Any]) -> None:
        click.echo(f"{value['host']} has {'left' if value['agreed'] else 'ended'}")

    emit(answer, json_wanted, show)
    if not answer["agreed"]:
        raise ReportedFailure(
            "the leave was not agreed in time: the others will find the host faulty "
            "(the last member of a centralised cluster stays listed until another comes)"
        )


@click.command(short_help="Change the tags of a host at run time.")
@click.argument("tags", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--remove", multiple=True, metavar="KEY", help="Take this tag away; again for more.")
@api_option
@json_option
def tag(tags: tuple[str, ...], remove: tuple[str, ...], api: Target, json_wanted: bool) -> None:
    """Change tags of the agent at --api, agreed by all members in one view change.

    \b
    Examples:
      rota tag rack=r2
      rota tag role=spare --remove zone --api 127.0.0.1:7957
    They last as long as the agent runs; its settings say what it starts with.
    """
    if not tags and not remove:
        raise UsageProblem("nothing to change; write for example  rota tag rack=r2")
    try:
        new = dict(parse_tag(text) for text in tags)
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    answer = agreed(api, "/v1/tags", {"set": new, "remove": list(remove)})

    def show(value: dict[str, Any]) -> None:
        pairs = " ".join(f"{key}={entry}" for key, entry in sorted(value["tags"].items()))
        click.echo(f"{value['host']}: {pairs or 'no tags'} (view {value['epoch']})")

    emit(answer, json_wanted, show)


@click.command(short_help="Start a new chain of views when the majority is lost for good.")
@click.option(
    "--survivors",
    required=True,
    multiple=True,
    metavar="NAME,...",
    shell_complete=complete_hosts,
    help="Names or addresses of all members that go on, the agent at --api among them.",
)
@click.option("--force", is_flag=True, help="Even though a survivor has a majority within reach.")
@api_option
@json_option
def recover(survivors: tuple[str, ...], force: bool, api: Target, json_wanted: bool) -> None:
    """Start a new chain of views from the survivors: the majority is lost for good.

    No program can know that; you can. Every survivor must be running, have lost its majority, and stand in the same
    view; all of them then stand in one new view, whose epoch no member of the old chain can reach. Everybody else is
    out: who comes back is told so and joins as a new incarnation. Run it once, at one survivor.

    \b
    Example:
      rota recover --survivors n1,n2
    """
    names = [name.strip() for text in survivors for name in text.split(",") if name.strip()]
    if not names:
        raise UsageProblem("--survivors names nobody; `rota members` lists the candidates")
    answer = agreed(api, "/v1/recover", {"survivors": names, "force": force})

    def show(value: dict[str, Any]) -> None:
        members = ", ".join(value["members"])
        click.echo(f"recovered: view {value['epoch']} ({short_id(value['id'])}) of {members}")

    emit(answer, json_wanted, show)


COMMANDS = (evict, leave, tag, recover)

"""``python -m bench [NAME]``; without a name all of them, at sizes that end within a minute."""

from __future__ import annotations

import click

from agent.output import as_json, table
from bench import failover, membership
from bench.result import Result


def show(name: str, result: Result, json_wanted: bool) -> None:
    if json_wanted:
        click.echo(as_json(dict(result.figures)))
        return
    table((name, "ours", "published"), result.rows)
    click.echo(f"published: {result.source}\n")


json_option = click.option(
    "--json", "json_wanted", is_flag=True, help="One JSON document on standard output."
)
seed_option = click.option("--seed", type=int, default=0, show_default=True)


@click.group(invoke_without_command=True)
@click.pass_context
def bench(context: click.Context) -> None:
    """Benchmarks; speed statements come from here and nowhere else."""
    if context.invoked_subcommand is None:
        show("membership-bootstrap, N = 1000", membership.bootstrap(1000, 0), False)
        show("membership-crash, N = 1000, 10 fail", membership.crash(1000, 10, 0), False)
        show("failover", failover.failover("controller"), False)


@bench.command("membership-bootstrap")
@click.option("--nodes", type=click.IntRange(1), default=2000, show_default=True)
@click.option("--backend", type=click.Choice(["sim"]), default="sim", show_default=True)
@seed_option
@json_option
def membership_bootstrap(nodes: int, backend: str, seed: int, json_wanted: bool) -> None:
    """All processes start within a second: how long until all agree, and how many sizes are seen on the way."""
    show(f"membership-bootstrap, N = {nodes}", membership.bootstrap(nodes, seed), json_wanted)


@bench.command("membership-crash")
@click.option("--nodes", type=click.IntRange(2), default=1000, show_default=True)
@click.option("--faulty", type=click.IntRange(1), default=10, show_default=True)
@click.option("--backend", type=click.Choice(["sim"]), default="sim", show_default=True)
@seed_option
@json_option
def membership_crash(nodes: int, faulty: int, backend: str, seed: int, json_wanted: bool) -> None:
    """Several members crash together."""
    show(f"membership-crash, N = {nodes}, {faulty} fail", membership.crash(nodes, faulty, seed), json_wanted)


@bench.command("failover")
@click.option(
    "--kill",
    type=click.Choice(["random", "controller", "sequencer", "head"]),
    default="controller",
    show_default=True,
)
@json_option
def failover_command(kill: str, json_wanted: bool) -> None:
    """A host is killed under a running writer: detection, pause, repair."""
    show(f"failover, {kill} killed", failover.failover(kill), json_wanted)


if __name__ == "__main__":
    bench(prog_name="python -m bench")

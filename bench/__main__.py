"""``python -m bench [NAME]``; without a name all of them, at sizes that end within a minute."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from agent.output import as_json, table
from bench import centralised, failover, membership
from bench.agent_footprint import agent_footprint
from bench.backends import BACKENDS, Backend, backend_of
from bench.crowd import MOST_PROCESSES
from bench.crowd_runs import SPREAD
from bench.result import Result


def show(name: str, result: Result, json_wanted: bool) -> None:
    if json_wanted:
        click.echo(as_json(dict(result.figures)))
        return
    table((name, "ours", "published"), result.rows)
    for remark in result.remarks:
        click.echo(remark)
    click.echo(f"published: {result.source}\n")
    for other in result.others:
        table(other.columns, other.rows)


def finish(name: str, result: Result, json_wanted: bool) -> None:
    """Show, and end with status 1 when it did not happen."""
    show(name, result, json_wanted)
    if not result.ok:
        click.echo("bench: what was to be measured did not happen in time", err=True)
        sys.exit(1)


json_option = click.option(
    "--json", "json_wanted", is_flag=True, help="One JSON document on standard output."
)


def membership_options(command: Callable[..., None]) -> Callable[..., None]:
    """What the membership benchmarks have in common."""
    options = (
        click.option("--backend", type=click.Choice(BACKENDS), default="sim", show_default=True),
        click.option("--seed", type=int, default=0, show_default=True, help="The first seed."),
        click.option(
            "--seeds", type=click.IntRange(1), default=1, show_default=True,
            help="Runs, each with the next seed: medians and worst are shown.",
        ),
        click.option(
            "--loss", type=click.FloatRange(0, 1, max_open=True), default=0.0, show_default=True,
            help="sim: share of datagrams that is lost.",
        ),
        click.option("--codec", is_flag=True, help="sim: encode and decode every message."),
        click.option(
            "--processes", type=click.IntRange(1, MOST_PROCESSES), default=2, show_default=True,
            help="process: how many processes share the members.",
        ),
        click.option(
            "--spread", type=click.FloatRange(0), default=SPREAD, show_default=True,
            help="process: seconds within which all start.",
        ),
        json_option,
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _backend(name: str, options: dict[str, Any]) -> Backend:
    try:
        return backend_of(name, **options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@click.group(invoke_without_command=True)
@click.pass_context
def bench(context: click.Context) -> None:
    """Benchmarks; speed statements come from here and nowhere else."""
    if context.invoked_subcommand is None:
        show("membership-bootstrap, N = 1000", membership.bootstrap(1000, [0]), False)
        show("membership-crash, N = 1000, 10 fail", membership.crash(1000, 10, [0]), False)
        show("failover", failover.failover("controller"), False)


@bench.command("membership-bootstrap")
@click.option("--nodes", type=click.IntRange(1), default=2000, show_default=True)
@membership_options
def membership_bootstrap(
    nodes: int, backend: str, seed: int, seeds: int, json_wanted: bool, **options: Any
) -> None:
    """All members start within a second: how long until all agree, and how many sizes are seen on the way."""
    result = membership.bootstrap(nodes, range(seed, seed + seeds), _backend(backend, options))
    finish(f"membership-bootstrap, N = {nodes}, {backend}", result, json_wanted)


@bench.command("membership-crash")
@click.option("--nodes", type=click.IntRange(3), default=1000, show_default=True)
@click.option("--faulty", type=click.IntRange(1), default=10, show_default=True)
@membership_options
def membership_crash(
    nodes: int, faulty: int, backend: str, seed: int, seeds: int, json_wanted: bool, **options: Any
) -> None:
    """Several members crash together.

    What comes after the alerts is measured alike on both backends: it begins when observers on H rings of each
    faulty member have reported it (a ring whose observer is faulty itself counts).
    """
    if 2 * (nodes - faulty) <= nodes:
        raise click.UsageError(f"of {nodes} members more than half must survive, or nothing can be agreed on")
    result = membership.crash(nodes, faulty, range(seed, seed + seeds), _backend(backend, options))
    finish(f"membership-crash, N = {nodes}, {faulty} fail, {backend}", result, json_wanted)


@bench.command("cut-sensitivity")
@click.option(
    "--draws",
    type=click.IntRange(1000),
    default=400_000,
    show_default=True,
    help="Processes per cell; the paper drew 20000.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@json_option
def cut_sensitivity_command(draws: int, seed: int, json_wanted: bool) -> None:
    """How often a process proposes part of the failures, for each H and L: the paper's Figure 11."""
    from bench.cut_sensitivity import cut_sensitivity  # numpy takes long to load

    finish("cut-sensitivity, conflict rate in %", cut_sensitivity(draws, seed), json_wanted)


@bench.command("membership-centralised")
@click.option("--nodes", type=click.IntRange(3), default=2000, show_default=True)
@click.option("--faulty", type=click.IntRange(1), default=10, show_default=True)
@click.option("--ensemble", type=click.IntRange(3), default=3, show_default=True, help="Voters.")
@click.option("--seed", type=int, default=0, show_default=True)
@json_option
def membership_centralised(nodes: int, faulty: int, ensemble: int, seed: int, json_wanted: bool) -> None:
    """The same two with an ensemble that records the membership (Rapid-C), simulated."""
    if faulty >= nodes:
        raise click.UsageError(f"of {nodes} members at least one must survive")
    result = centralised.centralised(nodes, faulty, ensemble, seed)
    finish(f"membership-centralised, N = {nodes}, ensemble of {ensemble}", result, json_wanted)


@bench.command("agent-footprint")
@click.option("--starts", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--seconds", type=float, default=75.0, show_default=True, help="Watch their memory for so long."
)
@json_option
def agent_footprint_command(starts: int, seconds: float, json_wanted: bool) -> None:
    """One agent process: seconds to readiness, and its memory; the solver's process separately."""
    finish("agent-footprint", agent_footprint(starts, seconds), json_wanted)


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

"""``rota chaos``: faults on purpose, with the promises checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mgmt.source_text import UnreadableTextError, read_text
from rota.commands.completion import complete_scenarios
from rota.commands.options import json_option
from rota.errors import AgentError, ReportedFailure, UsageProblem
from rota.terminal.output import as_json, emit, table
from rota.terminal.progress import Progress


@click.group(short_help="Faults on purpose, with every promise checked.")
def chaos() -> None:
    """Run fault scenarios and random faults with every invariant checked after every event.

    \b
    Examples:
      rota chaos list
      rota chaos run loss-egress --nodes 100 --faulty 5 --seed 7
      rota chaos fuzz --seeds 20
    """


@chaos.command("list")
@json_option
def list_(json_wanted: bool) -> None:
    """The scenarios, and what each must show.

    \b
    Example:
      rota chaos list --json | jq '.scenarios[].name'
    """
    import chaos as library

    scenarios = [{"name": name, "description": text} for name, text in library.list_scenarios().items()]
    emit(
        {"scenarios": scenarios},
        json_wanted,
        lambda _: table(("scenario", "what"), [(entry["name"], entry["description"]) for entry in scenarios]),
    )


@chaos.command(short_help="Run one scenario; exit 1 when a promise is broken.")
@click.argument("scenario", shell_complete=complete_scenarios)
@click.option(
    "--backend",
    type=click.Choice(["sim", "process", "netns"]),
    default="sim",
    show_default=True,
    help="sim: virtual time; process: real agents on loopback; netns: each in its network namespace (root).",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=None,
    help="Members at the start; default 50, with a store 6.",
)
@click.option("--faulty", type=click.IntRange(min=1), default=None, help="Hosts the fault befalls.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same run.")
@click.option("--loss", type=click.FloatRange(0, 1), default=0.0, help="Ambient loss of every datagram.")
@click.option(
    "--duration",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    help="Seconds (on sim: virtual ones).",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Draw every member's view size over time (.png or .svg).",
)
@click.option(
    "--ensemble",
    type=click.IntRange(min=3),
    default=None,
    help="The centralised mode: so many voters record the membership. Only on sim.",
)
@click.option(
    "--store",
    type=click.Choice(["log", "valkey", "redis"]),
    is_flag=False,
    flag_value="log",
    default=None,
    help="What the hosts carry, with clients that use it: the log (--store alone), or servers of Valkey or Redis on "
    "backend process; default: the log if the scenario needs a store.",
)
@click.option("--no-store", is_flag=True, help="The hosts are members and nothing else.")
@click.option(
    "--disks",
    type=click.Choice(["none", "one", "any"]),
    default=None,
    help="With the log, some hosts come back with an emptied disk, an old copy, or a file gone: one at a time, which "
    "it makes good (its default); or any, and then whatever is missing must be said (sim only).",
)
@click.option(
    "--logs",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    default=None,
    help="Folder for the logs of real agents.",
)
@json_option
def run(scenario: str, json_wanted: bool, picture: Path | None, no_store: bool, **options: Any) -> None:
    """Run one SCENARIO (see `rota chaos list`); exit 1 when a promise is broken.

    \b
    Examples:
      rota chaos run bootstrap --nodes 500
      rota chaos run loss-egress --nodes 200 --faulty 5 --seed 7 --json
      rota chaos run crash --backend process --nodes 10 --faulty 2
      rota chaos run flip-flop --nodes 1000 --faulty 10 --plot flip-flop.png
      rota chaos run crash --nodes 100 --ensemble 3
      rota chaos run kill-sequencer --seed 3
      rota chaos run rolling-restart --store --backend process
      rota chaos run crash --store valkey --backend process
      rota chaos run storm --disks any
    """
    import chaos as library

    if no_store:
        if options["store"] is not None:
            raise UsageProblem("--store and --no-store: say one of them")
        options["store"] = "none"
    given = {name: value for name, value in options.items() if value is not None}
    with Progress(f"{scenario} on {options['backend']}", json_wanted) as progress:
        try:
            if picture is not None:
                library.check_plot(picture)
            report = library.run(scenario, progress=progress.share, **given)
        except library.ChaosError as error:
            raise UsageProblem(str(error)) from error
    if picture is not None:
        try:
            library.plot(report, picture)
        except library.PlotError as error:
            raise AgentError(str(error)) from error
    emit(report.to_json(), json_wanted, _show_report)
    if not report.ok:
        again = " ".join(_as_option(name, value) for name, value in given.items())
        raise ReportedFailure(
            f"{scenario}: a promise was broken; to see it again: rota chaos run {scenario} {again}"
        )


_KEY_WIDTH = 29
"""Of the longest key in a report, and a space."""


def _as_option(name: str, value: Any) -> str:
    return "--no-store" if (name, value) == ("store", "none") else f"--{name} {value}"


def _show_report(report: dict[str, Any]) -> None:
    for line in report.pop("story"):
        click.echo(f"{line['seconds']:9.2f} s  {line['text']}")
    for key, value in report.items():
        unit = " (KB/s)" if key == "bytes_per_node" else ""
        click.echo(f"{key.replace('_', ' ') + unit:<{_KEY_WIDTH}}{_cell(value)}")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return (
            ", ".join(_cell(entry) for entry in value[:12]) + (" …" if len(value) > 12 else "") or "nothing"
        )
    return str(value)


@chaos.command(short_help="Random faults on the simulator; prints what fails.")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=100, show_default=True, help="How many seeds to try."
)
@click.option("--first", type=int, default=0, show_default=True, help="The first seed.")
@click.option("--nodes", type=click.IntRange(min=2), default=None, help="Members; default: the seed decides.")
@click.option(
    "--store/--no-store",
    default=None,
    help="Whether the members carry a store, and disks are lost; default: the seed decides.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=None, help="Processes; default: one a core.")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), default=None, help="End after so long."
)
@json_option
def fuzz(
    seeds: int,
    first: int,
    nodes: int | None,
    store: bool | None,
    jobs: int | None,
    minutes: float | None,
    json_wanted: bool,
) -> None:
    """Random faults on the simulator; prints the first failing seed and a shrunk script.

    \b
    Examples:
      rota chaos fuzz --seeds 1000
      rota chaos fuzz --seeds 100000 --minutes 10 --jobs 2
      rota chaos fuzz --first 4711 --seeds 1        that seed again
      rota chaos fuzz --store --seeds 500           with clients of a store, and lost disks
    """
    import chaos as library

    jobs = library.processors() if jobs is None else jobs
    with Progress(f"{seeds} seeds", json_wanted) as progress:
        try:
            report = library.fuzz(
                seeds,
                first=first,
                nodes=nodes,
                store=store,
                jobs=jobs,
                minutes=minutes,
                progress=progress.share,
            )
        except library.ChaosError as error:
            raise UsageProblem(str(error)) from error
    emit(report.to_json(), json_wanted, lambda _: click.echo(report.text()))
    if not report.ok:
        raise ReportedFailure(f"an invariant broke at seed {report.failing_seed}")


@chaos.command(short_help="Run a script that `rota chaos fuzz` printed.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def replay(script: Path, json_wanted: bool) -> None:
    """Run a script that `rota chaos fuzz` printed, or that you wrote.

    \b
    Examples:
      rota chaos replay failed.txt
      rota chaos replay tests/scenarios/rolling_restart.txt --json
    """
    import chaos as library

    try:
        report = library.replay(read_text(script))
    except UnreadableTextError as error:
        raise UsageProblem(f"{script}: {error}; give a script that `rota chaos fuzz` printed") from error
    except library.ChaosError as error:
        raise UsageProblem(f"{script}: {error}") from error
    click.echo(as_json(report.to_json()) if json_wanted else report.text())
    if not report.ok:
        raise ReportedFailure(f"{script}: an invariant broke")


@chaos.command("fuzz-packets", short_help="Spoiled packets through transport, decoder and core.")
@click.option("--count", type=click.IntRange(min=1), default=100_000, show_default=True, help="Packets.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed spoils the same way.")
@json_option
def fuzz_packets(count: int, seed: int, json_wanted: bool) -> None:
    """Spoiled packets through transport, decoder and core; exit 1 when an exception escapes.

    \b
    Example:
      rota chaos fuzz-packets --count 1000000
    """
    from chaos.fuzzing.packet_fuzz import fuzz_packets as fuzz

    with Progress(f"{count} packets", json_wanted) as progress:
        report = fuzz(count, seed=seed, progress=progress.share)
    emit(report.to_json(), json_wanted, lambda _: click.echo(report.text()))
    if not report.ok:
        raise ReportedFailure(f"{len(report.failures)} packets raised what they must not")


COMMANDS = (chaos,)

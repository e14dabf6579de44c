"""``python -m bench [NAME]``; without a name all of them, at sizes that end within a minute."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from bench.agent_footprint import agent_footprint
from bench.log import failover, power_loss
from bench.members import centralised, membership
from bench.members.backends import BACKENDS, Backend, backend_of
from bench.members.idle import membership_idle
from bench.members.presets import presets
from bench.members.processes import MOST_PROCESSES
from bench.members.socket_runs import SPREAD
from bench.policies.amounts import Amounts
from bench.result import Result
from bench.slots.servers import ENGINES
from rota.local.fault_targets import KILLABLE
from rota.terminal.output import as_json, table


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


amounts_option = click.option(
    "--amounts",
    type=click.Choice([each.value for each in Amounts]),
    default=Amounts.UNITS.value,
    show_default=True,
    help="How large requests and capacities are, and whether they are round.",
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
        show("failover", failover.failover(["controller"], 1), False)


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


@bench.command("membership-idle")
@click.option("--nodes", type=click.IntRange(2), default=100, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="Watch them for so long."
)
@json_option
def membership_idle_command(nodes: int, seconds: float, json_wanted: bool) -> None:
    """Members in one process, on loopback, while nothing happens: packets, bytes, CPU."""
    finish(f"membership-idle, N = {nodes}", membership_idle(nodes, seconds), json_wanted)


@bench.command("membership-presets")
@click.option("--seeds", type=click.IntRange(1), default=10, show_default=True, help="Runs of each.")
@json_option
def membership_presets_command(seeds: int, json_wanted: bool) -> None:
    """How long a crash, a join and a leave take with the presets local, lan and wan, simulated."""
    finish("membership-presets, N = 10", presets(range(seeds)), json_wanted)


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
    from bench.members.cut_sensitivity import cut_sensitivity  # numpy takes long to load

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


def pack_options(runs: int, budget: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """What the benchmarks of the policy packs have in common."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = (
            click.option(
                "--runs",
                type=click.IntRange(1),
                default=runs,
                show_default=True,
                help="Each with the next seed.",
            ),
            click.option("--seed", type=int, default=0, show_default=True, help="The first seed."),
            click.option(
                "--budget",
                type=click.FloatRange(0, min_open=True),
                default=budget,
                show_default=True,
                help="Seconds for one solve.",
            ),
            json_option,
        )
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@bench.command("vm-balance")
@pack_options(10, 1.5)
def vm_balance_command(runs: int, seed: int, budget: float, json_wanted: bool) -> None:
    """16 hosts, 524 virtual machines, at most 20 migrations: how even the hosts become."""
    from bench.policies.packs import vm_balance  # the solver takes long to load

    finish("vm-balance", vm_balance(range(seed, seed + runs), budget), json_wanted)


@bench.command("vsphere")
@pack_options(3, 4.0)
@click.option("--server", is_flag=True, help="Move them on a simulated vCenter, too, which needs Go.")
def vsphere_command(runs: int, seed: int, budget: float, json_wanted: bool, server: bool) -> None:
    """32 hosts, 1000 machines of a vCenter, beside a greedy balancer in the manner of DRS; 100 hosts, 5000 machines."""
    from bench.vsphere import vsphere

    finish("vsphere", vsphere(range(seed, seed + runs), budget, server), json_wanted)


@bench.command("pods-400")
@pack_options(10, 2.0)
@amounts_option
def many_pods_command(runs: int, seed: int, budget: float, json_wanted: bool, amounts: str) -> None:
    """400 pods on 50 nodes, two resources, selectors and anti-affinity: how near the optimum, and how soon."""
    from bench.policies.many_pods import many_pods

    finish("pods-400", many_pods(range(seed, seed + runs), budget, Amounts(amounts)), json_wanted)


@bench.command("kubernetes")
@click.option("--workload", "names", multiple=True, metavar="NAME", help="[default: all of them]")
@click.option("--seed", type=int, default=0, show_default=True)
@json_option
def kubernetes_command(names: tuple[str, ...], seed: int, json_wanted: bool) -> None:
    """rota and kube-scheduler in turn on a real API server: how soon, how evenly, and who is left out."""
    from bench.kubernetes.comparison import kubernetes
    from bench.kubernetes.workloads import WORKLOADS

    if unknown := [name for name in names if name not in WORKLOADS]:
        raise click.UsageError(f"there is no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    finish("kubernetes", kubernetes(names or tuple(WORKLOADS), seed), json_wanted)


@bench.command("placement")
@click.option("--segments", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--hosts", type=click.IntRange(3), default=100, show_default=True)
@click.option("--racks", type=click.IntRange(3), default=5, show_default=True)
@click.option(
    "--event",
    type=click.Choice(["host-loss", "rack-loss", "add-hosts"]),
    default="host-loss",
    show_default=True,
)
@click.option("--unequal-racks", is_flag=True, help="The largest has three times the hosts of the smallest.")
@click.option(
    "--runs", type=click.IntRange(1), default=7, show_default=True, help="Solves of the same state."
)
@click.option(
    "--budget", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True,
    help="Seconds for one solve.",
)  # fmt: skip
@json_option
def placement_command(
    segments: int,
    hosts: int,
    racks: int,
    event: str,
    unequal_racks: bool,
    runs: int,
    budget: float,
    json_wanted: bool,
) -> None:
    """Copies and primaries of the datastore pack are placed again after an event."""
    if racks > hosts:
        raise click.UsageError("there are more racks than hosts")
    from bench.policies.placement import placement

    result = placement(segments, hosts, racks, event, unequal_racks=unequal_racks, runs=runs, budget=budget)
    finish(f"placement, {segments} segments, {hosts} hosts, {racks} racks, {event}", result, json_wanted)


@bench.command("policy-scale")
@click.option("--nodes", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--pods", type=click.IntRange(1), default=50, show_default=True, help="Pending at a time.")
@click.option(
    "--min-load", type=click.IntRange(0, 99), default=0, show_default=True, help="Percent, of each node."
)
@click.option("--runs", type=click.IntRange(1), default=10, show_default=True)
@click.option("--budget", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@amounts_option
@json_option
def policy_scale_command(
    nodes: int,
    pods: int,
    min_load: int,
    runs: int,
    budget: float,
    seed: int,
    amounts: str,
    json_wanted: bool,
) -> None:
    """Batches of pods on many nodes, all policies of the kubernetes pack on: milliseconds for each stage."""
    from bench.policies.policy_scale import policy_scale

    name = f"policy-scale, {pods} pods on {nodes} nodes, load from {min_load} %"
    result = policy_scale(nodes, pods, min_load, runs, budget, seed, Amounts(amounts))
    finish(name, result, json_wanted)


@bench.command("experts")
@click.option("--only", multiple=True, metavar="NAME", help="This problem; may be given several times.")
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    default=20.0,
    show_default=True,
    help="Seconds for each side of a problem.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--size",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the size that is reported.",
)
@click.option(
    "--spelling",
    "spellings",
    multiple=True,
    type=click.Choice(["joins", "subqueries", "views"]),
    help="Policies by this habit; without any, by each.",
)
@click.option(
    "--workers", type=click.IntRange(1), default=2, show_default=True, help="Of CP-SAT, on each side."
)
@json_option
def experts_command(
    only: tuple[str, ...],
    budget: float,
    seed: int,
    size: float,
    spellings: tuple[str, ...],
    workers: int,
    json_wanted: bool,
) -> None:
    """Problems as policies, by three habits, and as CP-SAT models written by hand: objectives and bounds.

    Most of them are no placements: exams, rosters, job shops, tours, lots, machines bought by number, queens.
    """
    from bench.policies.experts.comparison import PROBLEMS, experts

    known = [problem.name for problem in PROBLEMS]
    for name in only:
        if name not in known:
            raise click.UsageError(f"there is no problem {name!r}; there are {', '.join(known)}")
    result = experts(only, budget, seed, size, spellings=spellings, workers=workers)
    finish(f"experts, {budget:g} s each", result, json_wanted)


@bench.command("ablation")
@click.option("--case", "wanted", multiple=True, metavar="NAME", help="Cases whose names begin with this.")
@click.option(
    "--without", "only", multiple=True, metavar="PART", help="Leave out this part; without any, each."
)
@click.option("--budget", type=click.FloatRange(0, min_open=True), default=4.0, show_default=True)
@json_option
def ablation_command(
    wanted: tuple[str, ...], only: tuple[str, ...], budget: float, json_wanted: bool
) -> None:
    """What each engine and heuristic earns: the other benches' cases with one of them left out at a time."""
    from bench.policies.ablation import PARTS, ablation

    for name in only:
        if name not in PARTS:
            raise click.UsageError(f"there is no part {name!r}; there are {', '.join(PARTS)}")
    finish("ablation", ablation(wanted, only, budget, partial(click.echo, err=True)), json_wanted)


@bench.command("apps")
@pack_options(35, 10.0)
def apps_command(runs: int, seed: int, budget: float, json_wanted: bool) -> None:
    """30 applications of 10 pods with affinity and anti-affinity: how many runs place all of them."""
    from bench.policies.packs import apps

    finish("apps", apps(range(seed, seed + runs), budget), json_wanted)


@bench.command("preemption")
@pack_options(10, 10.0)
def preemption_command(runs: int, seed: int, budget: float, json_wanted: bool) -> None:
    """A cluster full of two lower priorities: who gives way to the pods of the highest one."""
    from bench.policies.packs import preemption

    finish("preemption", preemption(range(seed, seed + runs), budget), json_wanted)


@bench.command("failover")
@click.option(
    "--kill",
    type=click.Choice(KILLABLE),
    multiple=True,
    default=("head", "sequencer", "controller"),
    show_default=True,
    help="Whom; may be given several times.",
)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Kills of each.")
@click.option("--nodes", type=click.IntRange(4), default=6, show_default=True)
@click.option("--racks", type=click.IntRange(1), default=3, show_default=True)
@click.option("--preset", type=click.Choice(["local", "lan", "wan"]), default="local", show_default=True)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the agents' data goes; default: the system's folder for temporary files.",
)
@click.option(
    "--quiet",
    type=click.FloatRange(1),
    default=failover.QUIET_WRITING,
    show_default=True,
    help="Seconds of writing before a kill; long enough for caches and solvers to be given up.",
)
@json_option
def failover_command(
    kill: tuple[str, ...],
    runs: int,
    nodes: int,
    racks: int,
    preset: str,
    directory: Path | None,
    quiet: float,
    json_wanted: bool,
) -> None:
    """A host is killed under a running writer: how long until the view, the layout, and the next append.

    Each kill has a cluster of its own.  Medians and worst of all kills; writes that were lost are looked for.
    """
    finish("failover", failover.failover(kill, runs, nodes, racks, preset, directory, quiet), json_wanted)


@bench.command("power-loss")
@click.option("--cuts", type=click.IntRange(1), default=50, show_default=True, help="One after the other.")
@click.option("--nodes", type=click.IntRange(3), default=6, show_default=True)
@click.option("--racks", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the agents' data goes, on a real disk; default: the system's folder for temporary files.",
)
@json_option
def power_loss_command(cuts: int, nodes: int, racks: int, directory: Path | None, json_wanted: bool) -> None:
    """All agents are killed at once under four writers, and started again; every acknowledged write is read back.

    \b
    Example:
      python -m bench power-loss --cuts 50 --dir /var/tmp
    """
    finish("power-loss", power_loss.power_loss(cuts, nodes, racks, directory, quiet=json_wanted), json_wanted)


@bench.command("log-throughput")
@click.option(
    "--bytes",
    "sizes",
    type=click.IntRange(8, 1 << 20),
    multiple=True,
    default=(256, 4096),
    show_default=True,
    help="Of a record; may be given several times.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 16, 256),
    show_default=True,
    help="Operations at a time; may be given several times.",
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True)
@click.option("--segments", type=click.IntRange(1), default=12, show_default=True)
@click.option(
    "--beside", type=click.Choice(["etcd"]), help="Another store, under the same load in the same run."
)
@json_option
def log_throughput_command(
    sizes: tuple[int, ...],
    in_flight: tuple[int, ...],
    seconds: float,
    segments: int,
    beside: str | None,
    json_wanted: bool,
) -> None:
    """Appends and reads per second on three agents, three copies, fsync on; beside the raw cost of the same work.

    \b
    Example:
      python -m bench log-throughput --bytes 256 --beside etcd
    """
    from bench.log.throughput import log_throughput

    result = log_throughput(sizes, in_flight, seconds, segments, beside_etcd=beside is not None)
    show("log-throughput", result, json_wanted)


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """What the benchmarks on servers of Valkey and Redis have in common."""
    options = (
        click.option(
            "--engine", "engines", type=click.Choice(ENGINES), multiple=True, default=ENGINES, show_default=True,
            help="May be given twice; one that is not installed is skipped.",
        ),
        click.option(
            "--dir", "directory", type=click.Path(file_okay=False, path_type=Path),
            help="Where the servers' data goes; default: the system's folder for temporary files.",
        ),
        json_option,
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@bench.command("slots-failover")
@click.option("--kills", type=click.IntRange(1), default=10, show_default=True, help="By rota.")
@click.option(
    "--own-kills",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="With each node timeout, without rota.",
)
@click.option(
    "--node-timeout",
    "node_timeouts",
    type=click.FloatRange(1),
    multiple=True,
    default=(2.0, 15.0),
    show_default=True,
    help="Seconds, of the servers without rota; may be given several times.",
)
@click.option(
    "--nodes", type=click.IntRange(5), default=6, show_default=True, help="Agents, two servers each."
)
@click.option("--racks", type=click.IntRange(2), default=3, show_default=True)
@click.option("--preset", type=click.Choice(["local", "lan", "wan"]), default="local", show_default=True)
@engine_options
def slots_failover_command(
    kills: int,
    own_kills: int,
    node_timeouts: tuple[float, ...],
    nodes: int,
    racks: int,
    preset: str,
    engines: tuple[str, ...],
    directory: Path | None,
    json_wanted: bool,
) -> None:
    """A host with a primary of Valkey or Redis is killed: how long until another server takes the writes.

    By rota from the view change and from the kill, and beside it the servers by themselves.  About a minute for each
    three kills.

    \b
    Example:
      python -m bench slots-failover --engine redis --kills 10
    """
    from bench.slots.failover import slots_failover

    result = slots_failover(
        engines, kills, own_kills, node_timeouts, nodes, racks, preset, directory, quiet=json_wanted
    )
    finish("slots-failover", result, json_wanted)


@bench.command("slots-move")
@click.option(
    "--moves", type=click.IntRange(1), default=6, show_default=True, help="By rota, and as many by redis-cli."
)
@click.option("--slots", type=click.IntRange(1, 5000), default=1000, show_default=True)
@click.option("--keys", type=click.IntRange(2), default=15000, show_default=True, help="In these slots.")
@engine_options
def slots_move_command(
    moves: int, slots: int, keys: int, engines: tuple[str, ...], directory: Path | None, json_wanted: bool
) -> None:
    """Slots move between two shards under foreign clients, by rota and by `redis-cli --cluster reshard` in turns.

    \b
    Example:
      python -m bench slots-move --engine valkey --moves 10
    """
    from bench.slots.move import slots_move

    finish("slots-move", slots_move(engines, moves, slots, keys, directory, quiet=json_wanted), json_wanted)


@bench.command("phrasings")
@click.option("--nodes", type=click.IntRange(20), default=500, show_default=True)
@click.option("--pods", type=click.IntRange(5), default=50, show_default=True)
@click.option("--segments", type=click.IntRange(6), default=1000, show_default=True, help="Of three copies.")
@click.option("--hosts", type=click.IntRange(12), default=100, show_default=True, help="Of the segments.")
@click.option(
    "--only",
    multiple=True,
    help="A family, family/spelling, or 'listed': those asked for by name; may be given several times.",
)
@click.option("--budget", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True)
@click.option(
    "--profile", is_flag=True, help="Also tell which functions take the time, in the JSON document."
)
@click.option(
    "--growth",
    "grows",
    is_flag=True,
    help="Instead, by how much time and memory grow from 500 to 10 000 nodes and from 50 to 1000 pods (of 'listed').",
)
@amounts_option
@json_option
def phrasings_command(
    nodes: int,
    pods: int,
    segments: int,
    hosts: int,
    amounts: str,
    only: tuple[str, ...],
    budget: float,
    profile: bool,
    grows: bool,
    json_wanted: bool,
) -> None:
    """The same rules in many spellings: each must be fast, and the plans of one family equal.

    Every case has a process of its own, and its plan is checked by plain SQL.  Progress is told on standard error.

    \b
    Example:
      python -m bench phrasings --only apart --only squares/sum --nodes 2000
    """
    from bench.policies.phrasings.case import Size
    from bench.policies.phrasings.growth import LISTED, growth
    from bench.policies.phrasings.report import chosen, phrasings

    if not chosen(only):
        raise click.UsageError(f"no case is named {', '.join(only)}")

    def tell(case: dict[str, Any]) -> None:
        click.echo(json.dumps(case), err=True)

    if grows:
        finish("phrasings, growth", growth(budget, only or LISTED, progress=tell), json_wanted)
        return
    size = Size(nodes, pods, segments, hosts, amounts=Amounts(amounts))
    result = phrasings(size, budget, only, profile=profile, progress=tell)
    finish(f"phrasings, {pods} pods on {nodes} nodes", result, json_wanted)


if __name__ == "__main__":
    bench(prog_name="python -m bench")

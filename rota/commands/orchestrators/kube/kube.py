"""``rota kube schedule`` and ``rota kube simulate``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.commands.options import json_option
from rota.errors import AgentError, UsageProblem

if TYPE_CHECKING:
    from orchestrators.kubernetes.placement import Key, Placer

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(short_help="Place the pods of a Kubernetes cluster.")
def kube() -> None:
    """A scheduler for Kubernetes, with the rules of the pack `kubernetes` and your own.

    \b
    Examples:
      rota kube schedule --kubeconfig ~/.kube/config
      rota kube simulate dump.json
    """


scheduler_name = click.option(
    "--scheduler-name", default="rota", show_default=True, metavar="NAME",
    help="Pods with this schedulerName are placed.",
)  # fmt: skip
policies = click.option(
    "--policies", "folder", type=click.Path(path_type=Path), metavar="DIR",
    help="SQL of your own beside the pack: the .sql files of a folder.",
)  # fmt: skip


def budget(seconds: float) -> Callable[[Command], Command]:
    return click.option(
        "--budget", type=click.FloatRange(0.1), default=seconds, show_default=True, metavar="SECONDS",
        help="For a solve.",
    )  # fmt: skip


@kube.command(short_help="Place pods, for as long as it runs.")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
    help="How to reach the API server; else KUBECONFIG, the service account of the pod it runs in, ~/.kube/config.",
)  # fmt: skip
@click.option("--context", metavar="NAME", help="Of the kubeconfig, instead of the current one.")
@scheduler_name
@policies
@click.option(
    "--policies-config-map", metavar="NAMESPACE/NAME",
    help="The same from the .sql entries of a ConfigMap, whenever it changes.",
)  # fmt: skip
@budget(1.0)
@click.option(
    "--lease", default="kube-system/rota-scheduler", show_default=True, metavar="NAMESPACE/NAME",
    help="Replicas compete for it; the holder schedules.",
)  # fmt: skip
@click.option("--alone", is_flag=True, help="No lease: this is the only replica.")
@click.option("--http", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz there.")
@click.option("--log-format", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info", show_default=True
)
def schedule(
    kubeconfig: Path | None,
    context: str | None,
    scheduler_name: str,
    folder: Path | None,
    policies_config_map: str | None,
    budget: float,
    lease: str,
    alone: bool,
    http: str | None,
    log_format: str,
    log_level: str,
) -> None:
    """Place pending pods of its schedulerName and bind them, until SIGTERM or Ctrl-C.

    Everything that is pending is placed together, to a proven optimum where the time allows it.  What cannot be placed
    gets an event and a condition that say why.

    \b
    Examples:
      rota kube schedule --kubeconfig ~/.kube/config
      rota kube schedule --policies rules/ --http 0.0.0.0:10259
    """
    import trio

    from rota.agent import logs
    from rota.commands.orchestrators.kube.running import Options, run

    logs.configure(log_format, log_level)
    options = Options(
        kubeconfig,
        context,
        scheduler_name,
        folder,
        None if policies_config_map is None else named(policies_config_map, "--policies-config-map"),
        budget,
        None if alone else named(lease, "--lease"),
        http,
    )
    with problems_told():
        trio.run(run, options, strict_exception_groups=True)


@kube.command(short_help="What would be placed where, on a dump.")
@click.argument(
    "dumps", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="DUMP..."
)
@click.option(
    "--scheduler-name",
    metavar="NAME",
    help="Place only pods with this schedulerName.  [default: all that wait]",
)
@policies
@budget(5.0)
@click.option(
    "--lose-zone", "zones", multiple=True, metavar="ZONE", help="As if the nodes of this zone were lost."
)
@click.option("--lose-node", "nodes", multiple=True, metavar="NODE", help="As if this node were lost.")
@click.option("--why", "why_pod", metavar="POD", help="Why a pending pod goes where it goes.")
@click.option("--why-not", nargs=2, metavar="POD NODE", help="Why it does not go to a node.")
@click.option("--headroom", "headroom_pod", metavar="POD", help="How many more like this one fit.")
@json_option
def simulate(
    dumps: Sequence[Path],
    scheduler_name: str | None,
    folder: Path | None,
    budget: float,
    zones: Sequence[str],
    nodes: Sequence[str],
    why_pod: str | None,
    why_not: tuple[str, str] | None,
    headroom_pod: str | None,
    json_wanted: bool,
) -> None:
    """What `rota kube schedule` would do with a dump of a cluster: which pod goes where, and why some go nowhere.

    DUMP is what kubectl prints as JSON, - for standard input; of several files all objects count.  PODs are named as
    NAMESPACE/NAME.  Nothing is touched.

    \b
    Examples:
      kubectl get nodes,pods,pdb -A -o json | rota kube simulate -
      rota kube simulate dump.json --lose-zone eu-1a
      rota kube simulate dump.json --why-not default/web-1 node-7
    """
    from orchestrators.kubernetes.simulation import Simulator, objects_of
    from rota.commands.orchestrators.kube import report
    from rota.terminal.output import emit

    with problems_told():
        placer = placer_of(scheduler_name or "rota", folder)
        objects = objects_of(_read(path) for path in dumps)
        simulator = Simulator(objects, placer, every_scheduler=scheduler_name is None, budget=budget)
        if zones or nodes:
            simulator = simulator.without(zones, nodes)
        if why_pod:
            answers = [str(each) for each in simulator.why(named(why_pod, "--why"))]
            emit({"answers": answers}, json_wanted, lambda _: click.echo("\n".join(answers)))
        elif why_not:
            answer = str(simulator.why_not(named(why_not[0], "--why-not"), why_not[1]))
            emit({"answers": [answer]}, json_wanted, lambda _: click.echo(answer))
        elif headroom_pod:
            room = simulator.headroom(named(headroom_pod, "--headroom"))
            emit(
                report.headroom_document(room),
                json_wanted,
                lambda _: report.show_headroom(headroom_pod, room),
            )
        else:
            simulation = simulator.run()
            emit(report.document(simulation), json_wanted, lambda _: report.show(simulation))


@kube.command(short_help="Which evictions would even out load.")
@click.argument(
    "dumps", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="DUMP..."
)
@click.option("--dry-run", is_flag=True, help="Only say so.  It must be given: nothing is evicted yet.")
@click.option(
    "--evictions",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="NUMBER",
    help="At most so many.",
)
@policies
@budget(10.0)
@json_option
def rebalance(
    dumps: Sequence[Path],
    dry_run: bool,
    evictions: int,
    folder: Path | None,
    budget: float,
    json_wanted: bool,
) -> None:
    """Which few evictions would mend preferences that are violated, and even out load; disruption budgets are kept.

    Pods move that a controller would make again elsewhere: not those of DaemonSets and Jobs.

    \b
    Examples:
      kubectl get nodes,pods,pdb -A -o json | rota kube rebalance --dry-run -
      rota kube rebalance --dry-run --evictions 3 dump.json
    """
    from orchestrators.kubernetes.own_policies import of_folder
    from orchestrators.kubernetes.rebalancing import rebalancing
    from orchestrators.kubernetes.simulation import objects_of
    from rota.commands.orchestrators.kube import report
    from rota.terminal.output import emit

    if not dry_run:
        raise UsageProblem("nothing is evicted yet: give --dry-run to see which evictions would help")
    with problems_told():
        objects = objects_of(_read(path) for path in dumps)
        found = rebalancing(
            objects, () if folder is None else of_folder(folder), evictions=evictions, budget=budget
        )
    emit(report.rebalancing_document(found), json_wanted, lambda _: report.show_rebalancing(found))


COMMANDS = (kube,)


def placer_of(scheduler_name: str, folder: Path | None) -> Placer:
    """The pack, with the rules of a folder."""
    from orchestrators.kubernetes.own_policies import of_folder
    from orchestrators.kubernetes.placement import Placer

    return Placer(scheduler_name, () if folder is None else of_folder(folder))


@contextmanager
def problems_told() -> Iterator[None]:
    """Errors of clusters and policies become the one line of a command."""
    from mgmt import PolicyError
    from orchestrators.kubernetes.errors import KubernetesError
    from rota.errors import first_error

    try:
        yield
    except (KubernetesError, PolicyError) as error:
        raise AgentError(str(error)) from error
    except BaseExceptionGroup as error:
        cause = first_error(error)
        if isinstance(cause, KubernetesError | PolicyError):
            raise AgentError(str(cause)) from error
        raise


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageProblem(f"{path}: {error}") from error


def named(text: str, option: str) -> Key:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise UsageProblem(f"{option} {text!r}: write NAMESPACE/NAME")
    return namespace, name

"""Starting things: ``rota agent``, ``rota up``, ``rota demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rota.agent import settings as settings_module
from rota.commands.options import json_option
from rota.errors import ReportedFailure
from rota.imports import importing
from rota.local.fault_targets import KILLABLE
from rota.terminal.output import as_json


def _tag_pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    try:
        return dict(settings_module.parse_tag(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings as TOML.")
@click.option("--listen", metavar="HOST:PORT", help="Receive here, UDP and TCP. [default: 127.0.0.1:7946]")
@click.option("--advertise", metavar="HOST:PORT", help="What the others send to, if it is not --listen.")
@click.option(
    "--api",
    metavar="HOST:PORT",
    help="HTTP interface; elsewhere than on loopback with the next three. [default: 127.0.0.1:7947]",
)
@click.option(
    "--api-certificate", type=click.Path(path_type=Path), metavar="FILE", help="TLS: its certificate."
)
@click.option("--api-key", type=click.Path(path_type=Path), metavar="FILE", help="TLS: the key of that.")
@click.option(
    "--api-tokens",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Who may ask for what; see `rota tokens`.",
)
@click.option(
    "--api-client-ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TLS: hear only those who have a certificate of these authorities.",
)
@click.option(
    "--api-socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The same at a Unix socket, mode 0600, which needs no token.",
)
@click.option("--api-socket-group", metavar="GROUP", help="Its members may use that, too (mode 0660).")
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    metavar="HOST:PORT",
    help="Any member; again for more. None: found a cluster.",
)
@click.option(
    "--mode",
    metavar="decentralised|centralised",
    help="Who agrees on views: all, or an ensemble that --seed names. [default: decentralised]",
)
@click.option(
    "--ensemble",
    multiple=True,
    metavar="HOST:PORT",
    help="Be one of the ensemble at these addresses, all of them given; no member of the cluster.",
)
@click.option(
    "--expect",
    type=int,
    metavar="N",
    help="Hold the first view until N agents have met. If all name each other as --seed, they choose who founds.",
)
@click.option("--name", metavar="NAME", help="Stable name of this host. [default: the advertised host:port]")
@click.option(
    "--tag", "tags", multiple=True, callback=_tag_pairs, metavar="KEY=VALUE", help="For example rack=r1."
)
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="[default: rota-data/NAME]")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Encrypt under the keys in FILE, mode 0600.",
)
@click.option("--state-url", metavar="URL", help="Reserved; the state database is embedded in this version.")
@click.option("--preset", metavar="lan|wan|local", help="Timing. [default: lan]")
@click.option("--detector", metavar="windowed|phi", help="Failure detector. [default: windowed]")
@click.option(
    "--broadcast",
    metavar="epidemic|unicast",
    help="How news reaches the others; unicast (to all at once) is for small clusters. [default: epidemic]",
)
@click.option(
    "--log-format", metavar="text|json", help="The log: for people, or an object a line. [default: text]"
)
@click.option(
    "--log-level",
    metavar="debug|info|warning|error",
    help="What of it; SIGHUP reads it again. [default: info]",
)
@click.option("--capacity", metavar="SIZE", help="What this host offers, for example 500G. [default: 1T]")
@click.option(
    "--segments", type=int, help="Founder: segments of the log, or shards. [default: 12; of shards 3]"
)
@click.option(
    "--replication-factor", type=int, help="Founder: copies of each segment. [default: 3; of shards 2]"
)
@click.option(
    "--store",
    type=click.Choice(("log", *settings_module.SERVER_STORES)),
    help="The embedded log, or servers of Valkey or Redis that each agent runs. [default: log]",
)
@click.option(
    "--engine",
    multiple=True,
    metavar="URL",
    help="Adopt a server that somebody else runs on this host: redis://[USER[:PASSWORD]@]HOST:PORT, with TLS "
    "rediss://; again for more.",
)
@click.option(
    "--engine-servers",
    type=int,
    metavar="N",
    help="With --store valkey or redis: servers of this host, one copy of a shard each. [default: 2]",
)
@click.option(
    "--engine-password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The servers' password. [default: one that the agents agree on; adopted ones: as in --engine]",
)
@click.option(
    "--engine-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Further settings of the servers, in their own language.",
)
@click.option(
    "--engine-ca", type=click.Path(path_type=Path), metavar="FILE", help="TLS: the authorities to believe."
)
@click.option(
    "--engine-certificate",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TLS: the certificate of this agent, if the servers ask for one.",
)
@click.option("--engine-key", type=click.Path(path_type=Path), metavar="FILE", help="TLS: the key of that.")
@click.option(
    "--solver-idle",
    type=float,
    metavar="SECONDS",
    help="End the solver's process after so long without work. [default: 60]",
)
@click.option(
    "--keep-solver/--no-keep-solver",
    default=None,
    help="Keep the solver loaded on the controller and the next in line. [default: yes]",
)
@click.option(
    "--solver-memory",
    metavar="SIZE",
    help="What the solver may take for rows and statements, and as much for a model. [default: 1G]",
)
@click.option(
    "--join-timeout", type=float, metavar="SECONDS", help="Give up joining after this. [default: never]"
)
@click.option(
    "--when-evicted", metavar="rejoin|stop", help="If the others found this host faulty. [default: rejoin]"
)
@click.option("--loss", type=float, metavar="SHARE", help="Fault injection: share of datagrams thrown away.")
@click.option("--no-store", is_flag=True, help="Membership only: no data, no placement.")
@click.option(
    "--chaos-control",
    type=click.Path(path_type=Path),
    metavar="SOCKET",
    help="For `rota chaos run`: report there and take faults from there.",
)
@click.option(
    "--insecure", is_flag=True, default=None, help="Listen on other addresses than loopback, unencrypted."
)
def agent(config: Path | None, no_store: bool, **options: Any) -> None:
    """Run one node agent in the foreground.

    \b
    Examples:
      rota agent --name n1 --tag rack=r1                               found a cluster
      rota agent --name n2 --tag rack=r2 --listen 127.0.0.1:7956 \\
                 --api 127.0.0.1:7957 --seed 127.0.0.1:7946            join it
      rota agent --expect 3 --seed a:7946 --seed b:7946 --seed c:7946  the same on a, b and c: one of them founds
      rota agent --name n1 --tag rack=r1 --store valkey                this host runs Valkey servers, too
      rota agent --name n1 --tag rack=r1 --expect 6 \\
                 --engine redis://rota:secret@10.0.0.1:6379            look after a cluster that is there
    SIGTERM and Ctrl-C leave gracefully. SIGQUIT ends at once for a restart: started again within seconds, it takes
    its own place, and no data moves.
    """
    given = {key: value for key, value in options.items() if value not in (None, (), {})}
    if no_store:
        given["store"] = "none"
    loaded = settings_module.load(config, given)
    with importing():
        import trio

        from rota.agent.process import run_agent

    def read_again() -> settings_module.AgentSettings:
        return settings_module.load(config, given)

    trio.run(run_agent, loaded, read_again, strict_exception_groups=True)


NODES = 6
RACKS = 3


def _cluster_options(command: Any) -> Any:
    for option in reversed(
        (
            click.option("--nodes", type=click.IntRange(1, 64), help=f"Agents to start. [default: {NODES}]"),
            click.option("--racks", type=click.IntRange(1, 64), help=f"Assigned in turn. [default: {RACKS}]"),
            click.option(
                "--store",
                type=click.Choice(("log", *settings_module.SERVER_STORES)),
                help="The embedded log, or servers of Valkey or Redis that the agents run. [default: log]",
            ),
            click.option(
                "--loss",
                type=click.FloatRange(0, 1),
                default=0.0,
                help="Share of every agent's datagrams thrown away.",
            ),
        )
    ):
        command = option(command)
    return command


@click.command(short_help="A local cluster in the foreground.")
@_cluster_options
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Where data and logs go; a cluster that is there already goes on. [default: a temporary folder]",
)
@json_option
def up(
    nodes: int | None,
    racks: int | None,
    store: str | None,
    loss: float,
    directory: Path | None,
    json_wanted: bool,
) -> None:
    """A local cluster in the foreground, with a live table; Ctrl-C leaves gracefully.

    \b
    Examples:
      rota up
      rota up --nodes 9 --dir /var/tmp/cluster
      rota up --store valkey                        servers of Valkey instead of the log

    With --dir it can be started again later, at the same addresses and with all its data, also after everybody
    was killed at once.

    \b
    Then, in another terminal:
      rota members
      rota layout show
      rota log append greetings hello
      rota drain n3
    """
    import trio

    from rota.local.up import run_up

    trio.run(run_up, nodes, racks, store, loss, directory, json_wanted)


@click.command(short_help="The whole story with real processes, in a minute.")
@_cluster_options
@click.option(
    "--kill",
    type=click.Choice(KILLABLE),
    help="The victim: any host, or one with that role; head: a primary's. [default: random; with servers: head]",
)
@click.option("--seed", type=int, default=None, help="Choose the same random victim again.")
@click.option("--keep", is_flag=True, help="Leave the cluster up at the end, until Ctrl-C.")
@json_option
def demo(
    nodes: int | None,
    racks: int | None,
    store: str | None,
    loss: float,
    kill: str | None,
    seed: int | None,
    keep: bool,
    json_wanted: bool,
) -> None:
    """The whole story with real processes: join, place, write, lose a host, repair, read everything back.

    \b
    Examples:
      rota demo
      rota demo --kill controller
      rota demo --store valkey                  two foreign clients write, and a primary's host is killed
      rota demo --store redis --json | jq .failover_seconds
    """
    from rota.local.demo import DemoOptions, run_demo

    chosen = store or "log"
    options = DemoOptions(
        nodes=nodes or NODES,
        racks=racks or RACKS,
        store=chosen,
        loss=loss,
        kill=kill or ("random" if chosen == "log" else "head"),
        seed=seed,
        keep=keep,
    )
    import trio

    report = trio.run(run_demo, options, json_wanted)
    if json_wanted:
        click.echo(as_json(report.to_json()))
    if not report.ok:
        raise ReportedFailure(f"the demo failed: {report.failure()}")


COMMANDS = (agent, up, demo)

"""What the commands ``rota vsphere ...`` are given: which vCenter, how to plan, and what is asked about the plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.errors import UsageProblem

if TYPE_CHECKING:
    from orchestrators.vsphere.execution import VCenter
    from orchestrators.vsphere.planning import PlanSettings

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Server:
    """A vCenter, as named on the command line."""

    address: str
    credentials: Path
    ca_file: Path | None

    def connected(self, tell: Callable[[str], None]) -> AbstractAsyncContextManager[VCenter]:
        """Raises the errors of ``orchestrators.vsphere``."""
        from orchestrators.vsphere.connection import Address, Credentials
        from orchestrators.vsphere.execution import connected

        return connected(Address.parsed(self.address, self.ca_file), Credentials.read(self.credentials), tell)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is planned for, and how."""

    clusters: tuple[str, ...]
    evacuate: tuple[str, ...]
    settings: PlanSettings


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked about a plan; at most one of them."""

    why: str | None
    why_not: tuple[str, str] | None
    headroom: str | None
    lose: tuple[str, ...]
    lose_site: str | None

    def __bool__(self) -> bool:
        return any((self.why, self.why_not, self.headroom, self.lose, self.lose_site))


def server_options(command: Command) -> Command:
    """The parameter ``server``."""

    @wraps(command)
    def called(*, address: str, credentials: Path, ca_file: Path | None, **others: Any) -> None:
        command(server=Server(address, credentials, ca_file), **others)

    return _with_options(
        called,
        click.option("--address", required=True, metavar="HOST[:PORT]", help="The vCenter."),
        click.option(
            "--credentials",
            required=True,
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Two lines, user and password, that nobody else can read.",
        ),
        click.option(
            "--ca-file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Authorities to believe instead of the system's.",
        ),
    )


def scope_options(command: Command) -> Command:
    """The parameter ``scope``."""

    @wraps(command)
    def called(
        *,
        cluster: tuple[str, ...],
        evacuate: tuple[str, ...],
        budget: float,
        seed: int,
        migrations: int | None,
        failover_hosts: int | None,
        gain_per_move: float,
        per_host: int,
        per_cluster: int,
        **others: Any,
    ) -> None:
        from orchestrators.vsphere.move_order import Budgets
        from orchestrators.vsphere.planning import PlanSettings

        settings = PlanSettings(
            budget, migrations, failover_hosts, gain_per_move, Budgets(per_host, per_cluster), seed
        )
        command(scope=Scope(cluster, evacuate, settings), **others)

    positive = click.IntRange(min=1)
    return _with_options(
        called,
        click.option("--cluster", multiple=True, metavar="NAME", help="Only this one; may be repeated."),
        click.option(
            "--evacuate",
            multiple=True,
            metavar="HOST",
            help="Empty it, as if it were to enter maintenance mode; may be repeated.",
        ),
        click.option(
            "--budget",
            type=click.FloatRange(min=0, min_open=True),
            default=5.0,
            show_default=True,
            metavar="SECONDS",
            help="Time for the plan of a cluster.",
        ),
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the search."
        ),
        click.option("--migrations", type=click.IntRange(min=0), metavar="N", help="At most so many moves."),
        click.option(
            "--failover-hosts",
            type=click.IntRange(min=0),
            metavar="N",
            help="Keep room for what is reserved when so many hosts are lost; else as admission control says.",
        ),
        click.option(
            "--gain-per-move",
            type=click.FloatRange(min=0),
            default=0.02,
            show_default=True,
            metavar="POINTS",
            help="By how much the deviation of the hosts is to become smaller with each move for balance.",
        ),
        click.option(
            "--per-host", type=positive, default=4, show_default=True, help="Moves of a host at a time."
        ),
        click.option(
            "--per-cluster",
            type=positive,
            default=16,
            show_default=True,
            help="Moves of a cluster at a time.",
        ),
    )


def question_options(command: Command) -> Command:
    """The parameter ``questions``."""

    @wraps(command)
    def called(
        *,
        why: str | None,
        why_not: tuple[str, str] | None,
        headroom: str | None,
        lose: tuple[str, ...],
        lose_site: str | None,
        **others: Any,
    ) -> None:
        if sum(map(bool, (why, why_not, headroom, lose or lose_site))) > 1:
            raise UsageProblem(
                "one question at a time: --why, --why-not, --headroom, or --lose and --lose-site"
            )
        command(questions=Questions(why, why_not, headroom, lose, lose_site), **others)

    return _with_options(
        called,
        click.option("--why", metavar="VM", help="Why it is where the plan has it."),
        click.option("--why-not", nargs=2, metavar="VM HOST", help="Why it is not there."),
        click.option("--headroom", metavar="VM", help="How many more machines like it fit."),
        click.option("--lose", multiple=True, metavar="HOST", help="What if it is lost; may be repeated."),
        click.option("--lose-site", metavar="SITE", help="What if the hosts of a site are lost."),
    )


def drs_option(command: Command) -> Command:
    return click.option(
        "--beside-drs", is_flag=True, help="Move machines although DRS does so by itself in this cluster."
    )(command)


def journal_option(command: Command) -> Command:
    return click.option(
        "--journal",
        metavar="FILE",
        type=click.Path(path_type=Path),
        default=Path("rota-vsphere.journal"),
        show_default=True,
        help="What is under way; a later run goes on with it.",
    )(command)


def _with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command

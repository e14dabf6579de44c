"""``rota vsphere plan``, ``apply``, ``watch`` and ``simulate``."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from rota.commands.options import json_option
from rota.commands.orchestrators.vsphere.options import (
    Questions,
    Scope,
    Server,
    drs_option,
    journal_option,
    question_options,
    scope_options,
    server_options,
)
from rota.errors import AgentError, ReportedFailure, UsageProblem, first_error
from rota.terminal.output import emit

if TYPE_CHECKING:
    from orchestrators.vsphere.balance_loop import BalanceLoop
    from orchestrators.vsphere.execution import VCenter
    from orchestrators.vsphere.inventory import Inventory
    from orchestrators.vsphere.migrations import Migrations
    from orchestrators.vsphere.planning import Plan, Planner

_SECONDS = click.FloatRange(min=0)
Tell: TypeAlias = Callable[[str], None]


@click.group()
def vsphere() -> None:
    """Balance the virtual machines of a vCenter: plan, apply, watch; simulate on a dump.

    \b
    Examples:
      rota vsphere plan --address vcenter.example --credentials vcenter.login
      rota vsphere apply --address vcenter.example --credentials vcenter.login --evacuate esx07
      rota vsphere watch --address vcenter.example --credentials vcenter.login --gain-per-move 0.2
      rota vsphere simulate today.json --lose esx07
    """


@vsphere.command(short_help="What would be moved, and why; nothing is.")
@server_options
@scope_options
@question_options
@click.option(
    "--save-dump", metavar="FILE", type=click.Path(path_type=Path), help="Save what was seen, for `simulate`."
)
@json_option
def plan(
    server: Server, scope: Scope, questions: Questions, save_dump: Path | None, json_wanted: bool
) -> None:
    """What would be moved, in which order, and why.  Nothing is.

    Exit status 1 when no placement satisfies the rules: they are named, with what would help.

    \b
    Examples:
      rota vsphere plan --address vcenter.example --credentials vcenter.login
      rota vsphere plan --address vcenter.example --credentials vcenter.login --evacuate esx07 --json
      rota vsphere plan --address vcenter.example --credentials vcenter.login --why-not vm0012 esx03
    """
    with _problems_shown():
        inventory = _run(partial(_seen, server))
        if save_dump is not None:
            _save_dump(inventory, save_dump)
        _answer(inventory, scope, questions, json_wanted)


@vsphere.command(short_help="The same on a dump, without any vCenter.")
@click.argument("dump", type=click.Path(path_type=Path))
@scope_options
@question_options
@json_option
def simulate(dump: Path, scope: Scope, questions: Questions, json_wanted: bool) -> None:
    """What `plan` would say of DUMP, which `rota vsphere plan --save-dump` has saved.

    \b
    Examples:
      rota vsphere simulate today.json
      rota vsphere simulate today.json --lose esx01 --lose esx02
      rota vsphere simulate today.json --headroom vm0012 --json
    """
    from orchestrators.vsphere.inventory import load

    with _problems_shown():
        try:
            inventory = load(dump)
        except OSError as error:
            raise UsageProblem(f"cannot read {dump}: {error.strerror or error}") from error
        _answer(inventory, scope, questions, json_wanted)


@vsphere.command(short_help="Plan, and move.")
@server_options
@scope_options
@drs_option
@journal_option
@json_option
def apply(server: Server, scope: Scope, beside_drs: bool, journal: Path, json_wanted: bool) -> None:
    """Plan, and move; each migration is told when it begins and ends.

    Ctrl-C cancels what is under way and begins nothing more; a second one leaves the migrations to vCenter, and the
    next run finds them again.  Exit status 1 when a move failed or was left out.

    \b
    Examples:
      rota vsphere apply --address vcenter.example --credentials vcenter.login --migrations 20
      rota vsphere apply --address vcenter.example --credentials vcenter.login --evacuate esx07 --per-host 2
    """
    from orchestrators.vsphere.execution import owned

    with _problems_shown(), owned(journal):
        found = _run(partial(_apply, server, scope, beside_drs, journal, json_wanted))
    document = {"migrations": [entry for each in found for entry in _entries(each)]}
    bad = [entry for entry in document["migrations"] if entry["state"] != "done"]
    emit(document, json_wanted, lambda _: click.echo(_summary(document["migrations"])))
    if bad:
        raise ReportedFailure(f"{len(bad)} of {len(document['migrations'])} machines were not moved")


@vsphere.command(short_help="Plan and move again and again.")
@server_options
@scope_options
@drs_option
@journal_option
@click.option("--every", type=_SECONDS, default=60.0, show_default=True, help="Seconds between two plans.")
@click.option(
    "--settle",
    type=_SECONDS,
    default=300.0,
    show_default=True,
    help="Seconds of unevenness before balance moves.",
)
@click.option(
    "--cooldown",
    type=_SECONDS,
    default=600.0,
    show_default=True,
    help="Seconds after moves before balance moves.",
)
@click.option("--window", type=_SECONDS, default=900.0, show_default=True, help="Seconds of use that count.")
@json_option
def watch(
    server: Server,
    scope: Scope,
    beside_drs: bool,
    journal: Path,
    every: float,
    settle: float,
    cooldown: float,
    window: float,
    json_wanted: bool,
) -> None:
    """Keep clusters in order until Ctrl-C: what rules require at once, balance when it lasts and is worth its moves.

    With --json each thing that happens is a line with a document, ``at`` and ``text``.

    \b
    Examples:
      rota vsphere watch --address vcenter.example --credentials vcenter.login
      rota vsphere watch --address vcenter.example --credentials vcenter.login --settle 900 --gain-per-move 0.2
    """
    from orchestrators.vsphere.balance_loop import LoopSettings
    from orchestrators.vsphere.execution import owned

    settings = LoopSettings(every=every, settle=settle, cooldown=cooldown, window=window)
    with _problems_shown(), owned(journal):
        _run(
            partial(_watch, server, scope, beside_drs, journal, settings, _say_json if json_wanted else _say)
        )


def _run(function: Callable[[], Any]) -> Any:
    """Raises the first of several errors."""
    import trio

    try:
        return trio.run(function)
    except BaseExceptionGroup as error:
        raise first_error(error) from error


@contextmanager
def _problems_shown() -> Iterator[None]:
    """Errors of vCenter and of policies in one line."""
    from mgmt.errors import PolicyError
    from orchestrators.vsphere.errors import VsphereError
    from rota.commands.policies.workbench import PolicyProblem

    try:
        yield
    except VsphereError as error:
        raise AgentError(str(error)) from error
    except PolicyError as error:
        raise PolicyProblem(str(error)) from error


def _say(text: str) -> None:
    click.echo(text, err=True)


def _say_json(text: str) -> None:
    click.echo(json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), "text": text}))


async def _seen(server: Server) -> Inventory:
    async with server.connected(_say) as vcenter:
        inventory, _ = await vcenter.look()
        return inventory


def _save_dump(inventory: Inventory, path: Path) -> None:
    from orchestrators.vsphere.inventory import save

    try:
        save(inventory, path)
    except OSError as error:
        raise AgentError(f"cannot write {path}: {error.strerror or error}") from error


def _chosen(inventory: Inventory, scope: Scope) -> list[Inventory]:
    """The clusters that are wanted, each by itself."""
    names = [cluster.name for cluster in inventory.clusters]
    for name in scope.clusters:
        if name not in names:
            raise UsageProblem(f"there is no cluster {name!r}: there are {', '.join(names) or 'none'}")
    try:
        inventory = inventory.with_evacuated(scope.evacuate)
    except KeyError as error:
        raise UsageProblem(f"there is no host {error.args[0]!r} in a cluster") from error
    parts = [inventory.part(name) for name in scope.clusters or names]
    return [part for part in parts if part.machines]


def _answer(inventory: Inventory, scope: Scope, questions: Questions, json_wanted: bool) -> None:
    """The plans, or the answer to the question."""
    from orchestrators.vsphere.planning import Planner
    from rota.commands.orchestrators.vsphere.questions import answer
    from rota.commands.orchestrators.vsphere.report import plan_document, show_plans

    planner = Planner()
    parts = _chosen(inventory, scope)
    if questions:
        answer(planner, parts, scope.settings, questions, json_wanted)
        return
    plans = [(_planned(planner, part, scope, json_wanted), part.clusters[0]) for part in parts]
    emit({"plans": [plan_document(each) for each, _ in plans]}, json_wanted, lambda _: show_plans(plans))


def _planned(planner: Planner, part: Inventory, scope: Scope, json_wanted: bool, **more: Any) -> Plan:
    """Raises ReportedFailure, with the rules that clash shown."""
    from mgmt.errors import InfeasibleError
    from rota.commands.policies.documents import infeasible_document
    from rota.commands.policies.report import in_one_line, show_infeasible

    try:
        return planner.plan(part, scope.settings, **more)
    except InfeasibleError as error:
        failure = error
    failure.relaxations_within(scope.settings.budget)
    emit(infeasible_document(failure), json_wanted, lambda _: show_infeasible(failure))
    raise ReportedFailure(f"cluster {part.clusters[0].name}: {in_one_line(failure)}")


async def _apply(
    server: Server, scope: Scope, beside_drs: bool, journal: Path, json_wanted: bool
) -> list[Migrations]:
    import trio

    from orchestrators.vsphere.ownership import require_single_master
    from orchestrators.vsphere.planning import Planner

    planner = Planner()
    done: list[Migrations] = []
    async with server.connected(_say) as vcenter:
        parts = _chosen(await _looked(vcenter, _say), scope)
        require_single_master((part.clusters[0] for part in parts), beside_drs=beside_drs)
        await _go_on(vcenter, scope, journal, _say)
        for name in [part.clusters[0].name for part in parts]:
            now = _chosen(
                await _looked(vcenter, _say), scope
            )  # the moves of another cluster may have taken long
            part = next((part for part in now if part.clusters[0].name == name), None)
            if part is None:
                continue
            require_single_master(part.clusters, beside_drs=beside_drs)
            found = await trio.to_thread.run_sync(_planned, planner, part, scope, json_wanted)
            done.append(await _carried_out(vcenter, part, found, scope, journal, _say))
            if done[-1].cancelled:
                break
    return done


async def _looked(vcenter: VCenter, tell: Tell, wait: float = 0.0) -> Inventory:
    """The state, once vCenter can be reached."""
    from orchestrators.vsphere.errors import UnreachableError

    while True:
        try:
            inventory, _ = await vcenter.look(wait)
        except UnreachableError as error:
            tell(str(error))
            await vcenter.reconnect()
        else:
            return inventory


async def _go_on(vcenter: VCenter, scope: Scope, journal: Path, tell: Tell) -> None:
    """With what an earlier run had begun."""
    import msgspec

    from orchestrators.vsphere.execution import read_journal
    from orchestrators.vsphere.migrations import Migrations

    kept = read_journal(journal, vcenter.id)
    if kept is None:
        return
    inventory, now = await _looked(vcenter, tell), time.time()
    try:
        journals = [
            Migrations.resumed(kept, part, now, scope.settings.budgets)
            for part in (inventory.part(cluster.name) for cluster in inventory.clusters)
        ]
    except msgspec.DecodeError as error:
        raise AgentError(f"{journal} is no journal of rota vsphere: {error}; remove it") from error
    for migrations in journals:
        names = {machine.name for machine in migrations.inventory.machines}
        migrations.entries = [entry for entry in migrations.entries if entry.machine in names]
        if not migrations.entries:
            continue  # it was of another cluster
        tell(f"going on with {len(migrations.under_way)} migrations of an earlier run")
        await _until_ended(vcenter, migrations, journal, tell)
        if migrations.cancelled:
            raise KeyboardInterrupt


async def _carried_out(
    vcenter: VCenter, part: Inventory, found: Plan, scope: Scope, journal: Path, tell: Tell
) -> Migrations:
    """A plan, until it has ended or is cancelled by Ctrl-C."""
    from orchestrators.vsphere.migrations import Entry, Migrations, State

    moves = [step.move for step in found.order.steps]
    migrations = Migrations.of(moves, part, scope.settings.budgets)
    for move, why in found.order.left_out:
        tell(f"{move.machine}: left out: {why}")
        migrations.entries.append(Entry(*move, State.LEFT_OUT, why=why))
    await _until_ended(vcenter, migrations, journal, tell)
    return migrations


async def _until_ended(vcenter: VCenter, migrations: Migrations, journal: Path, tell: Tell) -> None:
    """Or until Ctrl-C has cancelled them.  Raises KeyboardInterrupt for a second one."""
    import trio

    from orchestrators.vsphere.execution import carry_out

    async def cancel_on_signal() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if migrations.cancelled:
                    raise KeyboardInterrupt
                tell("cancelling what is under way; once more, and it is left to vCenter")
                migrations.cancel(time.time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_on_signal)
        await carry_out(vcenter, migrations, tell=tell, journal=journal)
        nursery.cancel_scope.cancel()


async def _watch(
    server: Server, scope: Scope, beside_drs: bool, journal: Path, settings: Any, tell: Tell
) -> None:
    import trio

    from orchestrators.vsphere.balance_loop import BalanceLoop
    from orchestrators.vsphere.ownership import require_single_master
    from orchestrators.vsphere.planning import Planner

    planner = Planner()
    loops: dict[str, BalanceLoop] = {}
    async with server.connected(tell) as vcenter:
        parts = _chosen(await _looked(vcenter, tell), scope)
        require_single_master((part.clusters[0] for part in parts), beside_drs=beside_drs)
        await _go_on(vcenter, scope, journal, tell)
        moved = ""
        while True:
            inventory = await _looked(vcenter, tell, settings.sample)
            parts = _chosen(inventory, _with_hosts_of(inventory, scope))
            require_single_master((part.clusters[0] for part in parts), beside_drs=beside_drs)
            parts.sort(
                key=lambda part: part.clusters[0].name == moved
            )  # no cluster keeps another one waiting
            for part in parts:
                name = part.clusters[0].name
                loop = loops.setdefault(name, BalanceLoop(settings))
                if await _watch_once(vcenter, planner, loop, part, scope, journal, tell):
                    moved = name
                    break  # that has taken a while: the others are looked at anew
            await trio.sleep(1)  # vCenter may have something new at any moment


def _with_hosts_of(inventory: Inventory, scope: Scope) -> Scope:
    """Without hosts to be emptied that have been removed meanwhile."""
    known = {host.name for host in inventory.hosts}
    return replace(scope, evacuate=tuple(name for name in scope.evacuate if name in known))


async def _watch_once(
    vcenter: VCenter,
    planner: Planner,
    loop: BalanceLoop,
    part: Inventory,
    scope: Scope,
    journal: Path,
    tell: Tell,
) -> bool:
    """Whether machines were moved."""
    import trio

    from mgmt import PolicyError
    from orchestrators.vsphere.pack_rows import ContradictoryRulesError

    now, name = time.time(), part.clusters[0].name
    part = loop.observed(part, now)
    if not loop.is_due(part, now):
        return False

    def made(state: Inventory, balance: bool) -> Plan:
        return planner.plan(state, scope.settings, loop.samples, balance=balance)

    try:
        found = await trio.to_thread.run_sync(loop.planned, part, now, made)
    except (PolicyError, ContradictoryRulesError) as error:
        tell(f"{name}: {error}")
        return False
    why = loop.why_not_yet(found, time.time())
    if why:
        tell(f"{name}: {why}")
        return False
    migrations = await _carried_out(vcenter, part, found, scope, journal, tell)
    loop.carried_out(migrations.entries, time.time())
    if migrations.cancelled:
        raise KeyboardInterrupt
    return True


def _entries(migrations: Migrations) -> list[dict[str, str]]:
    return [
        {
            "machine": entry.machine,
            "from": entry.source,
            "to": entry.destination,
            "state": str(entry.state),
            "why": entry.why,
        }
        for entry in migrations.entries
    ]


def _summary(entries: list[dict[str, str]]) -> str:
    done = sum(entry["state"] == "done" for entry in entries)
    return f"{done} of {len(entries)} moves done" if entries else "nothing to move"


COMMANDS = (vsphere,)

"""What ``rota vsphere`` prints: plans as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rota.terminal.output import table

if TYPE_CHECKING:
    from orchestrators.vsphere.inventory import Cluster
    from orchestrators.vsphere.planning import Balance, Plan

_MOST_MOVES = 50


def drs_warning(cluster: Cluster) -> str:
    return (
        f"{cluster.name}: DRS is fully automatic and would undo what rota moves: set it to manual, or "
        "say --beside-drs"
    )


def show_plans(plans: Sequence[tuple[Plan, Cluster]]) -> None:
    for plan, cluster in plans:
        _show_plan(plan, cluster)
    if not plans:
        click.echo("no cluster has a machine that is switched on")


def _show_plan(plan: Plan, cluster: Cluster) -> None:
    from orchestrators.vsphere.ownership import is_automatic

    moves, solution = len(plan.order.steps), plan.solution
    proven = "proven" if plan.is_proven else "not proven best"
    click.echo(
        f"cluster {plan.cluster}: {moves} {'move' if moves == 1 else 'moves'} in {plan.order.rounds} rounds, "
        f"{proven}, in {solution.seconds:.2f} s"
    )
    table(
        ("cpu of the hosts", "fullest", "emptiest", "deviation"),
        [("before", *_shares(plan.before)), ("after", *_shares(plan.after))],
    )
    if plan.held:
        click.echo(plan.held)
    shown = plan.order.steps[:_MOST_MOVES]
    if shown:
        table(
            ("round", "machine", "from", "to", "why"),
            [(step.round, *step.move, _why(plan, step)) for step in shown],
        )
    if moves > len(shown):
        click.echo(f"and {moves - len(shown)} more (--json has them all)")
    for move, reason in plan.order.left_out:
        click.echo(f"left out: {move.machine} to {move.destination}: {reason}")
    if is_automatic(cluster):
        click.echo(f"warning: {drs_warning(cluster)}")


def _shares(balance: Balance) -> tuple[str, ...]:
    return tuple(f"{100 * share:.1f} %" for share in (balance.highest, balance.lowest, balance.deviation))


def _why(plan: Plan, step: Any) -> str:
    if step.detour:
        return "makes room for others"
    return plan.required.get(step.move.machine, "balance")


def plan_document(plan: Plan) -> dict[str, Any]:
    from rota.commands.policies.documents import solution_document

    return {
        "cluster": plan.cluster,
        "proven": plan.is_proven,
        "before": _document(plan.before),
        "after": _document(plan.after),
        "held": plan.held,
        "moves": [
            {
                "round": step.round,
                "machine": step.move.machine,
                "from": step.move.source,
                "to": step.move.destination,
                "required": step.move.machine in plan.required or step.detour,
                "why": _why(plan, step),
            }
            for step in plan.order.steps
        ],
        "left_out": [
            {"machine": move.machine, "from": move.source, "to": move.destination, "why": why}
            for move, why in plan.order.left_out
        ],
        "objectives": solution_document(plan.solution, ())["objectives"],
        "seconds": plan.solution.seconds,
    }


def _document(balance: Balance) -> dict[str, float]:
    return {"highest": balance.highest, "lowest": balance.lowest, "deviation": balance.deviation}

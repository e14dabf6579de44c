"""What ``rota kube simulate`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from rota.terminal.output import table

if TYPE_CHECKING:
    from mgmt import Headroom
    from orchestrators.kubernetes.rebalancing import Rebalancing
    from orchestrators.kubernetes.simulation import Simulation


def document(simulation: Simulation) -> Mapping[str, Any]:
    """For programs."""
    placement = simulation.placement
    return {
        "bound": [{"pod": "/".join(key), "node": node} for key, node in sorted(placement.bound.items())],
        "left_out": [
            {"pod": "/".join(key), "reason": why} for key, why in sorted(simulation.reasons.items())
        ],
        "preemptions": [
            {
                "pod": "/".join(key),
                "node": each.node,
                "victims": ["/".join(victim) for victim in each.victims],
            }
            for key, each in sorted(placement.preemptions.items())
        ],
        "status": None if placement.solution is None else str(placement.solution.status),
        "objectives": [
            {"name": each.name, "value": each.after, "bound": each.bound, "proven": each.proven}
            for each in (() if placement.solution is None else placement.solution.objectives)
        ],
    }


def show(simulation: Simulation) -> None:
    """For people: where each pod goes, and the reasons of those that go nowhere, the same ones once."""
    bound = simulation.placement.bound
    if bound:
        table(("pod", "node"), [("/".join(key), node) for key, node in sorted(bound.items())])
    shared = Counter(simulation.reasons.values())
    for reason, number in shared.most_common():
        name = "/".join(min(key for key, why in simulation.reasons.items() if why == reason))
        others = f" and {number - 1} more" if number > 1 else ""
        click.echo(f"{name}{others}: {reason}")
    solution = simulation.placement.solution
    status = "" if solution is None else f", {solution.status}"
    click.echo(f"{len(bound)} of {simulation.pending} pods have a node{status}")


def headroom_document(room: Headroom) -> Mapping[str, Any]:
    return {
        "count": room.count,
        "exact": room.exact,
        "core": [member.constraint for member in room.core],
    }


def show_headroom(pod: str, room: Headroom) -> None:
    least = "" if room.exact else "at least "
    why = f"; then {', '.join(member.constraint for member in room.core)} forbids it" if room.core else ""
    click.echo(f"{least}{room.count} more pods like {pod} fit{why}")


def rebalancing_document(found: Rebalancing) -> Mapping[str, Any]:
    return {
        "evictions": [
            {"pod": "/".join(each.pod), "node": each.node, "to": each.to} for each in found.evictions
        ],
        "movable": found.movable,
        "proven": found.proven,
        "objectives": [
            {"name": each.name, "before": each.before, "after": each.after} for each in found.objectives
        ],
    }


def show_rebalancing(found: Rebalancing) -> None:
    """The evictions, and what each objective was and would be."""
    if found.evictions:
        table(
            ("evict", "from", "so that it goes to"),
            [("/".join(e.pod), e.node, e.to) for e in found.evictions],
        )
    changed = [each for each in found.objectives if each.before != each.after]
    table(("", "before", "after"), [(each.name, each.before, each.after) for each in changed])
    status = "proven" if found.proven else "the best that was found in the time given"
    click.echo(f"{len(found.evictions)} evictions of {found.movable} pods that may move, {status}")

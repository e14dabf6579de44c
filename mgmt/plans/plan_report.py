"""A plan as people and programs read it (``rota plan``)."""

from __future__ import annotations

from typing import Any, Final

from datastore_adapter.interface import StepGraph
from mgmt.plans.duration_estimate import TransferSpeeds
from mgmt.plans.moves import Move
from mgmt.plans.plan import Plan, PlanKind
from mgmt.plans.wave_planning import LeftOut


def plan_to_json(
    plan: Plan, steps: StepGraph | None = None, speeds: TransferSpeeds | None = None
) -> dict[str, Any]:
    """One JSON document; ``steps`` are those of the first wave, ``speeds`` what the time is estimated by."""
    document: dict[str, Any] = {
        "plan_id": plan.plan_id,
        "digest": plan.digest,
        "kind": str(plan.kind),
        "view_epoch": plan.view_epoch,
        "layout_epoch": plan.layout_epoch,
        "moves": [
            {
                "segment": move.segment,
                "from": move.source,
                "from_rack": move.source_rack,
                "to": move.destination,
                "to_rack": move.destination_rack,
                "required": move.required,
                "why": move.why,
                "bytes": move.bytes,
            }
            for move in plan.moves
        ],
        "primaries": [
            {"segment": change.segment, "from": change.old, "to": change.new, "required": change.required}
            for change in plan.primaries
        ],
        "roles": [
            {"role": change.role, "host": change.host, "change": "add" if change.added else "remove"}
            for change in plan.roles
        ],
        "slots": [
            {"from": move.source, "to": move.destination, "slots": move.slots, "bytes": move.bytes}
            for move in plan.slots
        ],
        "retirements": [
            {"segment": change.segment, "retired": change.retired} for change in plan.retirements
        ],
        "required_moves": plan.required_moves,
        "optional_moves": plan.optional_moves,
        "bytes": plan.bytes,
        "waves": len(plan.waves),
        "required_waves": plan.required_waves,
        "seconds": (speeds or TransferSpeeds()).seconds(plan.loads),
        "violations": {
            "now": plan.now.to_json(),
            "during": plan.during.to_json(),
            "after": plan.after.to_json(),
        },
        "dangers": [str(danger) for danger in plan.dangers],
        "exchanges": [
            {"wave": number, "segments": list(segments)}
            for number, segments in enumerate(plan.exchanges, 1)
            if segments
        ],
        "thawed": list(plan.thawed),
        "left_out": [
            {"segment": left.moves[0].segment, "moves": len(left.moves), "why": _why(left)}
            for left in plan.left_out
            if left.moves
        ],
    }
    if steps is not None:
        document["steps"] = [
            {
                "number": step.number,
                "kind": step.kind,
                "description": step.description,
                "after": sorted(step.after),
                "segment": step.segment,
                "from": step.source,
                "to": step.destination,
                "bytes": step.bytes,
                "reversible": step.reversible,
            }
            for step in steps.steps
        ]
    return document


def describe_move(move: Move) -> str:
    """``s03  - n3 (r2)  + n7 (r1)  required: n3 is gone, 12 bytes``."""
    leaves = f"- {move.source} ({move.source_rack})" if move.source is not None else ""
    comes = f"+ {move.destination} ({move.destination_rack})" if move.destination is not None else ""
    need = "required" if move.required else "optional"
    return f"{move.segment}  {leaves:<18}{comes:<18}{need}: {move.why}, {move.bytes} bytes"


def plan_to_text(plan: Plan, steps: StepGraph | None = None, speeds: TransferSpeeds | None = None) -> str:
    """The plan for a terminal."""
    not_made = left_out(plan)
    if plan.is_empty:
        return not_made or "nothing to do: the placement is what the policies want"
    lines = [summary(plan)]
    lines += [describe_move(move) for move in plan.moves]
    lines += [
        f"{change.segment}  primary {change.old} -> {change.new}{'' if change.required else '  (optional)'}"
        for change in plan.primaries
    ]
    lines += [
        f"{move.slots} slots  {move.source or 'nowhere'} -> {move.destination}  about {move.bytes} bytes"
        for move in plan.slots
    ]
    lines += [f"{change.role}  {'+' if change.added else '-'} {change.host}" for change in plan.roles]
    lines += [
        f"{change.segment}  takes {'no more records' if change.retired else 'records again'}"
        for change in plan.retirements
    ]
    lines += [not_made] if not_made else []
    lines += [
        f"{host} came back a short while ago, and receives lost copies all the same: no other host can"
        for host in plan.thawed
    ]
    lines += [
        f"wave {number} is an exchange, for no host has a server to spare: {', '.join(segments)} have a complete copy "
        "fewer until it is done"
        for number, segments in enumerate(plan.exchanges, 1)
        if segments
    ]
    lines += [f"at risk, and done all the same: {danger}" for danger in plan.dangers]
    checks = (("now", plan.now), ("at worst during", plan.during), ("after", plan.after))
    lines.append(
        "violations "
        + "; ".join(
            f"{when}: {check.rack_violations} rack, {check.under_replicated} under-replicated"
            for when, check in checks
        )
    )
    waves, seconds = plan.waves, (speeds or TransferSpeeds()).seconds(plan.loads)
    for number, load in enumerate(plan.loads, 1) if len(waves) > 1 else ():
        what = "required" if number <= plan.required_waves else "balance"
        lines.append(f"wave {number} ({what}): {sum(load.values())} bytes to {len(load)} hosts")
    lines.append(f"about {max(1, round(seconds))} s")
    for step in steps.steps if steps is not None else ():
        if not step.reversible:
            lines.append(f"cannot be undone: {step.description}")
    return "\n".join(lines)


def left_out(plan: Plan) -> str:
    """The moves that are safe in no order, a line for each segment."""
    return "\n".join(
        f"left out: {len(left.moves)} moves of {left.moves[0].segment}, safe in no order: {_why(left)}"
        for left in plan.left_out
        if left.moves
    )


def _why(left: LeftOut) -> str:
    return "; ".join(str(danger) for danger in left.dangers)


_KINDS: Final = {
    PlanKind.RESUMED: "agreed before",
    PlanKind.AVAILABILITY: "only lost hosts are taken out",
    PlanKind.PAUSED: "only lost hosts are taken out",
    PlanKind.UNDO: "back to what stood before",
}


def summary(plan: Plan) -> str:
    """One line: ``plan p3-n1: 3 required moves, 1 primary change, 2627 bytes to copy, 1 wave``."""
    counts = (
        (plan.required_moves, "required move"),
        (plan.optional_moves, "optional move"),
        (len(plan.primaries), "primary change"),
        (len(plan.roles), "role change"),
        (len(plan.retirements), "retirement change"),
    )
    told = [f"{number} {what}{'' if number == 1 else 's'}" for number, what in counts if number]
    if plan.slots:
        told.append(f"{sum(move.slots for move in plan.slots)} slots to move")
    told.append(f"{plan.bytes} bytes to copy" if plan.bytes else "nothing to copy")
    told.append("1 wave" if len(plan.waves) == 1 else f"{len(plan.waves)} waves")
    kind = f" ({_KINDS[plan.kind]})" if plan.kind in _KINDS else ""
    thawed = (
        f"; only {', '.join(plan.thawed)} can take lost copies, though back for so short"
        if plan.thawed
        else ""
    )
    return f"plan {plan.agreed_as}{kind}: {', '.join(told)}{thawed}"

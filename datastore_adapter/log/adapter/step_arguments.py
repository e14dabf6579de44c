"""What a step of the log says, read back from its arguments: pure functions."""

from __future__ import annotations

import json

from datastore_adapter.interface import Step
from datastore_adapter.log.adapter.lowering import COPY
from datastore_adapter.log.layout.change import LayoutTarget


def identity_of(step: Step) -> str:
    """Equal for equal steps of any plan: what a step does is what it is."""
    return json.dumps(
        [step.number, step.kind, step.segment, step.source, step.destination, step.arguments],
        sort_keys=True,
        default=list,
    )


def hosts_needed(step: Step) -> set[str]:
    if step.kind == COPY:
        return {step.destination} if step.destination else set()
    hosts = {host for chain in chains_of(step).values() for host in chain}
    for names in step.arguments.get("roles", {}).values():
        hosts.update(names)
    return hosts


def chains_of(step: Step) -> dict[str, tuple[str, ...]]:
    return {key: tuple(hosts) for key, hosts in step.arguments.get("segments", {}).items()}


def target_of(step: Step) -> LayoutTarget:
    roles = step.arguments["roles"]
    return LayoutTarget(
        chains_of(step),
        tuple(roles["layout_servers"]),
        tuple(roles["sequencers"]),
        tuple(roles["log_units"]),
        frozenset(step.arguments.get("retired", ())),
    )


def unreliable_of(step: Step) -> frozenset[str]:
    """Hosts whose disks are not in order: the step does without them if they are in its way."""
    return frozenset(step.arguments.get("unreliable", ()))

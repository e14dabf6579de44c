"""Adoption of an engine that somebody else has set up: its shards become the intent, as they are found.  Pure."""

from __future__ import annotations

from dataclasses import replace

from datastore_adapter.interface import Observation, Placement, Step, StepGraph
from mgmt.errors import IntentError
from mgmt.placement.fallback_placement import enough_layout_servers
from mgmt.placement.hash_slot_assignment import fault_of
from mgmt.placement.hosts import HostView
from mgmt.placement.intent import Intent
from mgmt.placement.placement_rows import standing_chain


def adopted(intent: Intent, observation: Observation, slots: int) -> Intent:
    """The intent with the segments that are there, and with their slots where there are any.

    ``slots``: into how many the engine divides its keys.  Raises :class:`IntentError` for an engine that cannot be
    adopted as it is.
    """
    found = [segment for segment in observation.segments if segment.slots or not slots]
    if not found:
        raise IntentError("there is nothing to adopt yet: the engine shows no segment")
    found_intent = replace(intent, segments=tuple(sorted(segment.key for segment in found)), slots=())
    if not slots:
        return found_intent
    held = {segment.key: segment.slots for segment in found}
    if fault := fault_of(held, slots):
        raise IntentError(f"the engine cannot be adopted as it is: {fault}")
    return found_intent.with_slots(held)


def only_roles(view: HostView, observation: Observation) -> Placement:
    """Every segment as it is, lost hosts and all, and enough live layout servers."""
    chains = {segment.key: standing_chain(segment) for segment in observation.segments}
    roles = observation.roles
    return Placement(chains, replace(roles, layout_servers=enough_layout_servers(view, roles.layout_servers)))


def without_segments(graph: StepGraph) -> StepGraph:
    """The steps that are about no segment, and wait for none that is."""
    kept: list[Step] = []
    numbers: set[int] = set()
    for step in graph.steps:
        if step.segment is None and step.destination is None and step.after <= numbers:
            kept.append(step)
            numbers.add(step.number)
    return StepGraph(tuple(kept))

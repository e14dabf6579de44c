"""The intent: what operators have asked for, the part of the epoch document that is the control loop's.

It is agreed with the layout by compare-and-set, so a request that was acknowledged survives every
controller.  The last plan agreed stands in it too, so that a new controller can go on with it or put
another in its place.  Which of its *steps* are done is not written down: the engine itself is the record
of that (``observe``), and a second record could only disagree with it.

This is not the state of the cluster (``mgmt.placement.placement_rows``) and decides nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, TypeGuard

from datastore_adapter.interface import Placement, ServiceRoles, SlotRange
from mgmt.errors import IntentError
from mgmt.placement.flap_damping import Freeze
from mgmt.placement.hash_slot_assignment import Slots, even, fault_of, resized

VERSION = 1
LARGEST_REPLICATION_FACTOR = 16
LONGEST_NAME = 255
MOST_SEGMENTS = 4096
LONGEST_POLICY = 1 << 20  # characters


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """The rules that decide the placement: a pack by name, and further policies in SQL as (name, text)."""

    pack: str = "datastore"
    texts: tuple[tuple[str, str], ...] = ()


class Order(StrEnum):
    """Who wants a plan.  What an operator ordered is carried out while the loop is paused, too."""

    NONE = "none"  # the loop itself
    APPLY = "apply"
    ABORT = "abort"  # the way back from another plan


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan as agreed in the epoch document: in flight while the engine does not yet hold ``target``."""

    plan_id: str
    controller: str
    view_epoch: int
    target: Placement
    previous: Placement | None = None
    """What stood when it was made, so that it can be undone; None if nothing was placed before, or for an abort."""
    order: Order = Order.NONE


@dataclass(frozen=True, slots=True)
class Intent:
    """Validated on the way in; it is changed by the ``with_`` methods."""

    segments: tuple[str, ...]
    """Keys of the wanted segments, sorted."""
    replication_factor: int = 3
    expect: int = 1
    """Hosts that must be in the view before the first placement is made."""
    policies: PolicyChoice = PolicyChoice()
    drains: tuple[str, ...] = ()
    """Hosts to be emptied, sorted.  A name stays until it is undrained, also while the host is away."""
    plan: PlanRecord | None = None
    paused: bool = False
    """Nothing moves data, but for a plan that an operator ordered; lost hosts are still taken out."""
    observing: bool = False
    """Somebody else set the engine up: nothing of it is changed until an operator says so, and the rest of the intent
    follows what is found."""
    freezes: tuple[Freeze, ...] = ()
    """Hosts that came back, sorted by name."""
    pins: tuple[tuple[str, str], ...] = ()
    """(segment, host), sorted: a copy of the segment stays on the host, as long as the host is there."""
    moved_at: float = 0.0
    """Unix seconds when the last plan with moves for balance was agreed."""
    slots: tuple[tuple[str, tuple[SlotRange, ...]], ...] = ()
    """Which slots each segment is to hold, sorted by key, each slot in one of them; empty where the engine has none."""
    restoring: str = ""
    """The digest of the backup that is being put back into the log; empty when there is none."""
    others: tuple[tuple[str, Any], ...] = ()
    """Fields that this version does not know, sorted by name: they are a later version's, and go on as they are."""

    @classmethod
    def initial(
        cls, segment_count: int, replication_factor: int = 3, expect: int = 1, pack: str = "datastore"
    ) -> Intent:
        """The intent a cluster starts with: segments ``s00``, ``s01``, … and one policy pack."""
        width = max(2, len(str(segment_count - 1)))
        keys = tuple(f"s{index:0{width}d}" for index in range(segment_count))
        return cls(keys, replication_factor, expect, PolicyChoice(pack))

    def with_segments(self, count: int) -> Intent:
        """The same intent for a log of so many segments: those there are come first, in order of number."""
        keys = sorted(self.segments, key=lambda key: (len(key), key))[:count]
        names = (f"s{index:02d}" for index in itertools.count())
        fresh = (name for name in names if name not in self.segments)
        keys += itertools.islice(fresh, count - len(keys))
        return replace(self, segments=tuple(sorted(keys)))._with_slots_for(keys)

    def _with_slots_for(self, keys: Sequence[str]) -> Intent:
        return self.with_slots(resized(dict(self.slots), keys)) if self.slots else self

    def with_slots(self, slots: Slots) -> Intent:
        """``slots``: of every segment."""
        return replace(self, slots=tuple(sorted((key, tuple(ranges)) for key, ranges in slots.items())))

    def with_even_slots(self, count: int) -> Intent:
        """So many slots, shared out evenly; for an engine that holds nothing yet."""
        return self.with_slots(even(self.segments, count))

    def with_drain(self, host: str) -> Intent:
        return replace(self, drains=tuple(sorted({*self.drains, host})))

    def without_drain(self, host: str) -> Intent:
        return replace(self, drains=tuple(name for name in self.drains if name != host))

    def with_pin(self, segment: str, host: str) -> Intent:
        return replace(self, pins=tuple(sorted({*self.pins, (segment, host)})))

    def without_pin(self, segment: str, host: str) -> Intent:
        return replace(self, pins=tuple(pin for pin in self.pins if pin != (segment, host)))

    def with_paused(self, paused: bool) -> Intent:
        return replace(self, paused=paused)

    def with_observing(self, observing: bool) -> Intent:
        return replace(self, observing=observing)

    def with_plan(self, plan: PlanRecord | None) -> Intent:
        return replace(self, plan=plan)

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON-like data for the epoch document."""
        return {
            "version": VERSION,
            "segments": list(self.segments),
            "replication_factor": self.replication_factor,
            "expect": self.expect,
            "policies": {"pack": self.policies.pack, "texts": [list(pair) for pair in self.policies.texts]},
            "drains": list(self.drains),
            "plan": None if self.plan is None else _plan_to_mapping(self.plan),
            "paused": self.paused,
            "observing": self.observing,
            "freezes": [asdict(freeze) for freeze in self.freezes],
            "pins": [list(pin) for pin in self.pins],
            "moved_at": self.moved_at,
            "slots": _slots_to_mapping(dict(self.slots)),
            **({"restoring": self.restoring} if self.restoring else {}),
            **dict(self.others),
        }

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any], slots: int | None = None) -> Intent:
        """The inverse of :meth:`to_mapping`.  Raises :class:`IntentError` naming the field at fault.

        ``slots``: into how many the engine divides its keys, where that is known.
        """
        version = _whole(document, "version", 1, 1 << 31)
        if version != VERSION:
            raise IntentError(
                f"intent.version: {version} is not known here ({VERSION} is); upgrade this agent"
            )
        segments = _names(document, "segments")
        if list(segments) != sorted(set(segments)):
            raise IntentError("intent.segments: keys must be sorted and unique")
        plan = document.get("plan")
        return cls(
            segments=segments,
            replication_factor=_whole(document, "replication_factor", 1, LARGEST_REPLICATION_FACTOR),
            expect=_whole(document, "expect", 1, 1 << 20),
            policies=_policies_from(_mapping(document, "policies")),
            drains=tuple(sorted(set(_names(document, "drains")))),
            plan=None if plan is None else _plan_from(_mapping(document, "plan")),
            paused=_truth(document, "paused"),
            observing=_truth(document, "observing"),
            freezes=tuple(map(_freeze_from, _mappings(document, "freezes"))),
            pins=_pins_from(document),
            moved_at=_seconds(document, "moved_at"),
            slots=_wanted_slots(document, segments, slots),
            restoring=_text(document, "restoring", LONGEST_NAME) if "restoring" in document else "",
            others=tuple((name, document[name]) for name in sorted(set(document) - {*_FIELDS, "restoring"})),
        )


# Those of version 0.1, whose agents refuse any other: one that is added later is written down only where it says
# something.  `VERSION` goes up with what an agent that does not know it must not overlook.
_FIELDS = (
    "version", "segments", "replication_factor", "expect", "policies", "drains", "plan", "paused", "freezes",
    "pins", "moved_at", "slots", "observing",
)  # fmt: skip


def _plan_to_mapping(plan: PlanRecord) -> dict[str, Any]:
    previous = plan.previous
    return {
        "plan_id": plan.plan_id,
        "controller": plan.controller,
        "view_epoch": plan.view_epoch,
        **_placement_to_mapping(plan.target),
        # Only the chains that differ: a plan moves a few of many.
        "previous": None if previous is None else _placement_to_mapping(_difference(previous, plan.target)),
        "order": str(plan.order),
    }


def _difference(previous: Placement, target: Placement) -> Placement:
    changed = {key: hosts for key, hosts in previous.segments.items() if target.segments.get(key) != hosts}
    return replace(previous, segments=changed)


def _placement_to_mapping(placement: Placement) -> dict[str, Any]:
    roles = placement.roles
    return {
        "segments": {key: list(hosts) for key, hosts in placement.segments.items()},
        "layout_servers": list(roles.layout_servers),
        "sequencers": list(roles.sequencers),
        "log_units": list(roles.log_units),
        "retired": None if placement.retired is None else sorted(placement.retired),
        "slots": None if placement.slots is None else _slots_to_mapping(placement.slots),
    }


def _slots_to_mapping(slots: Slots) -> dict[str, list[list[int]]]:
    return {key: [list(pair) for pair in ranges] for key, ranges in slots.items()}


def _plan_from(document: Mapping[str, Any]) -> PlanRecord:
    where = "plan."
    target = _placement_from(document, where)
    previous = None
    if document.get("previous") is not None:
        changed = _placement_from(_mapping(document, "previous", where), f"{where}previous.")
        previous = replace(changed, segments={**target.segments, **changed.segments})
    order = document.get("order", Order.NONE)
    if order not in list(Order):
        raise IntentError(f"intent.plan.order: {order!r:.40} is not known here; upgrade this agent")
    return PlanRecord(
        plan_id=_text(document, "plan_id", LONGEST_NAME, where),
        controller=_text(document, "controller", LONGEST_NAME, where),
        view_epoch=_whole(document, "view_epoch", -1, 1 << 62, where),
        target=target,
        previous=previous,
        order=Order(order),
    )


def _placement_from(document: Mapping[str, Any], where: str) -> Placement:
    segments = _mapping(document, "segments", where)
    roles = ServiceRoles(*(_names(document, f, where) for f in ("layout_servers", "sequencers", "log_units")))
    retired = None if document.get("retired") is None else frozenset(_names(document, "retired", where))
    chains = {key: _names(segments, key, f"{where}segments.") for key in segments}
    slots = None if document.get("slots") is None else _slots_from(document, where)
    return Placement(chains, roles, retired, slots)


def _wanted_slots(
    document: Mapping[str, Any], segments: Sequence[str], count: int | None
) -> tuple[tuple[str, tuple[SlotRange, ...]], ...]:
    slots = _slots_from(document, "") if document.get("slots") else {}
    for key in sorted(slots):
        if key not in segments:
            raise IntentError(f"intent.slots: {key[:40]!r} is no segment")
    if slots and (fault := fault_of(slots, count)):
        raise IntentError(f"intent.slots: {fault}")
    return tuple(sorted(slots.items()))


def _slots_from(document: Mapping[str, Any], where: str) -> dict[str, tuple[SlotRange, ...]]:
    slots = _mapping(document, "slots", where)
    for key, ranges in slots.items():
        if not _is_list(ranges) or not all(map(_is_slot_range, ranges)):
            raise IntentError(f"intent.{where}slots.{key[:40]}: a list of [first, last] slots is needed")
    return {key: tuple((first, last) for first, last in ranges) for key, ranges in slots.items()}


def _is_slot_range(value: object) -> bool:
    return _is_list(value) and len(value) == 2 and all(type(slot) is int and slot >= 0 for slot in value)


def _freeze_from(document: Mapping[str, Any]) -> Freeze:
    where = "freezes."
    return Freeze(
        host=_text(document, "host", LONGEST_NAME, where),
        returns=_whole(document, "returns", 1, 1 << 31, where),
        view_epoch=_whole(document, "view_epoch", 0, 1 << 62, where),
        since=_seconds(document, "since", where),
        until=_seconds(document, "until", where),
    )


def _pins_from(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    pins: set[tuple[str, str]] = set()
    value = document.get("pins", ())
    for pin in value if _is_list(value) else (None,):
        if not _is_list(pin) or len(pin) != 2 or not all(isinstance(name, str) and name for name in pin):
            raise IntentError("intent.pins: a list of [segment, host] pairs is needed")
        pins.add((pin[0], pin[1]))
    return tuple(sorted(pins))


def _mappings(document: Mapping[str, Any], field: str) -> Sequence[Mapping[str, Any]]:
    value = document.get(field, ())
    if not _is_list(value) or not all(isinstance(entry, Mapping) for entry in value):
        raise IntentError(f"intent.{field}: a list of mappings is needed")
    entries: Sequence[Mapping[str, Any]] = value
    return entries


def _seconds(document: Mapping[str, Any], field: str, where: str = "") -> float:
    value = document.get(field, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise IntentError(f"intent.{where}{field}: a time in Unix seconds is needed, not {value!r:.40}")
    return float(value)


def _truth(document: Mapping[str, Any], field: str) -> bool:
    value = document.get(field, False)
    if not isinstance(value, bool):
        raise IntentError(f"intent.{field}: true or false is needed, not {value!r:.40}")
    return value


def _policies_from(document: Mapping[str, Any]) -> PolicyChoice:
    texts = document.get("texts", ())
    if not _is_list(texts):
        raise IntentError("intent.policies.texts: a list of [name, SQL] pairs is needed")
    pairs: list[tuple[str, str]] = []
    for pair in texts:
        if not _is_list(pair) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise IntentError("intent.policies.texts: a list of [name, SQL] pairs is needed")
        if len(pair[1]) > LONGEST_POLICY:
            raise IntentError(
                f"intent.policies.texts: {pair[0][:40]!r} is longer than {LONGEST_POLICY} characters"
            )
        pairs.append((pair[0], pair[1]))
    return PolicyChoice(_text(document, "pack", LONGEST_NAME, "policies."), tuple(pairs))


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _mapping(document: Mapping[str, Any], field: str, where: str = "") -> Mapping[str, Any]:
    value = document.get(field)
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise IntentError(f"intent.{where}{field}: a mapping is needed, not {type(value).__name__}")
    return value


def _names(document: Mapping[str, Any], field: str, where: str = "") -> tuple[str, ...]:
    value = document.get(field)
    if not _is_list(value):
        raise IntentError(f"intent.{where}{field}: a list of names is needed, not {type(value).__name__}")
    assert value is not None
    for name in value:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            raise IntentError(
                f"intent.{where}{field}: {str(name)[:40]!r} is not a name of 1 to {LONGEST_NAME} characters"
            )
    return tuple(value)


def _text(document: Mapping[str, Any], field: str, longest: int, where: str = "") -> str:
    value = document.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise IntentError(f"intent.{where}{field}: a text of 1 to {longest} characters is needed")
    return value


def _whole(document: Mapping[str, Any], field: str, low: int, high: int, where: str = "") -> int:
    value = document.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise IntentError(
            f"intent.{where}{field}: a whole number from {low} to {high} is needed, not {value!r:.40}"
        )
    return value

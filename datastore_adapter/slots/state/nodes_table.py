"""What one server knows of its cluster: the answer to CLUSTER NODES, as values.

Source: Redis documentation, CLUSTER NODES ("Serialization format").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from datastore_adapter.slots.errors import MalformedReplyError
from datastore_adapter.slots.state.slot_ranges import SLOTS, Ranges, normalized, of_slots

LARGEST_TABLE = 4 << 20  # bytes

_ADDRESS = re.compile(r"^(?P<host>[^@,]*):(?P<port>\d+)(@(?P<bus>\d+))?(,(?P<name>[^,]*))?(,.*)?$", re.ASCII)
_NODE_ID = re.compile(r"^[0-9a-f]{40}$")
_OPEN_SLOT = re.compile(r"^\[(\d+)-([<>])-([0-9a-f]{40})\]$", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One line: what the server knows of one node."""

    node_id: str
    host: str
    port: int
    bus_port: int
    host_name: str
    """What the node announces; empty if nothing."""
    flags: frozenset[str]
    primary_id: str
    """Of whom it is a replica; empty: of nobody."""
    config_epoch: int
    slots: Ranges = ()
    migrating: Mapping[int, str] = field(default_factory=dict)
    """Slot -> node id of the receiver; each server tells its own only."""
    importing: Mapping[int, str] = field(default_factory=dict)
    """Slot -> node id of the giver."""

    @property
    def address(self) -> str:
        if not self.has_address:
            return "an unknown address"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_failed(self) -> bool:
        """Agreed to have failed by a majority of the primaries."""
        return "fail" in self.flags

    @property
    def is_suspect(self) -> bool:
        """It does not answer, or another server does at its address."""
        return not self.flags.isdisjoint({"fail", "fail?", "noaddr"})

    @property
    def is_known(self) -> bool:
        """It has answered once."""
        return "handshake" not in self.flags

    @property
    def has_address(self) -> bool:
        """False where another server answered at the one it had, until it says where it is now."""
        return "noaddr" not in self.flags

    @property
    def is_primary(self) -> bool:
        return not self.flags.isdisjoint({"master", "primary"})


@dataclass(frozen=True, slots=True)
class NodesTable:
    """All of it."""

    myself: str
    nodes: Mapping[str, NodeRecord]

    @property
    def me(self) -> NodeRecord:
        return self.nodes[self.myself]

    @property
    def open_slots(self) -> Ranges:
        """Slots that are on their way to or from it, key by key."""
        return of_slots({*self.me.migrating, *self.me.importing})


def parse_nodes(answer: object) -> NodesTable:
    """Raises :class:`MalformedReplyError`."""
    if not isinstance(answer, bytes) or len(answer) > LARGEST_TABLE:
        raise MalformedReplyError("the answer to CLUSTER NODES is no text, or too long")
    nodes: dict[str, NodeRecord] = {}
    myself = ""
    for line in answer.decode("utf-8", "replace").split("\n"):
        if not line.strip():
            continue
        record = _record(line)
        nodes[record.node_id] = record
        if "myself" in record.flags:
            myself = record.node_id
    if not myself:
        raise MalformedReplyError("the answer to CLUSTER NODES does not say which node answers")
    return NodesTable(myself, nodes)


def _record(line: str) -> NodeRecord:
    fields = line.split()
    place = _ADDRESS.match(fields[1]) if len(fields) >= 8 else None
    if place is None or not _NODE_ID.match(fields[0]) or not _is_number(fields[6]):
        raise MalformedReplyError(f"CLUSTER NODES: {line[:80]!r} is no line of a node")
    ranges: list[tuple[int, int]] = []
    migrating: dict[int, str] = {}
    importing: dict[int, str] = {}
    for entry in fields[8:]:
        held = _OPEN_SLOT.match(entry)
        if held is not None:
            (migrating if held[2] == ">" else importing)[_slot(held[1], line)] = held[3]
            continue
        first, _, last = entry.partition("-")
        ranges.append((_slot(first, line), _slot(last or first, line)))
    return NodeRecord(
        node_id=fields[0],
        host=place["host"].strip("[]"),
        port=int(place["port"]),
        bus_port=int(place["bus"] or int(place["port"]) + 10000),
        host_name=place["name"] or "",
        flags=frozenset(fields[2].split(",")),
        primary_id="" if fields[3] == "-" else fields[3],
        config_epoch=int(fields[6]),
        slots=normalized(ranges),
        migrating=migrating,
        importing=importing,
    )


def _slot(text: str, line: str) -> int:
    if not _is_number(text) or int(text) >= SLOTS:
        raise MalformedReplyError(f"CLUSTER NODES: {text[:20]!r} in {line[:80]!r} is no slot")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()

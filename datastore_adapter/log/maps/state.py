"""The replicated map as a state machine: commands in order of address in, their outcomes and a map out.

Pure.  Two replicas that applied the same records hold the same map and told the same outcomes, whatever their
settings and whatever else stood in the stream.
Source: F. Schneider, *Implementing Fault-Tolerant Services Using the State Machine Approach*, 1990.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from datastore_adapter.log.errors import ProtocolError
from datastore_adapter.log.maps.records import Command, Put, Replace, decode

COMMAND_OVERHEAD: Final = 128
"""Bytes that a command counts beside its payload: what the log adds to it on disk and in memory."""


class Outcome(Enum):
    """What came of a command."""

    DONE = "done"
    ABSENT = "absent"
    """Nothing to delete."""
    MISMATCH = "mismatch"
    """The key held something else than expected."""
    FULL = "full"
    """The map would have grown beyond its limit."""


@dataclass(frozen=True, slots=True)
class Applied:
    id: bytes
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Frozen:
    """The map at one moment, for a snapshot."""

    position: int
    written: int
    values: Mapping[str, bytes]


class MapState:
    """The map as of `position`: every command below that address is applied, none from there on."""

    def __init__(self, frozen: Frozen | None = None) -> None:
        self.values: dict[str, bytes] = {} if frozen is None else dict(frozen.values)
        self.position = 0 if frozen is None else frozen.position
        self.written = 0 if frozen is None else frozen.written
        """Bytes of all commands since the map began, `COMMAND_OVERHEAD` included: the same on all replicas."""
        self.bytes = sum(_size(key, value) for key, value in self.values.items())
        """Of all keys and values."""
        self.counters: Counter[str] = Counter()

    def apply(self, address: int, payload: bytes) -> Applied | None:
        """Apply the record at `address`, which must be the next of the stream; None when it is no command.

        Raises MapVersionError.
        """
        assert address >= self.position, "records are applied in order, each once"
        try:
            record = decode(payload)
        except ProtocolError:
            record = None
        self.position = address + 1
        if not isinstance(record, Put | Replace):
            self.counters["foreign"] += 1  # somebody else writes into our stream; all replicas see it alike
            return None
        self.written += len(payload) + COMMAND_OVERHEAD
        outcome = self._carry_out(record)
        self.counters[outcome.value] += 1
        return Applied(record.id, outcome)

    def freeze(self) -> Frozen:
        return Frozen(self.position, self.written, dict(self.values))

    def _carry_out(self, command: Command) -> Outcome:
        present = self.values.get(command.key)
        if isinstance(command, Replace) and present != command.expected:
            return Outcome.MISMATCH
        if command.value is None:
            if present is None:
                return Outcome.DONE if isinstance(command, Replace) else Outcome.ABSENT
            del self.values[command.key]
            self.bytes -= _size(command.key, present)
            return Outcome.DONE
        growth = _size(command.key, command.value) - (0 if present is None else _size(command.key, present))
        if growth > 0 and self.bytes + growth > command.limit:
            return Outcome.FULL
        self.values[command.key] = command.value
        self.bytes += growth
        return Outcome.DONE


def _size(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value)

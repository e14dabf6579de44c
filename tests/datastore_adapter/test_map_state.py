"""The map's state machine against a dumb twin, and its records' encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter import MapVersionError, ProtocolError
from datastore_adapter.log.maps.records import (
    COMMAND_ID_LENGTH,
    MARK,
    Chunk,
    Command,
    Manifest,
    Put,
    Replace,
    decode,
    encode,
)
from datastore_adapter.log.maps.state import MapState, Outcome

ids = st.binary(min_size=COMMAND_ID_LENGTH, max_size=COMMAND_ID_LENGTH)
keys = st.sampled_from(["a", "b", "ü", "long key"])
values = st.one_of(st.none(), st.binary(max_size=6))
limits = st.integers(0, 40)
puts = st.builds(Put, ids, keys, values, limits)
replaces = st.builds(Replace, ids, keys, values, values, limits)
commands = st.one_of(puts, replaces)


class DumbMap:
    """The twin: no accounts, everything counted anew."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def carry_out(self, command: Command) -> Outcome:
        before = dict(self.values)
        if isinstance(command, Replace) and self.values.get(command.key) != command.expected:
            return Outcome.MISMATCH
        if command.value is None and command.key not in self.values and isinstance(command, Put):
            return Outcome.ABSENT
        self.values.pop(command.key, None)
        if command.value is not None:
            self.values[command.key] = command.value
        if self.size(self.values) > max(self.size(before), command.limit):
            self.values = before
            return Outcome.FULL
        return Outcome.DONE

    @staticmethod
    def size(values: dict[str, bytes]) -> int:
        return sum(len(key.encode()) + len(value) for key, value in values.items())


@given(st.lists(st.one_of(commands, st.binary(max_size=9))), st.data())
def test_a_map_is_what_its_commands_say(story: list[Command | bytes], data: st.DataObject) -> None:
    """Also when it goes on from a snapshot, and whatever else stands in the stream."""
    state, twin, address = MapState(), DumbMap(), 0
    for step in story:
        address += data.draw(st.integers(0, 3))
        if data.draw(st.booleans()):
            frozen = state.freeze()
            state = MapState(frozen)
            assert state.freeze() == frozen
        if isinstance(step, bytes):
            assert state.apply(address, step) is None
        else:
            applied = state.apply(address, encode(step))
            assert applied is not None
            assert (applied.id, applied.outcome) == (step.id, twin.carry_out(step))
        assert state.values == twin.values
        assert state.bytes == twin.size(twin.values)
        address += 1
        assert state.position == address


@given(st.one_of(commands, st.builds(Chunk, st.tuples(st.tuples(keys, st.binary())))))
def test_records_come_back_as_they_were(record: Command | Chunk) -> None:
    assert decode(encode(record)) == record


@given(st.binary())
def test_bytes_of_others_are_no_records(payload: bytes) -> None:
    try:
        record = decode(payload)
    except (ProtocolError, MapVersionError):
        return
    assert payload.startswith(MARK)
    assert decode(encode(record)) == record


def test_a_later_version_is_not_left_out_in_silence() -> None:
    payload = bytearray(encode(Manifest(1, 2, ((3, 4),), 5)))
    payload[len(MARK)] += 1
    state = MapState()
    with pytest.raises(MapVersionError, match="upgrade"):
        state.apply(7, bytes(payload))
    assert state.position == 0  # it is met again


def test_what_only_shrinks_is_allowed_beyond_the_limit() -> None:
    state = MapState()
    big = Put(b"x" * COMMAND_ID_LENGTH, "k", b"v" * 50, 100)
    for number, (value, outcome) in enumerate(
        [(b"v" * 50, Outcome.DONE), (b"v" * 51, Outcome.FULL), (b"v" * 49, Outcome.DONE)]
    ):
        applied = state.apply(number, encode(replace_value(big, value, 100 if not number else 10)))
        assert applied is not None
        assert applied.outcome is outcome


def replace_value(command: Put, value: bytes, limit: int) -> Put:
    return Put(command.id, command.key, value, limit)

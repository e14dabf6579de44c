"""The journal of one segment, against a dict, through crashes, torn writes and flipped bits."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from datastore_adapter import StorageFullError
from datastore_adapter.log.log_unit.journal_records import HEADER, RUN_BYTES, Location, neighbours
from datastore_adapter.log.log_unit.segment_store import AddressState, SegmentStore
from datastore_adapter.log.messages import (
    JUNK,
    Entry,
)
from datastore_adapter.log.messages.codec import encode_entry
from datastore_adapter.log.storage.file_storage import FileStorage, Storage
from tests.datastore_adapter.memory_storage import MemoryStorage

addresses = st.integers(0, 40)
payloads = st.binary(max_size=30)
streams = st.sampled_from(("red", "green"))


def entry(number: int, stream: str = "red", payload: bytes = b"p") -> Entry:
    return Entry(number.to_bytes(16, "big"), stream, (), payload)


def opened(storage: Storage, file_bytes: int = 400) -> SegmentStore:
    return SegmentStore(storage, "s00", file_bytes=file_bytes)


class StoreMachine(RuleBasedStateMachine):
    """Writes, joins, trims, syncs and power losses; the model is what was durable and what may be."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.store = opened(self.storage)
        self.store.join(0, ())
        self.storage.sync()
        self.epoch = 0
        self.number = 0
        self.durable: dict[int, Entry] = {}
        self.volatile: dict[int, Entry] = {}
        self.trimmed = 0

    @property
    def model(self) -> dict[int, Entry]:
        return {**self.durable, **self.volatile}

    @rule(address=addresses, stream=streams, payload=payloads)
    def write(self, address: int, stream: str, payload: bytes) -> None:
        if self.store.state(address) is not AddressState.UNWRITTEN:
            return
        self.number += 1
        written = entry(self.number, stream, payload)
        self.store.write(address, self.epoch, written)
        self.volatile[address] = written

    @rule()
    def sync(self) -> None:
        self.storage.sync()
        self.durable.update(self.volatile)
        self.volatile.clear()

    @rule(seed=st.integers(0, 1 << 16))
    def power_loss(self, seed: int) -> None:
        self.storage.crash(random.Random(seed))
        self.store = opened(self.storage)
        for address, expected in self.durable.items():
            assert self.store.state(address) is AddressState.WRITTEN
            assert self.store.read(address) == expected
        for address in list(self.volatile):
            # What was not durable may be there or not, but never as something else.
            state = self.store.state(address)
            assert state in (AddressState.WRITTEN, AddressState.UNWRITTEN, AddressState.DAMAGED)
            present = self.store.read(address) if state is AddressState.WRITTEN else None
            if present is None:
                del self.volatile[address]
            else:
                assert present == self.volatile[address]
        for address in range(41):
            if address not in self.model and self.store.state(address) is AddressState.DAMAGED:
                self.store.write(address, self.epoch, JUNK)  # what a repair does when nobody has it
                self.volatile[address] = JUNK
        self.sync()

    @rule(below=addresses)
    def trim(self, below: int) -> None:
        self.store.trim(below)
        self.trimmed = max(self.trimmed, below)
        for model in (self.durable, self.volatile):
            for address in [address for address in model if address < self.trimmed]:
                del model[address]
        self.sync()

    @rule(start=addresses, length=st.integers(0, 20))
    def join_again(self, start: int, length: int) -> None:
        self.epoch += 1
        self.store.join(self.epoch, ((start, start + length),))
        for model in (self.durable, self.volatile):
            for address in [address for address in model if not start <= address < start + length]:
                del model[address]
        self.sync()

    @precondition(lambda self: self.durable and not self.volatile)
    @rule(data=st.data())
    def bit_rot(self, data: st.DataObject) -> None:
        """A flipped bit is either without effect or seen: damaged, never other content, never 'unwritten'."""
        # A file of which a power loss left nothing has no bit to flip.
        names = [name for name in self.storage.names("unit/") if self.storage.size(name)]
        name = data.draw(st.sampled_from(names))
        offset = data.draw(st.integers(0, self.storage.size(name) - 1))
        bit = data.draw(st.integers(0, 7))
        self.storage.flip_bit(name, offset, bit)
        for address, expected in self.durable.items():
            assert self.store.read(address) in (expected, None)
        sound = {address: self.store.read(address) for address in self.durable}
        sound = {address: found for address, found in sound.items() if found is not None}
        assert dict(self.store.entries(self.durable)) == sound
        self.storage.flip_bit(name, offset, bit)
        self.store = opened(self.storage)

    @invariant()
    def agrees_with_the_model(self) -> None:
        for address in range(41):
            state = self.store.state(address)
            if address < self.trimmed:
                assert state is AddressState.TRIMMED
            elif address in self.model:
                assert state is AddressState.WRITTEN
            else:
                assert state is AddressState.UNWRITTEN
        for stream in ("red", "green"):
            expected = sorted(a for a, e in self.model.items() if e.stream == stream)
            assert self.store.stream_addresses(stream, 0, 100) == expected
        by_address = sorted(self.model.items())
        assert list(self.store.entries(self.store.written(range(41)))) == by_address
        ids = [(address, entry.record_id) for address, entry in by_address]
        assert list(self.store.record_ids(self.store.written(range(41)))) == ids
        assert [(address, self.store.record_id(address)) for address, _ in by_address] == ids
        assert self.store.missing(range(41)) == [a for a in range(41) if a not in self.model]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("keep", [((2, 2),), ((2, 4),), ()])
def test_nothing_counts_as_lost_outside_what_a_host_is_to_keep(keep: tuple[tuple[int, int], ...]) -> None:
    storage = MemoryStorage()
    store = opened(storage, file_bytes=100_000)
    store.join(0, ())
    for address in range(5):
        store.write(address, 1, entry(address))
    storage.sync()
    (name,) = storage.names("unit/")
    record = HEADER.size + len(encode_entry(entry(1)))
    storage.flip_bit(name, storage.size(name) - 4 * record, 0)  # the header of address 1
    again = opened(storage, file_bytes=100_000)
    assert again.state(1) is AddressState.DAMAGED
    again.join(1, keep)
    for address in range(5):
        kept = any(start <= address < end for start, end in keep)
        assert again.state(address) is (AddressState.WRITTEN if kept else AddressState.UNWRITTEN)


@given(st.integers(0, 1 << 30), st.integers(0, 7))
@settings(deadline=None)
def test_a_flipped_bit_is_never_served_after_a_restart(offset: int, bit: int) -> None:
    storage = MemoryStorage()
    store = opened(storage, file_bytes=100_000)
    store.join(0, ())
    written = {address: entry(address, payload=bytes([address] * 9)) for address in range(20)}
    for address, each in written.items():
        store.write(address, 1, each)
    storage.sync()
    (name,) = storage.names("unit/")
    storage.flip_bit(name, offset % storage.size(name), bit)
    again = opened(storage, file_bytes=100_000)
    states = {address: again.state(address) for address in written}
    wrong = 0
    for address, each in written.items():
        if states[address] is AddressState.WRITTEN and again.read(address) == each:
            continue
        wrong += 1
        # Only the very last record can look as if its write had never been finished.
        assert again.state(address) is AddressState.DAMAGED or address == 19
    assert wrong <= 1


def test_a_torn_write_is_cut_off_and_what_follows_is_sound() -> None:
    storage = MemoryStorage()
    store = opened(storage)
    store.join(0, ())
    store.write(3, 1, entry(1))
    storage.sync()
    (name,) = storage.names("unit/")
    storage.append(name, b"\xa5rL1 half a header")
    again = opened(storage)
    again.write(4, 1, entry(2))
    assert opened(storage).read(3) == entry(1)
    assert opened(storage).read(4) == entry(2)
    assert opened(storage).state(0) is AddressState.UNWRITTEN


def test_files_are_bounded_and_trim_removes_them() -> None:
    storage = MemoryStorage()
    store = opened(storage, file_bytes=300)
    store.join(0, ())
    for address in range(50):
        store.write(address, 1, entry(address))
    before = len(storage.names("unit/"))
    assert before > 10
    store.trim(45)
    assert len(storage.names("unit/")) < 5
    again = opened(storage, file_bytes=300)
    assert [again.state(a) for a in (44, 45, 50)] == [
        AddressState.TRIMMED,
        AddressState.WRITTEN,
        AddressState.UNWRITTEN,
    ]
    assert again.tail == 50


def test_the_tail_survives_a_trim_of_everything() -> None:
    storage = MemoryStorage()
    store = opened(storage, file_bytes=300)
    store.join(0, ())
    for address in range(50):
        store.write(address, 1, entry(address))
    store.trim(50)
    assert opened(storage, file_bytes=300).tail == 50


def test_a_full_disk_changes_nothing() -> None:
    storage = MemoryStorage()
    store = opened(storage)
    store.join(0, ())
    store.write(1, 1, entry(1))
    storage.capacity = storage.size(storage.names("unit/")[0]) + 10
    with pytest.raises(StorageFullError):
        store.write(2, 1, entry(2))
    assert store.state(2) is AddressState.UNWRITTEN
    storage.capacity = None
    store.write(2, 1, entry(2))
    assert opened(storage).read(2) == entry(2)


def test_real_files_recover_like_memory(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    store = opened(storage)
    store.join(3, ())
    for address in range(30):
        store.write(address, 4, entry(address))
    storage.sync()
    storage.close()
    again = opened(FileStorage(tmp_path))
    assert [again.read(address) for address in range(30)] == [entry(address) for address in range(30)]
    assert (again.joined_epoch, again.written_epoch, again.tail) == (3, 4, 30)
    again.destroy()
    assert not opened(FileStorage(tmp_path)).exists


@given(
    st.frozensets(st.integers(0, 30)),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=2),
    st.integers(0, 30),
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 12), st.frozensets(st.integers(0, 30))), max_size=4
    ),
    st.booleans(),
)
def test_what_is_retained_is_missing_until_it_is_confirmed(
    written: frozenset[int],
    keep: list[tuple[int, int]],
    below: int,
    rounds: list[tuple[int, int, frozenset[int]]],
    restart: bool,
) -> None:
    """Against a twin of sets; ids of other records, or none, mean that a record is wrong."""
    storage = MemoryStorage()
    store = SegmentStore(storage, "s00", file_bytes=400)
    store.join(0, ())
    for address in sorted(written):
        store.write(address, 1, entry(address))
    store.join(1, tuple(keep), below)
    kept = {address for address in written if any(low <= address < high for low, high in keep)}
    retained = {address for address in written if address < below} - kept
    undecided = {address for address in range(below) if not any(low <= address < high for low, high in keep)}
    for start, length, right in rounds:
        ids = {
            address: entry(address).record_id if address in right else b"other" for address in range(0, 40, 2)
        }
        store.confirm((start, start + length), range(start, start + length), ids)
        compared = {address for address in retained if start <= address < start + length}
        kept |= {address for address in compared if address % 2 == 0 and address in right}
        retained -= compared
        undecided -= set(range(start, start + length))
    if restart:
        storage.sync()
        store = SegmentStore(storage, "s00", file_bytes=400)
    assert {address for address in range(40) if store.state(address) is AddressState.WRITTEN} == kept
    assert set(store.missing(range(40))) == set(range(40)) - kept
    assert {address for address in range(40) if store.is_retained(address)} == undecided
    assert set(store.index) == kept | retained


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, RUN_BYTES)), max_size=20),
    st.randoms(use_true_random=False),
)
def test_records_read_together_follow_each_other_on_disk(
    sizes: list[tuple[int, int, int]], rng: random.Random
) -> None:
    """Whatever is asked for, and in whatever order: nothing is left out, and no read is longer than it should be."""
    index, ends = {}, [0, 0]
    for address, (file, gap, length) in enumerate(sizes):
        index[address] = Location(file, ends[file] + gap // 5, length)
        ends[file] = index[address].end
    asked = rng.sample(range(len(sizes)), rng.randint(0, len(sizes)))
    asked = sorted(asked) if rng.random() < 0.7 else asked
    runs = list(neighbours(asked, index))
    assert [address for run in runs for address in run] == asked
    for run in runs:
        locations = [index[address] for address in run]
        assert len(run) == 1 or locations[-1].end - locations[0].offset <= RUN_BYTES
        for one, other in pairwise(locations):
            assert (one.file, one.end) == (other.file, other.offset)
    for run, following in pairwise(runs):
        last, first = index[run[-1]], index[following[0]]
        adjacent = last.file == first.file and last.end == first.offset
        assert not adjacent or first.end - index[run[0]].offset > RUN_BYTES

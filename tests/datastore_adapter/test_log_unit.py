"""One log unit: write-once, seals, joins, surveys, chunks; and that nothing it promised is forgotten."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from datastore_adapter import LogSettings, StorageError
from datastore_adapter.log.layout.document import EpochDocument, Extent, Layout, Segment
from datastore_adapter.log.log_unit.unit import LogUnit
from datastore_adapter.log.messages import (
    JUNK,
    BatchWritten,
    Chunk,
    Corrupt,
    Done,
    Entry,
    FetchDocument,
    Found,
    Join,
    NotAReplica,
    Overwritten,
    Read,
    ReadChunk,
    ReadStreamTails,
    Refused,
    Reply,
    Request,
    Seal,
    Sealed,
    StreamTails,
    Survey,
    SurveyReply,
    Trim,
    Trimmed,
    Unwritten,
    Write,
    WriteBatch,
    WriteChunk,
    WrongEpoch,
)
from tests.datastore_adapter.memory_storage import MemoryStorage

SETTINGS = LogSettings(max_payload=100, segment_file_bytes=500, back_pointers=2)
STRIPES = 3


def entry(number: int, stream: str = "red", payload: bytes = b"p") -> Entry:
    return Entry(number.to_bytes(16, "big"), stream, (), payload)


class Unit:
    """A unit whose answers are committed before they are looked at."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        self.storage = storage or MemoryStorage()
        self.unit = LogUnit(self.storage, SETTINGS)

    def ask(self, request: Request) -> Reply:
        outcome = self.unit.handle(request)
        if outcome.needs_commit:
            self.unit.commit()
        return outcome.reply

    def joined(self, *keys: str, epoch: int = 0) -> Unit:
        self.ask(Seal(epoch))
        for key in keys:
            assert self.ask(Join(epoch, key)) == Done()
        return self

    def restarted(self, seed: int = 0) -> Unit:
        self.storage.crash(random.Random(seed))
        return Unit(self.storage)


@pytest.fixture
def unit() -> Unit:
    return Unit().joined("s00")


def test_an_address_is_written_once(unit: Unit) -> None:
    assert unit.ask(Read(1, "s00", 0)) == Unwritten()
    assert unit.ask(Write(1, "s00", 0, entry(1))) == Done()
    assert unit.ask(Write(1, "s00", 0, entry(2))) == Overwritten(entry(1).record_id)
    assert unit.ask(Write(1, "s00", 0, entry(1))) == Overwritten(entry(1).record_id)
    assert unit.ask(Read(1, "s00", 0)) == Found(entry(1))


def test_a_segment_that_was_not_joined_is_refused(unit: Unit) -> None:
    for request in (Write(1, "s01", 0, entry(1)), Read(1, "s01", 0), Survey(1, "s01", 0, 9, 0, 1)):
        assert unit.ask(request) == NotAReplica()


def test_a_sealed_epoch_accepts_nothing_and_the_seal_tells_the_tails(unit: Unit) -> None:
    unit.ask(Write(1, "s00", 6, entry(1)))
    assert unit.ask(Seal(1)) == Sealed((("s00", 7),))
    for request in (Write(1, "s00", 9, entry(2)), Read(1, "s00", 6), Trim(1, 3), ReadStreamTails(0, ())):
        assert unit.ask(request) == WrongEpoch(1)
    assert unit.ask(Write(2, "s00", 9, entry(2))) == Done()
    assert unit.ask(Seal(1)) == Sealed((("s00", 10),))
    assert unit.ask(Seal(0)) == WrongEpoch(1)


def test_a_seal_survives_power_loss_at_any_moment(unit: Unit) -> None:
    unit.ask(Seal(5))
    again = unit.restarted()
    assert again.ask(Write(5, "s00", 0, entry(1))) == WrongEpoch(5)


def test_an_acknowledged_write_survives_power_loss(unit: Unit) -> None:
    unit.ask(Write(1, "s00", 0, entry(1)))
    unit.unit.handle(Write(1, "s00", 3, entry(2)))  # not committed
    again = unit.restarted()
    assert again.ask(Read(1, "s00", 0)) == Found(entry(1))
    assert again.ask(Read(1, "s00", 3)) in (Found(entry(2)), Unwritten(), Corrupt())


def test_a_read_of_what_is_not_durable_yet_waits_for_the_commit(unit: Unit) -> None:
    unit.unit.handle(Write(1, "s00", 0, entry(1)))
    outcome = unit.unit.handle(Read(1, "s00", 0))
    assert outcome.reply == Found(entry(1))
    assert outcome.needs_commit


def test_after_a_failed_commit_the_unit_serves_nothing(unit: Unit) -> None:
    unit.unit.handle(Write(1, "s00", 0, entry(1)))
    unit.storage.broken = True
    with pytest.raises(StorageError):
        unit.unit.commit()
    unit.storage.broken = False
    reply = unit.ask(Read(1, "s00", 0))
    assert isinstance(reply, Refused)
    assert reply.code == "storage"
    assert "broken" in unit.unit.failure
    unit.storage.repair()
    assert unit.storage.resume()
    assert unit.ask(Read(1, "s00", 0)) == Found(entry(1)), "it is durable by now"


@pytest.mark.parametrize("change", [Trim(1, 20), Join(1, "s00", ((20, 40),))], ids=["trim", "join"])
def test_a_sync_that_fails_in_the_middle_of_a_change_stops_it_like_one_in_a_commit(
    unit: Unit, change: Request
) -> None:
    """Both free files, for which it has to be durable first that these are not needed."""
    for address in range(0, 40, 2):
        unit.ask(Write(1, "s00", address, entry(address + 1, payload=bytes(100))))
    epoch = 1
    if isinstance(change, Join):
        unit.ask(Seal(1))
        epoch = 2
    unit.storage.syncs_to_fail = 1
    assert isinstance(unit.ask(change), Refused)
    assert unit.unit.failure
    assert isinstance(unit.ask(Read(epoch, "s00", 38)), Refused), "what reached the disk is not known"
    unit.storage.repair()
    assert unit.storage.resume()
    assert unit.ask(change) == Done()
    assert unit.restarted().ask(Read(epoch, "s00", 38)) == Found(entry(39, payload=bytes(100)))


def test_a_full_disk_refuses_and_recovers(unit: Unit) -> None:
    unit.storage.capacity = 0
    reply = unit.ask(Write(1, "s00", 0, entry(1)))
    assert isinstance(reply, Refused)
    assert reply.code == "full"
    assert "free some space" in reply.message
    unit.storage.capacity = None
    assert unit.ask(Write(1, "s00", 0, entry(1))) == Done()


def test_a_full_disk_still_reads_seals_settles_and_trims(unit: Unit) -> None:
    """Without that its host could not be relieved."""
    unit.ask(Write(1, "s00", 0, entry(1)))
    used = sum(map(unit.storage.size, unit.storage.names("")))
    unit.storage.capacity, unit.storage.reserve = used + 1000, 950
    reply = unit.ask(Write(1, "s00", 3, entry(2)))
    assert isinstance(reply, Refused)
    assert unit.ask(Read(1, "s00", 0)) == Found(entry(1))
    assert unit.ask(Write(1, "s00", 3, entry(2), settling=True)) == Done()
    assert unit.ask(Trim(1, 1)) == Done()
    assert isinstance(unit.ask(Seal(1)), Sealed)


def test_joining_forgets_what_an_earlier_part_in_the_segment_left_behind(unit: Unit) -> None:
    """A returning host must not bring back what the chain decided otherwise while it was away."""
    for address in (0, 3, 6, 9):
        unit.ask(Write(1, "s00", address, entry(address + 1)))
    unit.ask(Seal(4))
    assert unit.ask(Join(4, "s00", ((3, 7),))) == Done()
    states = [unit.ask(Read(5, "s00", address)) for address in (0, 3, 6, 9)]
    assert states == [Unwritten(), Found(entry(4)), Found(entry(7)), Unwritten()]
    again = unit.restarted()
    assert [again.ask(Read(5, "s00", address)) for address in (0, 3, 6, 9)] == states


def test_a_second_join_of_the_same_epoch_erases_nothing(unit: Unit) -> None:
    unit.ask(Seal(4))
    unit.ask(Join(4, "s00"))
    unit.ask(Write(5, "s00", 0, entry(1)))
    assert unit.ask(Join(4, "s00")) in (Done(), WrongEpoch(4))
    assert unit.restarted().ask(Join(4, "s00")) in (Done(), WrongEpoch(4))
    assert unit.ask(Read(5, "s00", 0)) == Found(entry(1))


def test_a_late_join_of_an_earlier_epoch_is_refused(unit: Unit) -> None:
    unit.ask(Seal(4))
    unit.ask(Join(4, "s00"))
    unit.ask(Write(5, "s00", 0, entry(1)))
    assert unit.ask(Join(3, "s00")) == WrongEpoch(4)
    assert unit.ask(Read(5, "s00", 0)) == Found(entry(1))


def test_joining_needs_the_seal_first(unit: Unit) -> None:
    reply = unit.ask(Join(7, "s01"))
    assert isinstance(reply, Refused)
    assert reply.code == "unsealed"


def test_damage_is_told_and_repaired_but_not_served(unit: Unit) -> None:
    unit.ask(Write(1, "s00", 0, entry(1, payload=b"precious")))
    (name,) = unit.storage.names("unit/s00")
    unit.storage.flip_bit(name, unit.storage.size(name) - 2, 3)
    assert unit.ask(Read(1, "s00", 0)) == Corrupt()
    assert unit.ask(Write(1, "s00", 0, entry(2))) == Corrupt()
    assert unit.ask(Survey(1, "s00", 0, 3, 0, STRIPES)) == SurveyReply((0,), (), 3)
    assert unit.ask(Write(1, "s00", 0, entry(1, payload=b"precious"), repair=True)) == Done()
    assert unit.ask(Read(1, "s00", 0)) == Found(entry(1, payload=b"precious"))
    assert unit.restarted().ask(Read(1, "s00", 0)) == Found(entry(1, payload=b"precious"))


def test_a_repair_never_replaces_a_sound_record(unit: Unit) -> None:
    unit.ask(Write(1, "s00", 0, entry(1)))
    assert unit.ask(Write(1, "s00", 0, entry(2), repair=True)) == Overwritten(entry(1).record_id)
    unit.ask(Write(1, "s00", 3, JUNK))
    assert unit.ask(Write(1, "s00", 3, entry(2))) == Overwritten(b"")
    assert unit.ask(Write(1, "s00", 3, entry(2), repair=True)) == Done()


def test_a_lost_header_makes_everything_below_the_tail_suspect() -> None:
    unit = Unit().joined("s00")
    for address in range(0, 9, 3):
        unit.ask(Write(1, "s00", address, entry(address + 1)))
    (name,) = unit.storage.names("unit/s00")
    data = unit.storage.read(name, 0, unit.storage.size(name))
    unit.storage.flip_bit(name, data.index(b"\xa5rL1", 60), 0)  # some record's magic
    again = unit.restarted()
    answers = [again.ask(Read(1, "s00", address)) for address in range(0, 15, 3)]
    assert answers.count(Corrupt()) == 1
    assert answers[3:] == [Unwritten(), Unwritten()]


def test_survey_and_chunks_walk_the_stripe(unit: Unit) -> None:
    for address in (1, 4, 10, 13):
        unit.ask(Write(1, "s00", address, entry(address, "red" if address < 10 else "green", b"x" * 50)))
    assert unit.ask(Survey(1, "s00", 0, 17, 1, STRIPES, "green")) == SurveyReply((7, 16), (10, 13), 17)
    chunk = unit.ask(ReadChunk(1, "s00", 0, 17, 1, STRIPES, max_bytes=300))
    assert isinstance(chunk, Chunk)
    assert [address for address, _ in chunk.entries] == [1, 4]
    assert chunk.next == 10
    rest = unit.ask(ReadChunk(1, "s00", chunk.next, 17, 1, STRIPES, max_bytes=300))
    assert isinstance(rest, Chunk)
    assert ([address for address, _ in rest.entries], rest.next) == ([10, 13], 17)

    other = Unit().joined("s00")
    write = WriteChunk(1, "s00", chunk.entries, chunk.checksum)
    assert [other.ask(write), other.ask(write)] == [Done(), Done()]
    assert other.ask(Read(1, "s00", 4)) == unit.ask(Read(1, "s00", 4))
    damaged = WriteChunk(1, "s00", rest.entries, rest.checksum ^ 1)
    reply = other.ask(damaged)
    assert isinstance(reply, Refused)
    assert reply.code == "checksum"
    assert other.ask(Read(1, "s00", 10)) == Unwritten()


def test_a_chunk_that_contradicts_is_refused(unit: Unit) -> None:
    unit.ask(Write(1, "s00", 1, entry(1)))
    other = Unit().joined("s00")
    other.ask(Write(1, "s00", 1, entry(2)))
    chunk = other.ask(ReadChunk(1, "s00", 0, 9, 1, STRIPES, 1000))
    assert isinstance(chunk, Chunk)
    reply = unit.ask(WriteChunk(1, "s00", chunk.entries, chunk.checksum))
    assert isinstance(reply, Refused)
    assert reply.code == "conflict"


def test_stream_tails_are_told_by_pages_and_ranges() -> None:
    unit = Unit().joined("s00", "s01")
    for address in range(40):
        key = f"s0{address % 2}"
        unit.ask(Write(1, key, address, entry(address + 1, f"stream{address % 4}")))
    everything = (("s00", 0, 100), ("s01", 0, 100))
    reply = unit.ask(ReadStreamTails(1, everything))
    assert isinstance(reply, StreamTails)
    assert dict(reply.streams) == {
        "stream0": (36, 32),
        "stream1": (37, 33),
        "stream2": (38, 34),
        "stream3": (39, 35),
    }
    reply = unit.ask(ReadStreamTails(1, (("s00", 0, 10),), after="stream1"))
    assert reply == StreamTails((("stream2", (6, 2)),), more=False)
    assert unit.ask(ReadStreamTails(1, (("s02", 0, 10),))) == NotAReplica()


def test_trim_forgets_and_tells_so(unit: Unit) -> None:
    for address in (0, 3, 6):
        unit.ask(Write(1, "s00", address, entry(address + 1)))
    assert unit.ask(Trim(1, 4)) == Done()
    again = unit.restarted()
    assert again.ask(Read(1, "s00", 3)) == Trimmed(4)
    assert again.ask(Write(1, "s00", 0, entry(9))) == Trimmed(4)
    assert again.ask(Read(1, "s00", 6)) == Found(entry(7))


def test_limits_are_refused_in_words(unit: Unit) -> None:
    reply = unit.ask(Write(1, "s00", 0, entry(1, payload=b"x" * 101)))
    assert isinstance(reply, Refused)
    assert reply.code == "too_large"
    reply = unit.ask(FetchDocument())
    assert isinstance(reply, Refused)
    assert reply.code == "role"
    assert unit.ask(Write(-1, "s00", 0, entry(1))) == WrongEpoch(0)


def batch(*records: tuple[int, Entry], key: str = "s00", epoch: int = 1) -> WriteBatch:
    return WriteBatch(epoch, ((key, records),))


def test_a_batch_leaves_out_what_is_not_plain(unit: Unit) -> None:
    unit.ask(Write(1, "s00", 3, entry(3)))
    unit.ask(Write(1, "s00", 6, entry(6)))
    reply = unit.ask(
        batch(
            (3, entry(3)), (6, entry(99)), (9, entry(9)), (9, entry(98)), (12, entry(12, payload=b"x" * 101))
        )
    )
    assert reply == BatchWritten(
        (6, 9, 12)
    )  # another's, the second of two, too long; the first was there already
    for address in (3, 6, 9):
        assert unit.ask(Read(1, "s00", address)) == Found(entry(address))
    assert unit.ask(Read(1, "s00", 12)) == Unwritten()


def test_a_batch_for_a_segment_that_was_not_joined_or_an_epoch_that_is_sealed(unit: Unit) -> None:
    request = WriteBatch(1, (("s00", ((0, entry(0)),)), ("s99", ((1, entry(1)), (4, entry(4))))))
    assert unit.ask(request) == BatchWritten((1, 4))
    assert unit.ask(Read(1, "s00", 0)) == Found(entry(0))
    assert unit.ask(batch((3, entry(3)), epoch=0)) == WrongEpoch(0)


def test_a_batch_on_a_full_disk_is_refused_as_a_whole(unit: Unit) -> None:
    unit.storage.capacity = 0
    reply = unit.ask(batch((0, entry(0)), (3, entry(3))))
    assert isinstance(reply, Refused)
    unit.storage.capacity = None
    assert unit.ask(batch((0, entry(0)), (3, entry(3)))) == BatchWritten()


def test_a_batch_cannot_bring_more_streams_than_are_allowed() -> None:
    unit = LogUnit(MemoryStorage(), LogSettings(max_streams=2))
    unit.handle(Seal(0))
    unit.handle(Join(0, "s00"))
    records = tuple((3 * number, entry(number, stream)) for number, stream in enumerate("abcab"))
    assert unit.handle(batch(*records)).reply == BatchWritten((6,))
    assert unit.handle(batch((30, entry(9, "d")), (33, entry(10, "a")))).reply == BatchWritten((30,))


records = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 6), st.sampled_from(("red", "green"))), max_size=8
)


@given(st.lists(records, max_size=6))
def test_batches_leave_the_same_as_single_writes(batches: list[list[tuple[int, int, str]]]) -> None:
    """The twin: one write after the other, of all that the batch did not leave out."""
    one, other = Unit().joined("s00"), Unit().joined("s00")
    for members in batches:
        members_of = [(3 * address, entry(number, stream)) for address, number, stream in members]
        left_out = one.ask(batch(*members_of))
        assert isinstance(left_out, BatchWritten)
        replies = [other.ask(Write(1, "s00", address, record)) for address, record in members_of]
        refused = [
            address
            for (address, record), reply in zip(members_of, replies, strict=True)
            if reply != Done() and reply != Overwritten(record.record_id)
        ]
        # A batch may leave out more than it must (the same record twice), never less.
        assert set(refused) <= set(left_out.left_out)
        assert set(left_out.left_out) <= {
            a for a, _ in members_of if [b for b, _ in members_of].count(a) > 1
        } | set(refused)
    for unit in (one, other):
        unit.storage.crash(random.Random(0))
    again, other_again = Unit(one.storage), Unit(other.storage)
    for address in range(0, 18, 3):
        assert again.ask(Read(1, "s00", address)) == other_again.ask(Read(1, "s00", address))
    assert again.ask(Survey(1, "s00", 0, 18, 0, 3, "red")) == other_again.ask(
        Survey(1, "s00", 0, 18, 0, 3, "red")
    )


def test_segments_are_dropped_when_a_later_layout_does_not_name_the_host(unit: Unit) -> None:
    unit.ask(Write(1, "s00", 0, entry(1)))

    def install(epoch: int, chain: tuple[str, ...], units: tuple[str, ...] = ("a", "me")) -> None:
        layout = Layout(1, 0, 0, (Segment("s00", (Extent(0, None, chain),)),), ("a",), ("a",), units)
        unit.unit.install(EpochDocument(epoch, "id", layout, {"a": "h:1"}, {"a": b"disk"}), "me")

    install(2, ("a", "me"))
    assert unit.ask(Read(1, "s00", 0)) == Found(entry(1))
    install(1, ("a",))  # not later than what was written here
    assert unit.ask(Read(1, "s00", 0)) == Found(entry(1))
    install(3, ("a",), ("a",))  # it was away; what it has may be of use when it is a log unit again
    assert unit.ask(Read(1, "s00", 0)) == Found(entry(1))
    install(4, ("a",))
    assert unit.ask(Read(1, "s00", 0)) == NotAReplica()
    assert unit.restarted().ask(Read(1, "s00", 0)) == NotAReplica()


def bound(unit: Unit, document: EpochDocument | None = None) -> Unit:
    unit.unit.bind(b"disk", "me", document, has_forgotten=False)
    return unit


def told(epoch: int, *extents: Extent, disk: bytes = b"disk") -> EpochDocument:
    layout = Layout(epoch, 0, 0, (Segment("s00", extents),), ("a",), ("a",), ("a", "me"))
    return EpochDocument(epoch, "id", layout, {"a": "h:1", "me": "h:2"}, {"a": b"other", "me": disk})


BEFORE = told(1, Extent(0, None, ("a", "me")))


def test_who_joined_with_nothing_tells_no_tail_until_an_epoch_counts_on_that() -> None:
    """Found by `rota chaos fuzz --store`, seeds 325 and 455: it lost its files, was let join by a reconfiguration that
    failed, and the next one took it for the replica of epoch 1 that it had been."""
    unit = bound(Unit(), BEFORE).joined("s00", epoch=1)
    assert unit.ask(Seal(1)) == Sealed((), b"disk")
    unit = bound(unit.restarted(), BEFORE)
    assert unit.ask(Seal(1)) == Sealed((), b"disk")
    unit.unit.install(told(2, Extent(0, 4, ("a",)), Extent(4, None, ("a", "me"))), "me")
    assert unit.ask(Seal(2)) == Sealed((("s00", 0),), b"disk")
    assert unit.unit.doubtful() == ()


def test_who_joined_with_nothing_and_is_named_for_more_doubts_itself() -> None:
    unit = bound(Unit(), BEFORE).joined("s00", epoch=1)
    unit.unit.install(told(2, Extent(0, 4, ("a", "me")), Extent(4, None, ("a", "me"))), "me")
    assert [status.key for status in unit.unit.doubtful()] == ["s00"]
    assert unit.ask(Seal(2)) == Sealed((), b"disk")


def test_who_joined_on_a_new_disk_does_not_doubt_itself_until_the_next_epoch_is_known() -> None:
    """Found by `rota chaos fuzz --store`, seeds 243 and 307: told of the present epoch again, it did."""
    before = told(1, Extent(0, None, ("a", "me")), disk=b"before")
    unit = bound(Unit(), before).joined("s00", epoch=1)
    unit.unit.install(before, "me")
    assert unit.unit.doubtful() == ()
    unit.unit.install(told(2, Extent(0, 4, ("a",)), Extent(4, None, ("me",))), "me")
    assert unit.ask(Seal(2)) == Sealed((("s00", 0),), b"disk")
    other = bound(Unit(), before).joined("s00", epoch=1)
    other.unit.install(told(2, Extent(0, None, ("a", "me")), disk=b"before"), "me")
    assert [status.key for status in other.unit.doubtful()] == ["s00"]


def test_who_is_told_on_a_full_disk_that_it_must_doubt_itself_does_so_and_seals_once_there_is_room() -> None:
    """Found by `rota chaos fuzz --store`, seed 3225: it took that for a failed fsync, and refused every seal."""
    unit = bound(Unit(), BEFORE).joined("s00", epoch=0)
    unit.storage.capacity = 0
    unit.unit.install(told(2, Extent(0, None, ("a", "me")), disk=b"another"), "me")
    assert [status.key for status in unit.unit.doubtful()] == ["s00"]
    unit.storage.capacity = None
    assert unit.ask(Seal(2)) == Sealed((), b"disk")


@pytest.mark.parametrize("installs", [1, 2])
def test_a_doubt_that_a_full_disk_did_not_take_is_found_again_by_the_next_process(installs: int) -> None:
    """It starts on the full disk, too."""
    unit = bound(Unit(), BEFORE).joined("s00", epoch=1)
    unit.storage.capacity = 0
    later = told(2, Extent(0, 4, ("a", "me")), Extent(4, None, ("a", "me")))
    for _ in range(installs):
        unit.unit.install(later, "me")
        assert [status.key for status in unit.unit.doubtful()] == ["s00"]
    unit = bound(unit.restarted(), later)
    assert [status.key for status in unit.unit.doubtful()] == ["s00"]
    unit.storage.capacity = None
    assert unit.ask(Seal(2)) == Sealed((), b"disk")
    unit = bound(unit.restarted(), later)
    assert [status.key for status in unit.unit.doubtful()] == ["s00"]


class UnitMachine(RuleBasedStateMachine):
    """Random requests and power losses against a model in two dictionaries."""

    @initialize()
    def start(self) -> None:
        self.unit = Unit().joined("s00", "s01")
        self.epoch = 1
        self.sealed = 0
        self.model: dict[tuple[str, int], Entry] = {}
        self.number = 0

    @rule(key=st.sampled_from(("s00", "s01")), address=st.integers(0, 15), behind=st.integers(0, 2))
    def write(self, key: str, address: int, behind: int) -> None:
        self.number += 1
        fresh = entry(self.number, payload=bytes(self.number % 50))
        epoch = self.epoch - behind
        reply = self.unit.ask(Write(epoch, key, address, fresh))
        if epoch <= self.sealed:
            assert reply == WrongEpoch(self.sealed)
        elif (key, address) in self.model:
            assert reply == Overwritten(self.model[key, address].record_id)
        else:
            assert reply == Done()
            self.model[key, address] = fresh

    @rule(key=st.sampled_from(("s00", "s01")), address=st.integers(0, 15))
    def read(self, key: str, address: int) -> None:
        expected = self.model.get((key, address))
        reply = self.unit.ask(Read(self.epoch, key, address))
        assert reply == (Unwritten() if expected is None else Found(expected))

    @rule(ahead=st.integers(0, 2))
    def seal(self, ahead: int) -> None:
        self.sealed = max(self.sealed, self.epoch - 1 + ahead)
        self.epoch = self.sealed + 1
        reply = self.unit.ask(Seal(self.sealed))
        tails = {key: 1 + max((a for k, a in self.model if k == key), default=-1) for key in ("s00", "s01")}
        assert reply == Sealed(tuple(tails.items()))

    @rule(seed=st.integers(0, 1 << 16), uncommitted=st.integers(0, 15))
    def power_loss(self, seed: int, uncommitted: int) -> None:
        if ("s00", uncommitted) not in self.model:
            self.number += 1
            lost = entry(self.number, payload=bytes(20))
            self.unit.unit.handle(Write(self.epoch, "s00", uncommitted, lost))
            self.unit = self.unit.restarted(seed)
            reply = self.unit.ask(Read(self.epoch, "s00", uncommitted))
            if reply == Corrupt():
                assert self.unit.ask(Write(self.epoch, "s00", uncommitted, lost, repair=True)) == Done()
                reply = Found(lost)
            if reply == Found(lost):
                self.model["s00", uncommitted] = lost
        else:
            self.unit = self.unit.restarted(seed)


TestUnitMachine = UnitMachine.TestCase
TestUnitMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def test_a_torn_beginning_of_a_new_file_means_no_damage() -> None:
    """Of an append that was never acknowledged only the first record came to the disk, which repeats the state."""
    machine = UnitMachine()
    machine.start()
    for seed, uncommitted in ((1312, 4), (75, 3), (155, 2), (2628, 0)):
        machine.power_loss(seed, uncommitted)
    assert machine.unit.ask(Read(1, "s00", 1)) == Unwritten()


@given(st.integers(0, 1 << 20))
@settings(max_examples=20, deadline=None)
def test_recovery_does_not_depend_on_when_power_was_lost(seed: int) -> None:
    rng = random.Random(seed)
    unit = Unit().joined("s00")
    durable: dict[int, Entry] = {}
    for address in range(30):
        reply = unit.ask(
            Write(1, "s00", address, entry(address + 1, payload=rng.randbytes(rng.randint(0, 90))))
        )
        assert reply == Done()
        found = unit.ask(Read(1, "s00", address))
        assert isinstance(found, Found)
        durable[address] = found.entry
        if rng.random() < 0.2:
            unit = unit.restarted(rng.randint(0, 1 << 16))
    for address, expected in durable.items():
        assert unit.ask(Read(1, "s00", address)) == Found(expected)

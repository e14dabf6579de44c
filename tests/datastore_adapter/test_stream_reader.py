"""Readers of streams against a dumb twin: nothing is missed, nothing comes twice, whatever happens to the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter import Record, TrimmedError
from datastore_adapter.log.client.stream_reader import READ_AHEAD, WALK_LIMIT, StreamReader
from datastore_adapter.log.client.stream_search import Found
from datastore_adapter.log.errors import ExtentAwayError
from datastore_adapter.log.runtime.virtual_loop import VirtualLoop
from datastore_adapter.log.sequencer.back_pointers import BackPointerWalk
from tests.datastore_adapter.harness import told_by


@dataclass
class DumbLog:
    """A log as a list; its sequencer's pointers may lead to holes, and are forgotten by a restart, as are addresses
    that were given out and not written."""

    pointers: int = 2
    batch: int = 3
    """Records that one search finds."""
    entries: list[Record | None] = field(default_factory=list)
    trimmed: int = 0
    away: set[int] = field(default_factory=set)
    """Addresses that nobody who is there holds."""
    searches: int = 0
    given: int = 0
    """Addresses at the end that were given out and are not written."""
    settled_below: int = 0
    _latest: dict[str, list[int]] = field(default_factory=dict)

    def append(self, stream: str, *, hole: bool = False) -> None:
        self.entries.extend([None] * self.given)  # who needs a later address fills the holes before it
        self.given = 0
        latest = self._latest.setdefault(stream, [])
        address = len(self.entries)
        record = Record(address, stream, b"%d" % address, tuple(latest[: self.pointers]))
        self.entries.append(None if hole else record)
        latest.insert(0, address)

    def restart_sequencer(self) -> None:
        """The new one knows what the log units hold."""
        self._latest, self.given, self.settled_below = {}, 0, len(self.entries)
        for record in self.entries[self.trimmed :]:
            if record is not None:
                self._latest.setdefault(record.stream, []).insert(0, record.address)

    def of(self, stream: str, start: int) -> list[Record]:
        """The twin: every record there ever was."""
        return [each for each in self.entries[start:] if each is not None and each.stream == stream]

    pointers_from = 0

    async def last_addresses(self, stream: str, *, timeout: float | None = None) -> tuple[int, list[int]]:
        return len(self.entries) + self.given, self._latest.get(stream, [])[: self.pointers]

    async def find(self, stream: str | None, start: int, end: int, *, timeout: float | None = None) -> Found:
        self.searches += 1
        if end > len(self.entries):
            self.entries.extend([None] * self.given)
            self.given = 0
        if self.away_within(start, end):
            raise ExtentAwayError("away", ())
        found = [each.address for each in self.of(stream or "", max(start, self.trimmed))]
        found = [address for address in found if address < end]
        complete = found[self.batch] if len(found) > self.batch else end
        return Found(tuple(found[: self.batch]), complete, self.trimmed)

    def away_within(self, start: int, end: int) -> tuple[int, int] | None:
        there = [address for address in self.away if start <= address < end]
        return (min(there), max(there)) if there else None

    async def read_all(
        self, addresses: Sequence[int], *, timeout: float | None = None
    ) -> list[Record | None]:
        assert len(addresses) <= READ_AHEAD
        if any(address < self.trimmed for address in addresses):
            raise TrimmedError("gone", self.trimmed)
        if self.away & set(addresses):
            raise ExtentAwayError("away", ())
        return [self.entries[address] for address in addresses]


async def take(reader: StreamReader) -> list[Record]:
    return [record async for record in reader.advance()]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=90),
    st.sets(st.integers(0, 90), max_size=3),
    st.integers(0, 90),
)
def test_everything_before_what_is_away_is_told_first(
    appended: list[tuple[str, bool]], away: set[int], start: int
) -> None:
    log = DumbLog()
    for stream, hole in appended:
        log.append(stream, hole=hole)
    log.away = {address for address in away if address < len(appended)}
    ahead = [address for address in log.away if address >= start]
    until = min(ahead, default=len(appended))
    told, error = VirtualLoop().run(told_by(StreamReader(log, "a", start).advance()))
    if error is not None:
        assert ahead
        assert told == [record for record in log.of("a", start) if record.address < until]
    else:
        # Pointers know what is of the stream, a search does not.
        assert told == log.of("a", start)
        assert not any(record.address in log.away for record in told)


events = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("ab"), st.integers(1, 5)),
    st.tuples(st.just("hole"), st.sampled_from("ab"), st.integers(1, 5)),
    st.tuples(st.just("many"), st.just("a"), st.integers(WALK_LIMIT, WALK_LIMIT + 3)),
    st.tuples(st.just("give"), st.just("b"), st.integers(1, 3)),
    st.tuples(st.just("trim"), st.just(""), st.integers(0, 100)),
    st.tuples(st.just("restart"), st.just(""), st.just(1)),
    st.tuples(st.just("read"), st.just(""), st.just(1)),
)


@given(st.lists(events, max_size=30), st.integers(1, 4), st.one_of(st.none(), st.integers(0, 10)))
def test_a_reader_misses_nothing_or_says_so(
    story: list[tuple[str, str, int]], pointers: int, start: int | None
) -> None:
    log = DumbLog(pointers)
    reader = StreamReader(log, "a", start)
    loop = VirtualLoop()
    read_below = start

    async def read() -> bool:
        nonlocal read_below
        position = log.trimmed if reader.position is None else reader.position
        expected = log.of("a", log.trimmed if read_below is None else read_below)
        try:
            assert await take(reader) == expected
        except TrimmedError:
            assert log.trimmed > position  # nobody cries wolf
            return False
        read_below = max(read_below or 0, len(log.entries))
        return True

    for what, stream, count in [*story, ("read", "", 1)]:
        match what:
            case "append" | "hole" | "many":
                for _ in range(count):
                    log.append(stream, hole=what == "hole")
            case "give":
                log.given += count
            case "trim":
                log.trimmed = max(log.trimmed, len(log.entries) * count // 100)
            case "restart":
                log.restart_sequencer()
            case "read":
                if not loop.run(read()):
                    return


def test_who_keeps_up_never_searches() -> None:
    log, loop = DumbLog(pointers=2), VirtualLoop()
    log.append("a")
    reader = StreamReader(log, "a", 0)
    loop.run(take(reader))
    log.searches = 0
    for _ in range(20):
        log.append("a")
        log.append("b")
        log.append("a")
        assert len(loop.run(take(reader))) == 2
    for _ in range(WALK_LIMIT - 1):
        log.append("a")
    assert len(loop.run(take(reader))) == WALK_LIMIT - 1
    assert log.searches == 0


def test_who_breaks_off_goes_on_there() -> None:
    log, loop = DumbLog(), VirtualLoop()
    for _ in range(10):
        log.append("a")
    reader = StreamReader(log, "a", 0)

    async def first() -> Record:
        async for record in reader.advance():
            return record
        raise AssertionError

    assert [loop.run(first()).address for _ in range(3)] == [0, 1, 2]
    assert [record.address for record in loop.run(take(reader))] == list(range(3, 10))


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 4), st.integers(0, 40))
def test_what_a_walk_covers_it_knows_whole(holes: list[bool], pointers: int, start: int) -> None:
    """Against a twin that looks at everything."""
    log = DumbLog(pointers)
    for hole in holes:
        log.append("a", hole=hole)
        log.append("b")
    tail, latest = VirtualLoop().run(log.last_addresses("a"))
    walk = BackPointerWalk(start, tail, latest)
    while walk.unread:
        address = walk.unread[0]
        record = log.entries[address]
        walk.learn(address, () if record is None else record.previous)
        covered = max(start, walk.covered_from)
        known = {address for address in walk.addresses if address >= covered}
        assert {record.address for record in log.of("a", covered)} <= known
        assert walk.is_complete == (walk.covered_from <= start)

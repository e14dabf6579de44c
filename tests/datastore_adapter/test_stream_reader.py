"""Readers of streams against a dumb twin: nothing is missed, nothing comes twice, whatever happens to the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hypothesis import example, given
from hypothesis import strategies as st

from datastore_adapter import Record, TrimmedError
from datastore_adapter.log.client.stream_reader import READ_AHEAD, WALK_LIMIT, StreamReader
from datastore_adapter.log.client.stream_search import Found
from datastore_adapter.log.errors import ExtentAwayError, UnwrittenError
from datastore_adapter.log.runtime.virtual_loop import VirtualLoop
from datastore_adapter.log.sequencer.back_pointers import BackPointerWalk, StreamTail
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
    epoch: int = 0
    base: int = 0
    settled_below: int = 0
    once_told: Callable[[], None] = lambda: None
    """What happens between the sequencer's answer and whatever is read then."""
    _latest: dict[str, list[int]] = field(default_factory=dict)

    def give(self, stream: str) -> None:
        """An address to somebody who does not write it."""
        self._latest.setdefault(stream, []).insert(0, len(self.entries) + self.given)
        self.given += 1

    def append(self, stream: str, *, hole: bool = False) -> None:
        self.fill()  # who needs a later address fills the holes before it
        latest = self._latest.setdefault(stream, [])
        address = len(self.entries)
        record = Record(address, stream, b"%d" % address, tuple(latest[: self.pointers]))
        self.entries.append(None if hole else record)
        latest.insert(0, address)

    def fill(self) -> None:
        """Nobody will write what was given out so far."""
        self.entries.extend([None] * self.given)
        self.given = 0

    def restart_sequencer(self) -> None:
        """The new one knows what the log units hold."""
        self._latest, self.given, self.base = {}, 0, len(self.entries)
        self.epoch, self.settled_below = self.epoch + 1, self.base
        for record in self.entries[self.trimmed :]:
            if record is not None:
                self._latest.setdefault(record.stream, []).insert(0, record.address)

    def of(self, stream: str, start: int) -> list[Record]:
        """The twin: every record there ever was."""
        return [each for each in self.entries[start:] if each is not None and each.stream == stream]

    pointers_from = 0

    async def last_addresses(self, stream: str, *, timeout: float | None = None) -> StreamTail:
        latest = tuple(self._latest.get(stream, ())[: self.pointers])
        told = StreamTail(self.epoch, len(self.entries) + self.given, latest)
        self.once_told()
        return told

    async def find(self, stream: str | None, start: int, end: int, *, timeout: float | None = None) -> Found:
        self.searches += 1
        if end > len(self.entries):  # beyond the tail, too, where that was told by an earlier sequencer
            self.given = max(self.given, end - len(self.entries))
            self.fill()
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
        if any(address >= len(self.entries) + self.given for address in addresses):
            raise UnwrittenError("beyond the tail")
        if any(address >= len(self.entries) for address in addresses):
            self.fill()
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


appends = st.tuples(st.just("append"), st.sampled_from("ab"), st.integers(1, 5))
events = st.one_of(
    appends,
    st.tuples(st.just("hole"), st.sampled_from("ab"), st.integers(1, 5)),
    st.tuples(st.just("many"), st.just("a"), st.integers(WALK_LIMIT, WALK_LIMIT + 3)),
    st.tuples(st.just("give"), st.sampled_from("ab"), st.integers(1, 3)),
    st.tuples(st.just("trim"), st.just(""), st.integers(0, 100)),
    st.tuples(st.just("restart"), st.just(""), st.just(1)),
    st.tuples(st.just("read"), st.just(""), st.integers(0, 4)),
)
gives = st.tuples(st.just("give"), st.sampled_from("ab"), st.integers(1, 2))
deposed = st.tuples(
    *(st.just(("append", "a", 1)), st.just(("read", "", 0)), gives, gives),
    *(st.just(("read", "", 3)), st.just(("restart", "", 1)), appends, appends),
)
"""What was given out before the restart is given again before it is read."""
stories = st.lists(st.one_of(st.tuples(events), deposed), max_size=30).map(
    lambda parts: [event for part in parts for event in part]
)


GIVEN_AGAIN = [
    *(("append", "a", 1), ("read", "", 0), ("give", "b", 1), ("give", "a", 1)),
    *(("read", "", 3), ("restart", "", 1), ("append", "a", 1), ("append", "b", 1)),
]


@example(GIVEN_AGAIN, 2, 0)
@given(stories, st.integers(1, 4), st.one_of(st.none(), st.integers(0, 10)))
def test_a_reader_misses_nothing_or_says_so(
    story: list[tuple[str, str, int]], pointers: int, start: int | None
) -> None:
    """Of the stories some go on while it reads, between what the sequencer tells and what it reads by that."""
    log, loop = DumbLog(pointers), VirtualLoop()
    reader = StreamReader(log, "a", start)
    story = [*story, ("read", "", 0)]
    begin, seen = start, list[Record]()

    def happens(what: str, stream: str, count: int) -> None:
        match what:
            case "append" | "hole" | "many":
                for _ in range(count):
                    log.append(stream, hole=what == "hole")
            case "give":
                for _ in range(count):
                    log.give(stream)
            case "trim":
                log.trimmed = max(log.trimmed, len(log.entries) * count // 100)
            case "restart":
                log.restart_sequencer()

    def meanwhile(steps: int) -> None:
        while steps and story[0][0] != "read":
            happens(*story.pop(0))
            steps -= 1

    async def read(steps: int) -> bool:
        nonlocal begin
        log.once_told = partial(meanwhile, steps)
        position, whole = reader.position, log.of("a", begin or 0)
        try:
            async for record in reader.advance():
                if begin is None:
                    begin = log.trimmed
                seen.append(record)
        except TrimmedError:
            assert position is None or log.trimmed > position  # nobody cries wolf
            return False
        if begin is None:
            begin = log.trimmed
        there = log.of("a", begin)
        assert seen == there[: len(seen)]
        assert len(seen) >= sum(record.address >= begin for record in whole)
        return True

    while story:
        what, stream, count = story.pop(0)
        if what != "read":
            happens(what, stream, count)
        elif not loop.run(read(count)):
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
    told = VirtualLoop().run(log.last_addresses("a"))
    walk = BackPointerWalk(start, told.tail, told.latest)
    while walk.unread:
        address = walk.unread[0]
        record = log.entries[address]
        walk.learn(address, () if record is None else record.previous)
        covered = max(start, walk.covered_from)
        known = {address for address in walk.addresses if address >= covered}
        assert {record.address for record in log.of("a", covered)} <= known
        assert walk.is_complete == (walk.covered_from <= start)

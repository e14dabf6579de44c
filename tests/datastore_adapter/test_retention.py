"""What streams need is never trimmed, and in the end the rest is: random users of one log against a dumb twin."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from datastore_adapter import LogClient, Retention, TrimmedError
from tests.datastore_adapter.harness import Harness
from tests.datastore_adapter.test_client import settled, take_token

STREAMS = ("red", "green")
steps = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(STREAMS), st.integers(1, 4)),
    st.tuples(st.just("hole"), st.sampled_from(STREAMS), st.integers(1, 2)),
    st.tuples(st.just("forget"), st.sampled_from(STREAMS), st.integers(0, 100)),
    st.tuples(st.just("fail over"), st.just(""), st.just(0)),
)


class Twin:
    """Every record there ever was, and from where on each stream needs its own."""

    def __init__(self) -> None:
        self.records: dict[int, str] = {}
        self.marks = dict.fromkeys(STREAMS, 0)

    def first_needed(self, end: int) -> int:
        """Up to where the log may be trimmed: the first record that its stream needs."""
        needed = [address for address, stream in self.records.items() if address >= self.marks[stream]]
        return min(needed, default=end)


@settings(max_examples=15, deadline=None)
@given(st.lists(steps, min_size=3, max_size=14))
def test_nothing_needed_is_trimmed_and_everything_else_is(
    story: list[tuple[str, str, int]],
) -> None:
    harness = settled(Harness(3, segments=2))
    twin = Twin()

    async def play() -> None:
        clients = [harness.client(name) for name in ("one", "two")]
        tables = [Retention(client) for client in clients]
        for number, (what, stream, count) in enumerate(story):
            client, table = clients[number % 2], tables[number % 2]
            match what:
                case "append":
                    for _ in range(count):
                        twin.records[await client.append(stream, b"x")] = stream
                case "hole":
                    for _ in range(count):
                        await take_token(harness, stream)
                case "forget":
                    mark = await client.tail() * count // 100
                    twin.marks[stream] = max(mark, twin.marks[stream])
                    begin = await table.forget({stream: mark})
                    assert begin <= twin.first_needed(await client.tail())
                    await check(client)
                case "fail over":
                    harness.crash(sequencer := harness.document.layout.sequencers[0])
                    await harness.settle(harness.adapter())
                    harness.restart(sequencer)
                    await harness.settle(harness.adapter())
        await check(clients[0])
        # In the end nobody needs anything: only the table's newest record is left.
        end = await clients[0].tail()
        assert await Retention(clients[1]).forget(dict.fromkeys(STREAMS, end)) == end

    async def check(client: LogClient) -> None:
        """Every record that its stream needs is there; what a reader may not miss it does not."""
        for stream in STREAMS:
            needed = [a for a, s in sorted(twin.records.items()) if s == stream and a >= twin.marks[stream]]
            table = Retention(client)
            reader = client.reader(stream, twin.marks[stream])
            assert [record.address async for record in table.records(reader, stream)] == needed
            behind = client.reader(stream, 0)
            try:
                found = [record.address async for record in table.records(behind, stream)]
            except TrimmedError:
                assert twin.marks[stream] > 0
            else:
                assert found == [a for a, s in sorted(twin.records.items()) if s == stream]

    harness.loop.run(play(), timeout=3000)

"""The number of segments, changed by an operator: new ones are placed by the rules, others retired, and back again."""

from __future__ import annotations

import pytest

from mgmt.errors import InvalidRequestError
from mgmt.placement.intent import Intent
from tests.mgmt.control.harness import harness, pack_solver


async def test_segments_are_added_and_retired_live(autojump_clock: object) -> None:
    async with harness(make_solver=pack_solver, segments=4) as cluster:
        requests, engine = cluster.controller.requests, cluster.engine
        assert await requests.resize(9) == 4
        await cluster.until(lambda: len(engine.segments) == 9)
        await cluster.settled()
        cluster.check_placement()
        assert not cluster.copying(), "what is written stays where it is"
        rounds = len(cluster.of_kind("plan"))

        assert await requests.resize(2) == 9
        await cluster.until(lambda: len(engine.retired) == 7)
        await cluster.settled()
        cluster.lose("n5")  # retired segments are repaired like all others
        await cluster.settled()
        assert all(len(engine.in_sync(key)) == 3 for key in engine.segments)
        assert await requests.resize(4) == 2
        await cluster.until(lambda: len(engine.retired) == 5)
        await cluster.settled()
        assert await requests.resize(4) == 4
        await cluster.more_rounds(20)
        assert len(cluster.of_kind("plan")) <= rounds + 3, "nothing oscillates"
        with pytest.raises(InvalidRequestError):
            await requests.resize(0)


async def test_a_new_number_of_segments_is_taken_back(autojump_clock: object) -> None:
    async with harness(make_solver=pack_solver, segments=4) as cluster:
        requests, engine = cluster.controller.requests, cluster.engine
        engine.layout_seconds = 5.0
        await requests.resize(6)
        await cluster.until(lambda: bool(cluster.of_kind("step-started")))
        await requests.resize(3)
        await cluster.settled()
        assert set(engine.segments) - engine.retired == {"s00", "s01", "s02"}


@pytest.mark.parametrize(("count", "expected"), [(2, "s00 s01"), (4, "s00 s01 s02 s03"), (3, "s00 s01 s02")])
def test_names_of_segments(count: int, expected: str) -> None:
    assert " ".join(Intent.initial(3).with_segments(count).segments) == expected


def test_more_than_a_hundred_segments_keep_their_names() -> None:
    intent = Intent.initial(99)
    grown = intent.with_segments(102)
    assert set(grown.segments) - set(intent.segments) == {"s99", "s100", "s101"}
    assert grown.with_segments(99) == intent

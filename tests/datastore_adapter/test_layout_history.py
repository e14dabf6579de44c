"""Earlier documents are kept beside the layout server, bounded, and read from every host that answers."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from datastore_adapter import EpochDocument, LogAdapter
from datastore_adapter.interface import Cause, Fence, LayoutVersion, Observation
from datastore_adapter.log.layout import history as layout_history
from datastore_adapter.log.layout.document import encode_document, genesis_document
from datastore_adapter.log.layout.history import DocumentHistory
from datastore_adapter.log.layout.server import LayoutServer
from datastore_adapter.log.messages import FetchHistory, History, Install, Installed
from tests.datastore_adapter.harness import Harness
from tests.datastore_adapter.memory_storage import MemoryStorage

GENESIS = genesis_document("id", "a", "a:1", b"disk")


def document(epoch: int) -> EpochDocument:
    return replace(GENESIS, epoch=epoch, intent={"mark": str(epoch)})


def epochs(answer: object) -> list[int]:
    assert isinstance(answer, History)
    return [found.epoch for found in map(layout_history._decompressed, answer.documents) if found is not None]


def filled(storage: MemoryStorage, last: int, kept: int = 8) -> DocumentHistory:
    history = DocumentHistory(storage, kept)
    for epoch in range(last + 1):
        history.keep(document(epoch), encode_document(document(epoch)))
    return history


@pytest.mark.parametrize("last", [0, 3, 7, 8, 20])
def test_the_latest_are_kept_in_so_many_places_and_no_more(last: int) -> None:
    storage = MemoryStorage()
    history = filled(storage, last)
    assert epochs(history.answer(FetchHistory(1 << 40), last)) == list(range(last, max(-1, last - 8), -1))
    assert len(storage.names("layout/history/")) == min(8, last + 1)


def test_what_does_not_fit_into_one_answer_is_asked_for_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_history, "ANSWER_BYTES", 300)
    history = filled(MemoryStorage(), 11)
    told: list[int] = []
    below = 1 << 40
    while below:
        answer = history.answer(FetchHistory(below), 11)
        assert epochs(answer), "at least one each time"
        told += epochs(answer)
        below = answer.next
    assert told == list(range(11, 3, -1))


def test_a_power_loss_takes_nothing_that_was_installed() -> None:
    storage = MemoryStorage()
    server = LayoutServer(storage, "a", b"disk")
    for epoch in range(5):
        assert server.handle(Install(encode_document(document(epoch)))) == Installed(epoch, b"disk")
    storage.crash(random.Random(1))
    assert epochs(LayoutServer(storage, "a", b"disk").handle(FetchHistory(1 << 40))) == [4, 3, 2, 1, 0]


def test_a_disk_without_room_for_it_keeps_no_layout_from_being_installed() -> None:
    storage = MemoryStorage()
    server = LayoutServer(storage, "a", b"disk")
    server.handle(Install(encode_document(document(0))))
    refuse = storage.replace

    def full(name: str, data: bytes) -> None:
        if name.startswith("layout/history/"):
            storage.broken = True
        try:
            refuse(name, data)
        finally:
            storage.broken = False

    storage.replace = full  # type: ignore[method-assign]
    assert server.handle(Install(encode_document(document(1)))) == Installed(1, b"disk")
    assert server.counters["history_lost"] == 1
    assert epochs(server.handle(FetchHistory(1 << 40))) == [0]


def test_a_damaged_place_is_counted_and_left_out() -> None:
    storage = MemoryStorage()
    history = filled(storage, 4)
    storage.flip_bit("layout/history/002", 9, 3)
    assert epochs(history.answer(FetchHistory(1 << 40), 4)) == [4, 3, 1, 0]
    assert history.counters["history_damaged"] == 1


@pytest.mark.parametrize("garbage", [b"", b"no zlib", layout_history.zlib.compress(b"no document")])
def test_what_another_host_sends_instead_of_a_document_is_left_out(garbage: bytes) -> None:
    assert layout_history._decompressed(garbage) is None


async def versions(adapter: LogAdapter) -> tuple[LayoutVersion, ...]:
    answer = await adapter.history()
    assert isinstance(answer, tuple)
    return answer


def test_every_version_is_found_while_a_majority_lives_and_says_why_it_is_there() -> None:
    harness = Harness(6)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        cause = Cause("n0", 1000.5, "a target", "n3")
        fence = Fence(harness.view_epoch, observation.layout_epoch, "p7", 0, cause)
        agreed = await adapter.set_intent(observation.layout_epoch, {"mark": 1}, fence)
        for victim in ("n1", "n4"):
            harness.crash(victim)
            await harness.settle(adapter)
        found = await versions(adapter)
        assert [version.epoch for version in found] == list(range(harness.document.epoch + 1))
        target = found[agreed]
        assert (target.cause, target.plan_id, target.intent) == (cause, "p7", {"mark": 1})
        assert found[agreed - 1].placement == target.placement
        known = harness.invariants.documents
        for version in found:
            layout = known[version.epoch].layout if version.epoch in known else None
            if layout is not None:
                assert version.holders == {segment.key: segment.hosts() for segment in layout.segments}

    harness.loop.run(story())

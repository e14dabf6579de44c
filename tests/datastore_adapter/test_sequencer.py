"""The sequencer: each address once, pointers right, tokens never backwards."""

from __future__ import annotations

import pytest

from datastore_adapter import LogSettings
from datastore_adapter.log.messages import (
    Addresses,
    AddStreamTails,
    BeginBootstrap,
    Done,
    FinishBootstrap,
    GetStatus,
    LastAddresses,
    NotReady,
    Refused,
    SealTokens,
    TakeTokens,
    Tokens,
    TokensSealed,
    WrongEpoch,
)
from datastore_adapter.log.sequencer.sequencer import Sequencer
from tests.datastore_adapter.memory_storage import MemoryStorage

SETTINGS = LogSettings(back_pointers=2, max_streams=3)


def bootstrapped(
    sequencer: Sequencer,
    epoch: int,
    tail: int,
    streams: dict[str, tuple[int, ...]] | None = None,
    session: int = 1,
) -> Sequencer:
    assert sequencer.handle(BeginBootstrap(epoch, session, tail)) == Done()
    assert sequencer.handle(AddStreamTails(epoch, session, tuple((streams or {}).items()))) == Done()
    assert sequencer.handle(FinishBootstrap(epoch, session)) == Done()
    return sequencer


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def sequencer(storage: MemoryStorage) -> Sequencer:
    return Sequencer(storage, SETTINGS)


def test_it_serves_nothing_before_it_was_bootstrapped(sequencer: Sequencer) -> None:
    assert sequencer.handle(TakeTokens(1, (("red", 1),))) == NotReady()
    sequencer.handle(BeginBootstrap(1, 1, 10))
    assert sequencer.handle(TakeTokens(1, (("red", 1),))) == NotReady()


def test_tokens_and_back_pointers(sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 1, 10, {"red": (7, 3)})
    tokens = [sequencer.handle(TakeTokens(1, ((stream, 1),))) for stream in ("red", "green", "red", "red")]
    assert tokens == [
        Tokens(10, ((7, 3),)),
        Tokens(11, ((),)),
        Tokens(12, ((10, 7),)),
        Tokens(13, ((12, 10),)),
    ]
    assert sequencer.handle(TakeTokens(1)) == Tokens(14)
    assert sequencer.handle(LastAddresses(1, "red")) == Addresses(14, (13, 12))
    assert sequencer.handle(LastAddresses(1, "blue")) == Addresses(14, ())


def test_addresses_for_many_records_of_many_streams_are_consecutive(sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 1, 10, {"red": (7, 3)})
    reply = sequencer.handle(TakeTokens(1, (("red", 3), ("green", 1), ("red", 1))))
    assert reply == Tokens(10, ((7, 3), (), (12, 11)))
    assert sequencer.handle(LastAddresses(1, "red")) == Addresses(15, (14, 12))
    assert sequencer.handle(LastAddresses(1, "green")) == Addresses(15, (13,))
    assert sequencer.counters["tokens"] == 5


def test_a_stream_too_many_refuses_the_whole_request(sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 1, 0)
    reply = sequencer.handle(TakeTokens(1, (("a", 1), ("b", 1), ("a", 2), ("c", 1), ("d", 1))))
    assert isinstance(reply, Refused)
    assert sequencer.handle(TakeTokens(1)) == Tokens(0)
    assert sequencer.handle(TakeTokens(1, (("a", 1), ("a", 1), ("b", 1), ("c", 1)))) == Tokens(
        0, ((), (0,), (), ())
    )


def test_another_epoch_is_refused_either_way(sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 5, 0)
    assert sequencer.handle(TakeTokens(4, (("red", 1),))) == WrongEpoch(4)
    assert sequencer.handle(TakeTokens(6, (("red", 1),))) == NotReady()


@pytest.mark.parametrize("tail", [0, 5, 1001, 2500])
def test_tokens_never_go_backwards(sequencer: Sequencer, tail: int) -> None:
    """Also with an empty bootstrap, and with tails above a thousand."""
    bootstrapped(sequencer, 1, 2000)
    sequencer.handle(TakeTokens(1, (("red", 1),)))
    bootstrapped(sequencer, 2, tail)
    assert sequencer.handle(TakeTokens(2)) == Tokens(max(2001, tail))


def test_a_repeated_bootstrap_of_the_epoch_at_work_changes_nothing(sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 1, 10, {"red": (7,)})
    sequencer.handle(TakeTokens(1, (("red", 1),)))
    bootstrapped(sequencer, 1, 99, session=2)
    assert sequencer.handle(TakeTokens(1, (("red", 1),))) == Tokens(11, ((10, 7),))


def test_an_earlier_bootstrap_that_comes_late_is_refused(sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 3, 10)
    assert sequencer.handle(BeginBootstrap(2, 1, 50)) == WrongEpoch(2)
    assert sequencer.handle(FinishBootstrap(2, 1)) == WrongEpoch(2)


def test_state_of_one_epoch_is_not_started_as_another(sequencer: Sequencer) -> None:
    sequencer.handle(BeginBootstrap(1, 1, 10))
    reply = sequencer.handle(FinishBootstrap(2, 1))
    assert isinstance(reply, Refused)
    assert sequencer.handle(TakeTokens(2)) == NotReady()


def test_two_bootstraps_at_a_time_do_not_mix(sequencer: Sequencer) -> None:
    sequencer.handle(BeginBootstrap(1, 1, 10))
    sequencer.handle(AddStreamTails(1, 1, (("red", (7,)),)))
    sequencer.handle(BeginBootstrap(1, 2, 10))
    for request in (AddStreamTails(1, 1, (("green", (8,)),)), FinishBootstrap(1, 1)):
        reply = sequencer.handle(request)
        assert isinstance(reply, Refused)
        assert reply.code == "session"
    sequencer.handle(AddStreamTails(1, 2, (("red", (7,)), ("green", (8,)))))
    assert sequencer.handle(FinishBootstrap(1, 2)) == Done()
    assert sequencer.handle(TakeTokens(1, (("green", 1),))) == Tokens(10, ((8,),))


def test_a_restarted_one_does_not_serve_its_epoch_again(storage: MemoryStorage, sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 4, 10)
    again = Sequencer(storage, SETTINGS)
    assert again.handle(TakeTokens(4, (("red", 1),))) == NotReady()
    reply = again.handle(BeginBootstrap(4, 1, 10))
    assert isinstance(reply, Refused)
    assert reply.code == "used"
    assert bootstrapped(again, 5, 10).handle(TakeTokens(5)) == Tokens(10)


def test_a_sealed_epoch_gets_no_address_above_the_tail_that_was_told(
    storage: MemoryStorage, sequencer: Sequencer
) -> None:
    bootstrapped(sequencer, 4, 10)
    sequencer.handle(TakeTokens(4, (("red", 3),)))
    assert sequencer.handle(SealTokens(4)) == TokensSealed(13)
    for each in (sequencer, Sequencer(storage, SETTINGS)):
        assert each.handle(SealTokens(4)) == TokensSealed(13), "as often as it is asked, also after a restart"
        assert each.handle(TakeTokens(4, (("red", 1),))) == WrongEpoch(4)
        assert each.handle(BeginBootstrap(4, 1, 10)) == WrongEpoch(4)
        assert each.handle(SealTokens(3)) == WrongEpoch(3)
    assert bootstrapped(sequencer, 5, 20).handle(TakeTokens(5)) == Tokens(20)
    assert sequencer.handle(SealTokens(4)) == WrongEpoch(4)


def test_an_epoch_that_never_began_is_sealed_at_nothing(sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 4, 10)
    sequencer.handle(BeginBootstrap(6, 1, 12))
    assert sequencer.handle(SealTokens(6)) == TokensSealed(0)
    assert sequencer.handle(FinishBootstrap(6, 1)) == WrongEpoch(6)


def test_a_restarted_one_cannot_tell_what_it_gave(storage: MemoryStorage, sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 4, 10)
    reply = Sequencer(storage, SETTINGS).handle(SealTokens(4))
    assert isinstance(reply, Refused)
    assert reply.code == "used"


def test_a_seal_that_may_be_on_a_broken_disk_ends_the_epoch(
    storage: MemoryStorage, sequencer: Sequencer
) -> None:
    bootstrapped(sequencer, 4, 10)
    storage.broken = True
    assert isinstance(sequencer.handle(SealTokens(4)), Refused)
    storage.broken = False
    assert sequencer.handle(TakeTokens(4, (("red", 1),))) == NotReady()


def test_a_broken_disk_refuses_the_bootstrap(storage: MemoryStorage, sequencer: Sequencer) -> None:
    sequencer.handle(BeginBootstrap(1, 1, 10))
    storage.broken = True
    reply = sequencer.handle(FinishBootstrap(1, 1))
    assert isinstance(reply, Refused)
    assert reply.code == "storage"
    assert sequencer.handle(TakeTokens(1)) == NotReady()


def test_the_number_of_streams_is_bounded(sequencer: Sequencer) -> None:
    bootstrapped(sequencer, 1, 0)
    for stream in ("a", "b", "c"):
        sequencer.handle(TakeTokens(1, ((stream, 1),)))
    reply = sequencer.handle(TakeTokens(1, (("d", 1),)))
    assert isinstance(reply, Refused)
    assert reply.code == "streams"
    reply = sequencer.handle(GetStatus())
    assert isinstance(reply, Refused)
    assert reply.code == "role"

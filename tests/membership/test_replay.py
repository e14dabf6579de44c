"""Replay windows, against a twin that simply remembers everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from membership.wire.replay import WINDOW, ReplayGuard, ReplayWindow

counters = st.one_of(
    st.integers(0, 50),
    st.integers(WINDOW - 5, WINDOW + 60),
    st.integers(3 * WINDOW, 3 * WINDOW + 50),
    st.integers(0, 2**64 - 1),
)


@given(st.lists(counters, max_size=60))
def test_exactly_what_is_old_or_known_is_a_replay(arriving: list[int]) -> None:
    window, seen = ReplayWindow(), set[int]()
    for counter in arriving:
        expected = counter in seen or counter <= max(seen, default=-1) - WINDOW
        assert window.is_replay(counter) is expected
        if not expected:
            window.note(counter)
            seen.add(counter)


def test_more_than_a_thousand_may_overtake_one_datagram() -> None:
    window = ReplayWindow()
    for counter in range(1, WINDOW):
        window.note(counter)
    assert WINDOW > 1024
    assert not window.is_replay(0)
    window.note(0)
    assert window.is_replay(0)
    window.note(WINDOW)
    assert window.is_replay(0)


def test_a_window_stays_small_however_high_the_counters_jump() -> None:
    window = ReplayWindow()
    for exponent in (*range(64), *range(64)):
        window.note(2**exponent)
        assert window._seen < 1 << WINDOW


def test_sessions_are_bounded_and_those_heard_last_are_kept() -> None:
    guard = ReplayGuard(sessions=3)
    for session in (b"a", b"b", b"c"):
        guard.note(session, 7)
    guard.note(b"a", 8)
    guard.note(b"d", 7)  # b gives way, a was heard since
    assert len(guard) == 3
    assert guard.forgotten == 1
    assert guard.is_replay(b"a", 7)
    assert not guard.is_replay(b"b", 7)


def test_sessions_do_not_share_counters() -> None:
    guard = ReplayGuard()
    guard.note(b"a", 7)
    assert not guard.is_replay(b"b", 7)

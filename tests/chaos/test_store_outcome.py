"""The rule on copies and racks, when it was broken, and what is made of a record."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from chaos.checkers.history import Append, Kind, Operation
from chaos.checkers.store_outcome import CopiesWatch, LogOutcome, has_enough_copies, log_outcome
from chaos.store.clients import Record


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, str], tuple[str, ...], int]:
    racks = draw(st.integers(1, 4))
    hosts = draw(st.integers(1, 3))
    live = {f"n{number}": f"r{number % racks}" for number in range(racks * hosts)}
    names = [*live, "gone1", "gone2"]
    chain = draw(st.lists(st.sampled_from(names), unique=True, max_size=5))
    return live, tuple(chain), draw(st.integers(1, 4))


@given(clusters())
def test_the_rule_is_kept_by_just_the_most_even_ways_to_place_the_copies(
    case: tuple[dict[str, str], tuple[str, ...], int],
) -> None:
    """The brute-force twin: of all ways to give racks copies, the most even is what the rule wants."""
    live, chain, copies = case
    held = [host for host in chain if host in live]
    racks = sorted(set(live.values()))
    if copies > len(live) or len(held) > copies:
        return
    ways = [way for way in product(range(copies + 1), repeat=len(racks)) if sum(way) == copies]
    most_even = min(sum(count * count for count in way) for way in ways)
    found = tuple(sum(live[host] == rack for host in held) for rack in racks)
    even = len(held) == copies and sum(count * count for count in found) == most_even
    assert has_enough_copies(chain, live, copies) == even


def test_how_long_the_rule_was_broken() -> None:
    watch = CopiesWatch()
    for now, broken in ((0.0, 1), (2.0, 0), (10.0, 3), (11.0, 2), (15.0, 0), (20.0, 0), (21.0, 1)):
        watch.look(now, broken)
    assert watch.spans == [(0.0, 2.0), (10.0, 15.0)]
    assert watch.longest(1.0) == 5.0
    assert watch.longest(12.0) == 3.0
    assert watch.longest(16.0) is None
    assert not watch.holds


def outcome_of(record: Record) -> LogOutcome:
    watch = CopiesWatch()
    watch.look(0.0, 0)
    return log_outcome(record, began=0.0, plans=(), watch=watch)


def test_a_good_record() -> None:
    record = Record(
        [Append("w", b"a", 0.0, 1.0, 4), Append("w", b"b", 1.5, 2.0, 5), Append("w", b"c", 3.0)],
        [Operation("u", "k", Kind.WRITE, b"1", 0.0, 1.0), Operation("judge", "k", Kind.READ, b"1", 9.0, 9.5)],
        {4: b"a", 5: b"b"},
    )
    outcome = outcome_of(record)
    assert (outcome.acknowledged_writes, outcome.lost_writes, outcome.unanswered) == (2, 0, 1)
    assert outcome.operations == 1
    assert outcome.out_of_order == outcome.not_linearizable == ()
    assert outcome.longest_write_pause == 1.0


def test_a_lost_write_one_at_another_place_and_a_forgotten_register_are_found() -> None:
    record = Record(
        [Append("w", b"a", 0.0, 1.0, 0), Append("w", b"b", 1.5, 2.0, 5)],
        [Operation("u", "k", Kind.WRITE, b"1", 0.0, 1.0), Operation("judge", "k", Kind.READ, None, 9.0, 9.5)],
        {5: b"x"},
    )
    outcome = outcome_of(record)
    assert outcome.lost_writes == 2
    assert outcome.out_of_order
    assert outcome.not_linearizable

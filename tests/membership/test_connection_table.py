"""Which connections give way when there are more than there is room for, whatever their protocol."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from membership.transport.connections import ConnectionTable


class Fake:
    made = count()

    def __init__(self, host: str, is_busy: bool = False) -> None:
        self.host = host
        self.is_busy = is_busy
        self.number = next(self.made)
        self.aborted = False

    @property
    def idle_since(self) -> float | None:
        return None if self.is_busy else self.number

    def give_way(self) -> None:
        self.aborted = True


def table_of(limit: int, host_limit: int, counters: Counter[str] | None = None) -> ConnectionTable[Fake]:
    return ConnectionTable(limit, host_limit, Counter() if counters is None else counters, "evicted")


def test_the_oldest_idle_one_of_whoever_has_the_most_gives_way() -> None:
    table = table_of(4, 3)
    few, first, second, third = Fake("b"), Fake("a", is_busy=True), Fake("a"), Fake("a")
    assert all(table.admit(each) for each in (few, first, second, third))
    assert table.admit(Fake("c"))
    assert [each.aborted for each in (few, first, second, third)] == [False, False, True, False]


def test_who_has_as_many_as_one_may_have_takes_ones_own_place() -> None:
    table = table_of(10, 2)
    other, mine = Fake("b"), [Fake("a"), Fake("a")]
    for each in (other, *mine):
        table.admit(each)
    assert table.admit(Fake("a"))
    assert [each.aborted for each in (other, *mine)] == [False, True, False]


def test_what_is_worked_on_is_not_closed_for_others() -> None:
    counters: Counter[str] = Counter()
    table = table_of(2, 2, counters)
    busy = [Fake("a", is_busy=True), Fake("a", is_busy=True)]
    assert all(map(table.admit, busy))
    assert not table.admit(Fake("b"))
    assert not counters
    table.remove(busy[0])
    assert table.admit(Fake("b"))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=40))
def test_the_bounds_hold_whatever_comes(script: list[tuple[str, bool, bool]]) -> None:
    table, standing = table_of(5, 3), list[Fake]()
    for host, is_busy, leaves in script:
        if leaves and standing:
            table.remove(standing.pop(0))
        connection = Fake(host, is_busy)
        if table.admit(connection):
            standing.append(connection)
        assert not any(each.aborted and each.is_busy for each in standing)
        standing = [each for each in standing if not each.aborted]
        assert len(table) == len(standing) <= 5
        assert max(Counter(each.host for each in standing).values(), default=0) <= 3
    assert list(table) == standing

"""Which HTTP connections give way when there are more than there is room for."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rota.http.connections import Connections


class Fake:
    def __init__(self, host: str, is_busy: bool = False) -> None:
        self.host = host
        self.is_busy = is_busy
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_the_oldest_idle_one_of_whoever_has_the_most_gives_way() -> None:
    table = Connections(4, 3, Counter())
    few, first, second, third = Fake("b"), Fake("a", is_busy=True), Fake("a"), Fake("a")
    assert all(table.admit(each) for each in (few, first, second, third))
    assert table.admit(Fake("c"))
    assert [each.aborted for each in (few, first, second, third)] == [False, False, True, False]


def test_who_has_as_many_as_one_may_have_takes_ones_own_place() -> None:
    table = Connections(10, 2, Counter())
    other, mine = Fake("b"), [Fake("a"), Fake("a")]
    for each in (other, *mine):
        table.admit(each)
    assert table.admit(Fake("a"))
    assert [each.aborted for each in (other, *mine)] == [False, True, False]


def test_what_is_worked_on_is_not_closed_for_others() -> None:
    counters: Counter[str] = Counter()
    table = Connections(2, 2, counters)
    busy = [Fake("a", is_busy=True), Fake("a", is_busy=True)]
    assert all(map(table.admit, busy))
    assert not table.admit(Fake("b"))
    assert counters["http.connections_refused"] == 1
    table.remove(busy[0])
    assert table.admit(Fake("b"))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=40))
def test_the_bounds_hold_whatever_comes(script: list[tuple[str, bool, bool]]) -> None:
    table, standing = Connections(5, 3, Counter()), list[Fake]()
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
    table.abort()
    assert all(each.aborted for each in standing)
    assert len(table) == 0

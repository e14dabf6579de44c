"""Judges of histories against twins that try every order."""

from __future__ import annotations

from dataclasses import replace as replaced
from itertools import permutations
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.checkers.history import Append, Kind, Operation
from chaos.checkers.linearizability import contradictions, is_linearizable
from chaos.checkers.log_order import broken_rules


def read(value: Any, invoked: float, completed: float = inf, key: str = "x") -> Operation:
    return Operation("c", key, Kind.READ, value, invoked, completed)


def write(value: Any, invoked: float, completed: float = inf, key: str = "x") -> Operation:
    return Operation("c", key, Kind.WRITE, value, invoked, completed)


def replace(expected: Any, value: Any, invoked: float, completed: float, succeeded: bool = True) -> Operation:
    return Operation("c", "x", Kind.REPLACE, value, invoked, completed, expected, succeeded)


def test_a_read_after_a_write_was_answered_sees_it() -> None:
    assert is_linearizable([write(1, 0, 1), read(1, 2, 3)])
    assert not is_linearizable([write(1, 0, 1), read(None, 2, 3)])


def test_a_read_beside_a_write_sees_either() -> None:
    for seen in (None, 1):
        assert is_linearizable([write(1, 0, 3), read(seen, 1, 2)])


def test_what_one_reader_saw_a_later_one_sees_too() -> None:
    assert not is_linearizable([write(1, 0, 9), read(1, 1, 2), read(None, 3, 4)])


def test_a_write_without_an_answer_may_come_late_or_never_but_not_twice() -> None:
    assert is_linearizable([write(1, 0), read(None, 1, 2), read(1, 3, 4)])
    assert is_linearizable([write(1, 0), read(None, 1, 2), read(None, 3, 4)])
    assert not is_linearizable([write(1, 0), read(1, 1, 2), write(2, 3, 4), read(1, 5, 6)])


def test_of_two_replacements_of_one_value_one_is_in_vain() -> None:
    both = [replace(None, 1, 0, 5), replace(None, 2, 0, 5)]
    assert not is_linearizable(both)
    assert is_linearizable([both[0], replace(None, 2, 0, 5, succeeded=False)])


def test_a_contradiction_names_the_register_and_ends_with_the_answer_that_cannot_be() -> None:
    history = [
        write(1, 0, 1),
        read(1, 2, 3),
        read(None, 4, 5),
        read(1, 6, 7),
        write(2, 4.5, 9),
        write(7, 0, 1, key="y"),
        read(7, 2, 3, key="y"),
    ]
    (found,) = contradictions(history)
    assert found.key == "x"
    assert found.operations == (write(1, 0, 1), read(1, 2, 3), read(None, 4, 5), write(2, 4.5))
    assert "reads None at 'x' (4.000 s to 5.000 s)" in str(found)


def explained(order: tuple[Operation, ...], initial: Any) -> bool:
    value = initial
    for place, operation in enumerate(order):
        if any(later.completed < operation.invoked for later in order[place + 1 :]):
            return False
        possible, value = operation.after(value)
        if not possible:
            return False
    return True


def twin(operations: list[Operation], initial: Any) -> bool:
    """Every choice of what happened among that without an answer, in every order."""
    answered = [operation for operation in operations if not operation.is_open]
    still_open = [operation for operation in operations if operation.is_open]
    for chosen in range(1 << len(still_open)):
        happened = [operation for place, operation in enumerate(still_open) if chosen >> place & 1]
        if any(explained(order, initial) for order in permutations([*answered, *happened])):
            return True
    return False


values = st.sampled_from([None, 1, 2])
spans = st.tuples(st.integers(0, 8), st.integers(0, 4) | st.just(inf)).map(lambda pair: (pair[0], sum(pair)))
operations = st.builds(
    lambda kind, value, expected, span, succeeded: Operation(
        "c", "x", kind, value, span[0], span[1], expected, succeeded
    ),
    st.sampled_from(Kind),
    values,
    values,
    spans,
    st.booleans(),
)


@given(st.lists(operations, max_size=5), values)
def test_the_search_agrees_with_trying_every_order(history: list[Operation], initial: Any) -> None:
    assert is_linearizable(history, initial) == twin(history, initial)


@given(st.lists(operations, min_size=1, max_size=5))
def test_a_contradiction_is_one_itself_and_the_history_before_its_last_answer_is_not(
    history: list[Operation],
) -> None:
    found = contradictions(history)
    assert bool(found) == (not twin(history, None))
    for contradiction in found:
        assert not twin(list(contradiction.operations), None)
        last = max(operation.completed for operation in contradiction.operations if not operation.is_open)
        before = [
            replaced(operation, completed=inf) if operation.completed == last else operation
            for operation in contradiction.operations
        ]
        assert twin(before, None)


def test_many_clients_on_one_register_are_judged() -> None:
    """Eight clients write, all at the same time, fifty times; the last value is read by all."""
    history = [write(number, number // 8 * 10, number // 8 * 10 + 9) for number in range(400)]
    history += [read(395, 600 + number, 601 + number) for number in range(8)]
    assert is_linearizable(history)
    assert not is_linearizable([*history, read(396, 700, 701)])


# The log.

APPENDS = [Append("a", "one", 0, 1, 5), Append("b", "two", 2, 3, 6), Append("b", "three", 4)]


@pytest.mark.parametrize(
    "contents", [{5: "one", 6: "two"}, {5: "one", 6: "two", 7: "three"}, {5: "one", 6: "two", 4: "three"}]
)
def test_a_log_in_order(contents: dict[int, str]) -> None:
    assert broken_rules(APPENDS, contents) == []


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ({5: "one"}, "b appends 'two' at 2.000 s: address 6, and nothing is there"),
        ({5: "one", 6: "three"}, "address 6, and 'three' is there"),
        ({5: "one", 6: "two", 7: "four"}, "'four' at address 7 was appended by nobody"),
        ({5: "one", 6: "two", 7: "two"}, "'two' is there twice, at addresses 6 and 7"),
    ],
)
def test_what_is_lost_doubled_or_from_nowhere(contents: dict[int, str], words: str) -> None:
    (found,) = broken_rules(APPENDS, contents)
    assert words in found


def test_who_comes_later_stands_behind() -> None:
    early, late = Append("a", "one", 0, 1, 6), Append("b", "two", 2, 3, 5)
    (found,) = broken_rules([early, late], {6: "one", 5: "two"})
    assert "was answered before it was called" in found
    beside = Append("b", "two", 0.5, 3, 5)
    assert broken_rules([early, beside], {6: "one", 5: "two"}) == []


def test_two_appends_of_one_value_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="told apart"):
        broken_rules([Append("a", 1, 0), Append("b", 1, 0)], {})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=6), st.randoms())
def test_order_agrees_with_comparing_every_pair(calls: list[tuple[int, int]], generator: Any) -> None:
    addresses = list(range(len(calls)))
    generator.shuffle(addresses)
    history = [
        Append("c", place, start, start + length, addresses[place])
        for place, (start, length) in enumerate(calls)
    ]
    contents = {addresses[place]: place for place in range(len(calls))}
    wrong = {
        late.value
        for early in history
        for late in history
        if early.completed < late.invoked and (early.address or 0) > (late.address or 0)
    }
    assert len(broken_rules(history, contents)) == len(wrong)

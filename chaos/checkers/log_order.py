"""Is the log one order of all appends, the same for everybody, with nothing that was acknowledged missing?

The rules of a log with total order, checked on the clients' record and on what the log holds at the end. What was
acknowledged is there, where it was said to be, once; an append called after another was answered comes behind it;
what nobody appended is not there.
Source: M. Balakrishnan and others, *CORFU: A Shared Log Design for Flash Clusters*, 2012, section 2 (an append is
answered with its position in a total order).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from chaos.checkers.history import Append


def broken_rules(
    appends: Iterable[Append], contents: Mapping[int, Any], unreadable: Container[int] = ()
) -> list[str]:
    """What the log does wrong, in words; nothing when all is well.

    `contents`: the values by address as read at the end, without holes; `unreadable`: the addresses of which the log
    says that it cannot give them. Values must be hashable and told apart by their writers: each is appended once.
    """
    appends = list(appends)
    values = [append.value for append in appends]
    if len(set(values)) < len(values):
        raise ValueError("two appends of the same value cannot be told apart")
    return [*_lost(appends, contents, unreadable), *_strange(appends, contents), *_out_of_order(appends)]


def _lost(appends: Iterable[Append], contents: Mapping[int, Any], unreadable: Container[int]) -> list[str]:
    """Acknowledged, and not where it was said to be."""
    found = []
    for append in appends:
        if append.address is not None and append.address not in unreadable:
            if append.address not in contents:
                found.append(f"{append}, and nothing is there")
            elif contents[append.address] != append.value:
                found.append(f"{append}, and {contents[append.address]!r} is there")
    return found


def _strange(appends: Iterable[Append], contents: Mapping[int, Any]) -> list[str]:
    """In the log, and appended by nobody or there twice."""
    known = {append.value for append in appends}
    found = []
    places: dict[Any, int] = {}
    for address, value in sorted(contents.items()):
        if value not in known:
            found.append(f"{value!r} at address {address} was appended by nobody")
        elif value in places:
            found.append(f"{value!r} is there twice, at addresses {places[value]} and {address}")
        places.setdefault(value, address)
    return found


def _out_of_order(appends: Iterable[Append]) -> list[str]:
    """Called after another was answered, and in front of it all the same."""
    answered = sorted(
        (append for append in appends if append.address is not None), key=lambda append: append.completed
    )
    called = sorted(answered, key=lambda append: append.invoked)
    found = []
    last: Append | None = None
    place = 0
    for append in called:
        while place < len(answered) and answered[place].completed < append.invoked:
            if last is None or _address(answered[place]) > _address(last):
                last = answered[place]
            place += 1
        if last is not None and _address(append) <= _address(last):
            found.append(f"{append}, although {last} was answered before it was called")
    return found


def _address(append: Append) -> int:
    assert append.address is not None
    return append.address

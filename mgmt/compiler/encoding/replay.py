"""Steps of an encoding that are taken from the one before: what a step made of the same things, it would make again.

A step is told things through the :class:`Journal` alone: answers of the database, relations of earlier steps, what has
been looked up.  Where all of these are the objects that they were, what the step added to the encoding is added again.
Where they are not it is encoded, and if what it made is equal to what it was, it is the same objects again, so that
steps which read it are as they were.  What is taken over speaks of variables by number: from the first step on that
makes other numbers than before, everything is encoded.  So an encoding is the same with and without one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

_MOST_CELLS = 5_000_000
"""Of an encoding that is kept, as a problem counts them."""
_MOST_PROGRAMS = 4
_PLAIN = {int, str, float, bool}


class Told(NamedTuple):
    """What a source has told."""

    source: str
    arguments: tuple[Any, ...]
    found: Any


class Journal:
    """What the present step has been told."""

    def __init__(self) -> None:
        self.sources: dict[str, Callable[..., Any]] = {}
        """What answers always the same, or with another object."""
        self.told: list[Told] = []

    def ask(self, source: str, *arguments: Any) -> Any:
        found = self.sources[source](*arguments)
        self.told.append(Told(source, arguments, found))
        return found

    def is_told_again(self, told: Sequence[Told]) -> bool:
        """Whether the sources tell the same now."""
        return all(self.sources[each.source](*each.arguments) is each.found for each in told)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What a step was told, and made of it."""

    told: Sequence[Told]
    made: Any
    numbering: Any
    """What the numbers depend on that later steps speak in."""
    aside: Any
    """What else it made, which no step reads."""


@dataclass(slots=True)
class Replay:
    """The steps of the last encoding of each program, by its queries and the columns that it decides."""

    _steps: dict[Any, tuple[Sequence[object], dict[str, Step]]] = field(default_factory=dict)

    def taken(self, program: Sequence[object], columns: object) -> dict[str, Step]:
        """The steps of its last encoding, if that was finished and kept; they are no longer kept here."""
        _, steps = self._steps.pop((*map(id, program), columns), ((), {}))
        return steps

    def keep(self, program: Sequence[object], columns: object, steps: dict[str, Step], cells: int) -> None:
        while len(self._steps) >= _MOST_PROGRAMS:
            del self._steps[next(iter(self._steps))]
        if cells <= _MOST_CELLS:
            self._steps[(*map(id, program), columns)] = program, steps


def alike(one: Any, other: Any) -> bool:
    """Whether two objects are made of equal ones, arrays of equal numbers."""
    if one is other:
        return True
    kind: Any = type(one)
    if kind is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and alike(list(one.values()), list(other.values()))
    if isinstance(one, (list, tuple)):
        if set(map(type, one)) <= _PLAIN:
            return bool(one == other)
        return len(one) == len(other) and all(map(alike, one, other))
    if is_dataclass(kind) and kind.__eq__ is object.__eq__:
        return all(alike(getattr(one, name), getattr(other, name)) for name in _fields(kind))
    return bool(one == other)


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.repr)


def added(grown: Sequence[list[Any] | dict[Any, Any]], lengths: Sequence[int]) -> list[Any]:
    """What lists and mappings have grown by since they had these lengths."""
    return [
        each[first:] if isinstance(each, list) else dict(islice(each.items(), first, None))
        for each, first in zip(grown, lengths, strict=True)
    ]


def cut(grown: Sequence[list[Any] | dict[Any, Any]], lengths: Sequence[int]) -> None:
    """Take that away."""
    for each, first in zip(grown, lengths, strict=True):
        for key in [] if isinstance(each, list) else list(islice(each, first, None)):
            del each[key]
        if isinstance(each, list):
            del each[first:]


def grow(grown: Sequence[list[Any] | dict[Any, Any]], by: Sequence[Any]) -> None:
    """Let them grow by this."""
    for each, items in zip(grown, by, strict=True):
        if isinstance(each, list):
            each.extend(items)
        else:
            each.update(items)

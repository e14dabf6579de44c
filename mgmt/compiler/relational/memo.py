"""What is made of an object, made once: models that share most of their queries share what these are compiled to.

Objects are told apart by identity, and live as long as what was made of them.

What it is not: a cache that forgets; a copy of it is dropped with the model it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Made = TypeVar("_Made")


class Memo(Generic[_Key, _Made]):
    """By object, what was made of it."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[_Key, _Made]] = {}

    def of(self, key: _Key, make: Callable[[_Key], _Made]) -> _Made:
        """What ``make`` makes of the object; not called again for the same one."""
        found = self._made.get(id(key))
        if found is None:
            found = self._made[id(key)] = (key, make(key))
        return found[1]

    def copy(self) -> Memo[_Key, _Made]:
        """As much, and on its own from now on."""
        copy = Memo[_Key, _Made]()
        copy._made.update(self._made)
        return copy

"""Whether a name that nobody declares is as good as certainly meant to be one that nothing brings."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_NEAR = 0.75  # share of the letters: memroy and memory have 0.83 in common, podz and pods 0.75
_SHORTEST = 4  # letters; min and max, or mb and gb, are different words


def misspelt(name: str, others: Iterable[str]) -> str | None:
    """The one of the others, all in lower case, that differs from the name in the letters of one word."""
    return next(
        (other for other in sorted(others) if _is_near(name.lower().split("_"), other.split("_"))), None
    )


def _is_near(words: list[str], others: list[str]) -> bool:
    if len(words) != len(others):
        return False
    ((word, other), *more) = [pair for pair in zip(words, others, strict=True) if pair[0] != pair[1]] or [
        ("", "")
    ]
    if more or not word.isalpha() or not other.isalpha() or max(len(word), len(other)) < _SHORTEST:
        return False  # disk1 is not disk2, and tasks_2024 is not tasks_2025
    return SequenceMatcher(None, word, other).ratio() >= _NEAR

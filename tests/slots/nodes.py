"""CLUSTER NODES as tests read it: apart from rota's own reading, which is what they test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """One line."""

    node_id: str
    address: str
    """``host:port`` for clients."""
    flags: frozenset[str]
    primary_id: str
    """Of whom it is a replica, or nothing."""
    link: str
    slots: tuple[str, ...]
    """``5`` or ``0-100``, as written."""
    open: tuple[str, ...]
    """``[5->-id]`` and ``[5-<-id]``, as written."""

    def held(self) -> Iterator[int]:
        """Each slot it holds."""
        for part in self.slots:
            first, _, last = part.partition("-")
            yield from range(int(first), int(last or first) + 1)


def parse(text: str) -> Iterator[Node]:
    for line in text.splitlines():
        words = line.split()
        yield Node(
            words[0],
            words[1].partition("@")[0],
            frozenset(words[2].split(",")),
            words[3].strip("-"),
            words[7],
            tuple(word for word in words[8:] if not word.startswith("[")),
            tuple(word for word in words[8:] if word.startswith("[")),
        )

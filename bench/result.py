"""What a benchmark returns, and how it is shown beside the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """A further table for people: figures of others that one column beside ours can not hold."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Result:
    """``figures`` is the JSON document; ``rows`` are (what, ours, published) for people."""

    figures: Mapping[str, Any]
    rows: Sequence[tuple[str, str, str]]
    source: str
    """Where the published figures come from, and on what machine."""
    others: Sequence[Table] = ()
    ok: bool = True
    """False when what was to be measured did not happen; the command then ends with status 1."""
    remarks: Sequence[str] = ()
    """What a figure means, where its name does not say it."""

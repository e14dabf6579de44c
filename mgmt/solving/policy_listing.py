"""The policies in force, as people read them: what each is called, demands and means, and where it is written.

A reading of the policy texts; nothing is compiled or solved.  It needs the SQL parser, so the solver's process does it.
What a rule means is said by its pack's README, whose tables have the rule's name in the first column of their rows and
the meaning in the last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgmt.placement.intent import PolicyChoice

if TYPE_CHECKING:
    from mgmt.language.syntax import Tail

_NAME = re.compile(r"`([A-Za-z_]\w*)`")


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One rule or objective."""

    name: str
    kind: str
    """``rule`` (must hold), ``soft rule`` (its violation is minimised), ``minimize`` or ``maximize``."""
    tier: int | None
    """Of an objective: 1 is optimised first."""
    weight: int
    where: str
    """``file:line:column``."""
    meaning: str
    """In words; empty when nobody has written it down."""


def list_policies(choice: PolicyChoice) -> tuple[PolicyEntry, ...]:
    """All that demand something, in the order of their texts.  Raises PolicyError as compiling them would."""
    from mgmt.language.policies import load_pack
    from mgmt.language.syntax import parse_statements
    from mgmt.source import SourceText

    pack = load_pack(choice.pack)
    meanings = _meanings(pack.readme)
    texts = (*pack.policies, *(SourceText(name, text) for name, text in choice.texts))
    return tuple(
        PolicyEntry(
            statement.name,
            _kind(statement.tail),
            None if _kind(statement.tail) == "rule" else statement.tail.tier,
            statement.tail.weight,
            str(statement.position),
            meanings.get(statement.name, ""),
        )
        for text in texts
        for statement in parse_statements(text)
        if statement.tail is not None
    )


def _kind(tail: Tail) -> str:
    if tail.kind == "check":
        return "soft rule" if tail.soft else "rule"
    return str(tail.kind)


def _meanings(readme: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in readme.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|") or len(cells) < 2:
            continue
        name = next((match for cell in cells[:-1] if (match := _NAME.fullmatch(cell))), None)
        if name is not None:
            found.setdefault(name[1], cells[-1].replace("`", ""))
    return found

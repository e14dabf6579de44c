"""A listing of the policies in force: what each is called, demands and means, and where it is written.

A reading of the policy texts; nothing is compiled or solved.  It needs the SQL parser, so the solver's process does it.
What a rule means is said by its pack's README, whose tables have the rule's name in the first column of their rows and
the meaning in the last; or by the comment right above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgmt.placement.intent import PolicyChoice

if TYPE_CHECKING:
    from mgmt.language.parsing.trailing_clauses import Tail
    from mgmt.source_text import SourceText

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
    from mgmt.language.policy_packs import load_pack
    from mgmt.source_text import SourceText

    pack = load_pack(choice.pack)
    texts = (*pack.policies, *(SourceText(name, text) for name, text in choice.texts))
    return policy_entries(texts, pack.readme)


def policy_entries(texts: Iterable[SourceText], readme: str = "") -> tuple[PolicyEntry, ...]:
    """All in these texts that demand something; what they mean is taken from the README.  Raises PolicyError."""
    from mgmt.language.parsing.statements import parse_statements

    meanings = _meanings(readme)
    return tuple(
        PolicyEntry(
            statement.name,
            _kind(statement.tail),
            None if _kind(statement.tail) == "rule" else statement.tail.tier,
            statement.tail.weight,
            str(statement.position),
            meanings.get(statement.name) or _comment_above(text, statement.position.line),
        )
        for text in texts
        for statement in parse_statements(text)
        if statement.tail is not None
    )


def _comment_above(text: SourceText, line: int) -> str:
    """The comment lines right above a statement, without the annotations that are part of its meaning."""
    lines = text.text.split("\n")[: line - 1]
    comments: list[str] = []
    while lines and lines[-1].lstrip().startswith("--"):
        comments.insert(0, lines.pop().lstrip().lstrip("-").strip())
    return " ".join(comment for comment in comments if comment and not comment.startswith("@"))


def _kind(tail: Tail) -> str:
    if tail.kind == "check":
        return "soft rule" if tail.soft else "rule"
    if tail.kind == "pinned":
        return "rule"
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

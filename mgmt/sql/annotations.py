"""Annotations: what comments of the OSDI form say of the statement after them (``-- @hard_constraint``).

A comment may hold any word after a sign, so one that is none of ours is left alone, unless it is nearly one.

What they mean is known to ``mgmt.language.parsing.statements`` and ``mgmt.state.schema_parsing.variable_columns``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from mgmt.errors import PolicySyntaxError
from mgmt.source_text import Position, SourceText

ANNOTATIONS = ("hard_constraint", "soft_constraint", "variable_columns")

# What holds a comment's beginning without being one is read over.
_COMMENTS = re.compile(
    r"[eE]'(?:[^'\\]|\\.)*'|'[^']*'|\"[^\"]*\"|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))", re.DOTALL
)
# At the beginning of a comment, or of one of its lines.
_WORD = re.compile(r"^[\s*/-]*@(\w[\w-]*)", re.MULTILINE)
_NEARLY = 0.75


def refuse_misspelt(source: SourceText) -> None:
    """PolicySyntaxError for a comment that is nearly an annotation: it would be read over without a word."""
    for word, position in unknown_annotations(source):
        meant = nearest(word, _NEARLY)
        if meant:
            raise PolicySyntaxError(
                f"no annotation @{word}", position=position, hint=f"did you mean @{meant}?"
            )


def unknown_annotations(source: SourceText) -> Iterator[tuple[str, Position]]:
    """The words after a sign at the beginning of comments that are no annotations, and where."""
    if "@" not in source.text:
        return
    for match in _COMMENTS.finditer(source.text):
        for found in _WORD.finditer(match["comment"] or ""):
            if found[1].lower() not in ANNOTATIONS:
                yield found[1], source.position(match.start() + found.start(1) - 1)


def nearest(word: str, nearness: float = 0.5) -> str:
    """The annotation that is most like a word; empty when none is."""
    return next(iter(get_close_matches(word.lower().replace("-", "_"), ANNOTATIONS, 1, nearness)), "")

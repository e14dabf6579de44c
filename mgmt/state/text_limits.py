"""Searches in texts that take a moment at most: no database can be stopped in the middle of one.

LIKE, ``replace`` and their like look at the whole of what is sought at every place of a text, so they take as long as
the product of the two.  The compiler writes a check around the operands of those that could take longer than a moment.

What it is not: the size of a regular expression is known to ``mgmt.language.patterns`` alone, which calls ``limited``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import apsw
from sqlglot import exp

from mgmt.errors import DataError
from mgmt.state.exact_integers import PREFIX

LIMITED = f"{PREFIX}limited"
"""A text, and of how many characters it may be."""
LONGEST = 10_000_000
"""Characters of any text."""
_MOST_COMPARED = 100_000_000
"""Characters by characters: SQLite's LIKE compares 600 millions in a second."""
_LONGEST_SEARCHED, _LONGEST_SOUGHT = 200_000, 500
"""Of two texts of which neither is known."""
_SEARCHES: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.Like: ("this", "expression"),
    exp.ILike: ("this", "expression"),
    exp.Glob: ("this", "expression"),
    exp.StrPosition: ("this", "substr"),
    exp.Replace: ("this", "expression"),
    exp.Trim: ("this", "expression"),
    exp.SplitPart: ("this", "delimiter"),
    exp.Translate: ("this", "from_"),
}
SEARCHES: tuple[type[exp.Expr], ...] = tuple(_SEARCHES)
"""What ``guard`` changes, by its operands: where is searched, and what is sought."""


def guard(holder: exp.Expr) -> None:
    """Change all searches below a node that could take long."""
    for node in reversed(list(holder.find_all(*SEARCHES))):
        searched, sought = (node.args.get(name) for name in _SEARCHES[type(node)])
        if searched is None or sought is None:
            continue
        for one, other in ((searched, sought), (sought, searched)):
            if isinstance(other, exp.Literal):
                most = _MOST_COMPARED // max(1, len(other.name))
                _limit(one, min(most, LONGEST))
                break
        else:
            _limit(searched, _LONGEST_SEARCHED)
            _limit(sought, _LONGEST_SOUGHT)


def _limit(node: exp.Expr, most: int) -> None:
    known = len(node.name) if isinstance(node, exp.Literal) else LONGEST
    if most < known:
        node.replace(limited(node, most))


def limited(node: exp.Expr, most: int) -> exp.Anonymous:
    """A call that gives the text as it is, unless it is longer."""
    return exp.Anonymous(this=LIMITED, expressions=[node.copy(), exp.Literal.number(most)])


def unguarded(node: exp.Expr) -> exp.Expr | None:
    """What ``limited`` was made of; None when it is not its work."""
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == LIMITED:
        found: exp.Expr = node.expressions[0]
        return found
    return None


def too_many(characters: int | str) -> DataError:
    """What both databases raise for a text to be made."""
    return DataError(f"a text of {characters} characters", hint=f"texts have at most {LONGEST}")


def too_long(characters: int | str, most: int | str) -> DataError:
    """What both databases raise."""
    return DataError(
        f"a text of {characters} characters is searched, which would take too long",
        hint=f"at most {most} are searched for this; seek something shorter, or keep what is asked for in a column",
    )


def install(connection: apsw.Connection, look: Callable[[], None]) -> None:
    """Let the connection run what ``guard`` makes; ``look`` raises when a statement has had its time."""

    def check(*operands: Any) -> Any:
        text, most = operands
        look()
        if isinstance(text, str) and len(text) > most:
            raise too_long(len(text), most)
        return text

    connection.create_scalar_function(LIMITED, check, 2, deterministic=True)

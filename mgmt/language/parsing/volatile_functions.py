"""Volatile functions are refused: the same state has the same plan.

A function that tells the time is none: in a snapshot the time stands still.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from mgmt.errors import UnsupportedConstructError
from mgmt.language.parsing.statements import Statement
from mgmt.source_text import Position
from mgmt.sql.tokens import position_of

_DRAWS = {
    "random",
    "uuid",
    "uuidv4",
    "uuidv7",
    "gen_random_uuid",
    "setseed",
    "nextval",
    "currval",
    "txid_current",
}
_CLOCKS = {"current_time", "get_current_time", "localtime", "current_localtime"}
_DRAWN = (exp.Rand, exp.Randn, exp.Uuid)


def refuse_unsteady(statement: Statement) -> None:
    """UnsupportedConstructError where a statement draws a value, or asks a clock."""
    tokens = statement.body
    for place, token in enumerate(tokens):
        word = token.text.lower()
        if token.token_type in {TokenType.STRING, TokenType.IDENTIFIER}:
            continue
        called = place + 1 < len(tokens) and tokens[place + 1].token_type is TokenType.L_PAREN
        qualified = place > 0 and tokens[place - 1].token_type is TokenType.DOT
        if (word in _DRAWS and called) or (word in _CLOCKS and not qualified):
            raise _refusal(word, statement.source.position(token.start))
    tail = statement.tail
    for node in tail.expression.walk() if tail is not None else ():
        if isinstance(node, _DRAWN) or (isinstance(node, exp.Anonymous) and str(node.this).lower() in _DRAWS):
            raise _refusal(node.sql().lower(), position_of(node, statement.source))


def _refusal(word: str, position: Position) -> UnsupportedConstructError:
    if word in _CLOCKS:
        what, hint = "to ask a clock", "ask for the moment that the state is read at: now(), current_date"
    else:
        what, hint = "a value that is another one each time", "the same state has the same plan: use a column"
    return UnsupportedConstructError(f"cannot be encoded: {what}", position=position, hint=hint)

"""The clause that ends a statement, its tail: CHECK, MAXIMIZE, MINIMIZE or PINNED WHERE, and options after it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from mgmt.errors import PolicySyntaxError
from mgmt.source_text import Position, SourceText
from mgmt.sql.tokens import CLOSING, OPENING, parse_tokens, position_of

_NUMBER_OPTIONS = {"TIER", "WEIGHT", "PRIORITY"}
_OPTIONS = _NUMBER_OPTIONS | {"SOFT", "REASON", "PINNED"}


class TailKind(StrEnum):
    CHECK = "check"
    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"
    PINNED = "pinned"


@dataclass(frozen=True, slots=True)
class Reason:
    """What a policy's author says of a row that breaks it, with ``{column}`` for the row's columns."""

    template: str
    position: Position
    names: tuple[str, ...]

    def of(self, row: Mapping[str, object]) -> str:
        """The text for one row, given its columns."""
        known = {name.lower(): value for name, value in row.items()}
        text = self.template
        for name in self.names:
            text = text.replace("{" + name + "}", str(known.get(name.lower(), "")))
        return text


@dataclass(frozen=True, slots=True)
class Tail:
    """What a statement demands of its relation.

    ``pinned`` is the condition of PINNED WHERE: rows that meet it keep the values of today.  Of a tail of the kind
    PINNED it is ``expression``, and ``beside_demand`` says that WHERE and ON speak of the rows of another demand.
    """

    kind: TailKind
    expression: exp.Expr
    position: Position
    tier: int = 1  # 1 is optimised first
    weight: int = 1  # within the tier
    soft: bool = False  # CHECK ... SOFT: the amount of violation is minimised
    priority: int = 1  # of a hard constraint: 1 is the last to be given up
    reason: Reason | None = None
    pinned: exp.Expr | None = None
    beside_demand: bool = False


_OPERAND_ENDS = {
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.R_PAREN,
    TokenType.TRUE,
    TokenType.FALSE,
    TokenType.NULL,
    TokenType.END,
}


_OPTIONS_ARE = "options are TIER n, WEIGHT n, SOFT, PRIORITY n, REASON 'text' and PINNED WHERE condition"
_EXAMPLES = {
    TailKind.CHECK: "write what is to hold of every row, as in CHECK weight <= size",
    TailKind.MAXIMIZE: "write a number, as in MAXIMIZE sum(spare)",
    TailKind.MINIMIZE: "write a number, as in MINIMIZE count(*)",
}


def parse_tail(tokens: Sequence[Token], source: SourceText) -> Tail:
    """A tail from its word on."""
    kind = TailKind(tokens[0].text.lower())
    position = source.position(tokens[0].start)
    if kind is TailKind.PINNED:
        options = _parse_options(tokens, source)
        assert options.pinned is not None
        _refuse(options, {"TIER", "WEIGHT", "SOFT"}, "PINNED takes REASON and PRIORITY")
        return Tail(kind, options.pinned, position, priority=options.priority, reason=options.reason)
    end = _end_of_expression(tokens, 1)
    if end == 1:
        raise PolicySyntaxError(
            f"{kind.upper()} needs an expression", position=position, hint=_EXAMPLES[kind]
        )
    expression = _one_expression(tokens[1:end], source)
    options = _parse_options(tokens[end:], source)
    soft = "SOFT" in options.places
    if kind is not TailKind.CHECK:
        _refuse(options, {"SOFT", "PRIORITY"}, "an objective takes TIER, WEIGHT, REASON and PINNED WHERE")
    elif soft:
        _refuse(options, {"PRIORITY"}, "a soft constraint has a TIER and a WEIGHT")
    elif {"TIER", "WEIGHT"} & options.places.keys():
        raise PolicySyntaxError(
            "TIER and WEIGHT belong to an objective", position=position, hint="write CHECK ... SOFT TIER n"
        )
    return Tail(
        kind,
        expression,
        position,
        options.tier,
        options.weight,
        soft,
        options.priority,
        options.reason,
        options.pinned,
    )


def is_where(tokens: Sequence[Token], index: int) -> bool:
    return index < len(tokens) and tokens[index].token_type == TokenType.WHERE


def _end_of_expression(tokens: Sequence[Token], start: int) -> int:
    """Where the expression that begins at ``start`` ends: at the first option outside parentheses."""
    depth = 0
    for index in range(start, len(tokens)):
        token = tokens[index]
        if token.token_type in OPENING:
            depth += 1
        elif token.token_type in CLOSING:
            depth -= 1
        elif depth == 0 and index > start and _is_option(tokens, index):
            return index
    return len(tokens)


def _one_expression(tokens: Sequence[Token], source: SourceText) -> exp.Expr:
    expression = parse_tokens(tokens, source)
    alias = expression.args.get("alias")
    if isinstance(expression, (exp.Alias, exp.Aliases, exp.Query)) and (
        alias is not None or not isinstance(expression, exp.Subquery)
    ):
        where = alias if isinstance(alias, exp.Identifier) else expression
        raise PolicySyntaxError(
            f"unexpected {where.sql()!r}",
            position=position_of(where, source),
            hint=f"one expression is expected; {_OPTIONS_ARE}",
        )
    return expression


def _is_option(tokens: Sequence[Token], index: int) -> bool:
    """The words of options may also be names of columns: an option follows a complete operand."""
    word = tokens[index].text.upper()
    if tokens[index].token_type in {TokenType.IDENTIFIER, TokenType.STRING}:
        return False
    previous = tokens[index - 1].token_type
    if previous not in _OPERAND_ENDS and not tokens[index - 1].text.isidentifier():
        return False
    if tokens[index - 1].text.upper() in {"AND", "OR", "NOT", "IN", "IS", "BETWEEN", "LIKE", "FROM"}:
        return False
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if word in _NUMBER_OPTIONS:
        return following is not None and following.token_type == TokenType.NUMBER
    if word == "REASON":
        return following is not None and following.token_type == TokenType.STRING
    if word == "PINNED":
        return is_where(tokens, index + 1)
    return word == "SOFT" and (following is None or following.text.upper() in _OPTIONS)


@dataclass(slots=True)
class _Options:
    """What follows the expression; ``places`` says which words do, and where."""

    places: dict[str, Position]
    tier: int = 1
    weight: int = 1
    priority: int = 1
    reason: Reason | None = None
    pinned: exp.Expr | None = None


def _refuse(options: _Options, words: set[str], hint: str) -> None:
    for word, position in options.places.items():
        if word in words:
            raise PolicySyntaxError(f"{word} does not belong here", position=position, hint=hint)


def _parse_options(tokens: Sequence[Token], source: SourceText) -> _Options:
    options = _Options({})
    index = 0
    while index < len(tokens):
        word = tokens[index].text.upper()
        position = source.position(tokens[index].start)
        if word in options.places:
            raise PolicySyntaxError(f"{word} is given twice", position=position, hint="leave one of them out")
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if word == "SOFT":
            index += 1
        elif word in _NUMBER_OPTIONS and following is not None and following.text.isdecimal():
            number = int(following.text) if len(following.text) < 10 else 0
            if not 1 <= number <= 1_000_000:
                raise PolicySyntaxError(
                    f"{word} must be between 1 and 1000000", position=position, hint=f"write {word} 1"
                )
            setattr(options, word.lower(), number)
            index += 2
        elif word in _NUMBER_OPTIONS:
            raise PolicySyntaxError(
                f"{word} needs a whole number",
                position=position,
                hint=f"write {word} 1, up to {word} 1000000",
            )
        elif word == "REASON" and following is not None and following.token_type == TokenType.STRING:
            options.reason = _reason(following, source)
            index += 2
        elif word == "PINNED" and is_where(tokens, index + 1):
            end = _end_of_expression(tokens, index + 2)
            if end == index + 2:
                raise PolicySyntaxError(
                    "PINNED WHERE needs a condition",
                    position=position,
                    hint="PINNED WHERE TRUE pins all rows",
                )
            options.pinned = _one_expression(tokens[index + 2 : end], source)
            index = end
        else:
            raise PolicySyntaxError(
                f"unexpected {tokens[index].text!r} after the expression",
                position=position,
                hint=_OPTIONS_ARE,
            )
        options.places[word] = position
    return options


def _reason(token: Token, source: SourceText) -> Reason:
    names = tuple(dict.fromkeys(re.findall(r"\{([^{}]+)\}", token.text)))
    return Reason(token.text, source.position(token.start), names)

"""Parse: policy text to statements, each with a strict SQL tree and positions.

sqlglot has no grammar for ``CREATE CONSTRAINT`` and reads the tails (``CHECK``, ``MAXIMIZE``, ...) as table
aliases, so the head and the tail of each statement are cut off by token first and every part is parsed
strictly on its own.  Five generations of the surface syntax are accepted (Weave, HotOS 2019; DCM, OSDI 2020,
section 3, its early and its present form; and ours); from here on they are one.

What it is not: it knows neither the schema nor the meaning of a name (see ``mgmt.language.binder``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from mgmt.errors import PolicySyntaxError, UnsupportedConstructError
from mgmt.source import Position, SourceText
from mgmt.tokens import CLOSING, OPENING, parse_tokens, position_of, split_statements

_TAIL_WORDS = {"CHECK", "MAXIMIZE", "MINIMIZE"}
_NUMBER_OPTIONS = {"TIER", "WEIGHT"}
_LATER_OPTIONS = {"PRIORITY", "REASON", "PINNED"}


class TailKind(StrEnum):
    CHECK = "check"
    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


@dataclass(frozen=True, slots=True)
class Tail:
    """What a statement demands of its relation."""

    kind: TailKind
    expression: exp.Expr
    position: Position
    tier: int = 1  # 1 is optimised first
    weight: int = 1  # within the tier
    soft: bool = False  # CHECK ... SOFT: the amount of violation is minimised


@dataclass(frozen=True, slots=True)
class Statement:
    """One CREATE CONSTRAINT or CREATE VIEW.  Without a tail it is an intermediate view."""

    name: str
    select: exp.Expr
    tail: Tail | None
    position: Position
    source: SourceText
    strict_groups: bool = False


def parse_statements(source: SourceText) -> list[Statement]:
    """All statements of a policy text, in order."""
    return [_parse_statement(tokens, source) for tokens in split_statements(source)]


def _parse_statement(tokens: list[Token], source: SourceText) -> Statement:
    position = source.position(tokens[0].start)
    keyword, name, body = _cut_head(tokens, source)
    annotation = " ".join(comment for token in tokens[:2] for comment in token.comments).lower()
    body, tail_tokens = _cut_at(body, _TAIL_WORDS)
    strict_groups = len(body) >= 2 and [token.text.upper() for token in body[-2:]] == ["STRICT", "GROUPS"]
    if strict_groups:
        body = body[:-2]
    if not body:
        raise PolicySyntaxError(f"{name} has no SELECT", position=position)
    select = parse_tokens(body, source)
    if not isinstance(select, exp.Query):
        raise PolicySyntaxError(f"{name} is not a SELECT", position=source.position(body[0].start))
    if tail_tokens:
        tail: Tail | None = _parse_tail(tail_tokens, source)
    elif keyword == "VIEW":
        tail = _implied_tail(name, annotation, select, position)
    else:
        tail = None
    return Statement(name, select, tail, position, source, strict_groups)


def _cut_head(tokens: list[Token], source: SourceText) -> tuple[str, str, list[Token]]:
    """CREATE (CONSTRAINT | VIEW) name AS: the keyword, the name and the rest."""
    words = [token.text.upper() for token in tokens[:4]]
    if words[:1] != ["CREATE"] or len(words) < 2 or words[1] not in {"CONSTRAINT", "VIEW"}:
        raise PolicySyntaxError(
            f"expected CREATE CONSTRAINT or CREATE VIEW, found {' '.join(t.text for t in tokens[:2])!r}",
            position=source.position(tokens[0].start),
            hint="policies only define constraints and views; the schema is loaded by Database.load_schema",
        )
    if len(words) < 3 or tokens[2].token_type in OPENING | {TokenType.NUMBER, TokenType.STRING}:
        raise PolicySyntaxError(
            f"CREATE {words[1]} needs a name", position=source.position(tokens[min(2, len(tokens) - 1)].start)
        )
    if len(words) < 4 or words[3] != "AS":
        raise PolicySyntaxError(
            f"expected AS after CREATE {words[1]} {tokens[2].text}",
            position=source.position(tokens[min(3, len(tokens) - 1)].start),
        )
    return words[1], tokens[2].text, tokens[4:]


def _cut_at(tokens: list[Token], words: set[str]) -> tuple[list[Token], list[Token]]:
    """Split before the first of these words that is outside parentheses and is not a column's name."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.token_type in OPENING:
            depth += 1
        elif token.token_type in CLOSING:
            depth -= 1
        elif (
            depth == 0
            and index > 0
            and token.token_type not in {TokenType.IDENTIFIER, TokenType.STRING}
            and token.text.upper() in words
            and tokens[index - 1].token_type not in {TokenType.DOT, TokenType.COMMA, TokenType.ALIAS}
        ):
            return tokens[:index], tokens[index:]
    return tokens, []


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


def _parse_tail(tokens: list[Token], source: SourceText) -> Tail:
    kind = TailKind(tokens[0].text.lower())
    end = len(tokens)
    depth = 0
    for index in range(1, len(tokens)):
        token = tokens[index]
        if token.token_type in OPENING:
            depth += 1
        elif token.token_type in CLOSING:
            depth -= 1
        elif depth == 0 and index > 1 and _is_option(tokens, index):
            end = index
            break
    if end == 1:
        raise PolicySyntaxError(
            f"{kind.upper()} needs an expression", position=source.position(tokens[0].start)
        )
    expression = parse_tokens(tokens[1:end], source)
    if isinstance(expression, (exp.Alias, exp.Aliases, exp.Query)):
        alias = expression.args.get("alias")
        where = alias if isinstance(alias, exp.Identifier) else expression
        raise PolicySyntaxError(
            f"unexpected {where.sql()!r}",
            position=position_of(where, source),
            hint="one expression is expected",
        )
    position = source.position(tokens[0].start)
    tier, weight, soft = _parse_options(tokens[end:], source)
    if soft and kind is not TailKind.CHECK:
        raise PolicySyntaxError("SOFT belongs to CHECK", position=position)
    if not soft and kind is TailKind.CHECK and end < len(tokens):
        raise PolicySyntaxError(
            "TIER and WEIGHT belong to an objective", position=position, hint="write CHECK ... SOFT TIER n"
        )
    return Tail(kind, expression, position, tier, weight, soft)


def _is_option(tokens: list[Token], index: int) -> bool:
    """TIER, WEIGHT and SOFT may also be names of columns: an option follows a complete operand."""
    word = tokens[index].text.upper()
    if tokens[index].token_type == TokenType.IDENTIFIER:
        return False
    previous = tokens[index - 1].token_type
    if previous not in _OPERAND_ENDS and not tokens[index - 1].text.isidentifier():
        return False
    if tokens[index - 1].text.upper() in {"AND", "OR", "NOT", "IN", "IS", "BETWEEN", "LIKE", "FROM"}:
        return False
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if word in _NUMBER_OPTIONS:
        return following is not None and following.token_type == TokenType.NUMBER
    if word == "SOFT":
        return following is None or following.text.upper() in _NUMBER_OPTIONS
    return word in _LATER_OPTIONS and following is not None


def _parse_options(tokens: list[Token], source: SourceText) -> tuple[int, int, bool]:
    numbers = {"TIER": 1, "WEIGHT": 1}
    seen: set[str] = set()
    index = 0
    while index < len(tokens):
        word = tokens[index].text.upper()
        position = source.position(tokens[index].start)
        if word in seen:
            raise PolicySyntaxError(f"{word} is given twice", position=position)
        seen.add(word)
        if word == "SOFT":
            index += 1
        elif word in _NUMBER_OPTIONS and index + 1 < len(tokens) and tokens[index + 1].text.isdecimal():
            numbers[word] = int(tokens[index + 1].text)
            if not 1 <= numbers[word] <= 1_000_000:
                raise PolicySyntaxError(f"{word} must be between 1 and 1000000", position=position)
            index += 2
        elif word in _LATER_OPTIONS:
            raise UnsupportedConstructError(
                f"the option {word} is not implemented", position=position, hint="leave it out"
            )
        else:
            raise PolicySyntaxError(
                f"unexpected {tokens[index].text!r} after the expression",
                position=position,
                hint="options are TIER n, WEIGHT n and SOFT",
            )
    return numbers["TIER"], numbers["WEIGHT"], "SOFT" in seen


def _implied_tail(name: str, annotation: str, select: exp.Query, position: Position) -> Tail | None:
    """The tail that Weave's and OSDI's forms leave to the name or to a comment."""
    lowered = name.lower()
    if lowered.startswith("constraint_"):
        clause = select.args.get("having") if select.args.get("group") else select.args.get("where")
        if clause is None:
            raise PolicySyntaxError(
                f"{name} enforces nothing",
                position=position,
                hint="a view named constraint_... enforces its WHERE, or its HAVING when grouped",
            )
        predicate = clause.this.copy()
        clause.pop()
        return Tail(TailKind.CHECK, predicate, position)
    if lowered.startswith("objective_") or "@soft_constraint" in annotation:
        if not isinstance(select, exp.Select) or len(select.expressions) != 1:
            raise PolicySyntaxError(f"the objective {name} must select one value", position=position)
        return Tail(TailKind.MAXIMIZE, select.expressions[0].unalias().copy(), position)
    if "@hard_constraint" in annotation:
        raise PolicySyntaxError(f"the constraint {name} has no CHECK", position=position)
    return None

"""The syntax of policy tests: named cases of rows, and what is expected of the plan made for them.

    TEST 'two heavy tasks do not share a rack';
    INSERT INTO task (id, weight) VALUES (1, 9), (2, 9);
    EXPECT task WHERE weight > 5 SPREAD BY host.rack;
    EXPECT task(1) IN ('h0', 'h1');

What stands before the first TEST belongs to every case.  ``NOW '2026-11-23 07:40:00';`` is the time in a case, or in
all that say no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from sqlglot.tokenizer_core import Token, TokenType

from mgmt.errors import DataError, PolicySyntaxError
from mgmt.explaining.policies.policy_files import SourceStatement
from mgmt.solution import Value
from mgmt.source_text import Position, SourceText
from mgmt.sql.tokens import CLOSING, OPENING, split_statements
from mgmt.state import date_texts


class Expected(StrEnum):
    IN = "IN"
    NOT_IN = "NOT IN"
    EQUALS = "="
    COLOCATED = "COLOCATED"
    SPREAD = "SPREAD"
    INFEASIBLE = "INFEASIBLE"
    OBJECTIVE = "OBJECTIVE"


@dataclass(frozen=True, slots=True)
class Target:
    """Rows of a table, by their key or by a condition, and the variable column meant (empty: the only one)."""

    table: str
    column: str = ""
    key: tuple[Value, ...] | None = None
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Expectation:
    """``values`` of IN and =, of OBJECTIVE its bound; ``names`` of INFEASIBLE's core or of the objective.

    ``places``: where each of the names stands.  ``by`` is (table, column): what is compared of the row that was chosen.
    """

    kind: Expected
    text: str
    position: Position
    targets: tuple[Target, ...] = ()
    values: tuple[Value, ...] = ()
    names: tuple[str, ...] | None = None
    places: tuple[Position, ...] = ()
    operator: str = "="
    by: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """One case."""

    name: str
    position: Position
    rows: tuple[SourceStatement, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    now: datetime | None = None


@dataclass(slots=True)
class _Case:
    name: str
    position: Position
    now: datetime | None = None
    rows: list[SourceStatement] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)


def parse_tests(text: SourceText) -> tuple[PolicyTest, ...]:
    """The cases of a text.  PolicySyntaxError where it is none."""
    background: list[SourceStatement] = []
    cases: list[_Case] = []
    now: datetime | None = None
    for tokens in split_statements(text):
        position = text.position(tokens[0].start)
        word = tokens[0].text.upper()
        if word == "TEST":
            if len(tokens) != 2 or tokens[1].token_type != TokenType.STRING:
                raise PolicySyntaxError(
                    "TEST needs a name", position=position, hint="write TEST 'what it shows';"
                )
            cases.append(_Case(tokens[1].text, position, now))
        elif word == "NOW":
            if cases:
                cases[-1].now = _moment(tokens, text)
            else:
                now = _moment(tokens, text)
        elif word == "EXPECT":
            if not cases:
                raise PolicySyntaxError(
                    "EXPECT before the first TEST",
                    position=position,
                    hint="write TEST 'what it shows'; before it",
                )
            cases[-1].expectations.append(_Reader(tokens, text).read())
        elif word in {"INSERT", "UPDATE", "DELETE"}:
            statement = SourceStatement(
                text.text[tokens[0].start : tokens[-1].end + 1],
                position,
                (word, tokens[1].text.upper() if len(tokens) > 1 else ""),
                tokens[0].start,
                tokens[-1].end + 1,
            )
            (cases[-1].rows if cases else background).append(statement)
        else:
            raise PolicySyntaxError(
                f"unexpected {tokens[0].text!r}",
                position=position,
                hint="a test holds TEST, NOW, INSERT, UPDATE, DELETE and EXPECT",
            )
    for case in cases:
        if not case.expectations:
            raise PolicySyntaxError(
                f"the test {case.name!r} expects nothing",
                position=case.position,
                hint="add EXPECT ... after it",
            )
    return tuple(
        PolicyTest(case.name, case.position, (*background, *case.rows), tuple(case.expectations), case.now)
        for case in cases
    )


def _moment(tokens: Sequence[Token], text: SourceText) -> datetime:
    """What NOW says."""
    hint = "write NOW '2026-11-23 07:40:00'; it is in UTC"
    try:
        if len(tokens) != 2 or tokens[1].token_type != TokenType.STRING:
            raise DataError("NOW needs a time", hint=hint)
        return date_texts.read(tokens[1].text).replace(tzinfo=UTC)
    except DataError as error:
        place = text.position(tokens[min(1, len(tokens) - 1)].start)
        raise PolicySyntaxError(error.message, position=place, hint=hint) from error


_COMPARISONS = {"=", "<", "<=", ">", ">=", "<>"}


class _Reader:
    """Reads one EXPECT."""

    def __init__(self, tokens: Sequence[Token], text: SourceText) -> None:
        self._text = text
        self._all = tokens
        self._tokens = list(tokens[1:])
        self._position = text.position(tokens[0].start)
        self._shown = " ".join(text.text[tokens[0].start : tokens[-1].end + 1].split())

    def read(self) -> Expectation:
        words = [token.text.upper() for token in self._tokens]
        if words[:1] == ["INFEASIBLE"]:
            return self._infeasible()
        if words[:1] == ["OBJECTIVE"]:
            return self._objective()
        place, width, kind = self._predicate(words)
        targets = tuple(self._target(part) for part in _split(self._tokens[:place]))
        rest = self._tokens[place + width :]
        values: tuple[Value, ...] = ()
        by = None
        if kind in {Expected.COLOCATED, Expected.SPREAD}:
            by = self._by(rest)
        elif kind is Expected.EQUALS:
            values = (self._value(rest),)
        else:
            if len(rest) < 2 or rest[0].token_type not in OPENING or rest[-1].token_type not in CLOSING:
                raise self._error(f"{kind} needs a list", rest[:1], f"write {kind} ('a', 'b')")
            values = tuple(self._value(part) for part in _split(rest[1:-1]))
        return Expectation(kind, self._shown, self._position, targets, values, by=by)

    def _predicate(self, words: Sequence[str]) -> tuple[int, int, Expected]:
        """The last one outside parentheses: what stands before may hold conditions of its own."""
        depth = 0
        found: tuple[int, int, Expected] | None = None
        for place, token in enumerate(self._tokens):
            if token.token_type in OPENING:
                depth += 1
            elif token.token_type in CLOSING:
                depth -= 1
            elif depth or token.token_type in {TokenType.IDENTIFIER, TokenType.STRING}:
                continue
            elif words[place] in {"COLOCATED", "SPREAD"}:
                found = (place, 1, Expected(words[place]))
            elif words[place] == "IN":
                negated = place > 0 and words[place - 1] == "NOT"
                found = (place - 1, 2, Expected.NOT_IN) if negated else (place, 1, Expected.IN)
            elif words[place] == "=":
                found = (place, 1, Expected.EQUALS)
        if found is None or found[0] == 0:
            raise self._error(
                "this expects nothing that is known",
                self._tokens[:1],
                "write EXPECT table(key) = value, IN (...), NOT IN (...), COLOCATED, SPREAD [BY table.column], "
                "EXPECT INFEASIBLE (constraint, ...) or EXPECT OBJECTIVE name <= number",
            )
        return found

    def _target(self, tokens: Sequence[Token]) -> Target:
        if not tokens:
            raise self._error(
                "a row is missing", self._tokens[:1], "write table(key) or table WHERE condition"
            )
        table, rest = tokens[0].text, list(tokens[1:])
        column = ""
        if len(rest) >= 2 and rest[0].token_type == TokenType.DOT:
            column, rest = rest[1].text, rest[2:]
        if not rest:
            return Target(table, column)
        if rest[0].text.upper() == "WHERE" and len(rest) > 1:
            return Target(table, column, None, self._text.text[rest[1].start : rest[-1].end + 1])
        if rest[0].token_type in OPENING and rest[-1].token_type in CLOSING:
            return Target(table, column, tuple(self._value(part) for part in _split(rest[1:-1])))
        raise self._error(
            f"unexpected {rest[0].text!r}", rest[:1], "write table(key) or table WHERE condition"
        )

    def _value(self, tokens: Sequence[Token]) -> Value:
        sign = 1
        rest = list(tokens)
        if rest and rest[0].token_type == TokenType.DASH:
            sign, rest = -1, rest[1:]
        if len(rest) == 1:
            token = rest[0]
            word = token.text.upper()
            if token.token_type == TokenType.NUMBER and token.text.isdecimal():
                return sign * int(token.text)
            if sign == 1 and token.token_type == TokenType.STRING:
                return str(token.text)
            if sign == 1 and word in {"TRUE", "FALSE", "NULL"}:
                return {"TRUE": True, "FALSE": False, "NULL": None}[word]
        raise self._error(
            "a value is expected", tokens[:1], "write 'text', a whole number, TRUE, FALSE or NULL"
        )

    def _by(self, tokens: Sequence[Token]) -> tuple[str, str] | None:
        if not tokens:
            return None
        words = [token.text for token in tokens]
        if len(words) != 4 or words[0].upper() != "BY" or words[2] != ".":
            raise self._error(f"unexpected {words[0]!r}", tokens[:1], "write BY table.column")
        return (words[1], words[3])

    def _infeasible(self) -> Expectation:
        rest = self._tokens[1:]
        names: tuple[str, ...] | None = None
        places: tuple[Position, ...] = ()
        if rest:
            if rest[0].token_type not in OPENING or rest[-1].token_type not in CLOSING:
                raise self._error(
                    f"unexpected {rest[0].text!r}", rest[:1], "write INFEASIBLE (constraint, ...)"
                )
            parts = [part for part in _split(rest[1:-1]) if part]
            names = tuple(_name(part, self._text) for part in parts)
            places = tuple(self._text.position(part[0].start) for part in parts)
        return Expectation(Expected.INFEASIBLE, self._shown, self._position, names=names, places=places)

    def _objective(self) -> Expectation:
        rest = self._tokens[1:]
        if len(rest) < 3 or rest[1].text not in _COMPARISONS:
            raise self._error("OBJECTIVE is compared with a number", rest[:1], "write OBJECTIVE name <= 3")
        value = self._value(rest[2:])
        return Expectation(
            Expected.OBJECTIVE,
            self._shown,
            self._position,
            values=(value,),
            names=(rest[0].text,),
            places=(self._text.position(rest[0].start),),
            operator=rest[1].text,
        )

    def _error(self, message: str, tokens: Sequence[Token], hint: str) -> PolicySyntaxError:
        token = tokens[0] if tokens else self._all[-1]
        return PolicySyntaxError(message, position=self._text.position(token.start), hint=hint)


def _name(tokens: Sequence[Token], text: SourceText) -> str:
    """A name, or for what a table demands its words as they stand (CHECK (...) of t)."""
    if len(tokens) == 1:
        return str(tokens[0].text)
    return text.text[tokens[0].start : tokens[-1].end + 1]


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """At the commas outside parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.token_type in OPENING:
            depth += 1
        elif token.token_type in CLOSING:
            depth -= 1
        if depth == 0 and token.token_type == TokenType.COMMA:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts

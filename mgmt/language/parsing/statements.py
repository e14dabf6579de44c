"""Policy text to statements, each with a strict SQL tree and positions.  No name is looked up.

sqlglot has no grammar for ``CREATE CONSTRAINT`` and reads the trailing clauses (``CHECK``, ``MAXIMIZE``, ...) as table
aliases, so the head and the tail of each statement are cut off by token first and every part is parsed
strictly on its own.  Five generations of the surface syntax are accepted (Weave, HotOS 2019; DCM, OSDI 2020,
section 3, its early and its present form; and ours); from here on they are one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from mgmt.errors import PolicySyntaxError
from mgmt.language.parsing.set_statements import is_setting
from mgmt.language.parsing.trailing_clauses import Tail, TailKind, is_where, parse_tail
from mgmt.source_text import Position, SourceText
from mgmt.sql.annotations import refuse_misspelt
from mgmt.sql.tokens import CLOSING, OPENING, parse_tokens, refuse_too_many, split_statements, tokenize
from mgmt.state.schema_parsing.variable_columns import declared_variables

_TAIL_WORDS = {"CHECK", "MAXIMIZE", "MINIMIZE", "PINNED"}
_WORDS = sorted(
    {
        *_TAIL_WORDS,
        *[
            "CREATE",
            "CONSTRAINT",
            "VIEW",
            "WITH",
            "SELECT",
            "DISTINCT",
            "FROM",
            "JOIN",
            "WHERE",
            "GROUP",
            "HAVING",
            "UNION",
        ],
        *[
            "EXISTS",
            "BETWEEN",
            "CASE",
            "WHEN",
            "THEN",
            "ELSE",
            "SOFT",
            "TIER",
            "WEIGHT",
            "PRIORITY",
            "REASON",
        ],
    }
)
_TAILS_ARE = "CHECK condition, MINIMIZE number, MAXIMIZE number or PINNED WHERE condition"
_MOST_SPELLINGS = 3  # are tried: to read a statement takes time


@dataclass(frozen=True, slots=True)
class Statement:
    """One CREATE CONSTRAINT or CREATE VIEW.  Without a tail it is a view for others to read."""

    name: str
    select: exp.Expr
    tail: Tail | None
    position: Position
    source: SourceText
    strict_groups: bool = False
    variable_columns: tuple[str, ...] = ()  # which a comment before it says are variable
    body: tuple[Token, ...] = ()
    """The tokens of the SELECT as it is written; none for a statement that was made."""
    unread: PolicySyntaxError | None = None
    """Why ``select`` is empty: it is no SQL that is read here, but perhaps DuckDB's."""
    made_groups: bool = False
    """Whether it has groups that nobody wrote (``capacity_constraint``), in which what is selected may differ."""

    @property
    def written(self) -> str:
        """The SELECT as it is written."""
        return self.source.text[self.body[0].start : self.body[-1].end + 1] if self.body else ""


def parse_statements(source: SourceText) -> list[Statement]:
    """All constraints and views of a policy text, in order."""
    refuse_too_many(source)
    refuse_misspelt(source)
    return [_read(tokens, source) for tokens in split_statements(source) if not is_setting(tokens)]


def _read(tokens: list[Token], source: SourceText) -> Statement:
    """One statement; a word without which it could be read is what its error is about."""
    try:
        statement = _parse_statement(tokens, source)
    except PolicySyntaxError as error:
        misspelt = _misspelt(tokens, source)
        if misspelt is None:
            raise
        raise misspelt from error
    if _is_whole(statement, tokens):
        return statement
    misspelt = _misspelt(tokens, source)
    if _demands(tokens) and statement.tail is None:
        raise misspelt or _without_demand(statement.name, tokens, source)
    return replace(statement, unread=misspelt or statement.unread)


def _is_whole(statement: Statement, tokens: list[Token]) -> bool:
    """Whether it could be read, and demands something if it is to."""
    return statement.unread is None and (statement.tail is not None or not _demands(tokens))


def _demands(tokens: list[Token]) -> bool:
    return tokens[1].text.upper() == "CONSTRAINT"


def _without_demand(name: str, tokens: list[Token], source: SourceText) -> PolicySyntaxError:
    """A constraint has no tail: HAVING is often meant for one, or WHERE."""
    having, where = (_cut_at(tokens, {word})[1] for word in ("HAVING", "WHERE"))
    if having:
        place, hint = (
            having[0].start,
            f"write CHECK in place of HAVING, which only chooses groups; or write CREATE VIEW {name}",
        )
    else:
        place = tokens[-1].end + 1
        hint = f"{'WHERE only chooses rows: ' if where else ''}end it in {_TAILS_ARE}; or write CREATE VIEW {name}"
    return PolicySyntaxError(
        f"the constraint {name} demands nothing", position=source.position(place), hint=hint
    )


def _misspelt(tokens: list[Token], source: SourceText) -> PolicySyntaxError | None:
    """The word that is nearly one of the language, if the statement can be read with that in its place."""
    start, end = tokens[0].start, tokens[-1].end + 1
    words = [
        token
        for token in (*tokens[:2], *tokens[3:])
        if token.token_type is TokenType.VAR and token.text.isalpha()
    ]
    close = [
        (token, get_close_matches(token.text.upper(), _WORDS, 1, 0.7))
        for token in words
        if token.text.upper() not in _WORDS
    ]
    for token, meant in [pair for pair in close if pair[1]][:_MOST_SPELLINGS]:
        text = f"{source.text[start : token.start]}{meant[0]}{source.text[token.end + 1 : end]}"
        corrected = SourceText(source.name, text)
        try:
            readable = _is_whole(_parse_statement(tokenize(corrected), corrected), tokens)
        except PolicySyntaxError:
            readable = False
        if readable:
            return PolicySyntaxError(
                f"unexpected {token.text!r}",
                position=source.position(token.start),
                hint=f"did you mean {meant[0]}?",
            )
    return None


def _parse_statement(tokens: list[Token], source: SourceText) -> Statement:
    position = source.position(tokens[0].start)
    keyword, name, body = _cut_head(tokens, source)
    annotation = " ".join(comment for token in tokens[:2] for comment in token.comments).lower()
    body, tail_tokens = _cut_at(body, _TAIL_WORDS)
    strict_groups = len(body) >= 2 and [token.text.upper() for token in body[-2:]] == ["STRICT", "GROUPS"]
    if strict_groups:
        body = body[:-2]
    if not body:
        raise PolicySyntaxError(
            f"{name} has no SELECT", position=position, hint=f"write CREATE {keyword} {name} AS SELECT ..."
        )
    if not tail_tokens and body[-1].text.upper() == "PINNED" and body[-1].token_type != TokenType.IDENTIFIER:
        raise PolicySyntaxError(
            "PINNED needs WHERE and a condition",
            position=source.position(body[-1].start),
            hint="PINNED WHERE TRUE pins all rows",
        )
    unread = None
    try:
        select = parse_tokens(body, source)
    except PolicySyntaxError as error:
        if tail_tokens or name.lower().startswith(("constraint_", "objective_")) or "@" in annotation:
            raise
        select, unread = exp.Select(), error
    if unread is None and not isinstance(select, (exp.Query, exp.Values)):
        raise PolicySyntaxError(
            f"{name} is not a SELECT",
            position=source.position(body[0].start),
            hint="policies only read: write SELECT ... FROM ...",
        )
    if tail_tokens:
        tail: Tail | None = parse_tail(tail_tokens, source)
    elif keyword == "VIEW":
        tail = _implied_tail(name, annotation, select, position)
    else:
        tail = None
    declared = declared_variables(tokens[0].comments)
    return Statement(name, select, tail, position, source, strict_groups, declared, tuple(body), unread)


def _cut_head(tokens: list[Token], source: SourceText) -> tuple[str, str, list[Token]]:
    """CREATE (CONSTRAINT | VIEW) name AS: the keyword, the name and the rest."""
    words = [token.text.upper() for token in tokens[:4]]
    if words[:1] != ["CREATE"] or len(words) < 2 or words[1] not in {"CONSTRAINT", "VIEW"}:
        raise PolicySyntaxError(
            f"expected CREATE CONSTRAINT or CREATE VIEW, found {' '.join(t.text for t in tokens[:2])!r}",
            position=source.position(tokens[0].start),
            hint="policies define constraints and views, and SET options; the schema is loaded by Database.load_schema",
        )
    if len(words) < 3 or tokens[2].token_type in OPENING | {TokenType.NUMBER, TokenType.STRING}:
        raise PolicySyntaxError(
            f"CREATE {words[1]} needs a name",
            position=source.position(tokens[min(2, len(tokens) - 1)].start),
            hint=f"write CREATE {words[1]} name AS SELECT ...",
        )
    if len(words) < 4 or words[3] != "AS":
        raise PolicySyntaxError(
            f"expected AS after CREATE {words[1]} {tokens[2].text}",
            position=source.position(tokens[min(3, len(tokens) - 1)].start),
            hint=f"write CREATE {words[1]} {tokens[2].text} AS SELECT ...",
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
            and (token.text.upper() != "PINNED" or is_where(tokens, index + 1))
        ):
            return tokens[:index], tokens[index:]
    return tokens, []


def _implied_tail(name: str, annotation: str, select: exp.Expr, position: Position) -> Tail | None:
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
        if not isinstance(select, exp.Select) or len(select.expressions) != 1 or select.is_star:
            raise PolicySyntaxError(
                f"the objective {name} must select one value",
                position=position,
                hint="write SELECT sum(...) FROM ..., which is maximised",
            )
        return Tail(TailKind.MAXIMIZE, select.expressions[0].unalias().copy(), position)
    if "@hard_constraint" in annotation:
        raise PolicySyntaxError(
            f"the constraint {name} has no CHECK",
            position=position,
            hint="@hard_constraint belongs to a view that ends in CHECK condition",
        )
    return None

"""SQL text to tokens, and runs of tokens to strict trees, with limits and positions.

Schemas and policies are both read through here; whatever sqlglot says is turned into our errors.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from itertools import islice

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from mgmt.errors import PolicySyntaxError
from mgmt.source_text import Position, SourceText
from mgmt.sql.dialect import PolicyDialect

# A text longer than this, or nested deeper, is refused before it is parsed: sqlglot recurses, and takes some 30 us of
# CPU for a token and 0.8 us for a blank; what is made of a token until it is compiled takes twice as long again.
MAXIMUM_TEXT_LENGTH = 1_000_000
MAXIMUM_TEXT_TOKENS = 10_000
# Of the thousand calls that Python nests, sqlglot takes up to 25 for a level.
MAXIMUM_NESTING = 32
MAXIMUM_STATEMENT_TOKENS = 5_000

# Comments, and runs of characters that are at most as many tokens: cheap, for it only counts.
_ROUGHLY = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z)|\{#.*?(?:#\}|\Z))"
    r"|[eE]'(?:[^'\\]|\\.)*'?|'[^']*'?|\"[^\"]*\"?|\w+|[^\w\s]",
    re.DOTALL,
)

_SURROGATE = re.compile("[\ud800-\udfff]")
_DIALECT = PolicyDialect()
_NO_TABLE = re.compile(r"Expected (table|database) name but got <Token.*>")
_MISSING_PART = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]*\.(\w+)'>")
_HINTS = {"expected": "add it, or look whether a parenthesis before it is closed"}
OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_DEEPER = OPENING | {TokenType.CASE}
_HIGHER = CLOSING | {TokenType.END}

# sqlglot logs a warning when it gives up on a statement; here that is an error with a position instead.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


def tokenize(source: SourceText) -> list[Token]:
    """Tokens of a text.  PolicySyntaxError when it is too long, nested too deep, or not tokens at all."""
    if len(source.text) > MAXIMUM_TEXT_LENGTH:
        raise PolicySyntaxError(
            f"the text has {len(source.text)} characters; at most {MAXIMUM_TEXT_LENGTH} are read",
            position=source.position(0),
            hint="give it in several files",
        )
    _refuse_what_is_no_text(source)
    try:
        tokens = list(_DIALECT.tokenize(source.text))
    except (SqlglotError, RecursionError, ValueError) as error:
        raise _unread(error, source) from error
    depth = 0
    for token in tokens:
        if token.token_type in _DEEPER:
            depth += 1
        elif token.token_type in _HIGHER:
            depth -= 1
        if depth > MAXIMUM_NESTING:
            raise PolicySyntaxError(
                f"nested deeper than {MAXIMUM_NESTING} levels",
                position=source.position(token.start),
                hint="put what is inside into a view of its own",
            )
    return tokens


def _unread(error: Exception, source: SourceText) -> PolicySyntaxError:
    """The text is no row of tokens: most often a quote is open until its end."""
    opened = _open_quote(source.text)
    if opened is not None:
        return PolicySyntaxError(
            f"a {source.text[opened]} is opened here and not closed",
            position=source.position(opened),
            hint="texts stand in single quotes, names in double ones; a quote inside is written twice",
        )
    message = (
        _first_line(error) if not str(error).startswith("Error tokenizing") else "no words and signs of SQL"
    )
    return PolicySyntaxError(
        f"cannot be read as SQL: {message}",
        position=source.position(len(source.text)),
        hint="look for a comment or a quote that is not closed",
    )


def _open_quote(text: str) -> int | None:
    """The first character of a text or name in quotes that has no end."""
    for match in _ROUGHLY.finditer(text):
        word = match[0].lstrip("eE")
        if word[:1] in {"'", '"'} and match.end() == len(text) and (len(word) == 1 or word[-1] != word[0]):
            return match.end() - len(word)
    return None


def _refuse_what_is_no_text(source: SourceText) -> None:
    """PolicySyntaxError for half of a character, which JSON can bring in and no database takes."""
    half = None if source.text.isascii() else _SURROGATE.search(source.text)
    if half is not None:
        raise PolicySyntaxError(
            f"{half[0]!a} is half of a character, and no text",
            position=source.position(half.start()),
            hint="write the whole character",
        )


def refuse_too_many(source: SourceText) -> None:
    """PolicySyntaxError for a text of more tokens than are parsed, where the first of them stands that is not.

    It is for texts that are parsed as a whole, unlike rows.  An operator of two characters counts twice.
    """
    if len(source.text) <= MAXIMUM_TEXT_TOKENS:
        return
    found = (match for match in _ROUGHLY.finditer(source.text) if match["comment"] is None)
    beyond = next(islice(found, MAXIMUM_TEXT_TOKENS, None), None)
    if beyond is not None:
        raise PolicySyntaxError(
            f"the text has more than {MAXIMUM_TEXT_TOKENS} words and signs",
            position=source.position(beyond.start()),
            hint="let one statement speak of the rows of a table, instead of one for each; or use several files",
        )


def split_statements(source: SourceText) -> list[list[Token]]:
    """The tokens of each statement, without the semicolons."""
    statements: list[list[Token]] = [[]]
    for token in tokenize(source):
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
            if len(statements[-1]) > MAXIMUM_STATEMENT_TOKENS:
                raise PolicySyntaxError(
                    f"a statement has more than {MAXIMUM_STATEMENT_TOKENS} tokens",
                    position=source.position(statements[-1][0].start),
                    hint="insert fewer rows at a time, or give rows as JSON"
                    if statements[-1][0].token_type == TokenType.INSERT
                    else "split it into views",
                )
    return [statement for statement in statements if statement]


def parse_tokens(tokens: Sequence[Token], source: SourceText, into: type[exp.Expr] | None = None) -> exp.Expr:
    """One strict SQL tree from a run of tokens; positions stay those of the whole text."""
    where = source.position(tokens[0].start if tokens else 0)
    try:
        parser = _DIALECT.parser()
        if into is None:
            trees = parser.parse(_with_calls_of_all(tokens), source.text)
        else:
            trees = parser.parse_into(into, _with_calls_of_all(tokens), source.text)
    except ParseError as error:
        raise _syntax_error(error, tokens, source) from error
    except RecursionError as error:
        raise PolicySyntaxError(
            "nested too deep to be read",
            position=source.position(_deepest(tokens).start),
            hint="put what is inside into a view of its own",
        ) from error
    except (SqlglotError, ValueError) as error:
        raise PolicySyntaxError(
            f"cannot be parsed: {_first_line(error)}", position=where, hint="write it in simpler parts"
        ) from error
    tree = trees[0] if len(trees) == 1 else None
    if tree is None or isinstance(tree, exp.Command) or tree.find(exp.Command):
        raise PolicySyntaxError(
            "not a statement of the policy language",
            position=where,
            hint="statements are SET, CREATE VIEW and CREATE CONSTRAINT; see rota policy --help",
        )
    for value in tree.find_all(exp.Parameter, exp.Placeholder):
        raise PolicySyntaxError(
            "a parameter, and there is no value for it",
            position=position_of(value, source),
            hint="write the value, or select it from a table",
        )
    return tree


def _with_calls_of_all(tokens: Sequence[Token]) -> list[Token]:
    """``all`` as a name in ``f(all(x))`` and ``SELECT all(x)``: sqlglot reads over it, and here it is an aggregate."""
    found = list(tokens)
    for place in range(1, len(tokens) - 1):
        before, token, after = tokens[place - 1 : place + 2]
        argument = before.token_type in {TokenType.SELECT, TokenType.L_PAREN, TokenType.COMMA}
        if token.token_type is TokenType.ALL and argument and after.token_type is TokenType.L_PAREN:
            found[place] = Token(
                TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments
            )
    return found


def _deepest(tokens: Sequence[Token]) -> Token:
    """What is opened inside of most others; the first token where nothing is."""
    depth, most, deepest = 0, 0, tokens[0]
    for token in tokens:
        if token.token_type in _DEEPER:
            depth += 1
            if depth > most:
                most, deepest = depth, token
        elif token.token_type in _HIGHER:
            depth -= 1
    return deepest


def offset_of(node: exp.Expr) -> int | None:
    """The first character of a tree, from its left-most token that kept its place."""
    starts = [part.meta["start"] for part in node.walk() if part._meta and "start" in part._meta]
    return min(starts) if starts else None


def position_of(node: exp.Expr, source: SourceText) -> Position:
    """Where a tree stands; that of the closest enclosing tree when it has no token of its own."""
    current: exp.Expr | None = node
    while current is not None:
        offset = offset_of(current)
        if offset is not None:
            return source.position(offset)
        current = current.parent
    return source.position(0)


def _syntax_error(error: ParseError, tokens: Sequence[Token], source: SourceText) -> PolicySyntaxError:
    details = error.errors[0] if error.errors else {}
    line, column = details.get("line"), details.get("col")
    message = str(details.get("description") or "cannot be parsed").rstrip(".")
    highlight = str(details.get("highlight") or "").strip()
    position = source.position(tokens[0].start if tokens else 0)
    if line and column:
        # sqlglot gives the column of the token's last character
        length = len(highlight) or 1
        position = Position(source.name, int(line), max(1, int(column) - length + 1))
    message = _NO_TABLE.sub("expected the name of a table", message)
    missing = _MISSING_PART.search(message)
    if missing is not None:
        words = {"Where": "WHERE", "Having": "HAVING"}
        what = words.get(missing[1], highlight or missing[1].upper())
        return PolicySyntaxError(
            f"{what} needs an expression behind it",
            position=position,
            hint="write what it is about, or leave it out",
        )
    if message.startswith("Invalid expression"):
        message, near = f"unexpected {highlight!r}" if highlight else "it ends too early", ""
    else:
        message = message.replace("Expecting", "expected", 1)
        near = f" near {highlight!r}" if highlight else ""
    reserved = any(token.text == highlight and token.token_type is not TokenType.VAR for token in tokens)
    hint = (
        f'if {highlight} is a name here, write "{highlight}"'
        if reserved and highlight.isidentifier()
        else _HINTS.get(
            message.partition(" ")[0], "a word, an operator, a comma or a parenthesis is missing or too many"
        )
    )
    return PolicySyntaxError(f"{message}{near}", position=position, hint=hint)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

"""What the two kinds of database read differently, or only one of them, is refused before either is asked.

What it is not: it knows no name (see ``binder``), and what a policy may do at all is ``mgmt.state.guard``.  What both
can be made to read alike is rewritten instead (see ``dates``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from mgmt.errors import OverflowError, PolicyError, UnsupportedConstructError  # noqa: A004 - the published name
from mgmt.language.database_aggregates import refuse_unordered
from mgmt.language.json_operators import OPERATORS, names_one_member
from mgmt.language.scoping import spelled
from mgmt.language.shorthands import ordered_set
from mgmt.language.syntax import Statement
from mgmt.source import Position
from mgmt.state.schema_dates import KINDS
from mgmt.tokens import offset_of, position_of, tokenize

_CLOCK_HINT = "ask for the moment that the state is read at: now(), or CURRENT_DATE for its day"
_UTC = "dates and times are in UTC: DATE '2026-11-23', TIMESTAMP '2026-11-23 07:40:00', or columns of these types"
_SAME = "the same state has the same plan: put the numbers into a column"
_CAST_TYPES = {
    *(exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.BOOLEAN),
    *(exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.NCHAR, exp.DType.NVARCHAR),
    *(exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL),
    *KINDS,
}
# Another one while a statement runs, in a zone of its own, or without a day.
_CLOCKS: tuple[type[exp.Expr], ...] = (
    exp.CurrentTime,
    exp.Localtime,
    exp.UtcTimestamp,
    exp.UtcTime,
    exp.UtcDate,
)
# Of the connection, or of the program that it leads to.
_AROUND: tuple[type[exp.Expr], ...] = (
    *(exp.CurrentUser, exp.SessionUser, exp.CurrentSchema, exp.CurrentCatalog, exp.CurrentVersion),
)
_AROUND_FUNCTIONS = {"changes", "total_changes", "last_insert_rowid", "sqlite_version", "sqlite_source_id"}
_RANDOM = {"random", "randomblob", "gen_random_uuid"}
_CLOCK_FUNCTIONS = {"clock_timestamp", "timeofday"}
_ROUNDED = (exp.CurrentDate, exp.CurrentTimestamp, exp.Localtimestamp)
# Of dates, and known to one of the databases only, or under another name.
_DATE_HINTS: Mapping[str | type[exp.Expr], str] = {
    "age": "subtract dates, which gives days, or EXTRACT(YEAR FROM ...) of both",
    "timediff": "subtract dates, which gives days, or write EXTRACT(EPOCH FROM a - b) for seconds",
    "isfinite": "all dates are",
    exp.DateAdd: "write day + INTERVAL '1 month'",
    exp.DateSub: "write day - INTERVAL '1 month'",
    exp.DateDiff: "subtract dates, which gives days",
    exp.TimestampAdd: "write moment + INTERVAL '1 hour'",
    exp.TimestampSub: "write moment - INTERVAL '1 hour'",
    exp.TimestampDiff: "write EXTRACT(EPOCH FROM a - b) for seconds",
    exp.DateBin: "write date_trunc('hour', x), or compute with EXTRACT(EPOCH FROM x)",
    exp.StrToDate: "write CAST(... AS DATE) of a text like 2026-11-23",
    exp.StrToTime: "write CAST(... AS TIMESTAMP) of a text like 2026-11-23 07:40:00",
    exp.TimestampFromParts: "write make_date(year, month, day) + make_interval(hours => ...)",
    exp.Overlaps: "write a < d AND c < b",
    exp.AtTimeZone: _UTC,
    exp.Timestamp: "write CAST(... AS TIMESTAMP)",
    exp.Time: "write to_char(x, 'HH24:MI'), or EXTRACT(HOUR FROM x)",
}
_LIST = ("an aggregate that makes a list", "make a text: string_agg(x, ',' ORDER BY x)")
_LIST_FUNCTIONS = {"json_group_array", "json_group_object", "jsonb_agg", "jsonb_object_agg"}
_LISTS = (exp.ArrayAgg, exp.JSONArrayAgg, exp.JSONObjectAgg)
_SPELLED = (exp.ByteString, exp.UnicodeString, exp.National, exp.HexString, exp.BitString)
_SPELLING = "write texts as 'a', special characters as chr(10), numbers in decimals"
_OTHERS: tuple[tuple[type[exp.Expr], str, str], ...] = (
    (exp.Lock, "FOR UPDATE and its like", "leave it out: policies only read, and read a state of their own"),
    (exp.Hex, "hexadecimal digits", "compare the numbers; md5(x) is made of such digits in both databases"),
    (
        exp.Collate,
        "COLLATE",
        "texts are ordered by the codes of their characters; compare lower(...) to ignore case",
    ),
    *((kind, "a text or number in this spelling", _SPELLING) for kind in _SPELLED),
    *((kind, *_LIST) for kind in _LISTS),
    (exp.IgnoreNulls, "IGNORE NULLS", "leave the rows out: in a view with WHERE x IS NOT NULL"),
    (exp.ToNumber, "to_number", "write CAST(x AS BIGINT), or CAST(x AS DOUBLE PRECISION)"),
    (exp.Overlay, "OVERLAY", "write left(x, 2) || new || substring(x, 5)"),
    (exp.Bracket, "an element of a list", "write the value, or keep the list as JSON: labels ->> 0"),
)
_MOST = 2**63


def refuse_unportable(statement: Statement) -> None:
    """Raises UnsupportedConstructError, or OverflowError for a number of more than 64 bits, where it stands."""
    tail = statement.tail
    trees = [statement.select, *([] if tail is None else [tail.expression, tail.pinned])]
    for tree in trees:
        for node in tree.walk() if tree is not None else ():
            error = _error_of(node, statement)
            if error is not None:
                raise error


def _error_of(node: exp.Expr, statement: Statement) -> PolicyError | None:
    refuse_unordered(node, statement.source)
    if _is_too_large(node):
        return OverflowError(
            f"{node.this} leaves 64 bits", position=_place_of(node, statement), hint="use larger units"
        )
    found = _refused(node)
    if found is None:
        return None
    what, hint = found
    return UnsupportedConstructError(
        f"cannot be encoded: {what}", position=_place_of(node, statement), hint=hint
    )


def _refused(node: exp.Expr) -> tuple[str, str] | None:
    """What it is, and what to do instead; None for what both databases understand alike."""
    if isinstance(node, exp.Cast) and node.to.this not in _CAST_TYPES:
        of_time = node.to.this in exp.DataType.TEMPORAL_TYPES
        hint = _UTC if of_time else "types are BIGINT, TEXT, BOOLEAN, DOUBLE PRECISION, DATE and TIMESTAMP"
        return f"a value of type {node.to.sql(dialect='postgres')}", hint
    if isinstance(node, _CLOCKS) or _is_call(node, _CLOCK_FUNCTIONS):
        return "to ask a clock", _CLOCK_HINT
    if isinstance(node, _ROUNDED) and node.this is not None:
        return "the present time of so many digits, or in a zone", "write date_trunc('second', now())"
    date_hint = _DATE_HINTS.get(_called(node))
    if date_hint is not None:
        return f"{spelled(node)} of dates", date_hint
    if isinstance(node, (exp.Rand, exp.Randn, exp.Uuid)) or _is_call(node, _RANDOM):
        return "a value that is another one each time", _SAME
    if isinstance(node, _AROUND) or _is_call(node, _AROUND_FUNCTIONS):
        return "a value that is no part of the state", _SAME
    if isinstance(node, exp.Substring) and not _is_place(node.args.get("start")):
        return "substring from no place in the text", "count from 1; right(x, 3) is its end"
    if isinstance(node, (exp.Limit, exp.Offset, exp.Fetch)) and not _is_number_of_rows(node):
        return "a number of rows that is no whole number from 0 on", "write how many: LIMIT 10 OFFSET 20"
    if isinstance(node, exp.LimitOptions) and (node.args.get("with_ties") or node.args.get("percent")):
        return "WITH TIES, or a number of rows in percent", "compare a rank: rank() OVER (ORDER BY x) <= 10"
    if isinstance(node, exp.Trunc) and node.args.get("decimals") is not None:
        return "trunc to so many decimals", "write trunc(x * 100) / 100, or round(x, 2)"
    if _is_call(node, _LIST_FUNCTIONS):
        return _LIST
    if isinstance(node, exp.WithinGroup) and ordered_set(node) is None:
        return (
            "this WITHIN GROUP",
            "write percentile_cont(0.5) WITHIN GROUP (ORDER BY x): upwards, a number up to 1",
        )
    if isinstance(node, OPERATORS) and not names_one_member(node):
        return (
            "a path, or a computed name, of a member of JSON",
            "name one after the other: labels -> 'disk' ->> 'kind'",
        )
    if isinstance(node, exp.Collate) and node.expression.name == "C":
        return None
    return next(((what, hint) for kind, what, hint in _OTHERS if isinstance(node, kind)), None)


def _is_too_large(node: exp.Expr) -> bool:
    """Whether it is a whole number of more than 64 bits."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdecimal():
        return False
    digits = node.this.lstrip("0")
    if len(digits) < len(str(_MOST)):
        return False
    least = isinstance(node.parent, exp.Neg) and digits == str(_MOST)
    return not least and (len(digits) > len(str(_MOST)) or int(digits) >= _MOST)


def _is_place(start: exp.Expr | None) -> bool:
    """From the end, and by a pattern, the databases read it differently."""
    if isinstance(start, exp.Literal):
        return not start.is_string and start.this != "0"
    return not isinstance(start, exp.Neg)


def _is_number_of_rows(node: exp.Expr) -> bool:
    """What LIMIT or OFFSET says is a whole number, or computed where it cannot be seen."""
    number = node.args.get("count") if isinstance(node, exp.Fetch) else node.expression
    if isinstance(number, exp.Literal):
        return not number.is_string and bool(number.this.isdecimal())
    return not isinstance(number, (exp.Null, exp.Neg, exp.Boolean))


def _place_of(node: exp.Expr, statement: Statement) -> Position:
    """Where it stands; words like ``current_date`` kept no place, and are looked for."""
    text, start = statement.source, statement.position
    if offset_of(node) is None and isinstance(node, (*_CLOCKS, *_AROUND)):
        word = type(node).__name__.lower()
        written = [token for token in tokenize(text) if token.text.replace("_", "").lower() == word]
        places = [text.position(token.start) for token in written if token.token_type is not TokenType.STRING]
        after = (place for place in places if (place.line, place.column) >= (start.line, start.column))
        return next(after, position_of(node, text))
    return position_of(node, text)


def _is_call(node: exp.Expr, names: set[str]) -> bool:
    return _called(node) in names


def _called(node: exp.Expr) -> str | type[exp.Expr]:
    """The name of a function that sqlglot does not know, or else what it is."""
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else type(node)

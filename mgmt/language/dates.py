"""Dates, times and intervals in the trees of one SELECT, in terms of ``mgmt.state.dates``, which both databases have.

A tree of sqlglot has no types, and what ``+``, ``-`` or ``=`` means depends on them: ``TreeTypes`` tells which operands
are dates.  They are texts, so a comparison needs no change once both sides are dates, or both timestamps; everything
else becomes a call.  Means what it means in PostgreSQL, in UTC.

What it is not: it binds nothing, and runs before anything is bound; what holds variables is refused by the binder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from mgmt.errors import (
    PolicyError,
    PolicySyntaxError,
    TypeMismatchError,
    UnsupportedConstructError,
)
from mgmt.language.intervals import Interval, is_interval, read_interval
from mgmt.language.tree_types import TreeTypes, choices, mark, marked, own_nodes
from mgmt.source import SourceText
from mgmt.state import dates
from mgmt.state.schema import TEMPORAL, SqlType
from mgmt.state.schema_dates import KINDS, date_literal
from mgmt.tokens import offset_of, position_of

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_MOST_MADE = 20_000  # nodes: an interval of three parts is written three times
_CAST_HINT = "make one of it: CAST(... AS TIMESTAMP)"


def rewrite_dates(tree: exp.Expr, types: TreeTypes, text: SourceText) -> None:
    """Rewrite what stands in a SELECT, or in a part of one, without the SELECTs inside of it."""
    _Rewriter(types, text).rewrite(tree)


def refuse_what_is_left(tree: exp.Expr) -> None:
    """Raises UnsupportedConstructError for dates that were not rewritten, which SQLite would take for numbers."""
    for node in tree.find_all(exp.Cast, exp.Anonymous):
        cast = isinstance(node, exp.Cast) and node.to.this in KINDS
        if (cast or str(node.this).lower() in dates.OF_SQLITE) and marked(node) is None:
            raise UnsupportedConstructError(
                "cannot be encoded: a date computed here",
                hint="compute it in a CREATE VIEW of its own, and select its column",
            )


class _Rewriter:
    def __init__(self, types: TreeTypes, text: SourceText) -> None:
        self._types = types
        self._text = text
        self._made = 0
        self._intervals = False

    def rewrite(self, tree: exp.Expr) -> None:
        self._intervals = tree.find(exp.Interval, exp.MakeInterval) is not None
        for node in reversed(list(own_nodes(tree))):  # operands first
            if node is tree and isinstance(node, exp.Query):
                continue
            handler = _HANDLERS.get(type(node))
            if handler is not None and marked(node) is None:
                handler(self, node)
        if self._intervals:
            self._refuse_intervals(tree)

    def _refuse_intervals(self, tree: exp.Expr) -> None:
        """Those that were added to no date."""
        for node in own_nodes(tree):
            if isinstance(node, (exp.Interval, exp.MakeInterval)):
                raise self._unsupported(
                    node, "an interval by itself", "add it to a date: day + INTERVAL '1 month'; or count days"
                )

    # ---- casts and literals ---------------------------------------------------------------------------

    def _cast(self, node: exp.Cast) -> None:
        kind = KINDS.get(node.to.this)
        if kind is not None:
            self._put(node, self._as(node.this, kind), kind)

    def _function_like_cast(self, node: exp.Expr) -> None:
        """date(x) and datetime(x), as SQLite spells them."""
        kind = SqlType.DATE if isinstance(node, exp.Date) else SqlType.TIMESTAMP
        others = [name for name, given in node.args.items() if given and name != "this"]
        if others:
            raise self._unsupported(
                node, f"{kind} with modifiers", "write CAST(x AS DATE) + INTERVAL '1 month', or date_trunc"
            )
        self._put(node, self._as(node.this, kind), kind)

    def _as(self, node: exp.Expr, kind: SqlType) -> exp.Expr:
        """A value as one of this type: CAST (node AS kind)."""
        inner = node.unnest() if isinstance(node, exp.Paren) else node
        found = self._types.of(inner)
        if isinstance(inner, exp.Null) or found is kind:
            return node.copy()
        if isinstance(inner, exp.Literal) and inner.is_string and marked(inner) is None:
            return self._literal(inner, kind)
        if found is SqlType.DATE:
            midnight = exp.DPipe(this=node.copy(), expression=exp.Literal.string(" 00:00:00"))
            return exp.Paren(this=mark(midnight, kind))
        if found is SqlType.TIMESTAMP:
            ten = exp.Literal.number(len("2026-11-23"))
            return exp.Substring(this=node.copy(), start=exp.Literal.number(1), length=ten)
        if found not in {SqlType.TEXT, SqlType.UNKNOWN}:
            raise self._mismatch(node, f"{found} is no {kind}", f"a {kind} is made of a text; {dates.HINT}")
        return _call(dates.DATE if kind is SqlType.DATE else dates.TIMESTAMP, node.copy())

    def _literal(self, node: exp.Expr, kind: SqlType) -> exp.Expr:
        return mark(date_literal(node, kind, self._text, dates.cast_to), kind)

    # ---- arithmetic -----------------------------------------------------------------------------------

    def _add(self, node: exp.Binary) -> None:
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if self._is_interval(other) and not self._is_interval(one):
                self._put(node, self._moved(one, read_interval(other, self._text)))
                return
            if self._types.of(one) in TEMPORAL:
                self._put(node, self._days_later(one, other, exp.Add))
                return

    def _is_interval(self, node: exp.Expr) -> bool:
        return self._intervals and is_interval(node)

    def _subtract(self, node: exp.Binary) -> None:
        left, right = node.this, node.expression
        if self._is_interval(right):
            if not self._is_interval(left):
                self._put(node, self._moved(left, read_interval(right, self._text).negated()))
            return
        kinds = self._types.of(left), self._types.of(right)
        if kinds[1] in TEMPORAL:
            self._put(node, self._difference(node, kinds))
        elif kinds[0] in TEMPORAL:
            if _is_text(right):
                right.replace(self._literal(right.unnest(), kinds[0]))  # as PostgreSQL reads it
                self._subtract(node)
            else:
                self._put(node, self._days_later(left, right, exp.Sub))

    def _difference(self, node: exp.Binary, kinds: tuple[SqlType, SqlType]) -> exp.Expr:
        """The days between two dates."""
        left, right = node.this, node.expression
        if SqlType.TIMESTAMP in kinds:
            if _is_asked_for_seconds(node):
                return self._seconds(node)
            raise self._unsupported(
                node,
                "the interval between two timestamps",
                "write EXTRACT(EPOCH FROM a - b) for seconds, or CAST both AS DATE for days",
            )
        return _call(dates.DAYS_BETWEEN, self._as(left, SqlType.DATE), right.copy())

    def _seconds(self, node: exp.Binary) -> exp.Expr:
        both = (self._as(part, SqlType.TIMESTAMP) for part in (node.this, node.expression))
        return _call(dates.SECONDS_BETWEEN, *both)

    def _days_later(self, day: exp.Expr, days: exp.Expr, sign: type[exp.Expr]) -> exp.Expr:
        kind, added = self._types.of(day), self._types.of(days)
        if kind is not SqlType.DATE or added not in {SqlType.INTEGER, SqlType.UNKNOWN}:
            raise self._mismatch(
                days,
                f"{added} is added to or taken from a {kind}",
                "whole numbers of days go with dates; INTERVAL '1 hour' and its like with both",
            )
        number = exp.Neg(this=exp.Paren(this=days.copy())) if sign is exp.Sub else days.copy()
        return _call(dates.DAYS_LATER, day.copy(), number)

    def _moved(self, moment: exp.Expr, interval: Interval) -> exp.Expr:
        return _call(dates.LATER, self._moment(moment), *interval)

    def _moment(self, node: exp.Expr) -> exp.Expr:
        """An operand that must be a date or a timestamp already, as a timestamp."""
        if self._types.of(node) is SqlType.TEXT and marked(node) is None and not _is_text(node):
            raise self._mismatch(node, "a text is no timestamp by itself", _CAST_HINT)
        return self._as(node, SqlType.TIMESTAMP)

    # ---- functions ------------------------------------------------------------------------------------

    def _extract(self, node: exp.Extract) -> None:
        field = node.this.name.lower()
        if field not in dates.PARTS:
            raise self._unsupported(
                node, f"EXTRACT({field.upper()} ...)", f"known are {', '.join(dates.PARTS)}"
            )
        inner = node.expression.unnest() if isinstance(node.expression, exp.Paren) else node.expression
        if field == "epoch" and isinstance(inner, exp.Anonymous) and inner.this == dates.SECONDS_BETWEEN:
            node.replace(inner.copy())
            return
        self._put(node, _call(dates.part(field), self._moment(node.expression)))

    def _truncate(self, node: exp.Expr) -> None:
        unit = node.args["unit"].name.lower()
        if unit not in dates.UNITS:
            raise self._unsupported(node, f"date_trunc('{unit}', ...)", f"known are {', '.join(dates.UNITS)}")
        self._put(node, _call(dates.truncated(unit), self._moment(node.this)), SqlType.TIMESTAMP)

    def _format(self, node: exp.Expr) -> None:
        """to_char; how sqlglot keeps its format is its own matter, so it is asked to write it out."""
        if self._types.of(node.this) not in TEMPORAL:
            raise self._unsupported(
                node, "to_char of what is no date", "CAST(... AS TEXT), or CAST it AS TIMESTAMP"
            )
        written = node.args.get("format")
        pattern = node.sql(dialect="postgres").rsplit("'", 2)[-2] if _is_text(written) else ""
        if not dates.is_format(pattern):
            raise self._unsupported(
                node,
                f"the format {pattern!r} of to_char",
                f"known are {', '.join(dates.PATTERNS)} and - : / . ,",
            )
        call = _call(dates.FORMATTED, self._moment(node.this), exp.Literal.string(pattern))
        self._put(node, call)

    def _from_epoch(self, node: exp.Expr) -> None:
        self._put(node, _call(dates.OF_EPOCH, node.this.copy()))

    def _named(self, node: exp.Anonymous) -> None:
        """What sqlglot keeps as a name."""
        name, operands = str(node.this).lower(), node.expressions
        if name == "make_date" and len(operands) == 3:
            self._put(node, _call(dates.MADE_DATE, *(part.copy() for part in operands)))
        elif name == "unixepoch" and len(operands) == 1:
            seconds = _call(dates.part("epoch"), self._moment(operands[0]))
            self._put(node, exp.Cast(this=seconds, to=exp.DataType.build("bigint")), SqlType.INTEGER)
        elif name == "julianday" and len(operands) == 1:
            self._put(node, _call(dates.JULIAN_DAY, self._moment(operands[0])))
        elif name == "strftime" and len(operands) == 2 and _is_text(operands[0]):
            pattern = dates.strftime_format(operands[0].name)
            if pattern is None:
                known = ", ".join(dates.OF_STRFTIME)
                raise self._unsupported(node, "this format of strftime", f"known are {known} and - : / . ,")
            self._put(node, _call(dates.FORMATTED, self._moment(operands[1]), exp.Literal.string(pattern)))
        elif name in dates.OF_SQLITE:
            raise self._unsupported(
                node, f"{name} with modifiers", "write x + INTERVAL '1 month', or date_trunc('month', x)"
            )

    # ---- values side by side ----------------------------------------------------------------------------

    def _compare(self, node: exp.Binary) -> None:
        if isinstance(node.expression, (exp.Any, exp.All)):
            self._beside_query(node.this, node.expression.this)
        else:
            self._align([node.this, node.expression])

    def _between(self, node: exp.Between) -> None:
        self._align([node.this, node.args["low"], node.args["high"]])

    def _in(self, node: exp.In) -> None:
        query = node.args.get("query")
        if query is None:
            self._align([node.this, *node.expressions])
        else:
            self._beside_query(node.this, query)

    def _beside_query(self, node: exp.Expr, query: exp.Expr) -> None:
        """The values of a query cannot be changed from here."""
        kind, wanted = self._types.of(node), self._types.of(query)
        if _is_text(node) and wanted in TEMPORAL:
            node.replace(self._literal(node.unnest(), wanted))
        elif {kind, wanted} == TEMPORAL:
            raise self._mismatch(
                node, f"{kind} is compared with {wanted}", "CAST one of them to the other's type"
            )

    def _choose(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Case) and node.this is not None:
            self._align([node.this, *(branch.this for branch in node.args["ifs"])])
        self._align(choices(node))

    def _nullif(self, node: exp.Expr) -> None:
        self._align([node.this, node.expression])

    def _align(self, parts: Sequence[exp.Expr]) -> None:
        """Make all of them dates, or all timestamps, where one is."""
        kinds = [self._types.of(part) for part in parts]
        if not set(kinds) & TEMPORAL:
            return
        unknown = any(
            kind is SqlType.UNKNOWN and not isinstance(part.unnest(), exp.Null)
            for part, kind in zip(parts, kinds, strict=True)
        )
        # Of what is not known it is not known whether it has a time, either.
        wanted = SqlType.TIMESTAMP if SqlType.TIMESTAMP in kinds or unknown else SqlType.DATE
        for part, kind in zip(parts, kinds, strict=True):
            if kind is wanted or isinstance(part.unnest(), exp.Null):
                continue
            if wanted is SqlType.DATE and _is_text(part) and " " in part.unnest().name.replace("T", " "):
                raise self._mismatch(part, "a time is compared with a date", "CAST the date AS TIMESTAMP")
            if kind is SqlType.TEXT and not _is_text(part):
                raise self._mismatch(part, f"a text stands beside a {wanted}", _CAST_HINT)
            if kind in TEMPORAL | {SqlType.TEXT, SqlType.UNKNOWN}:  # what else there is, the binder refuses
                part.replace(mark(self._as(part, wanted), wanted))

    # ---- results --------------------------------------------------------------------------------------

    def _put(self, node: exp.Expr, made: exp.Expr, kind: SqlType | None = None) -> None:
        """In the place of a node, and where it stood.  ``kind``: its type, where it does not say so itself."""
        self._made += sum(1 for _ in made.walk())
        if self._made > _MOST_MADE:
            raise PolicySyntaxError(
                "written out, the dates computed here are too long",
                position=position_of(node, self._text),
                hint="compute them in steps: a view with a column for each",
            )
        start = offset_of(node)
        if start is not None:
            made.meta["start"] = start
        node.replace(made if kind is None else mark(made, kind))

    def _unsupported(self, node: exp.Expr, what: str, hint: str) -> PolicyError:
        return UnsupportedConstructError(
            f"cannot be encoded: {what}", position=position_of(node, self._text), hint=hint
        )

    def _mismatch(self, node: exp.Expr, what: str, hint: str) -> PolicyError:
        return TypeMismatchError(what, position=position_of(node, self._text), hint=hint)


def _call(name: str, *operands: exp.Expr) -> exp.Expr:
    return mark(exp.Anonymous(this=name, expressions=list(operands)), dates.FUNCTIONS[name].type)


def _is_text(node: Any) -> bool:
    """Whether it is a text that is written out, and not yet a date."""
    inner = node.unnest() if isinstance(node, exp.Paren) else node
    return isinstance(inner, exp.Literal) and inner.is_string and marked(inner) is None


def _is_asked_for_seconds(node: exp.Expr) -> bool:
    around = node.parent.parent if isinstance(node.parent, exp.Paren) else node.parent
    return isinstance(around, exp.Extract) and around.this.name.lower() == "epoch"


_HANDLERS: Mapping[type[exp.Expr], Callable[[_Rewriter, Any], None]] = {
    exp.Cast: _Rewriter._cast,
    exp.Date: _Rewriter._function_like_cast,
    exp.Datetime: _Rewriter._function_like_cast,
    exp.Add: _Rewriter._add,
    exp.Sub: _Rewriter._subtract,
    exp.Extract: _Rewriter._extract,
    exp.DateTrunc: _Rewriter._truncate,
    exp.TimestampTrunc: _Rewriter._truncate,
    exp.TimeToStr: _Rewriter._format,
    exp.UnixToTime: _Rewriter._from_epoch,
    exp.Anonymous: _Rewriter._named,
    **dict.fromkeys(_COMPARISONS, _Rewriter._compare),
    exp.Between: _Rewriter._between,
    exp.In: _Rewriter._in,
    **dict.fromkeys((exp.Case, exp.If, exp.Coalesce, exp.Greatest, exp.Least), _Rewriter._choose),
    exp.Nullif: _Rewriter._nullif,
}

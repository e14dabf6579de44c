"""Which expression and which row it was, after the database has refused to compute a statement as a whole.

What the failed arithmetic was made of is fetched row by row and computed here; rows of a subquery are counted where it
stands.  This happens once something has failed, so it may take as long as the statement did.

What it is not: it decides nothing, and where nothing is found the error stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from mgmt.compiler.our_aggregates import is_ours
from mgmt.compiler.split import from_clause
from mgmt.compiler.sql_text import to_sql
from mgmt.errors import (
    DataError,
    OverflowError,  # noqa: A004 - the published name
    PolicyError,
    PolicySyntaxError,
    UnknownFunctionError,
)
from mgmt.language.bound import BoundQuery, PushedView, UnionView
from mgmt.language.catalog import Catalog, Relation
from mgmt.source import Position, SourceText
from mgmt.state import exact_integers, sole_row
from mgmt.state.database import Snapshot
from mgmt.state.store import RefusedStatementError
from mgmt.tokens import offset_of

Result = PushedView | BoundQuery
_MOST_ROWS_NAMED = 20
_WORD = re.compile(
    r"[\"'](\w+)[\"']|(?:function|column)s?:? ([a-z_]\w*)|^(\w+)(?= is another| makes many)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Program:
    """What was being computed: the bound statements, their texts, and the views as the oracle defines them."""

    results: Sequence[Result]
    texts: Mapping[str, SourceText]
    catalog: Catalog
    views: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Select:
    """One SELECT: its FROM clause with the conditions that come without arithmetic, and its other parts."""

    rows: str
    conditions: tuple[str, ...]
    keys: tuple[exp.Expr, ...] | None
    sources: Mapping[str, Relation]
    parts: tuple[exp.Expr, ...]


@contextmanager
def blamed(snapshot: Snapshot, program: Program) -> Iterator[None]:
    """Inside, the database computes a program; an error of a row is raised as one that names it."""
    try:
        yield
    except OverflowError as error:
        if error.row is None:
            _look(snapshot, program, _overflows)
        raise
    except DataError as error:
        if not error.rows and sole_row.is_ours(error.message):
            _look(snapshot, program, _several_rows)
        raise
    except (PolicySyntaxError, UnknownFunctionError) as error:
        if isinstance(error.__cause__, RefusedStatementError) and error.position is not None:
            error.move(_offender(error.__cause__.reason, error.position, program.texts))
        raise


def _offender(reason: str, statement: Position, texts: Mapping[str, SourceText]) -> Position:
    """Where a word that the database complains of stands in the statement; that of the statement if it is not there."""
    text = texts.get(statement.source)
    if text is None:
        return statement
    start = text.offset(statement)
    end = text.text.find(";", start)
    written = text.text[start : end if end >= 0 else None]
    for match in _WORD.finditer(reason):
        word = next(group for group in match.groups() if group)
        found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", written, re.IGNORECASE)
        if found is not None:
            return text.position(start + found.start())
    return statement


_Finder = Callable[["_Place", _Select], None]


def _look(snapshot: Snapshot, program: Program, find: _Finder) -> None:
    """Raises the error that a finder makes of the first place it finds."""
    found: PolicyError | None = None
    try:
        with snapshot.scratch():
            known = dict(program.views)
            for result in program.results:
                for select in _selects_of(result, program.catalog):
                    try:
                        find(_Place(snapshot, result, program.texts), select)
                    except _FoundError as error:
                        found = error.found
                        break
                    except PolicyError:
                        continue  # it cannot be asked alone: it refers to the rows around it
                if found is not None:
                    break
                if result.name in known:
                    snapshot.define_view(result.name, known[result.name])
    except PolicyError:
        return
    if found is not None:
        raise found


class _FoundError(Exception):
    """Carries what was found past the errors of looking."""

    def __init__(self, found: PolicyError) -> None:
        super().__init__()
        self.found = found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where something is looked for."""

    snapshot: Snapshot
    result: Result
    texts: Mapping[str, SourceText]

    def position(self, node: exp.Expr) -> Position:
        """Of a part of the statement; of the statement when the part was written out from something shorter."""
        text = self.texts.get(self.result.position.source)
        offset = offset_of(node)
        return self.result.position if text is None or offset is None else text.position(offset)


# ---- the SELECTs of a program ---------------------------------------------------------------------------


def _selects_of(result: Result, catalog: Catalog) -> Iterator[_Select]:
    """Those inside of others first."""
    if isinstance(result, BoundQuery):
        trees = [*(o.tree for o in result.outputs), *(p.tree for p in result.predicates)]
        trees += [result.demand.tree] if result.demand is not None else []
        for tree in trees:
            yield from _below(tree, catalog)
        constant = [p.tree for p in result.predicates if not p.by_solver]
        sources = {source.alias.lower(): source.relation for source in result.sources}
        yield _Select(from_clause(result), _plain(constant), None, sources, tuple(trees))
    elif not isinstance(result, UnionView):
        yield from _below(result.tree, catalog)


def _below(tree: exp.Expr, catalog: Catalog) -> Iterator[_Select]:
    for select in reversed(list(tree.find_all(exp.Select))):
        items = [select.args["from_"].this] if select.args.get("from_") else []
        items += [join.this for join in select.args.get("joins") or ()]
        sources = {
            item.alias_or_name.lower(): relation
            for item in items
            if isinstance(item, exp.Table) and (relation := catalog.find(item.name)) is not None
        }
        where = select.args.get("where")
        joins = [join.args["on"] for join in select.args.get("joins") or () if join.args.get("on")]
        parts = [*joins, *([where.this] if where is not None else []), *select.expressions]
        parts += [clause.this for key in ("having",) if (clause := select.args.get(key)) is not None]
        skeleton = exp.Select()
        for key in ("from_", "joins"):
            if select.args.get(key):
                skeleton.set(key, select.copy().args[key])
        text = to_sql(skeleton)
        start = text.upper().find("FROM ")
        group = select.args.get("group")
        aggregated = any(output.find(exp.AggFunc) is not None for output in select.expressions)
        keys = tuple(group.expressions) if group is not None else () if aggregated else None
        conditions = (
            ()
            if where is None
            else _plain(where.this.flatten() if isinstance(where.this, exp.And) else [where.this])
        )
        yield _Select(text[start:] if start >= 0 else "", conditions, keys, sources, tuple(parts))


def _plain(conditions: Iterable[exp.Expr]) -> tuple[str, ...]:
    """Those that can be asked without failing in their turn."""
    return tuple(
        f"({to_sql(tree)})"
        for tree in conditions
        if not any(True for _ in _computed(tree)) and not tree.find(exp.Query)
    )


# ---- overflows ------------------------------------------------------------------------------------------


def _overflows(place: _Place, select: _Select) -> None:
    """Raises _FoundError for the first row in which arithmetic leaves 64 bits."""
    for part in select.parts:
        for node in _computed(part):
            program, operands = exact_integers.postfix(node)
            if not any(_is_decided(operand, select) for operand in operands):
                _compute_rows(place, select, node, program, operands)
        for total in part.find_all(exp.Sum):
            if total.find_ancestor(exp.Select, exp.Query) in {None, part.find_ancestor(exp.Select)}:
                _add_up(place, select, total)


def _computed(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The arithmetic in a tree and not in its subqueries, inner parts first."""
    found = [
        node
        for node in tree.walk(prune=lambda node: isinstance(node, exp.Query))
        if exact_integers.is_outermost(node)
    ]
    yield from reversed(found)


def _is_decided(tree: exp.Expr, select: _Select) -> bool:
    """Whether the solver has a say in it."""
    for column in tree.find_all(exp.Column):
        relation = select.sources.get(column.table.lower())
        known = None if relation is None else relation.find(column.name)
        if known is not None and known.symbolic:
            return True
    return False


def _compute_rows(
    place: _Place, select: _Select, node: exp.Expr, program: str, operands: Sequence[exp.Expr]
) -> None:
    aggregated = any(
        part.find(exp.AggFunc) is not None or any(is_ours(inner) for inner in part.walk())
        for part in operands
    )
    for row, values in _rows(place.snapshot, select, operands, aggregated=aggregated):
        try:
            exact_integers.compute(program, *values)
        except OverflowError as error:
            raise _FoundError(_overflow(place, node, error.message, row)) from None


def _add_up(place: _Place, select: _Select, total: exp.Sum) -> None:
    """A sum is beyond 64 bits where the sum of Python's numbers is."""
    if isinstance(total.this, exp.Distinct) or _is_decided(total.this, select) or select.keys is None:
        return
    operand = total.this
    if isinstance(total.parent, exp.Filter):
        condition = total.parent.expression.this.copy()
        operand = exp.Case(ifs=[exp.If(this=condition, true=operand.copy())])
    sums: dict[tuple[Any, ...], int] = {}
    for row, values in _rows(place.snapshot, select, [operand], aggregated=False, keys=select.keys):
        if isinstance(values[0], int):
            key = tuple(row.items())
            sums[key] = sums.get(key, 0) + values[0]
    for key, value in sums.items():
        if not exact_integers.fits(value):
            message = exact_integers.leaves_64_bits(f"the sum {value}").message
            raise _FoundError(_overflow(place, total, message, dict(key)))


def _rows(
    snapshot: Snapshot,
    select: _Select,
    operands: Sequence[exp.Expr],
    *,
    aggregated: bool,
    keys: Sequence[exp.Expr] | None = None,
) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """What tells each row or group apart, and what the operands are worth there."""
    identity = _identity(select) if keys is None and not aggregated else _named(keys or select.keys or ())
    columns = [*identity.values(), *(to_sql(operand) for operand in operands)]
    where = f" WHERE {' AND '.join(select.conditions)}" if select.conditions else ""
    group = f" GROUP BY {', '.join(identity.values())}" if aggregated and identity else ""
    names = list(identity)
    for row in snapshot.rows(f"SELECT {', '.join(columns)} {select.rows}{where}{group}"):
        yield dict(zip(names, row, strict=False)), row[len(names) :]


def _identity(select: _Select) -> dict[str, str]:
    """Names of the columns that tell the rows apart, with their SQL: keys, or all constants where there is none."""
    found: dict[str, str] = {}
    for alias, relation in select.sources.items():
        names = relation.key or tuple(column.name for column in relation.columns)
        for name in names:
            column = relation.find(name)
            if column is not None and not column.symbolic:
                shown = f"{alias}.{name}" if name in found else name
                found[shown] = to_sql(exp.column(name, table=alias, quoted=True))
    return found


def _named(keys: Sequence[exp.Expr]) -> dict[str, str]:
    return {key.name if isinstance(key, exp.Column) else key.sql(): to_sql(key) for key in keys}


def _overflow(place: _Place, node: exp.Expr, message: str, row: Mapping[str, Any]) -> OverflowError:
    told = f" in the row {_told(row)}" if row else ""
    return OverflowError(
        f"{place.result.name}: {message}{told}",
        row=dict(row) or None,
        position=place.position(node),
        hint="use smaller units",
    )


def _told(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in row.items())


# ---- subqueries of several rows -------------------------------------------------------------------------


def _several_rows(place: _Place, select: _Select) -> None:
    """Raises _FoundError for the first subquery used as a value that has several rows, with rows around it."""
    for part in select.parts:
        for subquery in part.walk(
            prune=lambda node: isinstance(node, exp.Query) and not isinstance(node, exp.Subquery)
        ):
            if not isinstance(subquery, exp.Subquery) or not sole_row.may_have_several(subquery, is_ours):
                continue
            identity = _identity(select)
            inner = to_sql(subquery.unnest())
            conditions = [*select.conditions, f"(SELECT count(*) FROM ({inner}) AS counted) > 1"]
            sql = (
                f"SELECT {', '.join(identity.values()) or '1'} {select.rows} WHERE {' AND '.join(conditions)}"
            )
            rows = [dict(zip(identity, row, strict=False)) for row in place.snapshot.rows(sql)]
            if rows:
                told = f", in the row {_told(rows[0])}" if rows[0] else ""
                error = DataError(
                    f"{place.result.name}: {sole_row.SEVERAL}{told}",
                    rows=rows[:_MOST_ROWS_NAMED],
                    hint=sole_row.HINT,
                )
                error.move(place.position(subquery))
                raise _FoundError(error)

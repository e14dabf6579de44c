"""Binds statements in order, each seeing the views before it.

What reads no variable is handed to the engine as it was written.  Of anything else WITH and derived tables become views
of their own, and each SELECT is bound by ``mgmt.language.select_binder``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from mgmt.errors import (
    DataError,
    DuplicateNameError,
    OverflowError,  # noqa: A004 - the published name
    PolicySyntaxError,
    StatementTimeoutError,
    TypeMismatchError,
    UnknownColumnError,
)
from mgmt.language.bound_queries.queries import BoundQuery, PushedView, UnionView
from mgmt.language.expression_binding.expression_binder import go_together
from mgmt.language.names.catalog import Catalog, Relation, RelationColumn
from mgmt.language.normalization.column_aliases import view_under_names
from mgmt.language.normalization.pinned_rows import pins_of
from mgmt.language.normalization.shorthands import write_out
from mgmt.language.parsing.statements import Statement
from mgmt.language.parsing.trailing_clauses import Tail
from mgmt.language.parsing.volatile_functions import refuse_unsteady
from mgmt.language.pushdown.aggregates import OUR_AGGREGATES, is_ours
from mgmt.language.pushdown.column_types import EngineTypes, RefusedStatementError
from mgmt.language.pushdown.engine_errors import error_of
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.language.select_binder import SelectBinder
from mgmt.source_text import Position
from mgmt.sql.tokens import position_of
from mgmt.sql.trees import named_table, select_as, unsupported
from mgmt.state.schema import SqlType

_MOST_TABLES = 1_000
"""That a view reads when the views it uses are written out: those of a few lines can double and double."""
_AGGREGATES = (exp.AggFunc, exp.Anonymous)
_OURS = {*OUR_AGGREGATES, "capacity_constraint", "contains"}
_NAMED = re.compile(r"[\"'](\w+)[\"']|(?:[Ff]unction|[Tt]able) with name (\w+)")


class QueryBinder:
    """Binds statements in order, each seeing the views before it."""

    def __init__(self, catalog: Catalog, engine: EngineTypes) -> None:
        self._catalog = catalog
        self._engine = engine
        self.results: list[PushedView | BoundQuery] = []
        self._anonymous = 0
        self._tables: dict[str, int] = {}

    def bind(self, statement: Statement) -> None:
        """Bind one statement and append it, after the views it needed, to ``results``."""
        self._catalog.reserve(statement.name, statement.position)
        variable = {c.name.lower() for table in self._catalog.schema.tables for c in table.variables}
        for name in statement.variable_columns:
            if name.lower() not in variable:
                raise UnknownColumnError(
                    f"@variable_columns names {name!r}, which is no variable column of the schema",
                    position=statement.position,
                    hint="declare it there: -- @variable_columns (name) before CREATE TABLE, or a variable__ prefix",
                )
        refuse_unsteady(statement)
        if statement.tail is None and statement.body and not self._speaks_of_variables(statement):
            tree = statement.select if statement.unread is None else self._mentioned(statement)
            self.results.append(self.push(statement.name, tree, statement, sql=statement.written))
            return
        if statement.unread is not None:
            raise statement.unread
        self._bind(write_out(statement, self._catalog.schema))

    # ---- what is left to the engine -------------------------------------------------------------------

    def push(
        self, name: str, tree: exp.Expr, statement: Statement, *, sql: str = "", empty: Collection[str] = ()
    ) -> PushedView:
        """Make a view of what reads no variable, whose name is reserved; ``sql``: as it was written.

        ``empty``: columns, in lower case, that are NULL in every row.
        """
        self._count_tables(name, tree, statement)
        text = sql or to_sql(tree)
        try:
            columns = self._engine.columns(text)
            _refuse_equal_names(name, columns, tree, statement)
            self._engine.define_view(name, text)
        except RefusedStatementError as error:
            raise error_of(error, statement.name, _place_of(error, statement, written=bool(sql))) from error
        except (DataError, OverflowError, StatementTimeoutError) as error:
            error.message = f"{statement.name}: {error.message}"
            error.move(statement.position)
            raise
        nothing = {*empty, *_null_outputs(tree)}
        made = tuple(
            replace(c, empty=True, type=SqlType.UNKNOWN) if c.name.lower() in nothing else c for c in columns
        )
        self._catalog.define(Relation(name, made))
        return PushedView(name, tree, statement.position, text)

    def _speaks_of_variables(self, statement: Statement) -> bool:
        """Whether the solver may have a say in a view."""
        tokens = [token for token in statement.body if token.token_type is not TokenType.STRING]
        names = {token.text.lower() for token in tokens}
        for token, after in pairwise(tokens):
            if token.text.lower() in _OURS and after.token_type is TokenType.L_PAREN:
                return True  # not of variables perhaps, but not DuckDB's either
        relations = (self._catalog.find(name) for name in names)
        if not any(relation is not None and relation.symbolic for relation in relations):
            return False
        return statement.unread is not None or self.reads_variables(statement.select)

    def reads_variables(self, tree: exp.Expr) -> bool:
        """Whether the solver may have a say in a tree: it names a variable, or stands for all of a table with one."""
        symbolic = [
            relation
            for table in tree.find_all(exp.Table)
            if (relation := self._catalog.find(table.name)) is not None and relation.symbolic
        ]
        if not symbolic:
            return False
        if any(relation.gated for relation in symbolic):
            return True
        columns = {
            column.name.lower() for relation in symbolic for column in relation.columns if column.symbolic
        }
        rows = {table.alias_or_name.lower() for table in tree.find_all(exp.Table)}
        for node in tree.walk():
            if isinstance(node, exp.Identifier) and node.name.lower() in columns:
                return True
            if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count):
                return True
            if isinstance(node, exp.Column) and not node.table and node.name.lower() in rows:
                return True
            if isinstance(node, exp.Columns) or (isinstance(node, exp.Join) and node.args.get("method")):
                return True
        return False

    def _mentioned(self, statement: Statement) -> exp.Expr:
        """A tree of the relations that a statement names, for one that only the engine can read."""
        names = dict.fromkeys(token.text for token in statement.body if self._catalog.find(token.text))
        select = exp.Select(expressions=[exp.Literal.number(1)])
        for name in names:
            item = named_table(name)
            if select.args.get("from_") is None:
                select.set("from_", exp.From(this=item))
            else:
                select.append("joins", exp.Join(this=item))
        return select

    def _count_tables(self, name: str, tree: exp.Expr, statement: Statement) -> None:
        size = sum(self._tables.get(table.name.lower(), 1) for table in tree.find_all(exp.Table))
        if size > _MOST_TABLES:
            raise PolicySyntaxError(
                f"with the views it uses, {statement.name} reads {size} tables; at most {_MOST_TABLES} are read",
                position=statement.position,
                hint="use a view fewer times",
            )
        self._tables[name.lower()] = max(1, size)

    # ---- what the solver has a say in -----------------------------------------------------------------

    def _bind(self, statement: Statement) -> None:
        pins = pins_of(statement)
        if pins is not None:
            if pins.name != statement.name:
                self._catalog.reserve(pins.name, statement.position)
            self._bind_query(pins.name, pins.select, pins.tail, pins)
        if pins is None or pins.name != statement.name:
            self._bind_query(statement.name, statement.select, statement.tail, statement)

    def _bind_query(self, name: str, tree: exp.Expr, tail: Tail | None, statement: Statement) -> None:
        tree = tree.unnest() if isinstance(tree, exp.Subquery) else tree
        if tail is None and not self.reads_variables(tree):
            self.results.append(self.push(name, tree, statement))
            return
        if isinstance(tree, exp.Values):
            tree = exp.select("*").from_(
                exp.Subquery(this=tree, alias=exp.TableAlias(this=exp.to_identifier("rows")))
            )
        tree = self._hoist_with(tree, statement)
        self._count_tables(name, tree, statement)
        if isinstance(tree, exp.Select):
            distinct = tree.args.get("distinct") is not None and self._names_variables(tree)
            if distinct:
                tree, tail = self._prepare_distinct(tree, tail, statement)
            if tail is not None and tree.args.get("group") is not None:
                tree, tail = self._prepare_nested(tree, tail, statement)
            SelectBinder(
                self,
                self._catalog,
                self._engine,
                name,
                tree,
                tail,
                statement,
                distinct=distinct and tree.args.get("distinct") is not None,
            ).run(self.results)
        elif isinstance(tree, exp.SetOperation) and tail is None:
            self._bind_set_operation(name, tree, statement)
        else:
            raise unsupported(
                tree, statement.source, f"{type(tree).__name__.upper()} in a constraint", "put it in a view"
            )

    def _prepare_distinct(
        self, tree: exp.Select, tail: Tail | None, statement: Statement
    ) -> tuple[exp.Select, Tail | None]:
        """DISTINCT over variables: made groups by the select binder, so nothing else may stand beside it."""
        if tree.args["distinct"].args.get("on") is not None:
            raise unsupported(
                tree, statement.source, "DISTINCT ON over variables", "aggregate with GROUP BY instead"
            )
        if tail is not None:
            # The tail speaks of the distinct rows, also in its aggregates: they are a view of their own.
            outputs = list(tree.expressions)
            holder = exp.Paren(this=tail.expression.copy())
            view = self.define_anonymous("distinct", tree, statement)
            _speak_of_outputs(holder, outputs)
            return exp.select("*").from_(named_table(view)), replace(tail, expression=holder.this)
        grouped = tree.args.get("group")
        if grouped is not None:
            chosen = {output.unalias().sql().lower() for output in tree.expressions}
            if all(key.sql().lower() in chosen for key in grouped.expressions):
                tree.set("distinct", None)  # the keys tell the rows apart
                return tree, None
        if grouped is not None or any(output.find(exp.AggFunc) for output in tree.expressions):
            tree.set("distinct", None)
            view = self.define_anonymous("grouped", tree, statement)
            tree = exp.select("*").distinct().from_(named_table(view))
        return tree, None

    def _prepare_nested(self, tree: exp.Select, tail: Tail, statement: Statement) -> tuple[exp.Select, Tail]:
        """Aggregates of aggregates: the inner ones become a view of the groups, the outer ones are over its rows."""
        holder = exp.Paren(this=tail.expression.copy())
        self._spell_out_aggregates(holder, tree)
        inner = [node for node in _aggregates(holder) if next(_aggregates_around(node), None) is not None]
        outermost = [node for node in _aggregates(holder) if next(_aggregates_around(node), None) is None]
        if not inner or any(node.find(*_AGGREGATES) is None for node in map(_operand, outermost)):
            return tree, tail
        tree = tree.copy()
        outputs = list(tree.expressions)
        for node in inner:
            outputs.append(_as_output(node, f"aggregate_{len(outputs)}"))
        made = {output.alias for output in outputs[len(tree.expressions) :]}
        for column in list(holder.find_all(exp.Column)):
            if not column.find_ancestor(exp.Query) and (column.table or column.name not in made):
                outputs.append(_as_output(column, f"column_{len(outputs)}"))
        tree.set("expressions", outputs)
        view = self.define_anonymous("groups", tree, statement)
        return exp.select("*").from_(named_table(view)), replace(tail, expression=holder.this)

    def _spell_out_aggregates(self, holder: exp.Expr, tree: exp.Select) -> None:
        """Put what a SELECT names where an aggregate of the tail does: ``max(total)`` of ``sum(x) AS total``."""
        named = {output.alias.lower(): output.unalias() for output in tree.expressions if output.alias}
        sources = [self._catalog.find(table.name) for table in tree.find_all(exp.Table)]
        for column in list(holder.find_all(exp.Column)):
            meant = None if column.table else named.get(column.name.lower())
            hidden = any(source is not None and source.find(column.name) is not None for source in sources)
            if meant is None or hidden or meant.find(*_AGGREGATES) is None or column.find_ancestor(exp.Query):
                continue
            if any(column in node.find_all(exp.Column) for node in _aggregates(holder)):
                column.replace(exp.Paren(this=meant.copy()))

    def define_anonymous(self, label: str, tree: exp.Expr, statement: Statement) -> str:
        """Make a view of a derived table; returns its name."""
        name = self._reserved_name(label, statement)
        self._bind_query(name, tree, None, statement)
        return name

    def _reserved_name(self, label: str, statement: Statement) -> str:
        self._anonymous += 1
        name = f"{statement.name}__{label}_{self._anonymous}"
        self._catalog.reserve(name, statement.position)
        return name

    def _hoist_with(self, tree: exp.Expr, statement: Statement) -> exp.Expr:
        clause = tree.args.get("with_")
        if clause is None:
            return tree
        clause.pop()
        names: dict[str, str] = {}
        for part in clause.expressions:
            inner, alias = part.this, part.args["alias"]
            _rename_tables(inner, names)
            if clause.args.get("recursive") and _refers_to(inner, part.alias):
                names[part.alias.lower()] = self._define_recursion(part, statement)
                continue
            names[part.alias.lower()] = view_under_names(
                partial(self.define_anonymous, part.alias, statement=statement),
                self._catalog,
                inner,
                alias,
                statement.source,
            )
        _rename_tables(tree, names)
        return tree

    def _define_recursion(self, part: exp.CTE, statement: Statement) -> str:
        """Make a view of a part of WITH RECURSIVE that reads itself; returns its name."""
        if self.reads_variables(part.this):
            raise unsupported(part, statement.source, "a recursion over variables", "decide nothing in it")
        name = self._reserved_name(part.alias, statement)
        select = exp.select("*").from_(named_table(part.alias))
        select.set("with_", exp.With(expressions=[part.copy()], recursive=True))
        self.results.append(self.push(name, select, statement))
        return name

    def _bind_set_operation(self, name: str, tree: exp.SetOperation, statement: Statement) -> None:
        """UNION [ALL] over variables is encoded; its like are not."""
        branches = self._branches(tree, statement)
        parts = [self._catalog.find(self.define_anonymous("part", branch, statement)) for branch in branches]
        relations = tuple(part for part in parts if part is not None)
        if isinstance(tree, exp.Union) and tree.args.get("distinct"):
            inner = f"{name}__all_{self._anonymous}"
            self._catalog.reserve(inner, statement.position)
            self._define_union(inner, relations, tree, statement)
            self._bind_query(name, exp.select("*").distinct().from_(named_table(inner)), None, statement)
        else:
            self._define_union(name, relations, tree, statement)

    def _branches(self, tree: exp.Expr, statement: Statement) -> list[exp.Expr]:
        """The SELECTs of a chain of UNION ALL; those of another operation inside it stay together."""
        if not isinstance(tree, exp.Union):
            what = "EXCEPT" if isinstance(tree, exp.Except) else "INTERSECT"
            hint = "write WHERE NOT EXISTS (...)" if what == "EXCEPT" else "write WHERE EXISTS (...)"
            raise unsupported(tree, statement.source, f"{what} over variables", hint)
        for clause in ("order", "limit", "offset"):
            if tree.args.get(clause) is not None:
                raise unsupported(
                    tree, statement.source, f"{clause.upper()} over variables", "rows have no order here"
                )
        found: list[exp.Expr] = []
        waiting: list[exp.Expr] = [tree.right, tree.left]
        while waiting:
            branch = waiting.pop()
            branch = branch.unnest() if isinstance(branch, exp.Subquery) else branch
            if isinstance(branch, exp.Union) and bool(branch.args.get("distinct")) == bool(
                tree.args.get("distinct")
            ):
                waiting.extend((branch.right, branch.left))
            else:
                found.append(branch)
        return found

    def _define_union(
        self, name: str, parts: tuple[Relation, ...], tree: exp.Expr, statement: Statement
    ) -> None:
        columns = _columns_of_union(parts, tree, statement)
        gated = any(part.gated for part in parts)
        relation = Relation(name, tuple(columns), gated)
        if relation.symbolic:
            self._catalog.define(relation)
            self._engine.define_symbolic(relation)
            plain = _union_of(parts, relation)
            self.results.append(
                UnionView(name, plain, statement.position, parts=parts, columns=tuple(columns), gated=gated)
            )
        else:
            self.results.append(self.push(name, _union_of(parts, relation), statement))

    def _names_variables(self, tree: exp.Expr) -> bool:
        """Whether a table or view in it is symbolic: then the solver may have a say."""
        relations = (self._catalog.find(table.name) for table in tree.find_all(exp.Table))
        return any(relation is not None and relation.symbolic for relation in relations)


def _columns_of_union(
    parts: Sequence[Relation], tree: exp.Expr, statement: Statement
) -> list[RelationColumn]:
    """The columns of a union of these, which must be as many and of types that go together."""
    position = position_of(tree, statement.source)
    if len({len(part.columns) for part in parts}) > 1:
        raise PolicySyntaxError(
            "the SELECTs of a UNION have different numbers of columns",
            position=position,
            hint="select as many in each; NULL AS name stands for what one of them lacks",
        )
    columns = []
    for place, first in enumerate(parts[0].columns):
        same = [part.columns[place] for part in parts]
        types = {column.type for column in same} - {SqlType.UNKNOWN}
        if not go_together(types):
            raise TypeMismatchError(
                f"column {first.name!r} of the UNION is {' and '.join(sorted(types))}",
                position=position,
                hint="CAST(... AS TEXT) makes texts of the others",
            )
        columns.append(_united(first.name, same, types))
    return columns


def _united(name: str, same: Sequence[RelationColumn], types: set[SqlType]) -> RelationColumn:
    """One column of a union of these."""
    kind = next(iter(types)) if len(types) == 1 else (SqlType.INTEGER if types else SqlType.UNKNOWN)
    filled = [column for column in same if not column.empty]
    origins = {column.origin for column in filled}
    origin = next(iter(origins)) if len(origins) == 1 else None
    return RelationColumn(
        name,
        SqlType.REAL if SqlType.REAL in types else kind,
        any(column.symbolic for column in same),
        origin,
        any(column.nullable or column.empty for column in same),
        not filled,
    )


def _union_of(parts: Sequence[Relation], relation: Relation) -> exp.Expr:
    """SELECT ... FROM part UNION ALL ..., as plain SQL."""
    names = [column.name for column in relation.columns]
    tree: exp.Expr | None = None
    for part in parts:
        select = select_as(part.name, zip((column.name for column in part.columns), names, strict=True))
        tree = select if tree is None else exp.Union(this=tree, distinct=False, expression=select)
    assert tree is not None
    return tree


def _speak_of_outputs(holder: exp.Expr, outputs: Sequence[exp.Expr]) -> None:
    """The columns of a tail, as outputs of the SELECT it follows."""
    for column in list(holder.find_all(exp.Column)):
        if column.find_ancestor(exp.Query) or isinstance(column.this, exp.Star):
            continue
        for output in outputs:
            inner = output.unalias()
            if (
                isinstance(inner, exp.Column)
                and inner.name.lower() == column.name.lower()
                and (not column.table or inner.table.lower() == column.table.lower())
            ):
                column.this.set("this", output.alias_or_name)
                break
        column.set("table", None)


def _aggregates(holder: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates below a tree, SQL's and the language's own, with their FILTER; none in subqueries."""
    for node in holder.find_all(*_AGGREGATES):
        ours = not isinstance(node, exp.Anonymous) or is_ours(node)
        if ours and not node.find_ancestor(exp.Query):
            yield node.parent if isinstance(node.parent, exp.Filter) else node


def _aggregates_around(node: exp.Expr) -> Iterator[exp.Expr]:
    parent = node.parent
    while parent is not None:
        if is_ours(parent) or isinstance(parent, (exp.AggFunc, exp.Filter)):
            yield parent
        parent = parent.parent


def _operand(node: exp.Expr) -> exp.Expr:
    """An aggregate's operand, below a node of its own."""
    whole = node.copy()
    function = whole.this if isinstance(whole, exp.Filter) else whole
    parts = [part.copy() for part in (function.this, *function.expressions) if isinstance(part, exp.Expr)]
    parts += [whole.expression.copy()] if isinstance(whole, exp.Filter) else []
    return exp.Tuple(expressions=parts)


def _as_output(node: exp.Expr, name: str) -> exp.Expr:
    """Put a column of this name in the place of a node, and give it as an output."""
    output = exp.alias_(node.copy(), name, quoted=True)
    node.replace(exp.column(exp.to_identifier(name, quoted=True)))
    return output


def _rename_tables(tree: exp.Expr, names: dict[str, str]) -> None:
    for table in list(tree.find_all(exp.Table)):
        renamed = names.get(table.name.lower())
        if renamed is not None and not table.args.get("db"):
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
            table.set("this", exp.to_identifier(renamed))


def _refers_to(tree: exp.Expr, name: str) -> bool:
    """Whether a table of this name is read in it."""
    return any(table.name.lower() == name.lower() for table in tree.find_all(exp.Table))


def _null_outputs(tree: exp.Expr) -> set[str]:
    """Outputs of a SELECT that are written as NULL."""
    if not isinstance(tree, exp.Select):
        return set()
    return {
        o.alias.lower() for o in tree.expressions if isinstance(o, exp.Alias) and isinstance(o.this, exp.Null)
    }


def _refuse_equal_names(
    name: str, columns: Sequence[RelationColumn], tree: exp.Expr, statement: Statement
) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise DuplicateNameError(
                f"two columns of {name!r} are named {column.name!r}",
                position=_place_of_output(tree, column.name, statement),
                hint=f"give one of them another: ... AS other_{column.name}",
            )
        seen.add(column.name.lower())


def _place_of_output(tree: exp.Expr, name: str, statement: Statement) -> Position:
    """Where the last output of this name is written."""
    outputs = tree.expressions if isinstance(tree, exp.Select) else []
    named = [output for output in outputs if output.alias_or_name.lower() == name.lower()]
    return position_of(named[-1], statement.source) if named else statement.position


def _place_of(error: RefusedStatementError, statement: Statement, *, written: bool) -> Position:
    """Where what the engine complains of stands: as it says, or where the word that it names is written first."""
    if not statement.body:
        return statement.position
    start, text = statement.body[0].start, statement.written
    if written and error.offset is not None:
        before = len(text.encode()[: error.offset].decode(errors="ignore"))
        return statement.source.position(start + min(before, len(text)))
    for match in _NAMED.finditer(error.reason):
        word = match[1] or match[2]
        found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
        if found is not None:
            return statement.source.position(start + found.start())
    return statement.source.position(start) if written else statement.position

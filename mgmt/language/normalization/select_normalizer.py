"""Normalises a SELECT before it is bound: sources, USING, stars, names, positions, GROUP BY a variable.

Only trees are changed here.  Afterwards every output has a name, every source is in scope, and GROUP BY holds
constants: a variable in it has become a join with its domain, so that each value is a possible group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from sqlglot import exp

from mgmt.errors import (
    DuplicateNameError,
    PolicySyntaxError,
    UnknownColumnError,
    UnsupportedConstructError,
)
from mgmt.language.bound_queries.expressions import has_variable
from mgmt.language.bound_queries.queries import BoundQuery, PushedView
from mgmt.language.expression_binding.expression_binder import ExpressionBinder
from mgmt.language.expression_binding.functional_dependencies import fixed_columns
from mgmt.language.expression_binding.name_resolution import resolve_table
from mgmt.language.expression_binding.subquery_binder import EnclosingSelect
from mgmt.language.names.catalog import Catalog
from mgmt.language.names.scopes import References, Scope, Source
from mgmt.language.normalization import outer_joins
from mgmt.language.normalization.column_aliases import view_under_names
from mgmt.language.normalization.date_arithmetic import days_as_integers
from mgmt.language.normalization.group_by_variable import domain_select, replace_columns
from mgmt.language.normalization.shorthands import write_out_contains
from mgmt.language.normalization.star_expansion import expand_stars
from mgmt.language.normalization.using_joins import merged_columns
from mgmt.language.parsing.statements import Statement
from mgmt.language.parsing.trailing_clauses import Tail
from mgmt.language.pushdown.column_types import EngineTypes
from mgmt.source_text import Position, SourceText
from mgmt.sql.tokens import position_of
from mgmt.sql.trees import named_table, unsupported
from mgmt.state.schema_parsing.column_bounds import MOST_VALUES

_EACH_GROUPING = "write a SELECT for each grouping, joined by UNION ALL"
_MOST_COPIED = 20_000  # nodes of the trees that aliases stand for, where they are used


class Views(Protocol):
    """Makes views of parts of a statement."""

    def define_anonymous(self, label: str, tree: exp.Expr, statement: Statement) -> str: ...

    def reads_variables(self, tree: exp.Expr) -> bool: ...

    def push(
        self, name: str, tree: exp.Expr, statement: Statement, *, sql: str = "", empty: Collection[str] = ()
    ) -> PushedView: ...


class SelectNormalizer:
    """One SELECT.  A class because its steps share the scope being built.

    ``views`` makes a view of a derived table and returns its name.
    """

    def __init__(
        self,
        views: Views,
        catalog: Catalog,
        engine: EngineTypes,
        name: str,
        tree: exp.Select,
        tail: Tail | None,
        statement: Statement,
        *,
        outer: tuple[Scope, ...] = (),
        references: References | None = None,
        distinct: bool = False,
    ) -> None:
        self._views = views
        self._hoist = views.define_anonymous
        self._catalog = catalog
        self._engine = engine
        self._name = name
        self._tree = tree
        self._tail = tail
        # The tail hangs below a node of its own, so that all of it can be replaced.
        self._tail_holder = exp.Paren(this=tail.expression.copy()) if tail else None
        self._statement = statement
        self._text: SourceText = statement.source
        self._scope: dict[str, Source] = {}
        self._outer = outer
        self._references = references
        self._distinct = distinct
        self._settled: set[tuple[str, str]] = set()  # variables that the keys of the groups settle
        self._copied = 0
        self._merged: set[tuple[str, str]] = set()  # columns that USING has made one with others

    def _binder(self) -> ExpressionBinder:
        binder = ExpressionBinder(
            self._catalog, self._scope, self._text, self._engine, self._outer, self._references
        )
        binder.subqueries.enclosing = EnclosingSelect(
            lambda tree: self._hoist("subquery", tree, self._statement), self._bind_subquery
        )
        return binder

    def _bind_subquery(
        self, tree: exp.Select, scopes: tuple[Scope, ...], references: References
    ) -> BoundQuery:
        raise NotImplementedError

    def _prepare(self) -> None:
        tree = self._tree
        if not tree.expressions:
            raise PolicySyntaxError(
                "nothing is selected", position=self._position(tree), hint="write SELECT *, or name columns"
            )
        if tree.args.get("joins") and not tree.args.get("from_"):
            raise PolicySyntaxError(
                "a join without FROM",
                position=self._position(tree.args["joins"][0]),
                hint="write SELECT ... FROM table JOIN ...",
            )
        if tree.args.get("from_"):
            self._add_source(tree.args["from_"], self._join_is_outer(None))
        for join in tree.args.get("joins") or ():
            self._add_source(join, self._join_is_outer(join))
        for join in tree.args.get("joins") or ():
            self._rewrite_using(join)
        for part in [self._tree, *([self._tail_holder] if self._tail_holder is not None else [])]:
            write_out_contains(part, self._scope, self._catalog.schema, self._text)
            days_as_integers(part, (self._scope, *self._outer))
        outputs = expand_stars(self._tree.expressions, self._scope, self._merged, self._text)
        self._tree.set("expressions", outputs)
        self._name_outputs()
        self._resolve_positions()
        self._group_distinct_rows()
        self._replace_aliases_in_tail()
        self._replace_outer_joins()

    def _join_is_outer(self, join: exp.Join | None) -> bool:
        if join is None:
            return False
        side = str(join.args.get("side") or "").upper()
        method = str(join.args.get("method") or "").upper()
        if method not in {"", "NATURAL"} or str(join.args.get("kind") or "").upper() in {"SEMI", "ANTI"}:
            raise self._unsupported(
                join, "SEMI and ANTI joins", "write WHERE EXISTS (...) or NOT EXISTS (...)"
            )
        return bool(side)

    def _add_source(self, holder: exp.Expr, outer: bool) -> None:
        item = holder.this
        if isinstance(item, exp.Subquery):
            if not item.alias:
                raise PolicySyntaxError(
                    "a derived table needs an alias",
                    position=self._position(item),
                    hint="write (SELECT ...) AS name",
                )
            others = sorted(
                name for name, given in item.args.items() if given and name not in {"this", "alias"}
            )
            if others:
                raise self._unsupported(item, f"{others[0].upper()} of a derived table", "leave it out")
            item = self._hoisted(item, item.this)
        if not isinstance(item, exp.Table) or not isinstance(item.this, exp.Identifier):
            item = self._of_the_engine(item)
        for nested in item.args.get("joins") or ():
            raise self._unsupported(nested, "a parenthesised join", "write the joins one after the other")
        alias = item.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            plain = item.copy()
            plain.set("alias", None)
            item = self._hoisted(item, exp.select("*").from_(plain))
        source = resolve_table(self._catalog, item, self._text)
        if source.alias.lower() in self._scope:
            raise DuplicateNameError(
                f"{source.alias!r} is twice in FROM", position=self._position(item), hint="give an alias"
            )
        self._scope[source.alias.lower()] = source

    def _of_the_engine(self, item: exp.Expr) -> exp.Table:
        """A table in the place of VALUES, a function, and whatever else the engine makes rows of by itself."""
        position = self._position(item)
        made_of_columns = self._unsupported(
            item,
            "rows made of columns to the left",
            "make them in a CREATE VIEW that reads no variable, and join it",
        )
        if isinstance(item, exp.Lateral) or self._views.reads_variables(item):
            raise made_of_columns
        alias = item.alias or f"rows_{len(self._scope) + 1}"
        try:
            name = self._hoist(alias, exp.select("*").from_(item.copy()), self._statement)
        except UnknownColumnError as error:
            if any(self._in_scope(column.name) for column in item.find_all(exp.Column)):
                raise made_of_columns from error
            error.move(position)
            raise
        made = named_table(name, alias)
        item.replace(made)
        return made

    def _hoisted(self, item: exp.Expr, tree: exp.Expr) -> exp.Table:
        """A table in the place of what is made a view; ``item`` has the alias."""
        name = view_under_names(
            lambda made: self._hoist(item.alias, made, self._statement),
            self._catalog,
            tree,
            item.args["alias"],
            self._text,
        )
        replacement = named_table(name, item.alias)
        item.replace(replacement)
        return replacement

    def _rewrite_using(self, join: exp.Join) -> None:
        """JOIN b USING (k), or NATURAL JOIN b, as JOIN b ON a.k = b.k, with plain ``k`` meaning a's."""
        aliases = list(self._scope)
        right = self._scope[join.this.alias_or_name.lower()]
        before = [self._scope[alias] for alias in aliases[: aliases.index(right.alias.lower())]]
        merged = merged_columns(join, before, right, self._text)
        if not merged:
            return
        join.set("using", None)
        join.set("method", None)
        join.set("on", exp.and_(*(column.condition(right) for column in merged), copy=False))
        for column in merged:
            self._merged.add((right.alias.lower(), column.name.lower()))
            self._qualify_merged(column.name, column.owner.alias)

    def _qualify_merged(self, name: str, alias: str) -> None:
        trees = [self._tree, *([self._tail_holder] if self._tail_holder is not None else [])]
        for tree in trees:
            for column in tree.find_all(exp.Column):
                if not column.table and column.name.lower() == name.lower():
                    column.set("table", exp.to_identifier(alias, quoted=True))

    def _name_outputs(self) -> None:
        """Give every output an alias; a view must not have two of one name."""
        named: list[exp.Expr] = []
        seen: set[str] = set()
        for number, item in enumerate(self._tree.expressions, 1):
            name = item.alias_or_name
            if not name:
                name = item.key if isinstance(item, exp.AggFunc) else f"column_{number}"
            if name.lower() in seen:
                if self._tail is None:
                    raise DuplicateNameError(
                        f"two columns of {self._name!r} are named {name!r}",
                        position=self._position(item),
                        hint=f"give one of them another: ... AS other_{name}; name the columns instead of *",
                    )
                name = f"{name}_{number}"
            seen.add(name.lower())
            inner = item.this if isinstance(item, exp.Alias) else item
            named.append(exp.Alias(this=inner, alias=exp.to_identifier(name, quoted=True)))
        self._tree.set("expressions", named)

    def _resolve_positions(self) -> None:
        """GROUP BY 1 and GROUP BY alias."""
        group = self._tree.args.get("group")
        if group is None:
            return
        for kind in ("cube", "rollup", "grouping_sets", "totals", "all"):
            if group.args.get(kind):
                raise self._unsupported(group, f"GROUP BY {kind.upper()}", _EACH_GROUPING)
        for key in group.expressions:
            if isinstance(key, (exp.Rollup, exp.Cube, exp.GroupingSets)):
                raise self._unsupported(key, f"GROUP BY {key.key.upper()}", _EACH_GROUPING)
        outputs = self._tree.expressions
        keys = []
        for key in group.expressions:
            inner = key.unnest() if isinstance(key, exp.Paren) else key
            if isinstance(inner, exp.Literal) and inner.this.isdecimal():
                number = int(inner.this)
                if not 1 <= number <= len(outputs):
                    raise PolicySyntaxError(
                        f"GROUP BY {number}: there is no such output",
                        position=self._position(key),
                        hint=f"the SELECT has {len(outputs)}; or write the column's name",
                    )
                inner = outputs[number - 1].this.copy()
            elif isinstance(inner, exp.Column) and not inner.table and not self._in_scope(inner.name):
                match = self._output_named(inner.name)
                if match is not None:
                    inner = match.copy()
            self._spend(inner)
            keys.append(inner)
        group.set("expressions", keys)

    def _group_distinct_rows(self) -> None:
        """DISTINCT over variables: a group for each combination of the outputs, of which only those with rows exist."""
        if self._distinct:
            self._tree.set("distinct", None)
            keys = [output.this.copy() for output in self._tree.expressions]
            self._tree.set("group", exp.Group(expressions=keys))

    def _replace_outer_joins(self) -> None:
        """Outer joins in which the solver has a say become views."""
        index = 0
        while index < len(self._tree.args.get("joins") or ()):
            if self._is_decided(self._tree.args["joins"][index], index):
                self._replace_outer_join(index)
                index = 0
            else:
                index += 1

    def _is_decided(self, join: exp.Join, index: int) -> bool:
        """Whether the solver has a say in which rows an outer join has."""
        side = str(join.args.get("side") or "").upper()
        if not side:
            return False
        sources = list(self._scope.values())
        if side != "LEFT":
            return any(source.relation.symbolic for source in sources)
        on = join.args.get("on")
        return sources[index + 1].relation.gated or (on is not None and has_variable(self._binder().bind(on)))

    def _replace_outer_join(self, index: int) -> None:
        sources = list(self._scope.values())
        left, right = sources[: index + 1], sources[index + 1]
        joined = {source.alias.lower(): source for source in (*left, right)}
        union = outer_joins.as_union(self._tree, index, left, right)
        name = self._hoist("join", union, self._statement)
        relation = self._catalog.find(name)
        assert relation is not None
        relation = outer_joins.with_dependencies(self._catalog, relation, (*left, right))
        self._catalog.define(relation)
        rest = self._tree.args["joins"][index + 1 :]
        trees = [*self._tree.expressions, *(join.args["on"] for join in rest if join.args.get("on"))]
        trees += [part for key in ("where", "group", "having") if (part := self._tree.args.get(key))]
        trees += [self._tail_holder] if self._tail_holder is not None else []
        binder = self._binder()
        outer_joins.redirect(trees, joined, name, self._catalog, lambda column: binder.resolve(column)[0])
        self._tree.set("from_", exp.From(this=named_table(name, name)))
        self._tree.set("joins", rest)
        others = sources[index + 2 :]
        self._scope.clear()
        self._scope[name.lower()] = Source(name, relation)
        self._scope.update((source.alias.lower(), source) for source in others)

    def _in_scope(self, name: str) -> bool:
        return any(source.relation.find(name) for source in self._scope.values())

    def _output_named(self, name: str) -> exp.Expr | None:
        for output in self._tree.expressions:
            if output.alias.lower() == name.lower():
                found: exp.Expr = output.this
                return found
        return None

    def _replace_aliases_in_tail(self) -> None:
        """A tail may name outputs; a column of the sources comes first, and both at once is refused."""
        if self._tail_holder is None:
            return
        for column in list(self._tail_holder.find_all(exp.Column)):
            if column.table or isinstance(column.this, exp.Star) or column.find_ancestor(exp.Query):
                continue
            output = self._output_named(column.name)
            if output is None or self._in_scope(column.name):
                continue
            self._spend(output)
            column.replace(exp.Paren(this=output.copy()))

    def _spend(self, tree: exp.Expr) -> None:
        """Aliases of aliases grow fast: PolicySyntaxError before it takes long."""
        self._copied += sum(1 for _ in tree.walk())
        if self._copied > _MOST_COPIED:
            raise PolicySyntaxError(
                f"written out, the aliases in {self._name} are too long",
                position=self._statement.position,
                hint="make the computed columns a view, and use that",
            )

    def _expand_domain_groups(self, binder: ExpressionBinder) -> None:
        """GROUP BY a variable: join with its domain, so that each value it could take is a possible group."""
        group = self._tree.args.get("group")
        if group is None:
            return
        found = [(key, *binder.resolve(key)) for key in group.expressions if isinstance(key, exp.Column)]
        constant = [
            (each.alias.lower(), column.name.lower()) for _, each, column in found if not column.symbolic
        ]
        fixed = fixed_columns(constant, self._scope, list(self._equal_columns(binder)))
        for key, source, column in found:
            if not column.symbolic:
                continue
            if (source.alias.lower(), column.name.lower()) in fixed:
                self._settled.add((source.alias.lower(), column.name.lower()))
                key.pop()  # no group has two values of it, so that it need not be told which: that is decided
                continue
            if column.origin is None:
                continue  # computed: a group is there where a row is
            origin = self._catalog.schema.table(column.origin[0])
            limits = origin.column(column.origin[1]).range
            if limits is not None and limits[1] - limits[0] >= MOST_VALUES:
                raise self._unsupported(
                    key,
                    f"GROUP BY or DISTINCT of {column.name!r}, a number between {limits[0]} and {limits[1]}",
                    f"at most {MOST_VALUES} values are groups: bound it closer, or group by a constant column",
                )
            alias = f"domain_{len(self._scope)}"
            domain = domain_select(self._catalog, origin.name, column.origin[1], nullable=column.nullable)
            name = self._hoist(alias, domain, self._statement)
            value = exp.column("value", table=alias, quoted=True)
            equal = exp.NullSafeEQ if column.nullable else exp.EQ
            condition = equal(this=key.copy(), expression=value.copy())
            for tree in self._group_users():
                replace_columns(tree, source.alias, column.name, value)
            join = exp.Join(this=named_table(name, alias), on=condition)
            self._tree.append("joins", join)
            self._add_source(join, False)

    def _equal_columns(self, binder: ExpressionBinder) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
        """The constant columns that WHERE and inner joins demand to be equal, by alias and name in lower case."""
        where = self._tree.args.get("where")
        conditions = [where.this] if where is not None else []
        conditions += [
            join.args["on"]
            for join in self._tree.args.get("joins") or ()
            if join.args.get("on") is not None and not join.args.get("side")
        ]
        for condition in conditions:
            for part in condition.flatten() if isinstance(condition, exp.And) else (condition,):
                sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
                found = [binder.resolve(side) for side in sides if isinstance(side, exp.Column)]
                if len(found) == 2 and not any(column.symbolic for _, column in found):
                    one, other = ((source.alias.lower(), column.name.lower()) for source, column in found)
                    yield one, other

    def _group_users(self) -> list[exp.Expr]:
        parts = [*self._tree.expressions, self._tree.args["group"]]
        others = (self._tree.args.get("having"), self._tail_holder)
        parts.extend(part for part in others if part is not None)
        return parts

    def _skeleton(self) -> exp.Select:
        skeleton = exp.Select()
        if self._tree.args.get("from_"):
            skeleton.set("from_", self._tree.args["from_"].copy())
        joins = []
        for join in self._tree.args.get("joins") or ():
            copy = join.copy()
            if not copy.args.get("side"):
                copy = exp.Join(this=copy.this)
            joins.append(copy)
        skeleton.set("joins", joins)
        return skeleton

    def _position(self, node: exp.Expr) -> Position:
        return position_of(node, self._text)

    def _unsupported(self, node: exp.Expr, what: str, hint: str) -> UnsupportedConstructError:
        return unsupported(node, self._text, what, hint)

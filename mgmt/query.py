"""Bind a whole SELECT: sources, predicates, groups, outputs and what its tail demands.

The result is normalised: inner joins have lost their ON to the list of predicates, stars and positions are
spelled out, GROUP BY a variable has become a join with the variable's domain (so that every value is a
possible group), and WITH and derived tables have become views of their own.  Each predicate is marked as the
database's or the solver's.

Possible groups (DCM, OSDI 2020, section 4): the groups of a query are those of its variable-free part, so a
host with nothing on it is a group with COUNT = 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from mgmt.binder import ExpressionBinder, Source, resolve_table
from mgmt.catalog import Catalog, Relation, RelationColumn
from mgmt.errors import DuplicateNameError, PolicySyntaxError, UnsupportedConstructError
from mgmt.expressions import Aggregate, Cell, DatabasePart, Expression, has_aggregate, has_variable
from mgmt.schema import SqlType, quote
from mgmt.soft import violation
from mgmt.source import Position, SourceText
from mgmt.syntax import Statement, Tail, TailKind, parse_tokens, position_of, tokenize


@dataclass(frozen=True, slots=True)
class Predicate:
    """One conjunct of WHERE or of an inner join's ON."""

    tree: exp.Expr
    expression: Expression
    by_solver: bool


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    tree: exp.Expr
    expression: Expression


@dataclass(frozen=True, slots=True)
class Demand:
    """A bound tail: a condition to hold, or a number to optimise (the violation, for a soft constraint)."""

    tail: Tail
    tree: exp.Expr
    expression: Expression

    @property
    def is_objective(self) -> bool:
        return self.tail.soft or self.tail.kind is not TailKind.CHECK

    @property
    def maximize(self) -> bool:
        return self.tail.kind is TailKind.MAXIMIZE


@dataclass(frozen=True, slots=True)
class PushedView:
    """A view the database computes alone."""

    name: str
    tree: exp.Expr
    position: Position


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A normalised SELECT in which the solver has a say, or a constraint.

    ``keys`` is None when rows are not grouped; an empty tuple is one group of all rows.  ``skeleton`` is the
    FROM clause without the conditions of inner joins.
    """

    name: str
    position: Position
    sources: tuple[Source, ...]
    skeleton: exp.Select
    predicates: tuple[Predicate, ...]
    keys: tuple[DatabasePart, ...] | None
    having: Predicate | None
    outputs: tuple[Output, ...]
    demand: Demand | None
    strict_groups: bool


class QueryBinder:
    """Binds statements in order, each seeing the views before it."""

    def __init__(self, catalog: Catalog, functions: frozenset[str]) -> None:
        self._catalog = catalog
        self._functions = functions
        self.results: list[PushedView | BoundQuery] = []
        self._anonymous = 0

    def bind(self, statement: Statement) -> None:
        """Bind one statement and append it, after the views it needed, to ``results``."""
        self._catalog.reserve(statement.name, statement.position)
        tail = statement.tail
        self._bind_query(statement.name, statement.select, tail, statement)

    def _bind_query(self, name: str, tree: exp.Expr, tail: Tail | None, statement: Statement) -> None:
        tree = tree.unnest() if isinstance(tree, exp.Subquery) else tree
        tree = self._hoist_with(tree, statement)
        if isinstance(tree, exp.Select):
            _SelectBinder(self, self._catalog, self._functions, name, tree, tail, statement).run()
        elif isinstance(tree, exp.SetOperation) and tail is None:
            self._bind_set_operation(name, tree, statement)
        else:
            raise _unsupported(
                tree, statement.source, f"{type(tree).__name__.upper()} in a constraint", "put it in a view"
            )

    def define_anonymous(self, label: str, tree: exp.Expr, statement: Statement) -> str:
        """Make a view of a derived table; returns its name."""
        self._anonymous += 1
        name = f"{statement.name}__{label}_{self._anonymous}"
        self._catalog.reserve(name, statement.position)
        self._bind_query(name, tree, None, statement)
        return name

    def _hoist_with(self, tree: exp.Expr, statement: Statement) -> exp.Expr:
        clause = tree.args.get("with_")
        if clause is None:
            return tree
        if clause.args.get("recursive"):
            raise _unsupported(tree, statement.source, "WITH RECURSIVE", "compute it in the database first")
        clause.pop()
        names: dict[str, str] = {}
        for part in clause.expressions:
            inner = part.this
            _rename_tables(inner, names)
            names[part.alias.lower()] = self.define_anonymous(part.alias, inner, statement)
        _rename_tables(tree, names)
        return tree

    def _bind_set_operation(self, name: str, tree: exp.SetOperation, statement: Statement) -> None:
        """UNION and its like are the database's, so their branches may hold no variable."""
        columns: list[RelationColumn] | None = None
        branches: list[exp.Expr] = [tree]
        leaves: list[exp.Select] = []
        while branches:
            branch = branches.pop()
            branch = branch.unnest() if isinstance(branch, exp.Subquery) else branch
            if isinstance(branch, exp.SetOperation):
                branches.extend((branch.right, branch.left))
            elif isinstance(branch, exp.Select):
                leaves.append(branch)
        for leaf in leaves:
            binder = _SelectBinder(self, self._catalog, self._functions, name, leaf, None, statement)
            if columns is None:
                columns = binder.bind_for_database()
            else:
                binder.bind_for_database()
        self._catalog.define(Relation(name, tuple(columns or ())))
        self.results.append(PushedView(name, tree, statement.position))


class _SelectBinder:
    """Binds one SELECT.  A class because its steps share the scope being built."""

    def __init__(
        self,
        owner: QueryBinder,
        catalog: Catalog,
        functions: frozenset[str],
        name: str,
        tree: exp.Select,
        tail: Tail | None,
        statement: Statement,
    ) -> None:
        self._owner = owner
        self._catalog = catalog
        self._functions = functions
        self._name = name
        self._tree = tree
        self._tail = tail
        # The tail hangs below a node of its own, so that all of it can be replaced.
        self._tail_holder = exp.Paren(this=tail.expression.copy()) if tail else None
        self._statement = statement
        self._text: SourceText = statement.source
        self._scope: dict[str, Source] = {}

    # ---- the whole ----------------------------------------------------------------------------------

    def run(self) -> None:
        self._prepare()
        binder = self._binder()
        self._expand_domain_groups(binder)
        binder = self._binder()
        predicates = self._bind_predicates(binder)
        keys = self._bind_keys(binder)
        having = self._bind_having(binder)
        outputs = self._bind_outputs(binder)
        demand = self._bind_demand(binder)
        grouped = keys is not None or any(
            has_aggregate(part)
            for part in (
                *(output.expression for output in outputs),
                *([demand.expression] if demand else []),
                *([having.expression] if having else []),
            )
        )
        if grouped and keys is None:
            keys = ()
        involved = self._involves_solver(predicates, having, outputs, demand)
        if demand is None and not involved:
            self._push(outputs)
            return
        self._refuse_unencodable_clauses()
        if keys is not None:
            self._check_grouped(keys, outputs, demand, having)
        query = BoundQuery(
            self._name,
            self._statement.position,
            tuple(self._scope.values()),
            self._skeleton(),
            tuple(predicates),
            keys,
            having,
            tuple(outputs),
            demand,
            self._statement.strict_groups,
        )
        if demand is None:
            self._define(query)
        self._owner.results.append(query)

    def bind_for_database(self) -> list[RelationColumn]:
        """Bind a SELECT that must be free of variables; returns its columns."""
        self._prepare()
        binder = self._binder()
        outputs = self._bind_outputs(binder)
        parts = (self._bind_predicates(binder), self._bind_having(binder))
        self._bind_keys(binder)
        if self._involves_solver(parts[0], parts[1], outputs, None):
            raise self._unsupported(self._tree, "UNION, EXCEPT or INTERSECT over variables", "use one SELECT")
        return [RelationColumn(output.name, output.expression.type, False) for output in outputs]

    def _involves_solver(
        self,
        predicates: Iterable[Predicate],
        having: Predicate | None,
        outputs: Iterable[Output],
        demand: Demand | None,
    ) -> bool:
        if any(source.relation.gated for source in self._scope.values()):
            return True
        if any(predicate.by_solver for predicate in predicates):
            return True
        parts = [output.expression for output in outputs]
        parts.extend(part.expression for part in (having, demand) if part is not None)
        return any(has_variable(part) for part in parts)

    def _push(self, outputs: list[Output]) -> None:
        columns = tuple(RelationColumn(o.name, o.expression.type, False) for o in outputs)
        self._catalog.define(Relation(self._name, columns))
        self._owner.results.append(PushedView(self._name, self._tree, self._statement.position))

    def _define(self, query: BoundQuery) -> None:
        """Make the view visible, with what is symbolic in it."""
        columns = []
        for output in query.outputs:
            expression = output.expression
            symbolic = not isinstance(expression, DatabasePart)
            origin = None
            nullable = True
            if isinstance(expression, Cell):
                column = self._scope[expression.source.lower()].relation.find(expression.column)
                assert column is not None
                origin, nullable = column.origin, column.nullable
            columns.append(RelationColumn(output.name, expression.type, symbolic, origin, nullable))
        gated = query.having is not None and query.having.by_solver
        if query.keys is None:
            gated = any(predicate.by_solver for predicate in query.predicates) or any(
                source.relation.gated for source in query.sources
            )
        elif query.strict_groups:
            gated = True
        self._catalog.define(Relation(self._name, tuple(columns), gated, _view_key(query)))

    # ---- steps --------------------------------------------------------------------------------------

    def _binder(self) -> ExpressionBinder:
        return ExpressionBinder(self._catalog, self._scope, self._text, self._functions)

    def _prepare(self) -> None:
        tree = self._tree
        if tree.args.get("from_"):
            self._add_source(tree.args["from_"], self._join_is_outer(None))
        for join in tree.args.get("joins") or ():
            self._add_source(join, self._join_is_outer(join))
        for join in tree.args.get("joins") or ():
            self._rewrite_using(join)
        self._expand_stars()
        self._name_outputs()
        self._resolve_positions()
        self._replace_aliases_in_tail()

    def _join_is_outer(self, join: exp.Join | None) -> bool:
        if join is None:
            return False
        side = str(join.args.get("side") or "").upper()
        if str(join.args.get("method") or "") or str(join.args.get("kind") or "").upper() in {"SEMI", "ANTI"}:
            raise self._unsupported(join, "NATURAL, SEMI and ANTI joins", "write JOIN ... ON")
        return bool(side)

    def _add_source(self, holder: exp.Expr, outer: bool) -> None:
        item = holder.this
        if isinstance(item, exp.Subquery):
            if not item.alias:
                raise PolicySyntaxError("a derived table needs an alias", position=self._position(item))
            name = self._owner.define_anonymous(item.alias, item.this, self._statement)
            replacement = exp.Table(
                this=exp.to_identifier(name), alias=exp.TableAlias(this=exp.to_identifier(item.alias))
            )
            item.replace(replacement)
            item = replacement
        if not isinstance(item, exp.Table):
            raise self._unsupported(
                holder, f"{type(item).__name__} in FROM", "FROM takes tables, views and joins"
            )
        for nested in item.args.get("joins") or ():
            raise self._unsupported(nested, "a parenthesised join", "write the joins one after the other")
        source = resolve_table(self._catalog, item, self._text)
        if source.alias.lower() in self._scope:
            raise DuplicateNameError(
                f"{source.alias!r} is twice in FROM", position=self._position(item), hint="give an alias"
            )
        if outer and source.relation.gated:
            raise self._unsupported(
                holder, "an outer join with rows that the solver decides", "use an inner join with GROUP BY"
            )
        self._scope[source.alias.lower()] = source

    def _rewrite_using(self, join: exp.Join) -> None:
        """JOIN b USING (k) as JOIN b ON a.k = b.k, with plain ``k`` meaning a's."""
        using = join.args.get("using")
        if not using:
            return
        aliases = list(self._scope)
        right = join.this.alias_or_name.lower()
        before = [self._scope[alias] for alias in aliases[: aliases.index(right)]]
        conditions: list[exp.Expr] = []
        for identifier in using:
            owners = [source for source in before if source.relation.find(identifier.name)]
            if len(owners) != 1 or not self._scope[right].relation.find(identifier.name):
                raise self._unsupported(join, f"USING ({identifier.name}) here", "write ON")
            left = exp.column(identifier.copy(), table=exp.to_identifier(owners[0].alias, quoted=True))
            conditions.append(
                exp.EQ(
                    this=left,
                    expression=exp.column(identifier.copy(), table=self._scope[right].alias, quoted=True),
                )
            )
            self._qualify_merged(identifier.name, owners[0].alias)
        join.set("using", None)
        join.set("on", exp.and_(*conditions, copy=False))

    def _qualify_merged(self, name: str, alias: str) -> None:
        trees = [self._tree, *([self._tail_holder] if self._tail_holder is not None else [])]
        for tree in trees:
            for column in tree.find_all(exp.Column):
                if not column.table and column.name.lower() == name.lower():
                    column.set("table", exp.to_identifier(alias, quoted=True))

    def _expand_stars(self) -> None:
        outputs: list[exp.Expr] = []
        for item in self._tree.expressions:
            qualified = isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            if not isinstance(item, exp.Star) and not qualified:
                outputs.append(item)
                continue
            wanted = item.table.lower() if qualified else None
            if wanted is not None and wanted not in self._scope:
                raise PolicySyntaxError(f"no relation {item.table!r}", position=self._position(item))
            for alias, source in self._scope.items():
                if wanted in {None, alias}:
                    outputs.extend(
                        exp.column(
                            exp.to_identifier(column.name, quoted=True),
                            table=exp.to_identifier(source.alias, quoted=True),
                        )
                        for column in source.relation.columns
                    )
        self._tree.set("expressions", outputs)

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
                        hint="name the columns instead of *, and give aliases",
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
                raise self._unsupported(group, f"GROUP BY {kind.upper()}", "write one SELECT for each")
        outputs = self._tree.expressions
        keys = []
        for key in group.expressions:
            inner = key.unnest() if isinstance(key, exp.Paren) else key
            if isinstance(inner, exp.Literal) and inner.this.isdecimal():
                number = int(inner.this)
                if not 1 <= number <= len(outputs):
                    raise PolicySyntaxError(
                        f"GROUP BY {number}: there is no such output", position=self._position(key)
                    )
                inner = outputs[number - 1].this.copy()
            elif isinstance(inner, exp.Column) and not inner.table and not self._in_scope(inner.name):
                match = self._output_named(inner.name)
                if match is not None:
                    inner = match.copy()
            keys.append(inner)
        group.set("expressions", keys)

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
            if column.table or isinstance(column.this, exp.Star):
                continue
            output = self._output_named(column.name)
            if output is None or self._in_scope(column.name):
                continue
            column.replace(exp.Paren(this=output.copy()))

    def _expand_domain_groups(self, binder: ExpressionBinder) -> None:
        """GROUP BY a variable: join with its domain, so that each value it could take is a possible group."""
        group = self._tree.args.get("group")
        if group is None:
            return
        for key in list(group.expressions):
            if not isinstance(key, exp.Column):
                continue
            source, column = binder.resolve(key)
            if not column.symbolic:
                continue
            if column.origin is None or column.nullable:
                raise self._unsupported(
                    key,
                    f"GROUP BY {column.name!r}, which is computed or may be NULL",
                    "group by a variable column that is NOT NULL, or by a constant column",
                )
            table = self._catalog.schema.table(column.origin[0])
            alias = f"domain_{len(self._scope)}"
            name = self._owner.define_anonymous(
                alias, _domain_select(self._catalog, table.name, column.origin[1]), self._statement
            )
            value = exp.column(exp.to_identifier("value", quoted=True), table=alias, quoted=True)
            item = exp.Table(
                this=exp.to_identifier(name), alias=exp.TableAlias(this=exp.to_identifier(alias))
            )
            condition = exp.EQ(this=key.copy(), expression=value.copy())
            for tree in self._group_users():
                _replace_columns(tree, source.alias, column.name, value)
            join = exp.Join(this=item, on=condition)
            self._tree.append("joins", join)
            self._add_source(join, False)

    def _group_users(self) -> list[exp.Expr]:
        parts = [*self._tree.expressions, self._tree.args["group"]]
        others = (self._tree.args.get("having"), self._tail_holder)
        parts.extend(part for part in others if part is not None)
        return parts

    def _bind_predicates(self, binder: ExpressionBinder) -> list[Predicate]:
        trees: list[exp.Expr] = []
        for join in self._tree.args.get("joins") or ():
            on = join.args.get("on")
            if on is None:
                continue
            if not join.args.get("side"):
                trees.extend(_conjuncts(on))
            elif has_variable(binder.bind(on)):
                raise self._unsupported(
                    join,
                    "an outer join on what the solver decides",
                    "use an inner join with GROUP BY: empty groups are kept",
                )
        where = self._tree.args.get("where")
        if where is not None:
            trees.extend(_conjuncts(where.this))
        found = []
        for tree in trees:
            bound = binder.bind(tree)
            if has_aggregate(bound):
                raise PolicySyntaxError(
                    "an aggregate in WHERE or ON", position=self._position(tree), hint="use HAVING or CHECK"
                )
            binder.require_truth(bound)
            found.append(Predicate(tree, bound, has_variable(bound)))
        return found

    def _bind_keys(self, binder: ExpressionBinder) -> tuple[DatabasePart, ...] | None:
        group = self._tree.args.get("group")
        if group is None:
            return None
        keys = []
        for tree in group.expressions:
            bound = binder.bind(tree)
            if not isinstance(bound, DatabasePart):
                raise self._unsupported(
                    tree, "GROUP BY an expression over variables", "group by columns, or define a view"
                )
            keys.append(bound)
        return tuple(keys)

    def _bind_having(self, binder: ExpressionBinder) -> Predicate | None:
        clause = self._tree.args.get("having")
        if clause is None:
            return None
        bound = binder.bind(clause.this)
        binder.require_truth(bound)
        return Predicate(clause.this, bound, True)

    def _bind_outputs(self, binder: ExpressionBinder) -> list[Output]:
        return [Output(item.alias, item, binder.bind(item.this)) for item in self._tree.expressions]

    def _bind_demand(self, binder: ExpressionBinder) -> Demand | None:
        if self._tail is None or self._tail_holder is None:
            return None
        tree = self._tail_holder.this
        bound = binder.bind(tree)
        if self._tail.kind is TailKind.CHECK:
            binder.require_truth(bound)
            if self._tail.soft:
                tree = violation(tree, binder)
                bound = binder.bind(tree)
        elif bound.type in {SqlType.TEXT, SqlType.REAL}:
            raise self._unsupported(
                tree, f"an objective of type {bound.type}", "an objective is a whole number"
            )
        return Demand(self._tail, tree, bound)

    def _refuse_unencodable_clauses(self) -> None:
        hints = {
            "distinct": "group by the columns instead",
            "order": "leave it out: rows have no order here",
            "limit": "compute the rows in a variable-free view",
            "offset": "compute the rows in a variable-free view",
            "windows": "compute it in a variable-free view",
            "qualify": "compute it in a variable-free view",
            "laterals": "define a view",
        }
        for clause, hint in hints.items():
            found = self._tree.args.get(clause)
            if found:
                raise self._unsupported(
                    found[0] if isinstance(found, list) else found, f"{clause.upper()} here", hint
                )
        for join in self._tree.args.get("joins") or ():
            if str(join.args.get("side") or "LEFT").upper() != "LEFT":
                raise self._unsupported(join, "RIGHT and FULL JOIN here", "use LEFT JOIN")

    def _check_grouped(
        self,
        keys: tuple[DatabasePart, ...],
        outputs: list[Output],
        demand: Demand | None,
        having: Predicate | None,
    ) -> None:
        """What is not aggregated must be the same in every row of a group."""
        fixed = _fixed_columns(keys, self._scope)
        spelled = {key.tree.sql() for key in keys}
        parts = [demand.expression] if demand else [output.expression for output in outputs]
        if having is not None:
            parts.append(having.expression)
        for part in parts:
            self._check_fixed(part, fixed, spelled)

    def _check_fixed(self, part: Expression, fixed: set[tuple[str, str]], spelled: set[str]) -> None:
        if isinstance(part, Aggregate):
            return
        used: list[tuple[str, str]] = []
        if isinstance(part, DatabasePart):
            if part.tree.sql() in spelled:
                return
            used = [(c.table.lower(), c.name.lower()) for c in part.tree.find_all(exp.Column) if c.table]
            used = [pair for pair in used if pair[0] in self._scope]
        elif isinstance(part, Cell):
            used = [(part.source.lower(), part.column.lower())]
        for pair in used:
            if pair not in fixed:
                raise PolicySyntaxError(
                    f"column {'.'.join(pair)} must be in GROUP BY or inside an aggregate",
                    position=part.position,
                )
        for child in part.children:
            self._check_fixed(child, fixed, spelled)

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
        return _unsupported(node, self._text, what, hint)


def _unsupported(node: exp.Expr, text: SourceText, what: str, hint: str) -> UnsupportedConstructError:
    return UnsupportedConstructError(
        f"cannot be encoded: {what}", position=position_of(node, text), hint=hint
    )


def _conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    tree = tree.unnest() if isinstance(tree, exp.Paren) else tree
    if isinstance(tree, exp.And):
        return [part for side in (tree.this, tree.expression) for part in _conjuncts(side)]
    return [tree]


def _rename_tables(tree: exp.Expr, names: dict[str, str]) -> None:
    for table in list(tree.find_all(exp.Table)):
        renamed = names.get(table.name.lower())
        if renamed is not None and not table.args.get("db"):
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
            table.set("this", exp.to_identifier(renamed))


def _domain_select(catalog: Catalog, table: str, column: str) -> exp.Expr:
    """A SELECT of the values a variable column can take, as ``value``."""
    text = SourceText("domain", domain_sql(catalog, table, column))
    return parse_tokens(tokenize(text), text)


def domain_sql(catalog: Catalog, table: str, column: str) -> str:
    """SQL for the values a variable column can take, as ``value``, in order."""
    definition = catalog.schema.table(table).column(column)
    if definition.domain is not None:
        return definition.domain
    if definition.references is not None:
        target = catalog.schema.table(definition.references[0])
        name = definition.references[1] or target.primary_key[0]
        return f"SELECT DISTINCT {quote(target.column(name).name)} AS value FROM {quote(target.name)}"
    return "SELECT FALSE AS value UNION ALL SELECT TRUE AS value"


def _replace_columns(tree: exp.Expr, alias: str, name: str, value: exp.Expr) -> None:
    for column in list(tree.find_all(exp.Column)):
        if isinstance(column.this, exp.Star) or column.name.lower() != name.lower():
            continue
        if column.table and column.table.lower() != alias.lower():
            continue
        column.replace(value.copy())


def _fixed_columns(keys: tuple[DatabasePart, ...], scope: dict[str, Source]) -> set[tuple[str, str]]:
    """Columns that are constant in a group: the keys, and all of a source whose own key is among them."""
    fixed = {
        (key.tree.table.lower(), key.tree.name.lower()) for key in keys if isinstance(key.tree, exp.Column)
    }
    for alias, source in scope.items():
        if source.relation.key and all((alias, name.lower()) in fixed for name in source.relation.key):
            fixed |= {(alias, column.name.lower()) for column in source.relation.columns}
    return fixed


def _view_key(query: BoundQuery) -> tuple[str, ...]:
    """Outputs that tell the rows of a view apart: its group keys when all of them are selected."""
    if query.keys is None:
        if len(query.sources) != 1:
            return ()
        wanted = [(query.sources[0].alias.lower(), name.lower()) for name in query.sources[0].relation.key]
    else:
        columns = [key.tree for key in query.keys if isinstance(key.tree, exp.Column)]
        wanted = [(column.table.lower(), column.name.lower()) for column in columns]
        if len(columns) < len(query.keys):
            return ()
    names = []
    for alias, name in wanted:
        match = next(
            (
                output.name
                for output in query.outputs
                if isinstance(output.expression, DatabasePart)
                and isinstance(output.expression.tree, exp.Column)
                and (output.expression.tree.table.lower(), output.expression.tree.name.lower())
                == (alias, name)
            ),
            None,
        )
        if match is None:
            return ()
        names.append(match)
    return tuple(names)

"""Shorthands of the language, written out before a statement is bound: other names, lists, and capacity.

``capacity_constraint(variable, domain, demand, capacity)`` is ``GROUP BY domain CHECK sum(demand) <= capacity`` over
the rows with ``variable = domain``; from there on it is that, and nothing else knows it.  Each row of the domain has
a capacity of its own: where its key is more than the domain column (a host and a resource), groups are by the key.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from mgmt.errors import TypeMismatchError, UnsupportedConstructError
from mgmt.language.names.scopes import Scope
from mgmt.language.parsing.nested_joins import write_out_join_parentheses
from mgmt.language.parsing.statements import Statement
from mgmt.language.parsing.trailing_clauses import TailKind
from mgmt.source_text import SourceText
from mgmt.sql.tokens import position_of
from mgmt.sql.trees import conjuncts, named_table, unsupported
from mgmt.state.schema import Schema, Table

_MOST_COPIED = 20_000  # nodes of what is compared with each of a list
_CONDITIONS = (exp.Predicate, exp.Connector, exp.Not)
_OTHER_NAMES = {"every": "all", "bool_and": "all", "bool_or": "any"}


def write_out(statement: Statement, schema: Schema) -> Statement:
    """The same statement without shorthands."""
    select = _canonical(statement.select, statement.source)
    tail = statement.tail
    if tail is not None:
        pinned = None if tail.pinned is None else _canonical(tail.pinned, statement.source)
        expression = _canonical(tail.expression, statement.source)
        if tail.kind is TailKind.CHECK:
            expression = _equal_extremes(expression)
        tail = replace(tail, expression=expression, pinned=pinned)
    return _expand_capacity(replace(statement, select=select, tail=tail), schema)


def _canonical(tree: exp.Expr, text: SourceText) -> exp.Expr:
    """One name for each aggregate, and IN for comparisons with a list."""
    holder = exp.Paren(this=tree.copy())
    # Inner ones first: an outer one copies its operands.
    for node in reversed(
        list(holder.find_all(exp.Any, exp.LogicalOr, exp.LogicalAnd, exp.Anonymous, exp.All))
    ):
        # A list stands to the right of a comparison, and is no condition: any(p) AND any(q) are two aggregates.
        compared = isinstance(node.parent, exp.Predicate) and node.arg_key == "expression"
        quantified = isinstance(node, (exp.Any, exp.All)) and not isinstance(node.this.unnest(), _CONDITIONS)
        if compared and quantified:
            _list_as_in(node, node.this.unnest(), text)
        elif compared and _is_call(node, "all") and isinstance(node.expressions[0], exp.Array):
            _list_as_in(node, node.expressions[0], text)
        elif isinstance(node, (exp.Any, exp.LogicalOr)):
            _rename(node, "any", node.this.unnest())
        elif isinstance(node, (exp.All, exp.LogicalAnd)):
            _rename(node, "all", node.this.unnest())
        elif isinstance(node, exp.Anonymous) and str(node.this).lower() in _OTHER_NAMES:
            node.set("this", _OTHER_NAMES[str(node.this).lower()])
    write_out_join_parentheses(holder, text)
    found: exp.Expr = holder.this
    return found


def _equal_extremes(check: exp.Expr) -> exp.Expr:
    """``min(x) = max(x)`` in a check is all_equal(x), whatever x is; < and <> say the contrary.  No rows pass all."""
    if isinstance(check, (exp.And, exp.Or)):
        return type(check)(this=_equal_extremes(check.this), expression=_equal_extremes(check.expression))
    if isinstance(check, exp.Paren):
        return exp.Paren(this=_equal_extremes(check.this))
    if not isinstance(check, (exp.EQ, exp.NEQ, exp.LT, exp.GT)):
        return check
    one, other = check.this, check.expression
    if {type(one), type(other)} != {exp.Min, exp.Max} or one.this != other.this:
        return check
    if isinstance(check, exp.LT if isinstance(one, exp.Max) else exp.GT):
        return check
    operand = one.this
    same = exp.Anonymous(this="all_equal", expressions=[operand.copy()])
    if isinstance(check, exp.EQ):
        return same
    nothing = exp.EQ(this=exp.Count(this=operand.copy()), expression=exp.Literal.number(0))
    return exp.Paren(this=exp.or_(exp.not_(same), nothing, copy=False))


def _rename(node: exp.Expr, name: str, operand: exp.Expr) -> None:
    node.replace(exp.Anonymous(this=name, expressions=[operand]))


def _is_call(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == name and len(node.expressions) == 1


def _list_as_in(node: exp.Expr, array: exp.Expr, text: SourceText) -> None:
    """``x = ANY (ARRAY[...])`` is IN, ``x <> ALL (ARRAY[...])`` is NOT IN; others are compared one by one."""
    comparison = node.parent
    array = array.unnest() if isinstance(array, exp.Paren) else array
    if comparison is None or not isinstance(array, exp.Array):
        return
    wanted = exp.EQ if isinstance(node, exp.Any) else exp.NEQ
    if isinstance(comparison, wanted):
        membership: exp.Expr = exp.In(this=comparison.this.copy(), expressions=array.expressions)
        if wanted is exp.NEQ:
            membership = exp.Not(this=membership)
        comparison.replace(exp.Paren(this=membership))
        return
    if len(array.expressions) * sum(1 for _ in comparison.this.walk()) > _MOST_COPIED:
        raise unsupported(
            comparison,
            text,
            "something this long compared with each of a list",
            "compute it in a CREATE VIEW of its own, and compare its column",
        )
    together = exp.or_ if isinstance(node, exp.Any) else exp.and_
    each = []
    for member in array.expressions:
        alone = comparison.copy()
        alone.set("expression", member.copy())
        each.append(alone)
    comparison.replace(
        exp.Paren(
            this=together(*each, copy=False) if each else exp.Boolean(this=not isinstance(node, exp.Any))
        )
    )


def write_out_contains(holder: exp.Expr, scope: Scope, schema: Schema, text: SourceText) -> None:
    """``contains(set, x)`` below a tree as ``x IN ...``; the set is a list, a SELECT, or a column of a child table.

    A child table is one with a foreign key to a table in scope: its rows are those of the row at hand.
    """
    for node in list(holder.find_all(exp.Contains)):
        value = node.expression.copy()
        members = node.this.unnest() if isinstance(node.this, exp.Paren) else node.this
        if isinstance(members, exp.Array):
            node.replace(exp.In(this=value, expressions=members.expressions))
        elif isinstance(members, (exp.Subquery, exp.Select)):
            inner = members.this if isinstance(members, exp.Subquery) else members
            node.replace(exp.In(this=value, query=exp.Subquery(this=inner.copy())))
        else:
            child = schema.find(members.table) if isinstance(members, exp.Column) else None
            if child is None or child.name.lower() in scope:
                raise unsupported(
                    members,
                    text,
                    "contains over this",
                    (
                        "the first operand is ARRAY[...], a SELECT, or child.column of a table with a foreign key "
                        "to one in FROM"
                    ),
                )
            node.replace(_in_child_rows(members, value, child, scope, text))


def _in_child_rows(
    members: exp.Expr, value: exp.Expr, child: Table, scope: Scope, text: SourceText
) -> exp.In:
    parents = [
        (key, source)
        for key in child.foreign_keys
        for source in scope.values()
        if source.relation.name.lower() == key.table.lower()
    ]
    if len(parents) != 1:
        raise unsupported(
            members,
            text,
            f"contains over {child.name!r}, which has {len(parents)} foreign keys to tables in FROM",
            "write IN (SELECT ... FROM ... WHERE ...)",
        )
    ((key, source),) = parents
    select = exp.Select(
        expressions=[members.copy()],
        from_=exp.From(this=named_table(child.name)),
    )
    for column, referenced in zip(key.columns, key.referenced or source.relation.key, strict=True):
        own = exp.column(column, table=child.name, quoted=True)
        select.where(
            exp.EQ(this=own, expression=exp.column(referenced, table=source.alias, quoted=True)), copy=False
        )
    return exp.In(this=value, query=exp.Subquery(this=select))


# ---- capacity ---------------------------------------------------------------------------------------


def _expand_capacity(statement: Statement, schema: Schema) -> Statement:
    tail, text = statement.tail, statement.source
    if tail is None or not any(map(_is_capacity, tail.expression.find_all(exp.Anonymous))):
        return statement
    calls = [_call(part, text) for part in conjuncts(tail.expression)]
    select = statement.select
    first = calls[0]
    if tail.kind is not TailKind.CHECK or not isinstance(select, exp.Select):
        raise _unsupported(first, text, "capacity_constraint outside the CHECK of a SELECT")
    variable, domain = first.expressions[:2]
    for call in calls[1:]:
        if call.expressions[:2] != [variable, domain]:
            raise _unsupported(call, text, "capacity_constraint over different variables in one CHECK")
    select = select.copy()
    select.where(exp.EQ(this=variable.copy(), expression=domain.copy()), copy=False)
    capacities = [call.expressions[3] for call in calls if call.expressions[3].find(exp.Column)]
    group = select.args.get("group")
    given = [] if group is None else group.expressions
    keys = list(dict.fromkeys([*given, *_key_of(domain, select, schema), domain, *capacities]))
    select.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    checks = [
        exp.LTE(this=exp.Sum(this=call.expressions[2].copy()), expression=call.expressions[3].copy())
        for call in calls
    ]
    tail = replace(tail, expression=exp.and_(*checks, copy=False))
    return replace(statement, select=select, tail=tail, made_groups=group is None)


def _key_of(domain: exp.Expr, select: exp.Select, schema: Schema) -> list[exp.Expr]:
    """The key of the table that a domain is a column of."""
    if not isinstance(domain, exp.Column) or not domain.table:
        return []
    items = [select.args["from_"].this] if select.args.get("from_") else []
    items += [join.this for join in select.args.get("joins") or ()]
    for item in items:
        if isinstance(item, exp.Table) and item.alias_or_name.lower() == domain.table.lower():
            table = schema.find(item.name)
            names = () if table is None else table.primary_key
            return [
                exp.column(name, table=domain.table) for name in names if name.lower() != domain.name.lower()
            ]
    return []


def _is_capacity(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "capacity_constraint"


def _call(part: exp.Expr, text: SourceText) -> exp.Anonymous:
    """The call that a conjunct is, also when it is spelled ``... = true``."""
    if isinstance(part, exp.EQ) and isinstance(part.expression, exp.Boolean) and part.expression.this:
        part = part.this.unnest() if isinstance(part.this, exp.Paren) else part.this
    if not isinstance(part, exp.Anonymous) or not _is_capacity(part):
        raise _unsupported(part, text, "capacity_constraint beside other conditions")
    if len(part.expressions) != 4:
        raise TypeMismatchError(
            "capacity_constraint takes a variable, its domain, a demand and a capacity",
            position=position_of(part, text),
            hint="as in capacity_constraint(task.variable__host, host.name, task.weight, host.size)",
        )
    return part


def _unsupported(node: exp.Expr, text: SourceText, what: str) -> UnsupportedConstructError:
    return unsupported(
        node,
        text,
        f"{what}",
        "give it a constraint of its own, or write GROUP BY domain CHECK sum(demand) <= capacity",
    )

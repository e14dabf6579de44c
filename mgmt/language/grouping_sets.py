"""GROUP BY ROLLUP, CUBE and GROUPING SETS written out: a SELECT for each grouping, joined by UNION ALL.

A key by which a SELECT does not group is NULL in it, and GROUPING(key) says so with a 1.

What it is not: it binds nothing; over what the solver decides each grouping has to be written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice, product

from sqlglot import exp

from mgmt.errors import PolicySyntaxError, UnsupportedConstructError
from mgmt.source import SourceText
from mgmt.tokens import position_of

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_MOST_OF_CUBE = 6
_MOST_SETS = 2**_MOST_OF_CUBE
_MOST_COPIED = 20_000  # nodes
_Set = tuple[exp.Expr, ...]


def has_grouping_sets(tree: exp.Expr) -> bool:
    group = tree.args.get("group")
    return group is not None and any(isinstance(key, _SETS) for key in group.expressions)


def written_out(tree: exp.Expr, text: SourceText) -> exp.Expr:
    """The union, or the SELECT where there is one grouping."""
    assert isinstance(tree, exp.Select)
    for clause in ("order", "limit", "offset", "distinct"):
        if tree.args.get(clause):
            raise UnsupportedConstructError(
                f"cannot be encoded: {clause.upper()} beside grouping sets",
                position=position_of(tree.args["group"], text),
                hint="make it a view, and order or limit what reads it",
            )
    keys = [_resolved(key, tree) for key in tree.args["group"].expressions]
    if any(len(cube.expressions) > _MOST_OF_CUBE for key in keys for cube in key.find_all(exp.Cube)):
        sets: list[_Set] = [()] * (_MOST_SETS + 1)
    else:
        chosen = islice(product(*map(_sets_of, keys)), _MOST_SETS + 1)
        sets = [tuple(dict.fromkeys(sum(parts, ()))) for parts in chosen]
    if len(sets) > _MOST_SETS or len(sets) * sum(1 for _ in tree.walk()) > _MOST_COPIED:
        raise PolicySyntaxError(
            f"too many groupings, or of too much; at most {_MOST_SETS} are written out",
            position=position_of(tree.args["group"], text),
            hint="name those that are needed: GROUPING SETS ((a, b), (a), ())",
        )
    every = list(dict.fromkeys(key for one in sets for key in one))
    selects = [_grouped(tree, one, every) for one in sets]
    union: exp.Expr = selects[0]
    for select in selects[1:]:
        union = exp.Union(this=union, distinct=False, expression=select)
    return union


def _resolved(key: exp.Expr, tree: exp.Select) -> exp.Expr:
    """A key with numbers and aliases of outputs replaced by what they stand for."""
    holder = exp.Paren(this=key.copy())
    outputs = {
        output.alias.lower(): output.this for output in tree.expressions if isinstance(output, exp.Alias)
    }
    for node in list(holder.find_all(exp.Literal, exp.Column)):
        if (
            isinstance(node, exp.Literal)
            and node.this.isdecimal()
            and 0 < int(node.this) <= len(tree.expressions)
        ):
            node.replace(tree.expressions[int(node.this) - 1].unalias().copy())
        elif isinstance(node, exp.Column) and not node.table and node.name.lower() in outputs:
            meant = outputs[node.name.lower()]
            if not isinstance(meant, exp.Column):
                node.replace(meant.copy())
    found: exp.Expr = holder.this
    return found


def _sets_of(key: exp.Expr) -> list[_Set]:
    if isinstance(key, exp.Rollup):
        parts = [_members(part) for part in key.expressions]
        return [sum(parts[:length], ()) for length in range(len(parts), -1, -1)]
    if isinstance(key, exp.Cube):
        parts = [_members(part) for part in key.expressions]
        sizes = range(len(parts), -1, -1)
        return [sum(chosen, ()) for size in sizes for chosen in combinations(parts, size)]
    if isinstance(key, exp.GroupingSets):
        return [one for part in key.expressions for one in _sets_of(part)]
    return [_members(key)]


def _members(key: exp.Expr) -> _Set:
    if isinstance(key, exp.Tuple):
        return tuple(key.expressions)
    return (key.unnest() if isinstance(key, exp.Paren) else key,)


def _grouped(tree: exp.Select, keys: _Set, every: Sequence[exp.Expr]) -> exp.Select:
    """The SELECT with one of the groupings."""
    select = tree.copy()
    absent = [key for key in every if key not in keys]
    for output in list(select.expressions):
        if not output.alias:
            output.replace(exp.alias_(output.copy(), output.alias_or_name or _name_of(output), quoted=True))
    having = select.args.get("having")
    for part in [*select.expressions, *([having] if having is not None else [])]:
        for node in list(part.walk(prune=lambda node: isinstance(node, (exp.AggFunc, exp.Query)))):
            if isinstance(node, exp.Grouping):
                bits = "".join("1" if key in absent else "0" for key in node.expressions)
                node.replace(exp.Literal.number(int(bits, 2)))
            elif node in absent:
                node.replace(exp.null())
    if keys:
        select.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    else:
        select.set("group", None)
        one_group = exp.GTE(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
        demanded = one_group if having is None else exp.and_(having.this.copy(), one_group)
        select.set("having", exp.Having(this=demanded))
        if not any(output.find(exp.AggFunc) for output in select.expressions):
            # SQLite wants one there before it takes HAVING.
            first = select.expressions[0]
            branch = exp.If(this=one_group.copy(), true=first.this.copy())
            first.set("this", exp.Case(ifs=[branch]))
    return select


def _name_of(output: exp.Expr) -> str:
    return output.key if isinstance(output, exp.AggFunc) else "column"

"""How much a view stands for once the views it uses are written out in their places.

A database reads the tables of a view for each time it is used, and puts what computes its columns wherever they stand;
whole numbers are written up to three times (``mgmt.state.exact_integers``).  So views of views multiply fast, and a
text of a few lines could keep the database busy for as long as it likes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import TypeAlias

from sqlglot import exp

from mgmt.errors import PolicySyntaxError
from mgmt.language.bound import BoundQuery, PushedView
from mgmt.language.syntax import Statement

_MOST_TABLES = 1_000
_MOST_OPERANDS = 20_000
"""Of all views and constraints together; SQLite takes some 30 us of CPU for one."""
_MOST_COLUMNS = 5_000
"""Of all together; one takes some 90 us of CPU."""
_COPIES = 3
_COPIED = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.Cast)
_MADE_ONCE = ("group", "distinct", "limit")
"""What is grouped, distinct or limited is made before anything is computed with it."""
_WORTH_COUNTING = 20
"""Operands of one expression; shorter ones only count in what uses them."""

Lengths: TypeAlias = Mapping[str, int]
"""By a column's name in lower case, of how many operands it is made; one that is not named is stored."""


class Sizes:
    """Of the views of one text, in order."""

    def __init__(self) -> None:
        self._tables: dict[str, int] = {}
        self._columns: dict[str, Lengths] = {}
        self._operands = 0
        self._outputs = 0

    def add_statement(self, name: str, tree: exp.Expr, statement: Statement) -> None:
        """Count its tables.  PolicySyntaxError when they are too many."""
        size = sum(self._tables.get(table.name.lower(), 1) for table in tree.find_all(exp.Table))
        if size > _MOST_TABLES:
            raise PolicySyntaxError(
                f"with the views it uses, {statement.name} reads {size} tables; at most {_MOST_TABLES} are read",
                position=statement.position,
                hint="use a view fewer times",
            )
        self._tables[name.lower()] = max(1, size)

    def add_result(self, result: PushedView | BoundQuery) -> None:
        """Count what it computes with, once it is bound.  PolicySyntaxError when that is too much."""
        if isinstance(result, BoundQuery):
            lengths = self._of_query(result)
        else:
            lengths = self._of_tree(result.tree)
        self._outputs += len(lengths)
        if self._outputs > _MOST_COLUMNS:
            raise PolicySyntaxError(
                f"{result.name} and what stands before it have {self._outputs} columns; at most {_MOST_COLUMNS} are"
                " made in all",
                position=result.position,
                hint="select the columns that are needed instead of *",
            )
        if self._operands > _MOST_OPERANDS:
            raise PolicySyntaxError(
                f"{result.name} and the views before it, each written out where it is used, compute with"
                f" {self._operands} columns; at most {_MOST_OPERANDS} are computed with",
                position=result.position,
                hint="views that compute from one another multiply: compute it in fewer steps",
            )
        self._columns[result.name.lower()] = lengths

    def _of_query(self, query: BoundQuery) -> Lengths:
        sources = {source.alias.lower(): source.relation.name.lower() for source in query.sources}
        for tree in (*(p.tree for p in query.predicates), *([query.demand.tree] if query.demand else [])):
            self._length(tree, sources)
        lengths = {output.name.lower(): self._length(output.tree, sources) for output in query.outputs}
        return lengths if query.keys is None else dict.fromkeys(lengths, 1)

    def _of_tree(self, tree: exp.Expr) -> Lengths:
        """Of a view that the database computes alone."""
        lengths: list[int] = []
        names: list[str] = []
        for select in tree.find_all(exp.Select):
            sources = {
                table.alias_or_name.lower(): table.name.lower() for table in select.find_all(exp.Table)
            }
            outputs = [(output.alias_or_name.lower(), output) for output in select.expressions]
            if any(output.is_star for _, output in outputs):
                stored = {name: length for source in sources.values() for name, length in self._of(source)}
                outputs = [(name, exp.column(name)) for name in stored]
            own = [self._length(output, sources) for _, output in outputs]
            if select.find_ancestor(exp.Select) is not None:
                continue
            if any(select.args.get(part) for part in _MADE_ONCE) or select.find(exp.AggFunc) is not None:
                own = [1] * len(own)
            names = names or [name for name, _ in outputs]
            lengths = [max(pair) for pair in zip_longest(lengths, own, fillvalue=1)]
        return dict(zip(names, lengths, strict=False))

    def _of(self, relation: str) -> Iterable[tuple[str, int]]:
        return self._columns.get(relation, {}).items()

    def _length(self, tree: exp.Expr, sources: Mapping[str, str]) -> int:
        """Of how many operands an expression is made, written out."""
        total = 0
        for column in tree.find_all(exp.Column):
            alias, name = column.table.lower(), column.name.lower()
            used = [sources[alias]] if alias in sources else sources.values()
            length = max((self._columns.get(source, {}).get(name, 1) for source in used), default=1)
            total += length * (_COPIES if column.find_ancestor(*_COPIED) is not None else 1)
        self._operands += total if total > _WORTH_COUNTING else 0
        return max(1, total)

"""Variable cells: each row's variable columns as choices and truths of the solver-neutral model.

What belongs to the tables alone is demanded here: a choice takes exactly one value of its domain, and UNIQUE
holds over variable columns too.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mgmt.compiler.columns import (
    Choice,
    Choices,
    Column,
    Domain,
    Number,
    Numbers,
    RelationData,
    Truth,
    Truths,
)
from mgmt.errors import EmptyDomainError, UnsupportedConstructError
from mgmt.language.names.catalog import Catalog, domain_sql
from mgmt.language.pushdown.engine_errors import refusals_at
from mgmt.optimization.checking import holds, value_of
from mgmt.optimization.problem import FALSE, TRUE, Linear, Problem, Tag
from mgmt.solution import PrimaryKey, Value
from mgmt.state.database import Snapshot
from mgmt.state.memory import BYTES_PER_CELL
from mgmt.state.schema import Column as SchemaColumn
from mgmt.state.schema import SqlType, Table, quote, unique_name


def check_size(cells: int, memory: int) -> None:
    """Refuse a model of so many cells (``Problem.cells``) where they are more than go into so many bytes."""
    if cells * BYTES_PER_CELL > memory:
        raise UnsupportedConstructError(
            f"the model needs {cells} cells or more, and {memory // BYTES_PER_CELL} go into the {memory // 10**6} MB "
            "that it may take",
            hint="place fewer rows at a time, filter the candidates in a view, or allow more memory",
        )


@dataclass(frozen=True, slots=True)
class VariableCell:
    """One cell of the state that the solver decides.  ``current`` is today's value, None if there is none."""

    table: Table
    column: SchemaColumn
    primary_key: PrimaryKey
    cell: Choice | Truth | Number
    current: Value

    def hint(self, value: Value) -> dict[int, int]:
        """What the solver's variables are when the cell has this value."""
        pairs = self._literals(value)
        found = {literal // 2: int(true != bool(literal & 1)) for literal, true in pairs if literal // 2}
        if isinstance(self.cell, Number) and isinstance(value, int):
            found[self.cell.value.variables[0]] = value
        return found

    def _literals(self, value: Value) -> list[tuple[int, bool]]:
        """The literals of this cell, each with whether it holds when the cell has this value."""
        if isinstance(self.cell, Number):
            return [(self.cell.null, value is None)]
        if isinstance(self.cell, Truth):
            pairs = [(self.cell.true, value is not None and bool(value))]
            if self.cell.false != self.cell.true ^ 1:
                pairs.append((self.cell.false, value is not None and not value))
            return pairs
        pairs = [(self.cell.literal(option), option == value) for option in self.cell.domain.values]
        if self.cell.null != FALSE:
            pairs.append((self.cell.null, value is None))
        return pairs

    def decode(self, values: Mapping[int, int] | Sequence[int]) -> Value:
        """The value, given that of each solver variable."""
        if isinstance(self.cell, Number):
            return None if holds(self.cell.null, values) else value_of(self.cell.value, values)
        if isinstance(self.cell, Truth):
            if holds(self.cell.true, values):
                return True
            return False if holds(self.cell.false, values) else None
        for option in self.cell.domain.values:
            if holds(self.cell.literal(option), values):
                found: Value = option
                return found
        return None


class TableEncoder:
    """Makes the cells of every table with variable columns."""

    def __init__(
        self,
        snapshot: Snapshot,
        catalog: Catalog,
        problem: Problem,
        columns: Container[tuple[str, str]] | None = None,
        quantities: Container[tuple[str, str]] = (),
    ) -> None:
        """``columns``: only these (table, variable column), in lower case, are decided; None: all of them.

        ``quantities``: those of them that are numbers, not lists of values.
        """
        self._snapshot = snapshot
        self._quantities = quantities
        self._columns = columns
        self._catalog = catalog
        self._problem = problem
        self._domains: dict[str, Domain] = {}
        self.cells: list[VariableCell] = []
        self.relations: dict[str, RelationData] = {}

    def encode(self) -> None:
        """Fill ``cells`` and ``relations``."""
        for table in self._snapshot.schema.tables:
            if table.variables:
                self._encode_table(table)

    def _encode_table(self, table: Table) -> None:
        keys = ", ".join(map(quote, table.primary_key))
        variables = [column for column in table.variables if self._is_decided(table, column)]
        currents = "".join(f", {quote(column.current or column.name)}" for column in variables)
        constants = [column.name for column in table.columns if not column.is_variable]
        others = "".join(f", {quote(name)}" for name in constants)
        rows = self._snapshot.rows(f"SELECT rowid{currents}{others} FROM {quote(table.name)} ORDER BY {keys}")
        width = 1 + len(variables)
        values = {name: [row[width + place] for row in rows] for place, name in enumerate(constants)}
        primary_keys = list(zip(*(values[_exact(table, name)] for name in table.primary_key), strict=True))
        columns: dict[str, Column] = {}
        for number, column in enumerate(variables, 1):
            with refusals_at(f"{table.name}.{column.name}", column.position):
                made, columns[column.name.lower()] = self._new_cells(table, column, primary_keys)
            for primary_key, cell, row in zip(primary_keys, made, rows, strict=True):
                current = row[number]
                if column.type is SqlType.BOOLEAN and current is not None:
                    current = bool(current)
                self.cells.append(VariableCell(table, column, primary_key, cell, current))
        places = {row[0]: place for place, row in enumerate(rows)}
        self.relations[table.name.lower()] = RelationData(columns, [TRUE] * len(rows), places)
        for unique in table.uniques:
            self._require_unique(table, unique, columns, values, len(rows))

    def _is_decided(self, table: Table, column: SchemaColumn) -> bool:
        return self._columns is None or (table.name.lower(), column.name.lower()) in self._columns

    def _new_cells(
        self, table: Table, column: SchemaColumn, primary_keys: list[PrimaryKey]
    ) -> tuple[Sequence[Choice | Truth | Number], Column]:
        if _is_truth(column):
            truths = [self._new_truth(column.nullable) for _ in primary_keys]
            return truths, Truths(truths)
        if (table.name.lower(), column.name.lower()) in self._quantities:
            numbers = [self._new_number(table, column) for _ in primary_keys]
            return numbers, Numbers(numbers)
        choices = self._new_choices(table, column, primary_keys)
        return choices, Choices(choices)

    def _new_choices(
        self, table: Table, column: SchemaColumn, primary_keys: list[PrimaryKey]
    ) -> list[Choice]:
        problem = self._problem
        sql = domain_sql(self._catalog, table.name, column.name)
        if sql not in self._domains:
            found = self._snapshot.rows(f"SELECT value FROM ({sql}) WHERE value IS NOT NULL ORDER BY value")
            self._domains[sql] = Domain(tuple(value for (value,) in found))
        domain = self._domains[sql]
        if primary_keys and not domain.values and not column.nullable:
            raise EmptyDomainError(
                f"{table.name}.{column.name} has nothing to choose from",
                rows=primary_keys[:10],
                hint=f"the query {sql!r} returns no row",
            )
        # A variable for each value of each row, and that it has exactly one.
        check_size(problem.cells + 2 * len(primary_keys) * len(domain.values), self._snapshot.memory)
        cells = []
        for _ in primary_keys:
            first = problem.new_booleans(len(domain.values))
            null = problem.new_literal() if column.nullable else FALSE
            cell = Choice(first, domain, null)
            cells.append(cell)
            problem.require_at_most_one(cell.literals, exactly=True)
        return cells

    def _new_number(self, table: Table, column: SchemaColumn) -> Number:
        limits = self._catalog.schema.table(table.name).column(column.name).range
        assert limits is not None
        problem, (low, high) = self._problem, limits
        value = Linear(0, (problem.new_variable(low, high),), (1,))
        null = problem.new_literal() if column.nullable else FALSE
        idle = min(
            max(low, 0), high
        )  # one value stands for NULL, or there would be as many solutions as values
        problem.require_range(value, idle, idle, when=null)
        return Number(value, null)

    def _new_truth(self, nullable: bool) -> Truth:
        true = self._problem.new_literal()
        if not nullable:
            return Truth(true, true ^ 1)
        false = self._problem.new_literal()
        self._problem.require_any((true ^ 1, false ^ 1))
        return Truth(true, false)

    def _require_unique(
        self,
        table: Table,
        unique: tuple[str, ...],
        columns: Mapping[str, Column],
        values: Mapping[str, Sequence[Any]],
        count: int,
    ) -> None:
        """UNIQUE over variable columns; over constants alone the database upholds it."""
        variable = [name.lower() for name in unique if name.lower() in columns]
        if not variable:
            return
        fixed = [_exact(table, name) for name in unique if name.lower() not in columns]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for row in range(count):
            key = tuple(values[name][row] for name in fixed)
            if None not in key:  # NULLs are distinct, as in SQL
                groups.setdefault(key, []).append(row)
        for rows in groups.values():
            by_value: dict[Any, list[int]] = {}
            for row in rows:
                for value, literal in self._combinations([columns[name] for name in variable], row):
                    by_value.setdefault(value, []).append(literal)
            tag = Tag(unique_name(table, unique), rows[0])
            for literals in by_value.values():
                self._problem.require_at_most_one(literals, tag)

    def _combinations(self, columns: Sequence[Column], row: int) -> list[tuple[tuple[Any, ...], int]]:
        """The values a row may have in several variable columns, each with its literal."""
        found: list[tuple[tuple[Any, ...], int]] = [((), TRUE)]
        for column in columns:
            cell = column.cells[row]
            options: list[tuple[Any, int]] = []
            if isinstance(cell, Choice):
                options = [(value, cell.literal(value)) for value in cell.domain.values]
            elif isinstance(cell, Truth):
                options = [(True, cell.true), (False, cell.false)]
            found = [
                ((*values, value), self._problem.conjunction((literal, option)))
                for values, literal in found
                for value, option in options
            ]
        return found


def _is_truth(column: SchemaColumn) -> bool:
    return column.type is SqlType.BOOLEAN and column.domain is None and column.references is None


def _exact(table: Table, name: str) -> str:
    return table.column(name).name

"""The variable columns of tables as choices, truths and numbers of the solver-neutral model.

What belongs to the tables alone is demanded here: a choice takes exactly one value of its domain, and UNIQUE
holds over variable columns too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from sqlglot import parse_one

from mgmt.compiler.encoding.answers import Statements
from mgmt.compiler.encoding.columns import (
    Choices,
    Column,
    Constants,
    GridOptions,
    Numbers,
    RelationData,
    Truths,
    Values,
    objects,
)
from mgmt.errors import EmptyDomainError, UnsupportedConstructError
from mgmt.language.names.catalog import Catalog, domain_sql
from mgmt.language.pushdown.engine_errors import refusals_at
from mgmt.optimization.columns import FALSE, TRUE, Integers, Linears, Lists, Mask, filled, group_numbers
from mgmt.optimization.general.evaluation import hold
from mgmt.optimization.problem import Source
from mgmt.optimization.products import FactoredProblem, FactoredValues
from mgmt.solution import PrimaryKey, Value
from mgmt.state.memory_limits import BYTES_PER_CELL
from mgmt.state.schema import Column as SchemaColumn
from mgmt.state.schema import SqlType, Table, quote, unique_name

Decided: TypeAlias = Choices | Truths | Numbers


def check_size(cells: int, memory: int) -> None:
    """Refuse a model of so many cells (``Problem.cells``) where they are more than go into so many bytes."""
    if cells * BYTES_PER_CELL > memory:
        raise UnsupportedConstructError(
            f"the model needs {cells} cells or more, and {memory // BYTES_PER_CELL} go into the {memory // 10**6} MB "
            "that it may take",
            hint="place fewer rows at a time, filter the candidates in a view, or allow more memory",
        )


@dataclass(frozen=True, slots=True, eq=False)
class VariableColumn:
    """A column of the state that the solver decides.  ``current`` are today's values, None where there is none."""

    table: Table
    column: SchemaColumn
    keys: Sequence[PrimaryKey]
    cells: Decided
    current: Sequence[Value]
    values: Values

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        """Cells of its choices: a variable for each value of each row, and that it has exactly one."""
        cells = self.cells
        grid = (
            cells.options.grid
            if isinstance(cells, Choices) and isinstance(cells.options, GridOptions)
            else None
        )
        return 0 if grid is None else 2 * grid.rows * grid.values

    def hint(self, values: Sequence[Value]) -> dict[int, int]:
        """What the solver's variables are when the rows have these values; of NULL only where it may be."""
        nulls = np.array([value is None for value in values], np.bool_)
        rows = np.flatnonzero(~nulls) if not self.column.nullable else np.arange(len(values))
        held: list[tuple[Integers, Mask]] = []
        cells = self.cells
        if isinstance(cells, Choices):
            codes = self.values.codes(objects(values))[cells.options.codes.owners]
            owners = cells.options.codes.owners
            held = [(cells.options.literals, cells.options.codes.items == codes), (cells.options.null, nulls)]
            wanted = [np.isin(owners, rows), np.isin(np.arange(len(values)), rows)]
        elif isinstance(cells, Truths):
            true = np.array([bool(value) for value in values], np.bool_)
            held = [(cells.true, true & ~nulls), (cells.false, ~true & ~nulls)]
            wanted = [np.isin(np.arange(len(values)), rows)] * 2
        else:
            held = [(cells.null, nulls)]
            wanted = [np.isin(np.arange(len(values)), rows)]
        found: dict[int, int] = {}
        for (literals, holds), kept in zip(held, wanted, strict=True):
            known = kept & (literals > FALSE)
            truth = holds[known].astype(np.int64) ^ (literals[known] & 1)
            found.update(zip((literals[known] >> 1).tolist(), truth.tolist(), strict=True))
        if isinstance(cells, Numbers):
            variables = cells.linears.terms.items.tolist()
            pairs = zip(variables, values, strict=True)
            found.update((variable, value) for variable, value in pairs if isinstance(value, int))
        return found

    def decode(self, values: FactoredValues) -> list[Value]:
        """The values of the rows, given that of each solver variable."""
        cells = self.cells
        if isinstance(cells, Numbers):
            numbers = values[cells.linears.terms.items].tolist()
            nulls = hold(cells.null, values).tolist()
            return [None if null else number for number, null in zip(numbers, nulls, strict=True)]
        if isinstance(cells, Truths):
            pairs = zip(hold(cells.true, values).tolist(), hold(cells.false, values).tolist(), strict=True)
            return [True if true else False if false else None for true, false in pairs]
        assert isinstance(cells.options, GridOptions)
        chosen = values.choice(cells.options.grid)
        return self.values.of(np.append(cells.options.in_grid, -1)[chosen]).values

    @property
    def literals(self) -> Lists | None:
        """Of a column of choices, for each row the literals of which exactly one holds."""
        return self.cells.options.all_literals if isinstance(self.cells, Choices) else None


def choices_of(columns: Sequence[VariableColumn]) -> Lists:
    """The literals of all choices."""
    found = [literals for column in columns if (literals := column.literals) is not None]
    lengths = np.concatenate([filled(0, 0), *(literals.lengths for literals in found)])
    items = np.concatenate([filled(0, 0), *(literals.items for literals in found)])
    return Lists(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), items)


@dataclass(frozen=True, slots=True, eq=False)
class _TableRows:
    """What a table has today: its keys, and columns by lower-case name; ``current`` are those of the variables."""

    table: Table
    variables: Sequence[SchemaColumn]
    row_ids: Integers
    keys: list[PrimaryKey]
    constants: Mapping[str, Constants]
    current: Sequence[Sequence[Value]]


class TableEncoder:
    """Makes the variable columns of every table."""

    def __init__(
        self,
        statements: Statements,
        catalog: Catalog,
        problem: FactoredProblem,
        values: Values,
        columns: Container[tuple[str, str]] | None = None,
        quantities: Container[tuple[str, str]] = (),
        flagged: Iterable[tuple[str, str, str]] = (),
    ) -> None:
        """``columns``: only these (table, variable column), in lower case, are decided; None: all of them.

        ``quantities``: those of them that are numbers, not lists of values.  ``flagged`` are tables with a choice and a
        flag that are asked about together.
        """
        self._statements = statements
        self._flagged = sorted(flagged)
        self._quantities = quantities
        self._columns = columns
        self._catalog = catalog
        self._problem = problem
        self._values = values
        self._domains: dict[str, Integers] = {}
        self.columns: list[VariableColumn] = []
        self.relations: dict[str, RelationData] = {}

    def encode(self) -> None:
        """Fill ``columns`` and ``relations``."""
        tables = [self._fetch(table) for table in self._statements.snapshot.schema.tables if table.variables]
        wanted = [
            (each, column)
            for each in tables
            for column in each.variables
            if not (_is_truth(column) or self._is_quantity(each.table, column))
        ]
        domains = [self._domain(each, column) for each, column in wanted]
        sizes = [
            (len(each.keys), len(domain), column.nullable)
            for (each, column), domain in zip(wanted, domains, strict=True)
        ]
        beside = [
            (place, flag)
            for table, choice, flag in self._flagged
            for place, (each, column) in enumerate(wanted)
            if (each.table.name.lower(), column.name.lower()) == (table, choice) and not column.nullable
            if any(_is_flag(own) and own.name.lower() == flag for own in each.variables)
        ]
        grids = self._problem.new_grids([*sizes, *(sizes[place] for place, _ in beside)])
        choices = {
            (each.table.name, column.name): Choices(
                GridOptions(self._problem, grid, domain), np.arange(grid.rows)
            )
            for (each, column), grid, domain in zip(wanted, grids, domains, strict=False)
        }
        for each in tables:
            self._encode_table(each, choices)
        for (place, flag), grid in zip(beside, grids[len(wanted) :], strict=True):
            flags = self.relations[wanted[place][0].table.name.lower()].columns[flag]
            assert isinstance(flags, Truths)
            self._problem.flag(grids[place], grid, flags.true)

    def _fetch(self, table: Table) -> _TableRows:
        keys = ", ".join(map(quote, table.primary_key))
        variables = [column for column in table.variables if self._is_decided(table, column)]
        wanted = [column.current or column.name for column in variables]
        wanted += [name for unique in (table.primary_key, *table.uniques) for name in unique]
        listed = "".join(f", {quote(table.column(name).name)}" for name in wanted)
        sql = f"SELECT rowid{listed} FROM {quote(table.name)} ORDER BY {keys}"
        row_ids, *cells = self._statements.ask(sql).columns
        constants = {
            name.lower(): column
            for name, column in zip(wanted[len(variables) :], cells[len(variables) :], strict=True)
        }
        primary_keys: list[PrimaryKey] = list(
            zip(*(constants[name.lower()].values for name in table.primary_key), strict=True)
        )
        current = [
            [None if value is None else bool(value) for value in found.values]
            if column.type is SqlType.BOOLEAN
            else found.values
            for column, found in zip(variables, cells, strict=False)
        ]
        return _TableRows(table, variables, row_ids.cells, primary_keys, constants, current)

    def _domain(self, rows: _TableRows, column: SchemaColumn) -> Integers:
        """The values that a column may have, by number."""
        table = rows.table
        with refusals_at(f"{table.name}.{column.name}", column.position):
            sql = domain_sql(self._catalog, table.name, column.name)
            if sql not in self._domains:
                wanted = f"SELECT value FROM ({sql}) WHERE value IS NOT NULL ORDER BY value"
                found = self._statements.values(wanted, lambda: parse_one(wanted, dialect="duckdb"))
                self._domains[sql] = self._values.codes(found)
            domain = self._domains[sql]
            if rows.keys and not len(domain) and not column.nullable:
                raise EmptyDomainError(
                    f"{table.name}.{column.name} has nothing to choose from",
                    rows=list(rows.keys[:10]),
                    hint=f"the query {sql!r} returns no row",
                )
        return domain

    def _encode_table(self, rows: _TableRows, choices: Mapping[tuple[str, str], Choices]) -> None:
        table, count = rows.table, len(rows.keys)
        columns: dict[str, Column] = {}
        for column, current in zip(rows.variables, rows.current, strict=True):
            made: Decided
            if (table.name, column.name) in choices:
                made = choices[table.name, column.name]
            elif _is_truth(column):
                made = self._new_truths(column.nullable, count)
            else:
                with refusals_at(f"{table.name}.{column.name}", column.position):
                    made = self._new_numbers(table, column, count)
            columns[column.name.lower()] = made
            self.columns.append(VariableColumn(table, column, rows.keys, made, current, self._values))
        self.relations[table.name.lower()] = RelationData(columns, filled(count, TRUE), rows.row_ids)
        for unique in table.uniques:
            self._require_unique(table, unique, columns, rows.constants, count)

    def _is_decided(self, table: Table, column: SchemaColumn) -> bool:
        return self._columns is None or (table.name.lower(), column.name.lower()) in self._columns

    def _is_quantity(self, table: Table, column: SchemaColumn) -> bool:
        return (table.name.lower(), column.name.lower()) in self._quantities

    def _new_numbers(self, table: Table, column: SchemaColumn, count: int) -> Numbers:
        limits = self._catalog.schema.table(table.name).column(column.name).range
        assert limits is not None
        problem, (low, high) = self._problem, limits
        value = Linears.single(problem.new_variables(filled(count, low), filled(count, high)))
        null = problem.new_literals(count) if column.nullable else filled(count, FALSE)
        # One value stands for NULL, or there would be as many solutions as values.
        idle = min(max(low, 0), high)
        problem.require_range(value, idle, idle, when=null)
        return Numbers.plain(value, null)

    def _new_truths(self, nullable: bool, count: int) -> Truths:
        true = self._problem.new_literals(count)
        if not nullable:
            return Truths(true, true ^ 1)
        false = self._problem.new_literals(count)
        self._problem.require_any(Lists.side_by_side(true ^ 1, false ^ 1), spells_out=True)
        return Truths(true, false)

    def _require_unique(
        self,
        table: Table,
        unique: tuple[str, ...],
        columns: Mapping[str, Column],
        constants: Mapping[str, Constants],
        count: int,
    ) -> None:
        """UNIQUE over variable columns; over constants alone the database upholds it."""
        variable = [name.lower() for name in unique if name.lower() in columns]
        if not variable:
            return
        fixed = [
            self._values.codes(constants[name.lower()]) for name in unique if name.lower() not in columns
        ]
        rows = np.arange(count)
        for codes in fixed:
            rows = rows[codes[rows] >= 0]  # NULLs are distinct, as in SQL
        first, number = group_numbers(*(codes[rows] for codes in fixed), filled(len(rows), 0))
        literals = filled(len(rows), TRUE)
        # The values that a row may have in all of the columns, each with its literal.
        keys = [number]
        told = rows[first]
        for name in variable:
            places, codes, holds = _options(columns[name], rows)
            keys = [*(key[places] for key in keys), codes]
            literals = self._problem.conjunction(literals[places], holds)
            rows = rows[places]
        first, number = group_numbers(*keys)
        grouped = Lists.grouped(number, literals, len(first))
        source = Source(unique_name(table, unique), told[keys[0][first]])
        self._problem.require_one(grouped, source)


def _options(column: Column, rows: Integers) -> tuple[Integers, Integers, Integers]:
    """The values that these rows may have: of which of them, which, and its literal."""
    if isinstance(column, Choices):
        entries = column.options.take(column.index[rows])
        return entries.codes.owners, entries.codes.items, entries.literals
    if isinstance(column, Truths):
        count = len(rows)
        literals = np.concatenate((column.true[rows], column.false[rows]))
        return np.tile(np.arange(count), 2), np.repeat([1, 0], count), literals
    return filled(0, 0), filled(0, 0), filled(0, 0)


def _is_flag(column: SchemaColumn) -> bool:
    return _is_truth(column) and not column.nullable


def _is_truth(column: SchemaColumn) -> bool:
    return column.type is SqlType.BOOLEAN and column.domain is None and column.references is None

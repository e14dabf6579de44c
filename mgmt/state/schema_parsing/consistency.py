"""Consistency of a schema that was read: names, keys, references.

A variable is paired here with its value of today and with the column it refers to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from mgmt.errors import (
    DuplicateNameError,
    PolicySyntaxError,
    TypeMismatchError,
    UnboundedDomainError,
    UnknownColumnError,
    UnknownTableError,
    UnsupportedConstructError,
)
from mgmt.source_text import Position
from mgmt.state.schema import RESERVED_COLUMNS, VARIABLE_PREFIXES, Column, Schema, SqlType, Table


def finish_table(table: Table, position: Position) -> Table:
    """Check names; pair variables with current values; copy single foreign keys to their columns."""
    names: set[str] = set()
    for column in table.columns:
        lowered = column.name.lower()
        if lowered in names or lowered in RESERVED_COLUMNS:
            raise DuplicateNameError(
                f"column {column.name!r} of {table.name!r} is defined twice or reserved",
                position=column.position,
                hint=f"rename it; reserved are {', '.join(sorted(RESERVED_COLUMNS))}",
            )
        names.add(lowered)
    for unique in (*table.uniques, *(key.columns for key in table.foreign_keys)):
        for name in unique:
            if name.lower() not in names:
                raise UnknownColumnError(
                    f"no column {name!r} in {table.name!r}",
                    position=position,
                    hint=f"it has {', '.join(column.name for column in table.columns)}",
                )
    if table.variables and not table.primary_key:
        raise PolicySyntaxError(
            f"table {table.name!r} has variable columns but no primary key",
            position=position,
            hint="a plan names rows by their primary key",
        )
    return replace(table, columns=tuple(_finish_column(table, column) for column in table.columns))


def with_constant_key(table: Table, position: Position | None) -> Table:
    """A primary key that holds variables is UNIQUE and NOT NULL; rows are told apart by another key."""
    variable = {column.name.lower() for column in table.variables}
    if not variable & {name.lower() for name in table.primary_key}:
        return table
    others = [unique for unique in table.uniques if not variable & {name.lower() for name in unique}]
    if not others:
        key = ", ".join(table.primary_key)
        constant = ", ".join(name for name in table.primary_key if name.lower() not in variable)
        by_constants = f"PRIMARY KEY ({constant}), if that tells rows apart, else " if constant else ""
        raise UnsupportedConstructError(
            f"the primary key of {table.name!r} contains a variable column, and there is no other key",
            position=position,
            hint=f"a plan names rows by what it does not decide: write {by_constants}"
            f"CREATE TABLE {table.name} (row INTEGER PRIMARY KEY, ..., UNIQUE ({key}))",
        )
    required = {name.lower() for name in (*table.primary_key, *others[0])}
    columns = tuple(
        replace(column, nullable=column.nullable and column.name.lower() not in required)
        for column in table.columns
    )
    return replace(table, columns=columns, primary_key=others[0])


def _finish_column(table: Table, column: Column) -> Column:
    single = [key for key in table.foreign_keys if _same(key.columns, (column.name,))]
    if single:
        referenced = single[0].referenced[0] if single[0].referenced else ""
        column = replace(column, references=(single[0].table, referenced))
    if not column.is_variable:
        return column
    if len(single) > 1:
        raise UnsupportedConstructError(
            f"{column.name!r} refers to {' and to '.join(key.table for key in single)}",
            position=column.position,
            hint="refer to one table, and write the other demand as a constraint",
        )
    for key in table.foreign_keys:
        names = [name.lower() for name in key.columns]
        if not single and column.references is None and column.name.lower() in names:
            # Each column ranges over its own values; that they go together is a rule of the table.
            if len(key.referenced) != len(key.columns):
                raise PolicySyntaxError(
                    f"the foreign key of {column.name!r} must name the columns it refers to",
                    position=column.position,
                    hint="write FOREIGN KEY (a, b) REFERENCES t (c, d)",
                )
            column = replace(column, references=(key.table, key.referenced[names.index(column.name.lower())]))
    prefix = next((p for p in VARIABLE_PREFIXES if column.name.lower().startswith(p)), column.name)
    wanted = column.current or column.name[len(prefix) :]
    paired = next((c for c in table.columns if c.name.lower() == wanted.lower()), None)
    if paired is None and column.current is not None:
        raise UnknownColumnError(
            f"no column {column.current!r} in {table.name!r}",
            position=column.position,
            hint=f"it has {', '.join(each.name for each in table.columns)}",
        )
    if paired is not None and paired.type is not column.type:
        raise TypeMismatchError(
            f"{column.name!r} is {column.type} but its current value {paired.name!r} is {paired.type}",
            position=column.position,
            hint="give both the same type",
        )
    if column.is_unbounded and column.type is not SqlType.INTEGER:  # those a CHECK of the policies may bound
        raise UnboundedDomainError(
            f"variable column {column.name!r} has no finite set of values",
            position=column.position,
            hint="add REFERENCES table (column) or DOMAIN (SELECT ...)",
        )
    return replace(column, current=paired.name if paired else None)


def check_references(schema: Schema, table: Table) -> None:
    for column in table.columns:
        if column.references is None:
            continue
        target = schema.find(column.references[0])
        if target is None:
            raise UnknownTableError(
                f"{column.name!r} references unknown table {column.references[0]!r}",
                position=column.position,
                hint="define that table in the same schema",
            )
        name = column.references[1] or (target.primary_key[0] if len(target.primary_key) == 1 else "")
        try:
            referenced = target.column(name)
        except KeyError:
            raise UnknownColumnError(
                f"{column.name!r} references unknown column {name!r} of {target.name!r}",
                position=column.position,
                hint=f"{target.name} has {', '.join(each.name for each in target.columns)}",
            ) from None
        if referenced.is_variable:
            raise UnsupportedConstructError(
                f"{column.name!r} references the variable column {referenced.name!r}",
                position=column.position,
                hint="let both refer to the same table of values",
            )
        if referenced.type is not column.type:
            raise TypeMismatchError(
                f"{column.name!r} is {column.type} but references {referenced.type}",
                position=column.position,
                hint="give both the same type",
            )


def check_unique_index(schema: Schema, tree: exp.Create, position: Position) -> None:
    """An index is the database's matter, and what it demands of decided values would be demanded too late."""
    on = tree.find(exp.Table)
    names = {column.name.lower() for column in tree.find_all(exp.Column)}
    for table in schema.tables:
        if on is None or table.name.lower() != on.name.lower():
            continue
        for column in table.variables:
            if column.name.lower() in names:
                raise UnsupportedConstructError(
                    f"a unique index over the variable column {column.name!r}",
                    position=position,
                    hint="write UNIQUE (...) in CREATE TABLE",
                )


def _same(left: Sequence[str], right: Sequence[str]) -> bool:
    return [name.lower() for name in left] == [name.lower() for name in right]

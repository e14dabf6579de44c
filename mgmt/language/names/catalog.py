"""The catalog: base tables and the views defined so far, with what the binder must know of each.

A relation is *symbolic* where the solver has a say: in some of its columns, or in which of its rows exist
(``gated``).  What is not symbolic is left to the database.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mgmt.errors import DuplicateNameError
from mgmt.source_text import Position
from mgmt.state.schema import Schema, SqlType, quote


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """``origin`` is (table, column) of the variable that a view's column passes on unchanged.

    ``empty``: it is NULL in every row.  ``hidden``: ``*`` does not stand for it.
    """

    name: str
    type: SqlType
    symbolic: bool
    origin: tuple[str, str] | None = None
    nullable: bool = True
    empty: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or a view.  ``key`` are columns whose values no two rows share (empty: unknown).

    ``dependencies``: groups of columns, in lower case, that others are settled by: (those, what they settle).
    """

    name: str
    columns: tuple[RelationColumn, ...]
    gated: bool = False
    key: tuple[str, ...] = ()
    dependencies: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()
    _by_name: dict[str, RelationColumn] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {column.name.lower(): column for column in reversed(self.columns)}
        object.__setattr__(self, "_by_name", by_name)

    @property
    def symbolic(self) -> bool:
        return self.gated or any(column.symbolic for column in self.columns)

    def find(self, name: str) -> RelationColumn | None:
        """The column of this name, in any case."""
        return self._by_name.get(name.lower())


class Catalog:
    """Relations by name, in any case."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._relations: dict[str, Relation] = {}
        for table in schema.tables:
            columns = tuple(
                RelationColumn(
                    column.name,
                    column.type,
                    column.is_variable,
                    (table.name, column.name) if column.is_variable else None,
                    column.nullable,
                )
                for column in table.columns
            )
            self._relations[table.name.lower()] = Relation(table.name, columns, key=table.primary_key)
        self._taken = set(self._relations)

    def copy(self) -> Catalog:
        """The same names; what is defined in the copy stays there."""
        other = Catalog(self.schema)
        other._relations = dict(self._relations)
        other._taken = set(self._taken)
        return other

    def find(self, name: str) -> Relation | None:
        return self._relations.get(name.lower())

    def reserve(self, name: str, position: Position) -> None:
        """Take a name for a view or a constraint.  DuplicateNameError when it is taken."""
        if name.lower() in self._taken:
            table = self.schema.find(name) is not None
            raise DuplicateNameError(
                f"{name!r} is defined twice",
                position=position,
                hint="it is a table of the schema: choose another name"
                if table
                else "a view or constraint before it has this name: choose another",
            )
        self._taken.add(name.lower())

    def define(self, relation: Relation) -> None:
        """Make a view (whose name is reserved) visible to what follows it."""
        self._relations[relation.name.lower()] = relation

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(relation.name for relation in self._relations.values())


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

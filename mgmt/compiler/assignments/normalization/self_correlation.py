"""What the group of a row has, asked of each row, as a check of groups.

    SELECT * FROM pod AS a
    CHECK (SELECT count(*) FROM pod AS b WHERE b.app = a.app AND b.host = a.host) <= 2
        is GROUP BY app, host CHECK count(*) = 0 OR count(*) <= 2
    CHECK EXISTS (SELECT 1 FROM pod AS b WHERE b.app = a.app AND b.name <> a.name AND b.host = a.host)
        is GROUP BY app, host CHECK count(*) = 0 OR count(*) - 1 >= 1

All rows of a group ask the same, so it is asked once, where a row that asks is in it.

What it is not: what is compared may differ from group to group, but not from row to row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import QueryBlock, aliases_of, realiased
from mgmt.compiler.assignments.normalization.expressions import Constant
from mgmt.compiler.assignments.normalization.select import Item, may_be_null
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Cell,
    Comparison,
    Conjunction,
    DatabasePart,
    Disjunction,
    Expression,
    signature,
)
from mgmt.language.names.catalog import Catalog
from mgmt.state.schema import SqlType

_VALUE = "value of the row"
_NUMBER, _TRUTH = SqlType.INTEGER, SqlType.BOOLEAN


def asks_of_choices(flat: QueryBlock, predicates: Iterable[Expression]) -> bool:
    """Whether some of these conditions, which may be a subquery's, are on what rows of the query choose."""
    own = {item.alias for item in flat.items}
    return any(cell.source.lower() in own for part in predicates for cell in _cells(part))


@dataclass(slots=True)
class OwnGroups:
    """Rows that choose, joined to the values they choose; NotAnAssignment where there is more than that."""

    flat: QueryBlock
    chooser: Item
    value: Item
    link: Comparison
    column: DatabasePart
    """Of the value, what the choice is equal to."""
    conditions: tuple[Expression, ...]
    """Which rows ask."""
    keys: dict[tuple[object, ...], DatabasePart] = field(default_factory=dict)

    @classmethod
    def of(
        cls, flat: QueryBlock, predicates: Sequence[Expression], asked: Sequence[QueryBlock], catalog: Catalog
    ) -> OwnGroups:
        """Those of a query with these conditions, which asks these subqueries."""
        items = {item.alias: item for item in flat.items}
        parts = [*predicates, *(part for one in asked for part in one.predicates)]
        cells = {
            (cell.source.lower(), cell.column.lower()): cell
            for part in parts
            for cell in _cells(part)
            if cell.source.lower() in items
        }
        if len(cells) != 1 or any(item.on is not None for item in flat.items):
            raise NotAnAssignment("several choices in one demand")
        ((alias, _), cell), *_ = cells.items()
        found = next((one for part in predicates if (one := _link_in(part, cell)) is not None), None)
        if found is None:
            found, items[_VALUE] = _link_by_reference(items[alias], cell, catalog)
        link, column = found
        (value,) = aliases_of(column.tree)
        if set(items) != {alias, value}:
            raise NotAnAssignment("rows of choices with a subquery over choices")
        conditions = tuple(part for part in predicates if part is not link)
        return cls(flat, items[alias], items[value], link, column, conditions)

    def output(self, asked: QueryBlock) -> Expression:
        """What a subquery selects, as an aggregate of the group of the row that asks."""
        names = self._names(asked)
        keys: dict[tuple[object, ...], DatabasePart] = {}
        filters: list[Expression] = []
        others = joined = False
        for part in asked.predicates:
            image = realiased(part, names)
            key = self._key(part, names)
            if key is not None:
                keys[signature(key)] = key
            elif _same(image, self.link):
                joined = True
            elif self._is_not_itself(part, names):
                others = True
            elif _aliases(part) <= set(names):
                filters.append(image)
            else:
                raise NotAnAssignment("a subquery that compares rows of choices")
        if not joined and not any(self.value.alias in aliases_of(key.tree) for key in keys.values()):
            raise NotAnAssignment("a subquery of rows wherever they are")
        if any(may_be_null(key.tree, (self.chooser, self.value)) for key in keys.values()):
            raise NotAnAssignment("a subquery of rows that are told apart by what may be NULL")
        if self.keys and set(self.keys) != set(keys):
            raise NotAnAssignment("several scalar subqueries over different rows")
        self.keys = keys
        (output,) = (realiased(part, names) for part in asked.outputs.values())
        if not others:
            return _filtered(output, filters)
        asking = {signature(part) for part in self.conditions}
        plain = isinstance(output, Aggregate) and output.function is AggregateFunction.COUNT
        if not plain or output.children or not {signature(part) for part in filters} <= asking:
            raise NotAnAssignment("a subquery of other rows that does not count them")
        one = Constant(_NUMBER, output.position, 1)
        return Arithmetic(_NUMBER, output.position, _filtered(output, filters), one, "-")

    def query(self, check: Expression) -> QueryBlock:
        """The check of groups in which a row asks."""
        self._require_constants(check)
        position = check.position
        asking = Conjunction(_TRUTH, position, self.conditions) if self.conditions else None
        count = Aggregate(_NUMBER, position, AggregateFunction.COUNT, None, asking)
        nobody = Comparison(_TRUTH, position, count, Constant(_NUMBER, position, 0), "=")
        return replace(
            self.flat,
            items=(self.chooser, self.value),
            predicates=(self.link,),
            keys=tuple(self.keys.values()),
            demand=Disjunction(_TRUTH, position, (nobody, check)),
        )

    def _names(self, asked: QueryBlock) -> dict[str, str]:
        """Which source around it each source of a subquery is another row of."""
        if asked.keys != () or asked.group_gates or any(item.on is not None for item in asked.items):
            raise NotAnAssignment("a subquery over groups")
        names: dict[str, str] = {}
        for item in asked.items:
            same = [one for one in (self.chooser, self.value) if one.relation.name == item.relation.name]
            if len(same) != 1 or same[0].alias in names.values():
                raise NotAnAssignment("a subquery of other rows than the ones around it")
            names[item.alias] = same[0].alias
        if self.chooser.alias not in names.values():
            raise NotAnAssignment("a subquery of other rows than the ones around it")
        return names

    def _key(self, part: Expression, names: dict[str, str]) -> DatabasePart | None:
        """What a row of the subquery and the row around it have in common by a condition."""
        for inner, outer in compared_sides(part, "="):
            if not _aliases(inner) <= set(names) or _aliases(outer) & set(names) or not _aliases(outer):
                continue
            if _same(realiased(inner, names), outer) or _same(realiased(part, names), self.link):
                return outer if isinstance(outer, DatabasePart) else self.column
        return None

    def _is_not_itself(self, part: Expression, names: dict[str, str]) -> bool:
        """Whether it says that a row of the subquery is not the row around it."""
        (key, *others) = self.chooser.relation.key or ("",)
        for inner, outer in compared_sides(part, "<>"):
            column = outer.tree.unalias().unnest() if isinstance(outer, DatabasePart) else None
            own = isinstance(column, exp.Column) and column.table.lower() == self.chooser.alias
            if own and column is not None and column.name.lower() == key.lower() and not others:
                return _aliases(inner) <= set(names) and _same(realiased(inner, names), outer)
        return False

    def _require_constants(self, check: Expression) -> None:
        """NotAnAssignment where a check says, outside of aggregates, what is not the same for all rows of a group."""
        if isinstance(check, Aggregate):
            return
        if isinstance(check, Cell):
            raise NotAnAssignment("a choice of a whole group")
        if isinstance(check, DatabasePart) and signature(check) not in self.keys:
            known = {self.value.alias} if self._knows_value() else set()
            if not aliases_of(check.tree) <= known:
                raise NotAnAssignment("rows of a group that ask different things")
        for child in check.children:
            self._require_constants(child)

    def _knows_value(self) -> bool:
        key = self.value.relation.key
        column = self.column.tree.unalias().unnest()
        is_key = isinstance(column, exp.Column) and [column.name.lower()] == [name.lower() for name in key]
        return is_key and signature(self.column) in self.keys


def _cells(part: Expression) -> list[Cell]:
    return [node for node in part.walk() if isinstance(node, Cell)]


def _aliases(part: Expression) -> set[str]:
    found = {cell.source.lower() for cell in _cells(part)}
    for node in part.walk():
        if isinstance(node, DatabasePart):
            found |= aliases_of(node.tree)
    return found


def _same(one: Expression, other: Expression) -> bool:
    """Whether two conditions say the same, whichever way round."""
    return any(signature(one) == signature(part) for part in (other, _turned(other)))


def _turned(part: Expression) -> Expression:
    return replace(part, left=part.right, right=part.left) if isinstance(part, Comparison) else part


def compared_sides(part: Expression, operator: str) -> list[tuple[Expression, Expression]]:
    """Both sides of a comparison, either way round; none if it is another one."""
    if isinstance(part, Comparison) and part.operator == operator and not part.null_safe:
        return [(part.left, part.right), (part.right, part.left)]
    tree = part.tree.unalias().unnest() if isinstance(part, DatabasePart) else None
    if not isinstance(tree, exp.EQ if operator == "=" else exp.NEQ):
        return []
    one, other = (DatabasePart(SqlType.UNKNOWN, part.position, side) for side in (tree.this, tree.expression))
    return [(one, other), (other, one)]


def _filtered(part: Expression, filters: Sequence[Expression]) -> Expression:
    """An expression whose aggregates are of the rows for which these hold."""
    if not filters:
        return part
    if not isinstance(part, Aggregate):
        return part.with_children(lambda child: _filtered(child, filters))
    conditions = (*filters, *([part.condition] if part.condition is not None else []))
    return replace(part, condition=Conjunction(_TRUTH, part.position, tuple(conditions)))


def _link_in(part: Expression, cell: Cell) -> tuple[Comparison, DatabasePart] | None:
    """A condition that the choice is equal to a column of another source, and that column."""
    for one, other in compared_sides(part, "="):
        if isinstance(one, Cell) and isinstance(other, DatabasePart) and isinstance(part, Comparison):
            aliases = aliases_of(other.tree)
            if signature(one) == signature(cell) and len(aliases) == 1 and cell.source.lower() not in aliases:
                return part, other
    return None


def _link_by_reference(
    chooser: Item, cell: Cell, catalog: Catalog
) -> tuple[tuple[Comparison, DatabasePart], Item]:
    """The condition that the choice is equal to the column that it refers to, that column, and its table."""
    reference = catalog.schema.table(chooser.relation.name).column(cell.column)
    if reference.references is None or reference.nullable:
        raise NotAnAssignment("rows that ask about a choice that is of no table, or may be none")
    table = catalog.schema.table(reference.references[0])
    relation = catalog.find(table.name)
    assert relation is not None
    name = reference.references[1] or table.primary_key[0]
    tree = exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(_VALUE, quoted=True))
    column = DatabasePart(cell.type, cell.position, tree)
    return (Comparison(_TRUTH, cell.position, cell, column, "="), column), Item(_VALUE, relation, None)

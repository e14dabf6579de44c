"""What a query reads of its sources: columns of relations, taken to its rows, and attributes of what is chosen.

A lookup is the row of a constant relation whose key is what a choice takes: each of its columns is a choice again, of
the column's values, each under the literals of the rows that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.encoding.columns import (
    AnyOptions,
    Choices,
    Column,
    Constants,
    GridOptions,
    Options,
    RelationData,
    take,
)
from mgmt.compiler.encoding.evaluate import Evaluator
from mgmt.compiler.relational.lookups import Lookup
from mgmt.language.bound_queries.expressions import Aggregate
from mgmt.language.names.scopes import Source
from mgmt.optimization.columns import FALSE, TRUE, Integers, Lists, Mask, filled, group_numbers
from mgmt.optimization.products import Grid, Side
from mgmt.state.database import Snapshot
from mgmt.state.schema import quote

Cells: TypeAlias = Callable[[str, str], Column]


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """The relations of one snapshot, and the columns that have been looked up."""

    snapshot: Snapshot
    evaluator: Evaluator
    relations: Mapping[str, RelationData]
    _attributes: dict[tuple[int, str, str], tuple[AnyOptions, Options, Integers]] = field(
        default_factory=dict
    )

    def joined(
        self, sources: Iterable[Source], symbolic: Sequence[str], row_ids: Sequence[NDArray[Any]]
    ) -> JoinedSources:
        """These sources in the rows of a join; of each symbolic one the numbers of its rows."""
        names = {source.alias: source.relation.name.lower() for source in sources}
        places: dict[str, tuple[RelationData, Integers]] = {}
        for alias, numbers in zip(symbolic, row_ids, strict=False):
            relation = self.relations[names[alias]]
            places[alias.lower()] = relation, relation.places(numbers)
        return JoinedSources(self, places)

    def attribute(self, choices: Choices, lookup: Lookup, column: str) -> tuple[Choices, Integers]:
        """A column of what is looked up, and the literal under which there is anything, in each row."""
        key = (id(choices.options), lookup.relation.lower(), column.lower())
        if key not in self._attributes:
            self._attributes[key] = (choices.options, *self._look_up(choices.options, lookup, column))
        _, options, exists = self._attributes[key]
        return Choices(options, choices.index), np.append(exists, FALSE)[choices.index]

    def _look_up(self, options: AnyOptions, lookup: Lookup, column: str) -> tuple[Options, Integers]:
        sql = f"SELECT {quote(lookup.key)}, {quote(column)} FROM {quote(lookup.relation)}"
        keys, found = map(Constants.of, self.snapshot.arrays(sql)[1])
        values, problem = self.evaluator.values, self.evaluator.problem
        codes, attributes = values.codes(keys), values.codes(found)
        if isinstance(options, GridOptions):
            return self._in_grid(options, options.places(codes), attributes)
        entries, owners = options.codes.items, options.codes.owners
        order = np.argsort(codes, kind="stable")
        place = np.searchsorted(codes[order], entries)
        inside = place < len(order)
        inside[inside] = codes[order][place[inside]] == entries[inside]
        chosen = np.full(len(entries), -1, np.int64)
        chosen[inside] = attributes[order[place[inside]]]
        kept = np.flatnonzero(chosen >= 0)
        first, number = group_numbers(owners[kept], chosen[kept])
        literals = problem.one_of(Lists.grouped(number, options.literals[kept], len(first)))
        made = Options.sorted(
            owners[kept][first],
            chosen[kept][first],
            literals,
            self._others(options, np.flatnonzero(chosen < 0)),
        )
        return made, self._others(options, np.flatnonzero(~inside)) ^ 1

    def _in_grid(
        self, options: GridOptions, places: Integers, attributes: Integers
    ) -> tuple[Options, Integers]:
        """The same of choices among the same values, which have their attributes in groups."""
        grid, count = options.grid, len(options)
        found = filled(grid.values, -1)
        found[places[places >= 0]] = attributes[places >= 0]
        there = np.zeros(grid.values, np.bool_)
        there[places[places >= 0]] = True
        codes, group = np.unique(found[found >= 0], return_inverse=True)
        chosen = self._within(grid, np.flatnonzero(found >= 0), group, len(codes))
        made = Options.sorted(
            np.repeat(np.arange(count), len(codes)),
            np.tile(codes, count),
            chosen.ravel(),
            self._none_but(options, found < 0),
        )
        return made, self._none_but(options, ~there) ^ 1

    def _none_but(self, options: GridOptions, wanted: Mask) -> Integers:
        """The literal under which a choice takes one of these, or none."""
        if not wanted.any():
            return options.null
        values = np.flatnonzero(wanted)
        some = self._within(options.grid, values, filled(len(values), 0), 1)[:, 0]
        return self.evaluator.problem.disjunction(some, options.null)

    def _within(self, grid: Grid, values: Integers, groups: Integers, count: int) -> Integers:
        """For each row and group of values the literal under which it takes one of them."""
        rows, pairs = np.arange(grid.rows), np.arange(grid.rows * count)
        side = Side.of(values, filled(len(values), 1), groups, count)
        problem = self.evaluator.problem
        sums = problem.new_sums(grid, Side.alone(rows), side, pairs // max(1, count), pairs % max(1, count))
        return problem.above_zero(sums.terms.items).reshape(grid.rows, count)

    def _others(self, options: AnyOptions, entries: Integers) -> Integers:
        """The literal under which a choice takes none but these, or NULL."""
        count = len(options)
        owners = np.concatenate((options.codes.owners[entries], np.arange(count)))
        literals = np.concatenate((options.literals[entries], options.null))
        return self.evaluator.problem.one_of(Lists.grouped(owners, literals, count))


@dataclass(frozen=True, slots=True, eq=False)
class JoinedSources:
    """The sources of one query, in each of its rows."""

    sources: Sources
    places: Mapping[str, tuple[RelationData, Integers]]

    def cells(self, alias: str, name: str, lookups: Iterable[Lookup], cells: Cells) -> Column | None:
        """A column of a source; None where it is none of these.  ``cells`` knows those of the choices."""
        if alias.lower() in self.places:
            relation, places = self.places[alias.lower()]
            return take(relation.columns[name.lower()], places)
        for lookup in lookups:
            if lookup.alias.lower() == alias.lower():
                return self.sources.attribute(_chosen(lookup, cells), lookup, name)[0]
        return None

    def conditions(self, lookups: Iterable[Lookup], cells: Cells) -> list[Integers]:
        """Literals that hold together where a row exists; a row of an outer join without a partner does."""
        found = [np.append(relation.exists, TRUE)[places] for relation, places in self.places.values()]
        chosen = ((_chosen(lookup, cells), lookup) for lookup in lookups)
        found += [self.sources.attribute(choices, lookup, lookup.key)[1] for choices, lookup in chosen]
        return found


def _chosen(lookup: Lookup, cells: Cells) -> Choices:
    found = cells(lookup.choice.source, lookup.choice.column)
    assert isinstance(found, Choices)
    return found


def no_aggregate(expression: Aggregate) -> Column:
    raise AssertionError(f"an aggregate outside a group at {expression.position}")


def no_cell(alias: str, name: str) -> Column:
    raise AssertionError(f"{alias}.{name} where there are no rows that choose")

"""What a query reads of its sources: columns of relations, taken to its rows, and attributes of what is chosen.

A lookup is the row of a constant relation whose key is what a choice takes: each of its columns is a choice again, of
the column's values, each under the literals of the rows that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from mgmt.compiler.encoding.answers import Statements
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
from mgmt.compiler.encoding.replay import Journal
from mgmt.compiler.relational.lookups import Lookup
from mgmt.language.bound_queries.expressions import Aggregate
from mgmt.language.names.scopes import Source
from mgmt.optimization.columns import FALSE, TRUE, Integers, Lists, Mask, filled, group_numbers
from mgmt.optimization.products import Side
from mgmt.state.schema import quote

Cells: TypeAlias = Callable[[str, str], Column]


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """The relations of one encoding, and the columns that have been looked up."""

    statements: Statements
    evaluator: Evaluator
    relations: Mapping[str, RelationData]
    journal: Journal
    looked_up: dict[tuple[int, str, str | None], tuple[AnyOptions, Options | Integers]] = field(
        default_factory=dict
    )
    """By choices, relation and column; without a column, whether there is anything."""

    def __post_init__(self) -> None:
        self.journal.sources["looked up"] = self.looked_up.get

    def joined(
        self, sources: Iterable[Source], symbolic: Sequence[str], row_ids: Sequence[Constants]
    ) -> JoinedSources:
        """These sources in the rows of a join; of each symbolic one the numbers of its rows."""
        names = {source.alias: source.relation.name.lower() for source in sources}
        places: dict[str, tuple[RelationData, Integers]] = {}
        for alias, numbers in zip(symbolic, row_ids, strict=False):
            relation = self.relations[names[alias]]
            places[alias.lower()] = relation, relation.places(numbers)
        return JoinedSources(self, places)

    def attribute(self, choices: Choices, lookup: Lookup, column: str) -> Choices:
        """A column of what is looked up in each row."""
        key = (id(choices.options), lookup.relation.lower(), column.lower())
        _, found = self._found(key) or (None, None)
        if found is None:
            found = self._look_up(choices.options, lookup, column)
            self.looked_up[key] = choices.options, found
        assert isinstance(found, Options)
        return Choices(found, choices.index)

    def present(self, choices: Choices, lookup: Lookup) -> Integers:
        """The literal under which there is anything to look up, in each row."""
        key = (id(choices.options), lookup.relation.lower(), None)
        _, found = self._found(key) or (None, None)
        if found is None:
            options = choices.options
            (codes,) = self._codes(lookup, lookup.key)
            missing = ~np.isin(options.domain, codes)
            found = self._none_but(options, missing) ^ 1
            self.looked_up[key] = options, found
        assert not isinstance(found, Options)
        return np.append(found, FALSE)[choices.index]

    def _found(self, key: tuple[int, str, str | None]) -> tuple[AnyOptions, Options | Integers] | None:
        found: tuple[AnyOptions, Options | Integers] | None = self.journal.ask("looked up", key)
        return found

    def _codes(self, lookup: Lookup, *columns: str) -> list[Integers]:
        """Columns of what is looked up, as numbers of values."""
        sql = f"SELECT {', '.join(map(quote, columns))} FROM {quote(lookup.relation)}"
        return [self.evaluator.values.codes(column) for column in self.statements.ask(sql).columns]

    def _look_up(self, options: AnyOptions, lookup: Lookup, column: str) -> Options:
        codes, attributes = self._codes(lookup, lookup.key, column)
        order = np.argsort(codes, kind="stable")
        place = np.minimum(np.searchsorted(codes[order], options.domain), max(0, len(order) - 1))
        chosen = filled(len(options.domain), -1)
        if len(order):
            known = codes[order[place]] == options.domain
            chosen[known] = attributes[order[place[known]]]
        null = self._none_but(options, chosen < 0)
        if isinstance(options, GridOptions):
            return self._in_grid(options, chosen, null)
        chosen = chosen[np.searchsorted(options.domain, options.codes.items)]
        owners, kept = options.codes.owners, np.flatnonzero(chosen >= 0)
        first, number = group_numbers(owners[kept], chosen[kept])
        literals = self.evaluator.problem.one_of(Lists.grouped(number, options.literals[kept], len(first)))
        return Options.sorted(owners[kept][first], chosen[kept][first], literals, null)

    def _in_grid(self, options: GridOptions, attributes: Integers, null: Integers) -> Options:
        """The same of choices among the same values, which have their attributes in groups."""
        count, kept = len(options), np.flatnonzero(attributes >= 0)
        codes, group = np.unique(attributes[kept], return_inverse=True)
        chosen = self._within(options, kept, group, len(codes))
        return Options.sorted(
            np.repeat(np.arange(count), len(codes)), np.tile(codes, count), chosen.ravel(), null
        )

    def _none_but(self, options: AnyOptions, wanted: Mask) -> Integers:
        """The literal under which a choice takes one of these values of the domain, or none."""
        if not wanted.any():
            return options.null
        if isinstance(options, GridOptions):
            values = np.flatnonzero(wanted)
            some = self._within(options, values, filled(len(values), 0), 1)[:, 0]
            return self.evaluator.problem.disjunction(some, options.null)
        entries = np.flatnonzero(wanted[np.searchsorted(options.domain, options.codes.items)])
        owners = np.concatenate((options.codes.owners[entries], np.arange(len(options))))
        literals = np.concatenate((options.literals[entries], options.null))
        return self.evaluator.problem.one_of(Lists.grouped(owners, literals, len(options)))

    def _within(self, options: GridOptions, values: Integers, groups: Integers, count: int) -> Integers:
        """For each row and group of values of the domain the literal under which it takes one of them."""
        grid, places = options.grid, options.places(options.domain[values])
        rows, pairs = np.arange(grid.rows), np.arange(grid.rows * count)
        if len(values) == count:  # each for itself
            return grid.literals(rows[:, None], places[np.argsort(groups)][None, :])
        side = Side.of(places, filled(len(values), 1), groups, count)
        problem = self.evaluator.problem
        sums = problem.new_sums(grid, Side.alone(rows), side, pairs // max(1, count), pairs % max(1, count))
        return problem.above_zero(sums.terms.items).reshape(grid.rows, count)


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
                return self.sources.attribute(_chosen(lookup, cells), lookup, name)
        return None

    def conditions(self, lookups: Iterable[Lookup], cells: Cells) -> list[Integers]:
        """Literals that hold together where a row exists; a row of an outer join without a partner does."""
        found = [np.append(relation.exists, TRUE)[places] for relation, places in self.places.values()]
        chosen = ((_chosen(lookup, cells), lookup) for lookup in lookups)
        found += [self.sources.present(choices, lookup) for choices, lookup in chosen]
        return found


def _chosen(lookup: Lookup, cells: Cells) -> Choices:
    found = cells(lookup.choice.source, lookup.choice.column)
    assert isinstance(found, Choices)
    return found


def no_aggregate(expression: Aggregate) -> Column:
    raise AssertionError(f"an aggregate outside a group at {expression.position}")


def no_cell(alias: str, name: str) -> Column:
    raise AssertionError(f"{alias}.{name} where there are no rows that choose")

"""A factored problem with its cells written down, for what knows nothing of products: solvers, clashes, texts.

Sums become expressions over cells wherever they stand; one over many cells that stands in many places is a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from mgmt.optimization.columns import (
    TRUE,
    Integers,
    Linears,
    Lists,
    difference,
    filled,
    stacked,
)
from mgmt.optimization.problem import (
    Conjunctions,
    LinearRows,
    LiteralRows,
    Problem,
    Relation,
    Rows,
    Source,
    Totals,
)
from mgmt.optimization.products import CellRows, FactoredProblem, Grid, Occupied

_FEW_USES = 4
"""Of a sum over several cells, each of which writes it out."""


def expanded(problem: FactoredProblem) -> Problem:
    """The same demands on the same variables; sums that are variables now come after them."""
    made = Problem(
        watch=problem.watch,
        cells=problem.cells,
        _lower=[problem.lower],
        _upper=[problem.upper],
        _count=problem.variables,
    )
    made.grow(sum(2 * grid.rows * grid.values for grid in problem.grids))
    made.grow(sum(6 * each.grid.rows * each.grid.values for each in problem.flagged_grids))
    made.grow(sum(_size(block) for _, block in problem.cell_rows))
    made.rows.extend(_choosing(grid) for grid in problem.grids)
    sums = _WrittenSums.of(problem, made)
    blocks: list[tuple[float, Rows]] = list(enumerate(map(sums.within_rows, problem.rows)))
    blocks += [(before - 0.5, rows) for before, block in problem.cell_rows for rows in _literal_rows(block)]
    made.rows.extend(block for _, block in sorted(blocks, key=itemgetter(0)))
    made.redundant.extend(replace(block, linears=sums.within(block.linears)) for block in problem.redundant)
    made.conjunctions.extend(problem.conjunctions)
    made.conjunctions.extend(Conjunctions(each.cells, each.parts) for each in problem.flagged_grids)
    for block in problem.occupied:
        _define(made, problem, block)
    made.operations.extend(
        replace(operations, operands=sums.within(operations.operands)) for operations in problem.operations
    )
    made.gates.extend(replace(gates, linears=sums.within(gates.linears)) for gates in problem.gates)
    made.thresholds.extend(replace(block, linears=sums.within(block.linears)) for block in problem.thresholds)
    made.totals.extend(replace(block, linears=sums.within(block.linears)) for block in problem.totals)
    made.equalities.extend(problem.equalities)
    for objective in problem.objectives:
        linear = sums.within(Linears.of(objective.linear)).row(0)
        made.objectives.append(replace(objective, linear=linear))
    return made


def _choosing(grid: Grid) -> LiteralRows:
    """Each row takes exactly one value, or none where that is allowed."""
    return LiteralRows(Relation.EXACTLY_ONE, grid.all_literals, filled(grid.rows, TRUE), None, True)


@dataclass(frozen=True, slots=True, eq=False)
class _WrittenSums:
    """What stands for each sum: an expression, of which ``place`` is the row; -1 for those that nobody uses."""

    linears: Linears
    place: Integers

    @classmethod
    def of(cls, problem: FactoredProblem, made: Problem) -> _WrittenSums:
        """Those that are used; ``made`` gets the variables and the rows of those that are used often."""
        uses = filled(sum(map(len, problem.sums)), 0)
        for linears in _linears_of(problem):
            numbers = linears.terms.items
            np.add.at(uses, -1 - numbers[numbers < 0], 1)
        sizes = np.concatenate([filled(0, 0), *(block.sizes for block in problem.sums)])
        alone = (uses > _FEW_USES) & (sizes > _FEW_USES)
        made.grow(int((sizes * np.where(alone, 1, uses)).sum()))
        parts = [Linears.constant([])]
        used = np.flatnonzero(uses)
        for block in problem.sums:
            start = -1 - block.first
            own = used[(used >= start) & (used < start + len(block))]
            parts.append(block.written_out(own - start))
        written = stacked(parts)
        often = np.flatnonzero(alone[used])
        if len(often):
            variables = made.new_variables(*problem.bounds(-1 - used[often]))
            single = Linears.single(variables)
            made.require_range(difference(written.take(often), single), 0, 0, spells_out=True)
            made.written_sums.append(Totals(variables, written.take(often)))
            order = np.arange(len(used))
            order[often] = len(used) + np.arange(len(often))
            written = stacked([written, single]).take(order)
        place = filled(len(uses), -1)
        place[used] = np.arange(len(used))
        return cls(written, place)

    def within_rows(self, block: Rows) -> Rows:
        return replace(block, linears=self.within(block.linears)) if isinstance(block, LinearRows) else block

    def within(self, linears: Linears) -> Linears:
        """The expressions with each sum written out."""
        numbers = linears.terms.items
        sums = numbers < 0
        if not sums.any():
            return linears
        spread = self.linears.take(self.place[-1 - numbers[sums]]).scaled(linears.coefficients[sums])
        owners = linears.terms.owners[sums]
        if len(owners) == len(linears) and sums.all() and (np.diff(owners) == 1).all():
            return Linears(linears.constants + spread.constants, spread.terms, spread.coefficients)
        rest = Linears(linears.constants, linears.terms.keep(~sums), linears.coefficients[~sums])
        everything = np.concatenate((np.arange(len(linears)), owners))
        return stacked([rest, spread]).summed(everything, len(linears))


def _linears_of(problem: FactoredProblem) -> Iterator[Linears]:
    yield from (block.linears for block in problem.rows if isinstance(block, LinearRows))
    yield from (block.linears for block in problem.redundant)
    yield from (operations.operands for operations in problem.operations)
    yield from (gates.linears for gates in problem.gates)
    yield from (block.linears for block in problem.thresholds)
    yield from (block.linears for block in problem.totals)
    yield from (Linears.of(objective.linear) for objective in problem.objectives)


def _define(made: Problem, problem: FactoredProblem, block: Occupied) -> None:
    """Somebody is there exactly when a cell holds; of one row's cells never more than one does."""
    places = -1 - block.numbers
    for sums in problem.sums:
        start = -1 - sums.first
        inside = np.flatnonzero((places >= start) & (places < start + len(sums)))
        own = places[inside] - start
        cells = sums.written_out(own).terms
        literals = Lists(cells.starts, 2 * cells.items)
        targets = block.targets[inside]
        alone = sums.rows.members.lengths[sums.row_groups[own]] == 1
        if alone.any():
            rows = np.flatnonzero(alone)
            owners = np.concatenate((literals.take(rows).owners, np.arange(len(rows))))
            items = np.concatenate((literals.take(rows).items, targets[rows] ^ 1))
            one = Lists.grouped(owners, items, len(rows))
            made.rows.append(LiteralRows(Relation.EXACTLY_ONE, one, filled(len(rows), TRUE), None, True))
            made.totals.append(Totals(targets[rows] >> 1, _number_of(literals.take(rows))))
        if not alone.all():
            rows = np.flatnonzero(~alone)
            none = literals.take(rows)
            made.conjunctions.append(Conjunctions(targets[rows] ^ 1, Lists(none.starts, none.items ^ 1)))


def _number_of(literals: Lists) -> Linears:
    """How many hold in each row."""
    return Linears.literals(literals.items).summed(literals.owners, len(literals))


def _size(block: CellRows) -> int:
    return 2 * len(block.rows.weights) * len(block.values.weights)


def _literal_rows(block: CellRows) -> Iterator[LiteralRows]:
    """A row for each cell that does not hold, or for each two groups in which more than one may."""
    rows, values = block.rows.members, block.values.members
    cells = block.grid.literals(rows.items[:, None], values.items[None, :])
    if block.none:
        tags = block.row_tags[rows.owners][:, None] + block.value_tags[values.owners][None, :]
        yield _clauses(block, Lists.side_by_side(cells.ravel() ^ 1), tags.ravel())
        return
    groups = rows.owners[:, None] * len(values) + values.owners[None, :]
    literals = Lists.grouped(groups.ravel(), cells.ravel(), len(rows) * len(values))
    tags = (block.row_tags[:, None] + block.value_tags[None, :]).ravel()
    two = np.flatnonzero(literals.lengths == 2)
    if len(two):
        pairs = literals.take(two)
        yield _clauses(block, Lists(pairs.starts, pairs.items ^ 1), tags[two])
    more = np.flatnonzero(literals.lengths > 2)
    if len(more):
        source = Source(block.constraint, tags[more])
        yield LiteralRows(Relation.AT_MOST_ONE, literals.take(more), filled(len(more), TRUE), source)


def _clauses(block: CellRows, literals: Lists, tags: Integers) -> LiteralRows:
    source = Source(block.constraint, tags)
    return LiteralRows(Relation.AT_LEAST_ONE, literals, filled(len(tags), TRUE), source)

"""What a solver need not be told: definitions that nothing refers to.

A definition is of a newer variable than those that it is about: a conjunction, the target of an operation, the literal
under which a row holds that no policy demands, and that of such clauses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from mgmt.optimization.columns import TRUE, Integers, Lists, Mask, filled
from mgmt.optimization.problem import (
    Conjunctions,
    LinearRows,
    LiteralRows,
    Operations,
    Problem,
    Relation,
    Rows,
)

_Definitions: TypeAlias = Conjunctions | Operations | Rows


def without_unused(problem: Problem) -> Problem:
    """The same without definitions of what stands in no row and no objective."""
    used = np.zeros(problem.variables, np.bool_)
    for objective in problem.objectives:
        used[list(objective.linear.variables)] = True
    rows: list[Rows] = []
    definitions: list[_Definitions] = [*problem.conjunctions, *problem.operations]
    for block in problem.rows:
        mask = _defines(block)
        if mask.any():
            definitions.append(block.take(np.flatnonzero(mask)))
        rows.append(block.take(np.flatnonzero(~mask)))
    for block in (*rows, *problem.redundant):
        used[_mentioned(block)] = True
    found: list[_Definitions] = []
    for each in sorted(definitions, key=lambda each: -int(_targets(each).max(initial=0))):
        live = _take(each, np.flatnonzero(used[_targets(each)]))
        used[_inside(live)] = True
        found.append(live)
    return replace(
        problem,
        rows=rows + [each for each in found if isinstance(each, (LinearRows, LiteralRows))],
        conjunctions=[each for each in found if isinstance(each, Conjunctions)],
        operations=[each for each in found if isinstance(each, Operations)],
    )


def _defines(block: Rows) -> Mask:
    """Which rows say what their newest variable is."""
    if block.source is not None:
        return np.zeros(len(block.enforcement), np.bool_)
    if isinstance(block, LinearRows):
        found: Mask = block.enforcement >> 1 > _newest(block.linears.terms)
    else:
        found = np.full(len(block.enforcement), block.relation is Relation.AT_LEAST_ONE)
        found &= block.enforcement == TRUE
    return found


def _newest(lists: Lists) -> Integers:
    found = filled(len(lists), 0)
    np.maximum.at(found, lists.owners, lists.items)
    return found


def _mentioned(block: Rows) -> Integers:
    items = block.literals.items >> 1 if isinstance(block, LiteralRows) else block.linears.terms.items
    return np.concatenate((items, block.enforcement >> 1))


def _targets(block: _Definitions) -> Integers:
    if isinstance(block, LinearRows):
        return block.enforcement >> 1
    if isinstance(block, LiteralRows):
        return _newest(Lists(block.literals.starts, block.literals.items >> 1))
    return block.targets >> 1 if isinstance(block, Conjunctions) else block.targets


def _inside(block: _Definitions) -> Integers:
    if isinstance(block, (Conjunctions, LiteralRows)):
        return block.literals.items >> 1
    return block.linears.terms.items if isinstance(block, LinearRows) else block.operands.terms.items


def _take(block: _Definitions, rows: Integers) -> _Definitions:
    if isinstance(block, (LinearRows, LiteralRows)):
        return block.take(rows)
    if isinstance(block, Conjunctions):
        return Conjunctions(block.targets[rows], block.literals.take(rows))
    operands = Lists(block.starts, np.arange(block.starts[-1])).take(rows)
    return Operations(block.kind, block.targets[rows], operands.starts, block.operands.take(operands.items))

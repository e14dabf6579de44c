"""How much too strict the demands are: the least by which some of them must give for the rest to hold.

Rows of the constraints named get slack, at a price: what they demand may be missed by an amount (of a sum or a count),
or be waived for a row altogether.  The cheapest way is found, everything else staying as it is.

What it is not: it does not know what a demand means (see ``mgmt.compiler.relaxations``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from mgmt.optimization.backends import Answer, AnswerStatus, Backend
from mgmt.optimization.columns import LIMIT, Integers, Linear, Linears, Lists, filled, sum_of
from mgmt.optimization.problem import LiteralRows, Problem, Relation, Rows, Source, Tag
from mgmt.solution import PrimaryKey, Value

Placement: TypeAlias = Mapping[tuple[str, str], Mapping[PrimaryKey, Value]]


@dataclass(frozen=True, slots=True)
class Give:
    """What one row must give: ``above`` its upper bound, ``below`` its lower one, or all of it (``waived``)."""

    tag: Tag
    above: int = 0
    below: int = 0
    waived: bool = False


@dataclass(frozen=True, slots=True)
class Slack:
    """A way to make a problem satisfiable.  ``least``: no cheaper one exists."""

    gives: tuple[Give, ...]
    least: bool
    placement: Placement | None = None
    """The values of all variables, by table and column, that are satisfied then; None: they were not looked for."""


def by_amount(
    problem: Problem, constraints: Collection[str], backend: Backend, *, seconds: float, seed: int
) -> Slack | None:
    """The least total amount by which sums and counts of these constraints must be exceeded or missed.

    None when that cannot help: the rest clashes by itself, these demand something that is no amount, or no answer was
    found in time.
    """
    loose = _copy(problem)
    slacks: list[tuple[Source, Integers, bool]] = []
    """Per block the variables by which its rows may be exceeded (True) or missed."""
    for number, block in enumerate(problem.rows):
        if block.source is None or block.source.constraint not in constraints:
            continue
        if isinstance(block, LiteralRows):
            if block.relation is not Relation.AT_LEAST_ONE or block.literals.lengths.any():
                return None
            continue
        low, high = problem.ranges(block.linears)
        linears = block.linears
        for is_above, most in ((True, high - block.upper), (False, block.lower - low)):
            rows = np.flatnonzero(most > 0)
            variables = loose.new_variables(filled(len(rows), 0), most[rows])
            slack = Linears.single(variables).scaled(-1 if is_above else 1)
            linears = sum_of(linears, slack.summed(rows, len(linears)))
            slacks.append((block.source.take(rows), variables, is_above))
        loose.rows[number] = replace(block, linears=linears)
    paid = np.concatenate([filled(0, 0), *(variables for _, variables, _ in slacks)])
    answer = _cheapest(loose, paid, backend, seconds, seed)
    if answer is None or answer.values is None:
        return None
    found: dict[Tag, tuple[int, int]] = {}
    for source, variables, is_above in slacks:
        for row, amount in zip(source.rows.tolist(), answer.values[variables].tolist(), strict=True):
            above, below = found.get(tag := Tag(source.constraint, row), (0, 0))
            found[tag] = (max(above, amount), below) if is_above else (above, max(below, amount))
    gives = (Give(tag, *amounts) for tag, amounts in found.items() if any(amounts))
    return Slack(tuple(gives), answer.status is AnswerStatus.OPTIMAL)


def by_rows(
    problem: Problem, constraints: Collection[str], backend: Backend, *, seconds: float, seed: int
) -> Slack | None:
    """The fewest rows of these constraints that must be waived.  None as in :func:`by_amount`."""
    loose = _copy(problem)
    names = sorted(constraints)
    sources = [
        (names.index(block.source.constraint), block.source.rows)
        for block in problem.rows
        if block.source is not None and block.source.constraint in constraints
    ]
    tags = [(number, row) for number, rows in sources for row in rows.tolist()]
    literals = dict(zip(dict.fromkeys(tags), loose.new_literals(len(set(tags))).tolist(), strict=True))

    def waived(block: Rows) -> Integers | None:
        if block.source is None or block.source.constraint not in constraints:
            return None
        number = names.index(block.source.constraint)
        return np.array([literals[number, row] for row in block.source.rows.tolist()], np.int64)

    for number, block in enumerate(problem.rows):
        found = waived(block)
        if found is None:
            continue
        if isinstance(block, LiteralRows) and block.relation is Relation.AT_LEAST_ONE:
            owners = np.concatenate((block.literals.owners, np.arange(len(block.literals))))
            items = np.concatenate((block.literals.items, found))
            loose.rows[number] = replace(block, literals=Lists.grouped(owners, items, len(block.literals)))
        else:
            loose.rows[number] = replace(block, enforcement=loose.conjunction(block.enforcement, found ^ 1))
    paid = np.array(list(literals.values()), np.int64) >> 1
    answer = _cheapest(loose, paid, backend, seconds, seed)
    if answer is None or answer.values is None:
        return None
    values = answer.values
    gives = (
        Give(Tag(names[number], row), waived=True)
        for (number, row), literal in literals.items()
        if values[literal >> 1]
    )
    return Slack(tuple(gives), answer.status is AnswerStatus.OPTIMAL)


def _copy(problem: Problem) -> Problem:
    """A copy that can be added to.  Redundant rows are not needed."""
    return replace(
        problem,
        rows=list(problem.rows),
        redundant=[],
        operations=list(problem.operations),
        conjunctions=list(problem.conjunctions),
        gates=[],
        objectives=[],
        _lower=[problem.lower],
        _upper=[problem.upper],
    )


def _cheapest(problem: Problem, paid: Integers, backend: Backend, seconds: float, seed: int) -> Answer | None:
    if not len(paid) or seconds <= 0 or sum(problem.upper[paid].tolist()) > LIMIT:
        return None
    variables = tuple(sorted(paid.tolist()))
    total = Linear(0, variables, (1,) * len(variables))
    answer = backend.load(problem).minimize(total, {}, seconds, seed, 1)
    return answer if answer.values is not None else None

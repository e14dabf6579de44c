"""How much too strict the demands are: the least by which some of them must give for the rest to hold.

Rows of the constraints named get slack, at a price: what they demand may be missed by an amount (of a sum or a count),
or be waived for a row altogether.  The cheapest way is found, everything else staying as it is.

What it is not: it does not know what a demand means (see ``mgmt.compiler.relaxations``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mgmt.optimization.backends import Answer, AnswerStatus, Backend
from mgmt.optimization.problem import FALSE, LIMIT, Linear, Problem, Tag, add
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
    above: dict[Tag, list[int]] = {}
    below: dict[Tag, list[int]] = {}
    if any(part.tag is not None and part.tag.constraint in constraints for part in problem.cardinalities):
        return None
    for clause in problem.clauses:
        if clause.tag is not None and clause.tag.constraint in constraints and len(clause.literals) != 0:
            return None
    for number, row in enumerate(problem.rows):
        if row.tag is None or row.tag.constraint not in constraints:
            continue
        low, high = problem.range_of(row.linear)
        linear = row.linear
        if row.upper is not None and high > row.upper:
            slack = loose.new_variable(0, high - row.upper)
            above.setdefault(row.tag, []).append(slack)
            linear = add(linear, Linear(0, (slack,), (-1,)))
        if row.lower is not None and low < row.lower:
            slack = loose.new_variable(0, row.lower - low)
            below.setdefault(row.tag, []).append(slack)
            linear = add(linear, Linear(0, (slack,), (1,)))
        loose.rows[number] = replace(row, linear=linear)
    paid = [variable for slacks in (above, below) for some in slacks.values() for variable in some]
    answer = _cheapest(loose, paid, backend, seconds, seed)
    if answer is None or answer.values is None:
        return None
    tags = dict.fromkeys((*above, *below))
    gives = (
        Give(tag, _most(answer.values, above.get(tag)), _most(answer.values, below.get(tag))) for tag in tags
    )
    return Slack(
        tuple(give for give in gives if give.above or give.below), answer.status is AnswerStatus.OPTIMAL
    )


def by_rows(
    problem: Problem, constraints: Collection[str], backend: Backend, *, seconds: float, seed: int
) -> Slack | None:
    """The fewest rows of these constraints that must be waived.  None as in :func:`by_amount`."""
    loose = _copy(problem)
    waived: dict[Tag, int] = {}

    def waive(tag: Tag | None) -> int:
        if tag is None or tag.constraint not in constraints:
            return FALSE
        if tag not in waived:
            waived[tag] = loose.new_literal()
        return waived[tag]

    for number, clause in enumerate(problem.clauses):
        literal = waive(clause.tag)
        if literal != FALSE:
            loose.clauses[number] = replace(clause, literals=(*clause.literals, literal))
    for number, part in enumerate(problem.cardinalities):
        literal = waive(part.tag)
        if literal != FALSE:
            enforcement = loose.conjunction((part.enforcement, literal ^ 1))
            loose.cardinalities[number] = replace(part, enforcement=enforcement)
    for number, row in enumerate(problem.rows):
        literal = waive(row.tag)
        if literal != FALSE:
            enforcement = loose.conjunction((row.enforcement, literal ^ 1))
            loose.rows[number] = replace(row, enforcement=enforcement)
    answer = _cheapest(loose, [literal // 2 for literal in waived.values()], backend, seconds, seed)
    if answer is None or answer.values is None:
        return None
    gives = tuple(Give(tag, waived=True) for tag, literal in waived.items() if answer.values[literal // 2])
    return Slack(gives, answer.status is AnswerStatus.OPTIMAL)


def _copy(problem: Problem) -> Problem:
    """A copy that can be added to.  What is defined already is found again, redundant rows are not needed."""
    return replace(
        problem,
        lower=list(problem.lower),
        upper=list(problem.upper),
        clauses=list(problem.clauses),
        cardinalities=list(problem.cardinalities),
        rows=list(problem.rows),
        redundant=[],
        operations=list(problem.operations),
        objectives=[],
        conjunctions=dict(problem.conjunctions),
    )


def _cheapest(
    problem: Problem, paid: Sequence[int], backend: Backend, seconds: float, seed: int
) -> Answer | None:
    if not paid or seconds <= 0:
        return None
    total = Linear(0, tuple(sorted(paid)), tuple(1 for _ in paid))
    if sum(problem.upper[variable] for variable in paid) > LIMIT:
        return None
    hint: Mapping[int, int] = {}
    answer = backend.load(problem).minimize(total, hint, seconds, seed, 1)
    return answer if answer.values is not None else None


def _most(values: Sequence[int], slacks: Sequence[int] | None) -> int:
    return max((values[variable] for variable in slacks or ()), default=0)

"""Recognised structure: what can be said of a problem before a solver sees it.

Redundant rows that linear relaxations need are added for "this choice and that condition" over all values of a choice,
for numbers that count with one of them, and for capacities of what is open or used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mgmt.optimization.problem import TRUE, Linear, Problem, Row, add, scale


def tighten(problem: Problem, choices: Iterable[tuple[int, ...]]) -> int:
    """Add what follows from exactly-one groups; returns how many rows were added.

    Of the literals of a choice exactly one holds, so of the conjunctions of each of them with one and the same
    condition at most one holds, and only if the condition does; and a condition that holds does so either with
    a literal or with its negation.  A number that counts with one value of a choice is what it is with all of them
    together.  A capacity is nothing where what it is the capacity of is not used.  A linear relaxation sees none of it.
    """
    choices = list(choices)
    owner = {literal: number for number, choice in enumerate(choices) for literal in choice}
    groups: dict[tuple[int, int], list[int]] = {}
    before = len(problem.redundant)
    for parts, literal in problem.conjunctions.items():
        if len(parts) != 2:
            continue
        for part, condition in (parts, parts[::-1]):
            number = owner.get(part)
            if number is not None and owner.get(condition) != number:
                groups.setdefault((number, condition), []).append(literal)
            opposite = problem.conjunctions.get(tuple(sorted((part ^ 1, condition))))
            if opposite is not None and not part & 1:
                _add_row(problem, (literal, opposite), condition, equal=True)
    for (_, condition), literals in groups.items():
        if len(literals) > 1:
            _add_row(problem, literals, condition, equal=False)
    for row in (*_shares_of_choices(problem, choices, owner), *_capacities_of_what_is_used(problem)):
        problem.imply(row)
    return len(problem.redundant) - before


def _add_row(problem: Problem, literals: Iterable[int], condition: int, *, equal: bool) -> None:
    """The sum of the literals is at most (or exactly) the condition, taken as 0 or 1."""
    parts = [problem.literal_value(literal) for literal in literals]
    linear = add(*parts, scale(problem.literal_value(condition), -1))
    problem.imply(Row(linear, 0 if equal else None, 0, TRUE, None))


def _shares_of_choices(
    problem: Problem, choices: Sequence[tuple[int, ...]], owner: Mapping[int, int]
) -> Iterator[Row]:
    """A number that counts with one value of a choice: what it is with each of them adds up to it."""
    shares: dict[tuple[Linear, int], list[int]] = {}
    for (linear, literal), variable in problem.gates.items():
        if literal in owner:
            shares.setdefault((linear, owner[literal]), []).append(variable)
    for (linear, number), variables in shares.items():
        low, high = problem.range_of(linear)
        rest = add(*(Linear(0, (variable,), (1,)) for variable in variables), scale(linear, -1))
        complete = len(variables) == len(choices[number])
        lower, upper = 0 if complete or high <= 0 else None, 0 if complete or low >= 0 else None
        if len(variables) > 1 and (lower, upper) != (None, None):
            yield Row(rest, lower, upper, TRUE, None)


def _capacities_of_what_is_used(problem: Problem) -> Iterator[Row]:
    """Where each literal of a row ``sum <= capacity`` implies one and the same other: ``sum <= capacity * other``."""
    capacities = [row for row in problem.rows if _is_capacity(problem, row)]
    literals = {2 * variable for row in capacities for variable in row.linear.variables}
    implied: dict[int, set[int]] = {}
    for clause in problem.clauses:
        if len(clause.literals) == 2:
            for negated, other in (clause.literals, clause.literals[::-1]):
                if negated ^ 1 in literals:
                    implied.setdefault(negated ^ 1, set()).add(other)
    for row in capacities:
        assert row.upper is not None
        for literal in sorted(set.intersection(*(implied.get(2 * v, set()) for v in row.linear.variables))):
            capacity = scale(problem.literal_value(literal), row.linear.constant - row.upper)
            yield Row(add(replace(row.linear, constant=0), capacity), None, 0, TRUE, None)


def _is_capacity(problem: Problem, row: Row) -> bool:
    """Whether it is ``sum <= capacity`` of literals that do not all fit."""
    linear = row.linear
    if row.enforcement != TRUE or row.lower is not None or row.upper is None or len(linear.variables) < 2:
        return False
    booleans = all(problem.lower[each] == 0 and problem.upper[each] == 1 for each in linear.variables)
    capacity = row.upper - linear.constant
    return booleans and min(linear.coefficients) > 0 and 0 <= capacity < sum(linear.coefficients)

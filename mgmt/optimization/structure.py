"""Recognised structure: what can be said of a problem before a solver sees it.

Redundant rows that linear relaxations need are added for "this choice and that condition" over all values of a choice,
for numbers that count with one of them, and for capacities of what is open or used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mgmt.optimization.columns import (
    TRUE,
    Integers,
    Linear,
    Linears,
    Lists,
    difference,
    filled,
    group_numbers,
    integers,
    joined,
    sum_of,
)
from mgmt.optimization.problem import NO_BOUND, LinearRows, LiteralRows, Problem, Relation


def tighten(problem: Problem, choices: Lists) -> int:
    """Add what follows from exactly-one groups; returns how many rows were added.

    Of the literals of a choice exactly one holds, so of the conjunctions of each of them with one and the same
    condition at most one holds, and only if the condition does; and a condition that holds does so either with
    a literal or with its negation.  A number that counts with one value of a choice is what it is with all of them
    together.  A capacity is nothing where what it is the capacity of is not used, and so is any amount.  A linear
    relaxation sees none of it.
    """
    before = sum(map(_count, problem.redundant))
    owner = filled(2 * problem.variables, -1)
    owner[choices.items] = choices.owners
    made = (
        *_conjunctions_with_choices(problem, owner),
        *_shares_of_choices(problem, choices, owner),
        *_capacities_of_what_is_used(problem),
        *_amounts_of_what_is_used(problem),
    )
    for linears, lower in made:
        problem.imply(linears, lower, 0)
    return sum(map(_count, problem.redundant)) - before


_Implied = tuple[Linears, int | None]
"""Rows that are 0 at most, and their lower bound."""


def _count(block: LinearRows) -> int:
    return len(block.lower)


def _conjunctions_with_choices(problem: Problem, owner: Integers) -> Iterator[_Implied]:
    pairs = [block for block in problem.conjunctions if len(block.targets)]
    if not pairs:
        return
    targets = np.concatenate([block.targets for block in pairs])
    literals = joined([block.literals for block in pairs])
    of_two = np.flatnonzero(literals.lengths == 2)
    targets = np.tile(targets[of_two], 2)
    both = literals.take(of_two).items.reshape(-1, 2)
    parts, conditions = np.concatenate((both, both[:, ::-1])).T
    wanted = np.flatnonzero((owner[parts] >= 0) & (owner[parts] != owner[conditions]))
    yield _at_most_the_condition(owner[parts[wanted]], conditions[wanted], targets[wanted])
    keys = (parts << 32) | conditions
    order = np.argsort(keys, kind="stable")
    opposite = ((parts ^ 1) << 32) | conditions
    places = np.minimum(np.searchsorted(keys[order], opposite), len(keys) - 1)
    found = np.flatnonzero((keys[order][places] == opposite) & (parts & 1 == 0))
    total = sum_of(
        Linears.literals(targets[found]),
        Linears.literals(targets[order][places[found]]),
        Linears.literals(conditions[found], -1),
    )
    yield total, 0


def _at_most_the_condition(choices: Integers, conditions: Integers, targets: Integers) -> _Implied:
    """The sum of the conjunctions of one choice and condition is at most the condition, taken as 0 or 1."""
    first, number = group_numbers(choices, conditions)
    several = np.flatnonzero(np.bincount(number, minlength=len(first)) > 1)
    total = Linears.literals(targets).summed(number, len(first))
    return difference(total.take(several), Linears.literals(conditions[first[several]])), None


def _shares_of_choices(problem: Problem, choices: Lists, owner: Integers) -> Iterator[_Implied]:
    """A number that counts with one value of a choice: what it is with each of them adds up to it."""
    for block in problem.gates:
        wanted = np.flatnonzero(owner[block.literals] >= 0)
        chosen = owner[block.literals[wanted]]
        first, number = group_numbers(block.numbers[wanted], chosen)
        count = np.bincount(number, minlength=len(first))
        linears = block.linears.take(wanted[first])
        total = Linears.single(block.variables[wanted]).summed(number, len(first))
        rest = difference(total, linears)
        low, high = problem.ranges(linears)
        complete = count == choices.lengths[chosen[first]]
        below, above = complete | (high <= 0), complete | (low >= 0)
        exact, less, more = (
            np.flatnonzero((count > 1) & mask) for mask in (below & above, above & ~below, below & ~above)
        )
        yield rest.take(exact), 0
        yield rest.take(less), None
        yield rest.take(more).scaled(-1), None


def _capacities_of_what_is_used(problem: Problem) -> Iterator[_Implied]:
    """Where each literal of a row ``sum <= capacity`` implies one and the same other: ``sum <= capacity * other``."""
    capacities = [rows for block in _linear(problem) if (rows := _capacities(problem, block)) is not None]
    if not capacities:
        return
    holds, implied = _implications(problem)
    order = np.argsort(holds, kind="stable")
    holds, implied = holds[order], implied[order]
    for linears, room in capacities:
        literals = 2 * linears.terms.items
        first = np.searchsorted(holds, literals)
        lengths = np.searchsorted(holds, literals, side="right") - first
        problem.grow(int(lengths.sum()))
        starts = np.concatenate(([0], np.cumsum(lengths)))
        places = np.repeat(first - starts[:-1], lengths) + np.arange(starts[-1])
        owners = np.repeat(linears.terms.owners, lengths)
        one, number = group_numbers(owners, implied[places])
        every = np.bincount(number, minlength=len(one)) == linears.terms.lengths[owners[one]]
        one = one[every]
        used = Linears.literals(implied[places[one]], room[owners[one]])
        yield difference(linears.take(owners[one]), used), None


def _amounts_of_what_is_used(problem: Problem) -> Iterator[_Implied]:
    """Where a literal says that none of some numbers is more than 0, any bound on their sum is 0 with it."""
    nothing = _literals_of_nothing(problem)
    if not nothing:
        return
    most = problem.upper.copy()
    found: list[tuple[Linear, int, int]] = []
    marked = np.zeros(problem.variables, np.bool_)
    marked[list(nothing)] = True
    for block in _linear(problem):
        terms, factors = block.linears.terms, block.linears.coefficients
        plain = (problem.lower[terms.items] == 0) & (factors > 0)
        bounded = (block.enforcement == TRUE) & (block.upper < NO_BOUND) & terms.any(marked[terms.items])
        for row in np.flatnonzero(bounded & ~terms.any(~plain)).tolist():
            linear, room = block.linears.row(row), int(block.upper[row] - block.linears.constants[row])
            for variable, factor in zip(linear.variables, linear.coefficients, strict=True):
                most[variable] = min(most[variable], room // factor)
            literals = set.intersection(*(nothing.get(each, set()) for each in linear.variables))
            found += [(replace(linear, constant=0), literal, room) for literal in sorted(literals)]
    found += [
        (Linear(0, (variable,), (1,)), literal, int(most[variable]))
        for variable, literals in nothing.items()
        for literal in sorted(literals)
    ]
    rooms = integers([room for *_, room in found])
    used = Linears.literals(integers([literal ^ 1 for _, literal, _ in found]), rooms)
    yield difference(Linears.of(*(linear for linear, *_ in found)), used), None


def _literals_of_nothing(problem: Problem) -> dict[int, set[int]]:
    """By number that is not negative, the literals with which it is 0."""
    of: dict[int, set[int]] = {}  # what each literal says of numbers
    for block in _linear(problem):
        terms, factors = block.linears.terms, block.linears.coefficients
        plain = (problem.lower[terms.items] == 0) & (problem.upper[terms.items] > 1) & (factors > 0)
        older = terms.items < block.enforcement[terms.owners] >> 1  # a number that is gated is newer
        plain &= older
        none = (block.enforcement > TRUE) & (block.upper == block.linears.constants) & (terms.lengths > 0)
        for row in np.flatnonzero(none & ~terms.any(~plain)).tolist():
            of.setdefault(int(block.enforcement[row]), set()).update(terms.row(row).tolist())
    for definition in problem.conjunctions if of else ():
        said = np.zeros(2 * problem.variables, np.bool_)
        said[list(of)] = True
        for row in np.flatnonzero(definition.literals.any(said[definition.literals.items])).tolist():
            mine = of.setdefault(int(definition.targets[row]), set())
            mine.update(*(of.get(literal, set()) for literal in definition.literals.row(row).tolist()))
    found: dict[int, set[int]] = {}
    for literal, variables in of.items():
        for variable in variables:
            found.setdefault(variable, set()).add(literal)
    return found


def _linear(problem: Problem) -> list[LinearRows]:
    return [block for block in problem.rows if isinstance(block, LinearRows)]


def _implications(problem: Problem) -> tuple[Integers, Integers]:
    """Pairs of literals of which the one implies the other, each once."""
    pairs = [np.zeros((0, 2), np.int64)]
    for block in problem.rows:
        if isinstance(block, LiteralRows) and block.relation is Relation.AT_LEAST_ONE:
            rows = np.flatnonzero((block.literals.lengths == 2) & (block.enforcement == TRUE))
            both = block.literals.take(rows).items.reshape(-1, 2)
            pairs += [both ^ integers([1, 0]), both[:, ::-1] ^ integers([1, 0])]
    for definition in problem.conjunctions:
        whole = definition.targets[definition.literals.owners]
        pairs += [np.stack((whole, definition.literals.items), 1)]
        pairs += [np.stack((definition.literals.items ^ 1, whole ^ 1), 1)]
    found = np.concatenate(pairs)
    first, _ = group_numbers(found[:, 0], found[:, 1])
    return found[first, 0], found[first, 1]


def _capacities(problem: Problem, block: LinearRows) -> tuple[Linears, Integers] | None:
    """The rows ``sum <= capacity`` of literals that do not all fit, without constants, and the capacities."""
    terms, factors = block.linears.terms, block.linears.coefficients
    low, high = problem.bounds(terms.items)
    plain = (low == 0) & (high == 1) & (factors > 0)
    room = block.upper - block.linears.constants
    most = problem.ranges(block.linears)[1] - block.linears.constants
    rows = np.flatnonzero(
        (block.enforcement == TRUE)
        & (block.lower == -NO_BOUND)
        & (block.upper < NO_BOUND)
        & (terms.lengths > 1)
        & ~terms.any(~plain)
        & (room >= 0)
        & (room < most)
    )
    some = block.linears.take(rows)
    return (some.plus(-some.constants), room[rows]) if len(rows) else None

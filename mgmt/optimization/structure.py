"""Recognised structure: what can be said of a problem before a solver sees it.

Independent parts (no demand or definition connects their variables) are optimised one by one: the optimum of
each, tier by tier, is the optimum of the whole.  Redundant rows that linear relaxations need are added for
"this choice and that condition" over all values of a choice, for numbers that count with one of them, and for
capacities of what is open or used.
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


def components(problem: Problem) -> list[int]:
    """For each variable the number of the independent part it belongs to; parts count from 0.

    Constants, and variables that nothing mentions, are parts of their own.
    """
    parent = list(range(len(problem.lower)))

    def find(variable: int) -> int:
        while parent[variable] != variable:
            parent[variable] = parent[parent[variable]]
            variable = parent[variable]
        return variable

    def join(variables: Iterable[int]) -> None:
        first = -1
        for variable in variables:
            if variable == 0:  # the constant connects nothing
                continue
            root = find(variable)
            if first < 0:
                first = root
            else:
                parent[root] = first

    for clause in problem.clauses:
        join(literal // 2 for literal in clause.literals)
    for cardinality in problem.cardinalities:
        join((cardinality.enforcement // 2, *(literal // 2 for literal in cardinality.literals)))
    for row in problem.rows:
        join((row.enforcement // 2, *row.linear.variables))
    for operation in problem.operations:
        join((operation.target, *(v for operand in operation.operands for v in operand.variables)))
    numbers: dict[int, int] = {}
    return [numbers.setdefault(find(variable), len(numbers)) for variable in range(len(parent))]


def independent_parts(problem: Problem, most: int = 8) -> list[list[int]]:
    """The variables of each part to optimise on its own, largest first; small parts share the last."""
    members: dict[int, list[int]] = {}
    for variable, number in enumerate(components(problem)):
        if variable:
            members.setdefault(number, []).append(variable)
    parts = sorted(members.values(), key=lambda part: (-len(part), part[0]))
    rest = [variable for part in parts[most - 1 :] for variable in part]
    return [*parts[: most - 1], *([sorted(rest)] if rest else [])]


class Extract:
    """A part of a problem as a problem of its own, with the way back."""

    def __init__(self, problem: Problem, variables: list[int], *, with_constants: bool) -> None:
        """``with_constants``: also what mentions no variable at all (and may be plainly false)."""
        self.variables = variables
        self._new = {0: 0, **{variable: number for number, variable in enumerate(variables, 1)}}
        self.problem = Problem()
        self.problem.lower.extend(problem.lower[variable] for variable in variables)
        self.problem.upper.extend(problem.upper[variable] for variable in variables)
        self._with_constants = with_constants
        for clause in problem.clauses:
            if self._owns(literal // 2 for literal in clause.literals):
                self.problem.clauses.append(replace(clause, literals=self._literals(clause.literals)))
        for cardinality in problem.cardinalities:
            literals = (*cardinality.literals, cardinality.enforcement)
            if self._owns(literal // 2 for literal in literals):
                *kept, enforcement = self._literals(literals)
                moved = replace(cardinality, literals=tuple(kept), enforcement=enforcement)
                self.problem.cardinalities.append(moved)
        self.problem.rows.extend(self._rows(problem.rows))
        self.problem.redundant.extend(self._rows(problem.redundant))
        for operation in problem.operations:
            if operation.target in self._new:
                operands = tuple(self.linear(operand) for operand in operation.operands)
                target = self._new[operation.target]
                self.problem.operations.append(replace(operation, target=target, operands=operands))

    def linear(self, linear: Linear) -> Linear:
        """An expression as far as this part has a say in it; the constant stays."""
        pairs = zip(linear.variables, linear.coefficients, strict=True)
        kept = [(self._new[variable], factor) for variable, factor in pairs if variable in self._new]
        return Linear(linear.constant, tuple(v for v, _ in kept), tuple(f for _, f in kept))

    def hint(self, hint: Mapping[int, int]) -> dict[int, int]:
        return {self._new[variable]: value for variable, value in hint.items() if variable in self._new}

    def literals(self, literals: Iterable[int]) -> tuple[int, ...]:
        """Those of the literals that belong to this part."""
        return self._literals(literal for literal in literals if literal // 2 in self._new)

    def _rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            if self._owns((*row.linear.variables, row.enforcement // 2)):
                (enforcement,) = self._literals((row.enforcement,))
                yield replace(row, linear=self.linear(row.linear), enforcement=enforcement)

    def _owns(self, variables: Iterable[int]) -> bool:
        constant = True
        for variable in variables:
            if variable:
                if variable in self._new:
                    return True
                constant = False
        return constant and self._with_constants

    def _literals(self, literals: Iterable[int]) -> tuple[int, ...]:
        return tuple(2 * self._new[literal // 2] + (literal & 1) for literal in literals)

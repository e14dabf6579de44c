"""What an assignment of values breaks in a problem, demand by demand, in whole numbers.

Backends that reckon in floating point are checked by it, and the backend that tries everything is made of it.

What it is not: it looks for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mgmt.optimization.problem import Linear, Operation, OperationKind, Problem, Tag, truncate

Values = Sequence[int] | Mapping[int, int]


def holds(literal: int, values: Values) -> bool:
    """Whether a literal holds."""
    return (values[literal // 2] == 1) != bool(literal & 1)


def value_of(linear: Linear, values: Values) -> int:
    """A linear expression under an assignment."""
    return linear.constant + sum(
        coefficient * values[variable]
        for variable, coefficient in zip(linear.variables, linear.coefficients, strict=True)
    )


def result_of(operation: Operation, values: Values) -> int:
    """What an operation's target must be."""
    operands = [value_of(operand, values) for operand in operation.operands]
    if operation.kind is OperationKind.MAXIMUM:
        return max(operands)
    if operation.kind is OperationKind.PRODUCT:
        return operands[0] * operands[1]
    quotient = truncate(operands[0], operands[1])
    return quotient if operation.kind is OperationKind.QUOTIENT else operands[0] - operands[1] * quotient


def broken(problem: Problem, values: Values) -> Iterator[Tag | None]:
    """The tag of each demand that does not hold; None for definitions and ranges."""
    for variable, (lower, upper) in enumerate(zip(problem.lower, problem.upper, strict=True)):
        if not lower <= values[variable] <= upper:
            yield None
    for clause in problem.clauses:
        if not any(holds(literal, values) for literal in clause.literals):
            yield clause.tag
    for cardinality in problem.cardinalities:
        if holds(cardinality.enforcement, values):
            number = sum(holds(literal, values) for literal in cardinality.literals)
            if number > 1 or (cardinality.exactly and not number):
                yield cardinality.tag
    for row in problem.rows:
        if holds(row.enforcement, values):
            value = value_of(row.linear, values)
            below = row.lower is not None and value < row.lower
            if below or (row.upper is not None and value > row.upper):
                yield row.tag
    for operation in problem.operations:
        if values[operation.target] != result_of(operation, values):
            yield None

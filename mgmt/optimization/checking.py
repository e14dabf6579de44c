"""What literals and linear expressions are worth under an assignment of values, in whole numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgmt.optimization.problem import Linear

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

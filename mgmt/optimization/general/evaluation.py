"""What literals and linear expressions are worth under an assignment of values, in whole numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from mgmt.optimization.columns import Integers, Linear, Linears, Mask

Values: TypeAlias = Sequence[int] | Mapping[int, int] | Integers


class Indexed(Protocol):
    """What has the values of many variables at once, as an array of them all has."""

    def __getitem__(self, variables: Integers, /) -> Integers: ...


def hold(literals: Integers, values: Indexed) -> Mask:
    """Which of the literals hold."""
    found: Mask = (values[literals >> 1] == 1) != (literals & 1 == 1)
    return found


def value_of(linear: Linear, values: Values) -> int:
    """A linear expression under an assignment."""
    return linear.constant + sum(
        coefficient * int(values[variable])
        for variable, coefficient in zip(linear.variables, linear.coefficients, strict=True)
    )


def amounts(linears: Linears, values: Indexed) -> Integers:
    """The expressions of a column under an assignment."""
    found = linears.constants.copy()
    np.add.at(found, linears.terms.owners, linears.coefficients * values[linears.terms.items])
    return found


def worth(linear: Linear, values: Indexed) -> int:
    """A linear expression of many variables under an assignment."""
    return int(amounts(Linears.of(linear), values)[0])

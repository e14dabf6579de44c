"""Of what a count model is made: sums over its variables, rows of them, and what rows cannot say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Sum:
    """A linear expression over the model's variables, each once."""

    constant: int
    variables: list[int]
    factors: list[int]


@dataclass(frozen=True, slots=True)
class Row:
    """``lower <= sum <= upper``; the sum has no constant, None is no bound."""

    variables: Sequence[int]
    factors: Sequence[int]
    lower: int | None
    upper: int | None
    implied: bool = False
    """Of use to linear relaxations only: something else in the model demands it."""


@dataclass(frozen=True, slots=True)
class Element:
    """``target = values[sum of stride * variable]``."""

    variables: Sequence[int]
    strides: Sequence[int]
    target: int
    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class Maximum:
    """``target`` is the greatest of the terms."""

    target: int
    terms: Sequence[Sum]


@dataclass(frozen=True, slots=True)
class Multiplication:
    """``target`` is one factor times the other."""

    target: Sum
    factors: Sequence[Sum]


@dataclass(frozen=True, slots=True)
class Division:
    """``target`` is the dividend by a positive number, towards 0."""

    target: int
    dividend: Sum
    divisor: int


def added(sums: Iterable[Sum]) -> Sum:
    """All of them together."""
    constant = 0
    factors: dict[int, int] = {}
    for one in sums:
        constant += one.constant
        for variable, factor in zip(one.variables, one.factors, strict=True):
            factors[variable] = factors.get(variable, 0) + factor
    return Sum(constant, list(factors), list(factors.values()))


def scaled(one: Sum, factor: int) -> Sum:
    """So many times as much."""
    return Sum(factor * one.constant, one.variables, [factor * each for each in one.factors])


def at_least(more: Sum, less: Sum, *, implied: bool = False) -> Row:
    """That one is no less than the other."""
    apart = added((more, scaled(less, -1)))
    return Row(apart.variables, apart.factors, -apart.constant, None, implied)

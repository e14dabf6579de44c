"""The solver-neutral model: integer variables, clauses, cardinalities, linear rows, and tiers of objectives.

A *literal* is a number: ``2 * variable`` is the variable (of domain 0..1), ``2 * variable + 1`` its negation.
Variable 0 is the constant 1, so TRUE and FALSE are literals too.  Whatever a policy demands is tagged with its
constraint and row; definitions of auxiliary variables carry no tag and stay when a constraint is dropped.

What it is not: it knows neither SQL nor a solver (see ``mgmt.compiler.encoder`` and ``mgmt.optimization.backends``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mgmt.errors import OverflowError  # noqa: A004 - the published name

TRUE = 0
FALSE = 1
# Half of the 64-bit range, so that the difference of two values still fits.
LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Tag:
    """Which constraint, and which of its rows, demands something."""

    constraint: str
    row: int


@dataclass(frozen=True, slots=True)
class Linear:
    """``constant`` plus the sum of coefficient times variable."""

    constant: int
    variables: tuple[int, ...] = ()
    coefficients: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Clause:
    """At least one of the literals holds."""

    literals: tuple[int, ...]
    tag: Tag | None


@dataclass(frozen=True, slots=True)
class Cardinality:
    """At most one (or exactly one) of the literals holds, if ``enforcement`` does."""

    literals: tuple[int, ...]
    exactly: bool
    enforcement: int
    tag: Tag | None


@dataclass(frozen=True, slots=True)
class Row:
    """``lower <= linear <= upper`` if ``enforcement`` holds.  None is no bound."""

    linear: Linear
    lower: int | None
    upper: int | None
    enforcement: int
    tag: Tag | None


class OperationKind(StrEnum):
    MAXIMUM = "maximum"
    PRODUCT = "product"
    QUOTIENT = "quotient"  # truncates; the second operand is a constant other than 0
    REMAINDER = "remainder"  # has the sign of the first operand


@dataclass(frozen=True, slots=True)
class Operation:
    """``target`` equals the operation over the operands."""

    kind: OperationKind
    target: int
    operands: tuple[Linear, ...]


@dataclass(frozen=True, slots=True)
class Objective:
    """One policy's objective.  Tier 1 is optimised first; within a tier the weighted sum is."""

    name: str
    linear: Linear
    maximize: bool
    tier: int
    weight: int


_WATCHED = 4096
"""Conjunctions that are asked for, or cells, between two looks of whoever watches."""


@dataclass(slots=True)
class Problem:
    """Everything a backend needs.  Built by appending; nothing is removed."""

    lower: list[int] = field(default_factory=lambda: [1])
    upper: list[int] = field(default_factory=lambda: [1])
    clauses: list[Clause] = field(default_factory=list)
    cardinalities: list[Cardinality] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    redundant: list[Row] = field(default_factory=list)  # implied by all the others; help linear relaxations
    operations: list[Operation] = field(default_factory=list)
    objectives: list[Objective] = field(default_factory=list)
    conjunctions: dict[tuple[int, ...], int] = field(default_factory=dict)
    gates: dict[tuple[Linear, int], int] = field(default_factory=dict)
    """Per expression and literal the variable that is the one where the other holds, else 0."""
    watch: Callable[[], None] | None = None
    """Called now and then while it grows, to stop that by an error."""
    cells: int = 0
    """Variables, and what the demands and definitions say of each: what the memory that it takes goes by."""
    _thresholds: dict[tuple[object, ...], int] = field(default_factory=dict)
    _asked: int = 0
    _looked: int = 0

    # ---- variables ----------------------------------------------------------------------------------

    def new_variable(self, lower: int, upper: int) -> int:
        """A new integer variable of the given range."""
        if max(abs(lower), abs(upper)) > LIMIT:
            raise OverflowError(
                f"a value may reach {max(abs(lower), abs(upper))}, beyond exact 64-bit integers",
                hint="use a larger unit",
            )
        self.lower.append(lower)
        self.upper.append(upper)
        self._grow(1)
        return len(self.lower) - 1

    def new_booleans(self, count: int) -> int:
        """``count`` new variables of range 0..1; returns the first."""
        first = len(self.lower)
        self.lower.extend([0] * count)
        self.upper.extend([1] * count)
        self._grow(count)
        return first

    def new_literal(self) -> int:
        return 2 * self.new_booleans(1)

    def _grow(self, cells: int) -> None:
        self.cells += cells
        if self.watch is not None and self.cells - self._looked >= _WATCHED:
            self._looked = self.cells
            self.watch()

    # ---- demands ------------------------------------------------------------------------------------

    def require_any(self, literals: Iterable[int], tag: Tag | None = None) -> None:
        """At least one literal holds."""
        kept = sorted({literal for literal in literals if literal != FALSE})
        if TRUE in kept or any(literal ^ 1 in kept for literal in kept):
            return
        self.clauses.append(Clause(tuple(kept), tag))
        self._grow(len(kept))

    def require_at_most_one(
        self, literals: Sequence[int], tag: Tag | None = None, *, exactly: bool = False, when: int = TRUE
    ) -> None:
        """At most (or exactly) one literal holds, if ``when`` does."""
        kept = tuple(literal for literal in literals if literal != FALSE)
        if when != FALSE and (exactly or len(kept) > 1):
            self.cardinalities.append(Cardinality(kept, exactly, when, tag))
            self._grow(len(kept))

    def require_range(
        self,
        linear: Linear,
        lower: int | None,
        upper: int | None,
        tag: Tag | None = None,
        *,
        when: int = TRUE,
    ) -> None:
        """``lower <= linear <= upper`` if ``when`` holds."""
        low, high = self.range_of(linear)
        if when == FALSE or ((lower is None or low >= lower) and (upper is None or high <= upper)):
            return
        empty = lower is not None and upper is not None and lower > upper
        if empty or (lower is not None and high < lower) or (upper is not None and low > upper):
            self.require_any((when ^ 1,), tag)
            return
        self.rows.append(Row(linear, lower, upper, when, tag))
        self._grow(len(linear.variables))

    def imply(self, row: Row) -> None:
        """Keep a row that follows from the others, for linear relaxations."""
        self.redundant.append(row)
        self._grow(len(row.linear.variables))

    # ---- defined values -----------------------------------------------------------------------------

    def range_of(self, linear: Linear) -> tuple[int, int]:
        """Bounds from the ranges of the variables alone; exact arithmetic, OverflowError beyond 64 bits."""
        low = high = linear.constant
        lower, upper = self.lower, self.upper
        for variable, coefficient in zip(linear.variables, linear.coefficients, strict=True):
            if coefficient > 0:
                low += coefficient * lower[variable]
                high += coefficient * upper[variable]
            else:
                low += coefficient * upper[variable]
                high += coefficient * lower[variable]
        if low < -LIMIT or high > LIMIT:
            raise OverflowError(
                f"a sum may reach {max(-low, high)}, beyond exact 64-bit integers", hint="use a larger unit"
            )
        return low, high

    def literal_value(self, literal: int) -> Linear:
        """A literal as the number 0 or 1."""
        variable, negated = divmod(literal, 2)
        if variable == 0:
            return Linear(0 if negated else 1)
        return Linear(1, (variable,), (-1,)) if negated else Linear(0, (variable,), (1,))

    def conjunction(self, literals: Iterable[int]) -> int:
        """A literal that holds exactly when all of these do."""
        self._asked += 1
        if self.watch is not None and not self._asked % _WATCHED:
            self.watch()
        kept = tuple(sorted({literal for literal in literals if literal != TRUE}))
        if FALSE in kept or any(literal ^ 1 in kept for literal in kept if not literal & 1):
            return FALSE
        if not kept:
            return TRUE
        if len(kept) == 1:
            return kept[0]
        known = self.conjunctions.get(kept)
        if known is None:
            known = self.conjunctions[kept] = self.new_literal()
            for literal in kept:
                self.clauses.append(Clause((known ^ 1, literal), None))
            self.clauses.append(Clause((known, *(literal ^ 1 for literal in kept)), None))
            self._grow(3 * len(kept) + 1)
        return known

    def disjunction(self, literals: Iterable[int]) -> int:
        """A literal that holds exactly when one of these does."""
        return self.conjunction(literal ^ 1 for literal in literals) ^ 1

    def at_most(self, linear: Linear, bound: int) -> int:
        """A literal that holds exactly when ``linear <= bound``."""
        low, high = self.range_of(linear)
        if high <= bound:
            return TRUE
        if low > bound:
            return FALSE
        if len(linear.variables) == 1 and low + abs(linear.coefficients[0]) == high:
            # One boolean: it is the literal itself or its negation.
            variable = linear.variables[0]
            if self.lower[variable] == 0 and self.upper[variable] == 1:
                return 2 * variable + (1 if linear.coefficients[0] > 0 else 0)
        key = (linear.variables, linear.coefficients, bound - linear.constant)
        known = self._thresholds.get(key)
        if known is None:
            known = self._thresholds[key] = self.new_literal()
            self.rows.append(Row(linear, None, bound, known, None))
            self.rows.append(Row(linear, bound + 1, None, known ^ 1, None))
            self._grow(2 * len(linear.variables))
        return known

    def gated(self, linear: Linear, literal: int) -> Linear:
        """``linear`` where the literal holds, else 0."""
        if literal == TRUE:
            return linear
        if literal == FALSE:
            return Linear(0)
        if not linear.variables:
            return scale(self.literal_value(literal), linear.constant)
        low, high = self.range_of(linear)
        if low == 0 and high == 1 and len(linear.variables) == 1:
            return self.literal_value(self.conjunction((self.at_most(linear, 0) ^ 1, literal)))
        key = linear, literal
        variable = self.gates.get(key)
        if variable is None:
            variable = self.gates[key] = self.new_variable(min(low, 0), max(high, 0))
            difference = add(linear, Linear(0, (variable,), (-1,)))
            self.rows.append(Row(difference, 0, 0, literal, None))
            self.rows.append(Row(Linear(0, (variable,), (1,)), 0, 0, literal ^ 1, None))
            self._grow(len(difference.variables) + 1)
        return Linear(0, (variable,), (1,))

    def maximum(self, operands: Sequence[Linear]) -> Linear:
        """The greatest of the operands."""
        ranges = [self.range_of(operand) for operand in operands]
        floor = max(low for low, _ in ranges)
        kept = [operand for operand, (_, high) in zip(operands, ranges, strict=True) if high >= floor]
        kept = list(dict.fromkeys(kept))
        constants = [operand.constant for operand in kept if not operand.variables]
        kept = [operand for operand in kept if operand.variables]
        if constants:
            kept.append(Linear(max(constants)))
        if len(kept) == 1:
            return kept[0]
        ceiling = max(high for _, high in ranges)
        return self._operation(OperationKind.MAXIMUM, tuple(kept), floor, ceiling)

    def product(self, left: Linear, right: Linear) -> Linear:
        """The product of two values."""
        if not left.variables:
            return scale(right, left.constant)
        if not right.variables:
            return scale(left, right.constant)
        corners = [a * b for a in self.range_of(left) for b in self.range_of(right)]
        return self._operation(OperationKind.PRODUCT, (left, right), min(corners), max(corners))

    def quotient(self, dividend: Linear, divisor: int) -> Linear:
        """``dividend / divisor``, truncated toward zero."""
        if not dividend.variables:
            return Linear(truncate(dividend.constant, divisor))
        corners = [truncate(bound, divisor) for bound in self.range_of(dividend)]
        operands = (dividend, Linear(divisor))
        return self._operation(OperationKind.QUOTIENT, operands, min(corners), max(corners))

    def remainder(self, dividend: Linear, divisor: int) -> Linear:
        """``dividend % divisor``, with the sign of the dividend."""
        if not dividend.variables:
            return Linear(dividend.constant - divisor * truncate(dividend.constant, divisor))
        low, high = self.range_of(dividend)
        size = abs(divisor) - 1
        operands = (dividend, Linear(abs(divisor)))
        return self._operation(
            OperationKind.REMAINDER, operands, max(min(low, 0), -size), min(max(high, 0), size)
        )

    def _operation(self, kind: OperationKind, operands: tuple[Linear, ...], lower: int, upper: int) -> Linear:
        key = (kind, operands)
        variable = self._thresholds.get(key)
        if variable is None:
            variable = self._thresholds[key] = self.new_variable(lower, upper)
            self.operations.append(Operation(kind, variable, operands))
        return Linear(0, (variable,), (1,))

    # ---- views of the whole -------------------------------------------------------------------------

    @property
    def constraint_names(self) -> tuple[str, ...]:
        """Names of the constraints that demand anything, in order of first appearance."""
        tags = [part.tag for part in self.clauses]
        tags += [part.tag for part in self.cardinalities]
        tags += [part.tag for part in self.rows]
        return tuple(dict.fromkeys(tag.constraint for tag in tags if tag is not None))

    def fixed(self) -> dict[int, int]:
        """Variables whose value a demand of one literal settles, with that value."""
        settled: dict[int, int] = {}
        for clause in self.clauses:
            if len(clause.literals) == 1:
                variable, negated = divmod(clause.literals[0], 2)
                settled[variable] = 1 - negated
        return settled

    def lower_bound(self, linear: Linear, settled: Mapping[int, int]) -> int:
        """A bound no solution can go below, from ranges and settled variables (``fixed``) alone."""
        low = linear.constant
        for variable, coefficient in zip(linear.variables, linear.coefficients, strict=True):
            if variable in settled:
                low += coefficient * settled[variable]
            else:
                low += coefficient * (self.lower[variable] if coefficient > 0 else self.upper[variable])
        return low


def truncate(dividend: int, divisor: int) -> int:
    """Integer division toward zero, as SQL does it."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def scale(linear: Linear, factor: int) -> Linear:
    if factor == 0:
        return Linear(0)
    return Linear(
        linear.constant * factor,
        linear.variables,
        tuple(coefficient * factor for coefficient in linear.coefficients),
    )


def add(*parts: Linear) -> Linear:
    """The sum, with each variable once and in order."""
    constant = 0
    terms: dict[int, int] = {}
    for part in parts:
        constant += part.constant
        for variable, coefficient in zip(part.variables, part.coefficients, strict=True):
            terms[variable] = terms.get(variable, 0) + coefficient
    kept = sorted((variable, coefficient) for variable, coefficient in terms.items() if coefficient)
    return Linear(constant, tuple(v for v, _ in kept), tuple(c for _, c in kept))

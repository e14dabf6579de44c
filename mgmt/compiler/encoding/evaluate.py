"""Evaluate bound expressions, a column at a time, over the solver-neutral model.

The logic is SQL's: three-valued, NULL in arithmetic gives NULL, a comparison with NULL is UNKNOWN.  Constants
fold away, so that what is certain before the solve costs no variable.

What it is not: it demands nothing (see ``encoder``); aggregates are ``aggregates``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mgmt.compiler.encoding.columns import (
    Choices,
    Column,
    Constants,
    Numbers,
    Options,
    Truths,
    Values,
    joined_choices,
    joined_constants,
    joined_numbers,
    joined_truths,
    pairs_of,
    take,
)
from mgmt.errors import TypeMismatchError, UnsupportedConstructError
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    Arithmetic,
    Case,
    Cell,
    Coalesce,
    Comparison,
    Computed,
    ComputedKey,
    Conjunction,
    Disjunction,
    Expression,
    Extreme,
    Fetched,
    MembershipQuery,
    Negation,
    NullTest,
)
from mgmt.language.bound_queries.queries import Subquery
from mgmt.optimization.columns import (
    FALSE,
    TRUE,
    Integers,
    Linears,
    Lists,
    difference,
    filled,
    group_numbers,
    stacked,
    sum_of,
)
from mgmt.optimization.problem import Problem
from mgmt.optimization.products import FactoredProblem
from mgmt.state.schema import TEXTUAL, SqlType

_MOST_NUMBERS = 1_000  # values of a computed number that are told apart, each by a literal
_FEW_TERMS = 4
"""Of a number in each of its rows; one of more that stands in many rows becomes a variable."""


class Lazily(Sequence[Constants]):
    """Columns that are made when they are asked for."""

    def __init__(self, count: int, make: Callable[[int], Constants]) -> None:
        self._count = count
        self._make = make
        self._made: dict[int, Constants] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, slot: int) -> Constants:  # type: ignore[override]
        if slot not in self._made:
            self._made[slot] = self._make(slot)
        return self._made[slot]


@dataclass(frozen=True, slots=True)
class Rows:
    """What an expression is evaluated over: so many rows, fetched columns, cells of symbolic sources."""

    count: int
    fetched: Sequence[Constants]
    cells: Callable[[str, str], Column]
    aggregates: Callable[[Aggregate], Column]
    members: Callable[[MembershipQuery], Constants]
    subqueries: Callable[[Expression, Rows], Column]
    functions: Callable[[Computed, Rows], Column]


class Evaluator:
    """Evaluates expressions over one problem."""

    def __init__(self, problem: FactoredProblem) -> None:
        self.problem = problem
        self.values = Values()

    def column(self, expression: Expression, rows: Rows) -> Column:
        """The value of an expression in every row."""
        if isinstance(expression, Fetched):
            return rows.fetched[expression.slot]
        if isinstance(expression, Cell):
            return rows.cells(expression.source, expression.column)
        if isinstance(expression, Aggregate):
            return rows.aggregates(expression)
        if isinstance(expression, (Arithmetic, Extreme)):
            return self._arithmetic(expression, rows)
        if isinstance(expression, Case):
            return self._case(expression, rows)
        if isinstance(expression, Coalesce):
            return self._coalesce(expression, rows)
        if isinstance(expression, Subquery):
            return rows.subqueries(expression, rows)
        if isinstance(expression, ComputedKey):
            return rows.fetched[expression.place]
        if isinstance(expression, Computed):
            return rows.functions(expression, rows)
        return self.truths(expression, rows)

    # ---- truths -------------------------------------------------------------------------------------

    def truths(self, expression: Expression, rows: Rows) -> Truths:
        """A condition in every row."""
        if isinstance(expression, Conjunction):
            return self.both([self.truths(part, rows) for part in expression.operands])
        if isinstance(expression, Disjunction):
            parts = [self.truths(part, rows) for part in expression.operands]
            if not parts:
                return Truths(filled(rows.count, FALSE), filled(rows.count, TRUE))
            return self._either(parts)
        if isinstance(expression, Negation):
            operand = self.truths(expression.operand, rows)
            return Truths(operand.false, operand.true)
        if isinstance(expression, NullTest):
            return known(self.nulls(self.column(expression.operand, rows)))
        if isinstance(expression, Comparison):
            left, right = self.column(expression.left, rows), self.column(expression.right, rows)
            return self.compare(left, right, expression)
        if isinstance(expression, MembershipQuery):
            return self._membership(expression, rows)
        return self.as_truths(self.column(expression, rows), expression)

    def both(self, parts: Sequence[Truths]) -> Truths:
        """AND."""
        if len(parts) == 1:
            return parts[0]
        return Truths(
            self.problem.conjunction(*(part.true for part in parts)),
            self.problem.disjunction(*(part.false for part in parts)),
        )

    def _either(self, parts: Sequence[Truths]) -> Truths:
        found = self.both([Truths(part.false, part.true) for part in parts])
        return Truths(found.false, found.true)

    def as_truths(self, column: Column, expression: Expression) -> Truths:
        """Any column as conditions: numbers are true when they are not 0."""
        if isinstance(column, Truths):
            return column
        if isinstance(column, Constants):
            holds = column.whole(expression) != 0
            true, false = holds & ~column.null, ~holds & ~column.null
            return Truths(np.where(true, TRUE, FALSE), np.where(false, TRUE, FALSE))
        numbers = self.as_numbers(column, expression)
        zero = Numbers.plain(Linears.constant(np.zeros(len(numbers))))
        return self._compare_numbers(numbers, zero, "<>")

    # ---- comparisons --------------------------------------------------------------------------------

    def compare(self, left: Column, right: Column, expression: Comparison) -> Truths:
        """Two columns, as a comparison of this operator and these types.  TypeMismatchError for text and others."""
        plain = self._compare(left, right, expression)
        if not expression.null_safe:
            return plain
        both = self.problem.conjunction(self.nulls(left), self.nulls(right))
        if expression.operator == "=":
            return known(self.problem.disjunction(plain.true, both))
        return known(self.problem.disjunction(plain.false, both) ^ 1)

    def _compare(self, left: Column, right: Column, expression: Comparison) -> Truths:
        operator = expression.operator
        kinds = {expression.left.type, expression.right.type}
        chosen = isinstance(left, (Choices, Constants)) and isinstance(right, (Choices, Constants))
        if operator in {"=", "<>"} and chosen and not self._are_numbers(left, right):
            return self._compare_choices(left, right, operator)
        if chosen and TEXTUAL & kinds:
            if isinstance(left, Constants) and isinstance(right, Constants):
                return _compare_texts(left, right, expression)
            one, other = self._ranked(expression, left, right)
            return self._compare_numbers(one, other, operator)
        if operator in {"=", "<>"} and kinds == {SqlType.BOOLEAN}:
            truths = self.as_truths(left, expression.left), self.as_truths(right, expression.right)
            return self._compare_truths(*truths, operator)
        numbers = self.as_numbers(left, expression.left), self.as_numbers(right, expression.right)
        return self._compare_numbers(*numbers, operator)

    def _ranked(self, expression: Expression, *columns: Column) -> list[Numbers]:
        """Texts by their places in the order of all of them."""
        chosen = [self.as_choices(column, expression) for column in columns]
        codes = np.unique(np.concatenate([each.options.codes.items for each in chosen]))
        values = self.values.of(codes).values
        order = np.array(sorted(range(len(codes)), key=lambda place: values[place]), np.int64)
        ranks = np.argsort(order)
        found = []
        for each in chosen:
            options = each.options
            factors = ranks[np.searchsorted(codes, options.codes.items)]
            linears = Linears.literals(options.literals, factors).summed(options.codes.owners, len(options))
            found.append(Numbers(linears, options.null, each.index))
        return found

    def _are_numbers(self, left: Column, right: Column) -> bool:
        """Whether these are constants alone, and whole numbers."""
        return all(isinstance(one, Constants) and one.cells.dtype.kind in "iub" for one in (left, right))

    def _compare_choices(self, left: Column, right: Column, operator: str) -> Truths:
        problem = self.problem
        same, null = filled(len(left), FALSE), problem.disjunction(self.nulls(left), self.nulls(right))
        if isinstance(left, Choices) and isinstance(right, Choices):
            same = self._same_choice(left, right)
        elif isinstance(left, Constants) and isinstance(right, Constants):
            codes = self.values.codes(left), self.values.codes(right)
            same = np.where((codes[0] == codes[1]) & (codes[0] >= 0), TRUE, FALSE)
        else:
            chosen, constant = (left, right) if isinstance(left, Choices) else (right, left)
            assert isinstance(chosen, Choices)
            assert isinstance(constant, Constants)
            same = chosen.options.literal(chosen.index, self.values.codes(constant))
            same[chosen.index < 0] = FALSE
        different = np.where(null == FALSE, same ^ 1, FALSE)
        open_ = np.flatnonzero(null > FALSE)
        different[open_] = problem.conjunction(same[open_] ^ 1, null[open_] ^ 1)
        return Truths(same, different) if operator == "=" else Truths(different, same)

    def _same_choice(self, left: Choices, right: Choices) -> Integers:
        """A literal that holds exactly when two choices have the same value."""
        problem = self.problem
        indexes = left.index, right.index
        if left.options is right.options:
            indexes = np.minimum(*indexes), np.maximum(*indexes)
        (one, other), number = pairs_of(*indexes)
        same = filled(len(one), FALSE)
        rows = np.arange(len(one))
        if left.options is right.options:
            alike = one == other
            same[alike] = left.options.null[one[alike]] ^ 1
            rows = rows[~alike]
        mine, theirs = left.options.take(one[rows]), right.options.take(other[rows])
        # Exactly one value of each holds, so that none of them has to be joined with the other's.
        owners = mine.codes.owners
        others = theirs.literal(owners, mine.codes.items)
        possible = Lists(mine.codes.starts, others).any((others != FALSE) & (mine.literals != FALSE))
        kept = np.flatnonzero(possible)
        if len(kept):
            places, starts = mine.codes.places(kept)
            values = Lists(starts, mine.literals[places])
            same[rows[kept]] = problem.equality(values, others[places], mine.null[kept])
        return np.append(same, FALSE)[number]

    def _compare_truths(self, one: Truths, other: Truths, operator: str) -> Truths:
        conjunction, disjunction = self.problem.conjunction, self.problem.disjunction
        same = disjunction(conjunction(one.true, other.true), conjunction(one.false, other.false))
        different = disjunction(conjunction(one.true, other.false), conjunction(one.false, other.true))
        return Truths(same, different) if operator == "=" else Truths(different, same)

    def _compare_numbers(self, one: Numbers, other: Numbers, operator: str) -> Truths:
        """Two exact integers, by any operator."""
        (left, right), number = self.combined(one, other)
        rest = difference(left.linears, right.linears)
        holds = self.holds(rest, operator)
        null = self.problem.disjunction(left.null, right.null)
        known_ = null ^ 1
        true = self.problem.conjunction(holds, known_)
        false = self.problem.conjunction(holds ^ 1, known_)
        return Truths(np.append(true, FALSE)[number], np.append(false, FALSE)[number])

    def holds(self, rest: Linears, operator: str) -> Integers:
        """In each row a literal for "it is in this relation to 0"."""
        at_most = self.problem.at_most
        if operator in {"<=", ">"}:
            found = at_most(rest, 0)
        elif operator in {"<", ">="}:
            found = at_most(rest, -1)
        else:
            found = self.problem.equals(rest)
        return found ^ 1 if operator in {">", ">=", "<>"} else found

    def _membership(self, expression: MembershipQuery, rows: Rows) -> Truths:
        members = rows.members(expression)
        column = self.column(expression.operand, rows)
        if not len(members):
            return Truths(filled(rows.count, FALSE), filled(rows.count, TRUE))
        if isinstance(column, Choices):
            options = column.options
            count = len(options)
            codes = np.unique(self.values.codes(members))
            inside = np.isin(options.codes.items, codes)
            true = self.problem.disjunction_of(Lists(options.codes.starts, options.literals).keep(inside))
            if (codes < 0).any():
                false = filled(count, FALSE)
            else:
                false = self.problem.conjunction(true ^ 1, options.null ^ 1)
            return take_truths(Truths(true, false), column.index)
        numbers = self.as_numbers(column, expression.operand)
        values = np.unique(members.whole(expression)[~members.null])
        tests = [
            self._compare_numbers(
                Numbers(numbers.linears, numbers.null, np.arange(len(numbers.linears))),
                Numbers.plain(Linears.constant(filled(len(numbers.linears), value))),
                "=",
            )
            for value in values.tolist()
        ]
        if members.null.any():
            nothing = filled(len(numbers.linears), FALSE)
            tests.append(Truths(nothing, nothing))
        return take_truths(self._either(tests), numbers.index)

    # ---- numbers ------------------------------------------------------------------------------------

    def numbers(self, expression: Expression, rows: Rows) -> Numbers:
        """A number in every row."""
        return self.as_numbers(self.column(expression, rows), expression)

    def as_numbers(self, column: Column, expression: Expression) -> Numbers:
        """Any column as exact integers; conditions are 0 and 1.  TypeMismatchError for text and reals."""
        if isinstance(column, Numbers):
            return column
        if isinstance(column, Constants):
            values, number = np.unique(column.whole(expression), return_inverse=True)
            null = filled(len(values), FALSE)
            return Numbers(Linears.constant(values), null, np.where(column.null, -1, number))
        if isinstance(column, Truths):
            first, number = group_numbers(column.true, column.false)
            true, false = column.true[first], column.false[first]
            return Numbers(Linears.literals(true), self._unknown(true, false), number)
        options = column.options
        factors = self.values.of(options.codes.items).whole(expression)
        linears = Linears.literals(options.literals, factors).summed(options.codes.owners, len(options))
        return Numbers(linears, options.null, column.index)

    def _unknown(self, true: Integers, false: Integers) -> Integers:
        found = filled(len(true), FALSE)
        open_ = np.flatnonzero(true ^ 1 != false)
        found[open_] = self.problem.conjunction(true[open_] ^ 1, false[open_] ^ 1)
        return found

    def combined(self, *operands: Numbers) -> tuple[list[Numbers], Integers]:
        """The operands of each different combination, and each row's among these; -1 where one is NULL."""
        places, number = pairs_of(*(operand.index for operand in operands))
        found = []
        for operand, place in zip(operands, places, strict=True):
            linears = operand.linears
            wide = linears.terms.lengths > _FEW_TERMS
            if len(place) > _FEW_TERMS * len(linears) and wide.any():
                linears = self.problem.named(linears)
            found.append(Numbers.plain(linears.take(place), operand.null[place]))
        return found, number

    def _arithmetic(self, expression: Arithmetic | Extreme, rows: Rows) -> Numbers:
        operands, number = self.combined(*(self.numbers(child, rows) for child in expression.children))
        null = self.problem.disjunction(*(operand.null for operand in operands))
        linears = [operand.linears for operand in operands]
        if isinstance(expression, Extreme):
            value = self._extreme(linears, expression.greatest)
        elif expression.operator in {"+", "-"}:
            value = sum_of(linears[0], linears[1].scaled(1 if expression.operator == "+" else -1))
        elif expression.operator == "*":
            value = self.problem.product(linears[0], linears[1])
        else:
            value, zero = self._divide(linears[0], linears[1], expression.operator)
            null = self.problem.disjunction(null, zero)
        return Numbers(value, null, number)

    def _extreme(self, operands: Sequence[Linears], greatest: bool) -> Linears:
        sign = 1 if greatest else -1
        count = len(operands[0])
        owners = np.tile(np.arange(count), len(operands))
        return self.problem.maximum(stacked(operands).scaled(sign), owners, count).scaled(sign)

    def _divide(self, dividends: Linears, divisors: Linears, operator: str) -> tuple[Linears, Integers]:
        """Quotient or remainder, truncating toward zero, and the literal "the divisor is 0", where it is NULL."""
        problem, count = self.problem, len(dividends)
        constant = divisors.is_constant
        plain = np.flatnonzero(constant & (divisors.constants != 0))
        by = divisors.constants[plain]
        operate = problem.quotient if operator == "/" else problem.remainder
        value = operate(dividends.take(plain), by).summed(plain, count)
        zero = np.where(constant & (divisors.constants == 0), TRUE, FALSE)
        open_ = np.flatnonzero(~constant)
        if len(open_):
            quotient, remainder, is_zero = divide(problem, dividends.take(open_), divisors.take(open_))
            value = sum_of(value, (quotient if operator == "/" else remainder).summed(open_, count))
            zero[open_] = is_zero
        return value, zero

    # ---- CASE and COALESCE --------------------------------------------------------------------------

    def _case(self, expression: Case, rows: Rows) -> Column:
        conditions = [self.truths(condition, rows).true for condition in expression.conditions]
        return self._first(expression, conditions, (*expression.values, expression.default), rows)

    def _coalesce(self, expression: Coalesce, rows: Rows) -> Column:
        conditions = [self.nulls(self.column(part, rows)) ^ 1 for part in expression.operands]
        return self._first(expression, conditions, expression.operands, rows)

    def _first(
        self,
        expression: Expression,
        conditions: Sequence[Integers],
        values: Sequence[Expression],
        rows: Rows,
    ) -> Column:
        """In each row the value of the first condition that holds, or the last if there is one more."""
        selectors, earlier = [], [filled(rows.count, TRUE)]
        for condition in conditions:
            selectors.append(self.problem.conjunction(condition, *earlier))
            earlier.append(condition ^ 1)
        if len(values) > len(conditions):
            selectors.append(self.problem.conjunction(*earlier))
        together = self.concatenate([self.column(value, rows) for value in values], expression)
        owners = np.tile(np.arange(rows.count), len(values))
        return self.choose(together, owners, np.concatenate(selectors), rows.count, expression)

    def concatenate(self, columns: Sequence[Column], expression: Expression) -> Column:
        """The cells of several columns as one column of a kind that holds them all."""
        constants = [column for column in columns if isinstance(column, Constants)]
        if len(constants) == len(columns):
            return joined_constants(constants)
        if expression.type is SqlType.BOOLEAN:
            return joined_truths([self.as_truths(column, expression) for column in columns])
        if all(isinstance(column, (Constants, Choices)) for column in columns):
            return joined_choices([self.as_choices(column, expression) for column in columns])
        return joined_numbers([self.as_numbers(column, expression) for column in columns])

    def values_of(self, column: Column, expression: Expression) -> tuple[Integers, Integers, Integers]:
        """The values that cells may have: of which cell, which, and the literal "it has it"; NULL has none."""
        choices = self.as_choices(column, expression)
        there = np.flatnonzero(choices.index >= 0)
        entries = choices.options.take(choices.index[there])
        return there[entries.codes.owners], entries.codes.items, entries.literals

    def as_choices(self, column: Column, expression: Expression) -> Choices:
        """Any column as choices of the values that it may have; a constant is one that is always the same."""
        if isinstance(column, Choices):
            return column
        if isinstance(column, Numbers):
            return self._numbers_as_choices(column, expression)
        if isinstance(column, Truths):
            first, number = group_numbers(column.true, column.false)
            true, false, count = column.true[first], column.false[first], len(first)
            codes = np.repeat([self.values.code(True), self.values.code(False)], count)
            owners, literals = np.tile(np.arange(count), 2), np.concatenate((true, false))
            return Choices(Options.sorted(owners, codes, literals, self._unknown(true, false)), number)
        codes, number = np.unique(self.values.codes(column)[~column.null], return_inverse=True)
        count = len(codes)
        place = filled(len(column.null), -1)
        place[~column.null] = number
        options = Options(Lists(np.arange(count + 1), codes), filled(count, TRUE), filled(count, FALSE))
        return Choices(options, place)

    def _numbers_as_choices(self, column: Numbers, expression: Expression) -> Choices:
        problem = self.problem
        low, high = problem.ranges(column.linears)
        widest = int((high / 2 - low / 2).argmax()) if len(low) else 0
        if len(low) and int(high[widest]) - int(low[widest]) >= _MOST_NUMBERS:
            what = expression.function if isinstance(expression, Aggregate) else "what is computed"
            raise UnsupportedConstructError(
                f"cannot be encoded: {what} of a number between {low[widest]} and {high[widest]}",
                position=expression.position,
                hint=f"at most {_MOST_NUMBERS} values are told apart: bound it closer, or divide",
            )
        which = np.repeat(np.arange(len(low)), high - low + 1)
        starts = np.concatenate(([0], np.cumsum(high - low + 1)))
        numbers = np.arange(starts[-1]) - starts[which] + low[which]
        spread = column.linears.take(which)
        literals = problem.conjunction(problem.equals(spread, numbers), column.null[which] ^ 1)
        codes = self.values.codes(Constants.of(numbers))
        return Choices(Options.sorted(which, codes, literals, column.null), column.index)

    def choose(
        self, column: Column, owners: Integers, selectors: Integers, count: int, expression: Expression
    ) -> Column:
        """For each of ``count`` results the cell, out of those that it owns, whose selector holds; at most one does."""
        kept = np.flatnonzero(selectors != FALSE)
        if isinstance(column, Truths) or expression.type is SqlType.BOOLEAN:
            truths = take_truths(self.as_truths(column, expression), kept)
            return Truths(
                *(
                    self._any(self.problem.conjunction(selectors[kept], literals), owners[kept], count)
                    for literals in (truths.true, truths.false)
                )
            )
        chosen = take(column, kept)
        owners, selectors = owners[kept], selectors[kept]
        if isinstance(chosen, (Constants, Choices)) and (
            expression.type in TEXTUAL or self._is_textual(chosen)
        ):
            return self._choose_option(self.as_choices(chosen, expression), owners, selectors, count)
        numbers = self.as_numbers(chosen, expression)
        there = np.flatnonzero(numbers.index >= 0)
        index, selectors, owners = numbers.index[there], selectors[there], owners[there]
        alone = np.bincount(owners, minlength=count)[owners] == 1  # elsewhere it is NULL, whatever its value
        gate = np.where(alone, TRUE, selectors)
        value = self.problem.gated(numbers.linears.take(index), gate).summed(owners, count)
        present = self.problem.conjunction(selectors, numbers.null[index] ^ 1)
        return Numbers.plain(value, self._any(present, owners, count) ^ 1)

    def _any(self, literals: Integers, owners: Integers, count: int) -> Integers:
        return self.problem.disjunction_of(Lists.grouped(owners, literals, count))

    def _choose_option(self, column: Choices, owners: Integers, selectors: Integers, count: int) -> Choices:
        there = np.flatnonzero(column.index >= 0)
        entries = column.options.take(column.index[there])
        place = entries.codes.owners
        literals = self.problem.conjunction(selectors[there][place], entries.literals)
        return Choices(
            self.options_of(owners[there][place], entries.codes.items, literals, count), np.arange(count)
        )

    def options_of(self, owners: Integers, codes: Integers, literals: Integers, count: int) -> Options:
        """Choices that take a value where one of its literals holds, of which no two ever do; else NULL."""
        possible = np.flatnonzero(literals != FALSE)
        owners, codes, literals = owners[possible], codes[possible], literals[possible]
        first, number = group_numbers(owners, codes)
        found = self.problem.one_of(Lists.grouped(number, literals, len(first)))
        null = self.problem.conjunction_of(Lists.grouped(owners[first], found ^ 1, count))
        return Options.sorted(owners[first], codes[first], found, null)

    def nulls(self, column: Column) -> Integers:
        """A literal for "is NULL" in every row."""
        if isinstance(column, Constants):
            return np.where(column.null, TRUE, FALSE)
        if isinstance(column, Choices):
            return np.append(column.options.null, TRUE)[column.index]
        if isinstance(column, Truths):
            return self._unknown(column.true, column.false)
        return column.nulls

    def _is_textual(self, column: Constants | Choices) -> bool:
        if isinstance(column, Constants):
            return column.is_text
        return self.values.of(np.unique(column.options.codes.items)).is_text


def known(literals: Integers) -> Truths:
    """Truths that are never UNKNOWN."""
    return Truths(literals, literals ^ 1)


def take_truths(truths: Truths, rows: Integers) -> Truths:
    found = take(truths, rows)
    assert isinstance(found, Truths)
    return found


def divide(problem: Problem, dividends: Linears, divisors: Linears) -> tuple[Linears, Linears, Integers]:
    """Quotient, remainder (with the sign of the dividend), and the literal "the divisor is 0".

    Defined by ``dividend = quotient * size + remainder`` and ``|remainder| < size``, where size is the absolute
    value of the divisor, or 1 where that is 0.  Exact; OverflowError when a product may leave 64 bits.
    """
    count = len(dividends)
    positive = problem.at_most(divisors, 0) ^ 1
    negative = problem.at_most(divisors, -1)
    sizes = stacked([divisors, divisors.scaled(-1), Linears.constant(filled(count, 1))])
    size = problem.maximum(sizes, np.tile(np.arange(count), 3), count)
    low, high = problem.ranges(dividends)
    most = np.maximum(np.abs(low), np.abs(high))
    bound = np.minimum(most, problem.ranges(size)[1] - 1)
    below_zero = problem.at_most(dividends, -1)  # older than what it is a condition of, not defined by it
    quotient = Linears.single(problem.new_variables(-most, most))
    remainder = Linears.single(problem.new_variables(-bound, bound))
    product = problem.product(quotient, size)
    problem.require_range(sum_of(product, remainder, dividends.scaled(-1)), 0, 0)
    problem.require_range(remainder, 0, None, when=below_zero ^ 1)
    problem.require_range(remainder, None, 0, when=below_zero)
    problem.require_range(difference(remainder, size), None, -1)
    problem.require_range(sum_of(remainder, size).scaled(-1), None, -1)
    signed = difference(problem.gated(quotient, positive), problem.gated(quotient, negative))
    return signed, remainder, problem.conjunction(positive ^ 1, negative ^ 1)


def _compare_texts(left: Constants, right: Constants, expression: Comparison) -> Truths:
    """Constants that the database left to be compared here."""
    pairs = list(zip(left.values, right.values, strict=True))
    for one, other in pairs:
        if one is not None and other is not None and isinstance(one, str) != isinstance(other, str):
            raise TypeMismatchError(
                f"{expression.operator} compares {one!r} with {other!r}",
                position=expression.position,
                hint="compare values of one type",
            )
    signs = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (1, 0), "=": (0,), "<>": (-1, 1)}
    wanted = signs[expression.operator]
    found = [None if a is None or b is None else ((a > b) - (a < b)) in wanted for a, b in pairs]
    return Truths(
        np.array([TRUE if each is True else FALSE for each in found], np.int64),
        np.array([TRUE if each is False else FALSE for each in found], np.int64),
    )

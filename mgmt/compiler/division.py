"""Division by what the solver decides: quotient and remainder, truncating toward zero; by zero it is NULL."""

from __future__ import annotations

from mgmt.optimization.problem import Linear, Problem, add, scale


def divide(problem: Problem, dividend: Linear, divisor: Linear) -> tuple[Linear, Linear, int]:
    """Quotient, remainder (with the sign of the dividend), and the literal "the divisor is 0".

    Defined by ``dividend = quotient * size + remainder`` and ``|remainder| < size``, where size is the absolute
    value of the divisor, or 1 where that is 0.  Exact; OverflowError when a product may leave 64 bits.
    """
    positive = problem.at_most(divisor, 0) ^ 1
    negative = problem.at_most(divisor, -1)
    size = problem.maximum([divisor, scale(divisor, -1), Linear(1)])
    low, high = problem.range_of(dividend)
    most = max(abs(low), abs(high))
    bound = min(most, problem.range_of(size)[1] - 1)
    quotient = Linear(0, (problem.new_variable(-most, most),), (1,))
    remainder = Linear(0, (problem.new_variable(-bound, bound),), (1,))
    product = problem.product(quotient, size)
    problem.require_range(add(product, remainder, scale(dividend, -1)), 0, 0)
    below_zero = problem.at_most(dividend, -1)
    problem.require_range(remainder, 0, None, when=below_zero ^ 1)
    problem.require_range(remainder, None, 0, when=below_zero)
    problem.require_range(add(remainder, scale(size, -1)), None, -1)
    problem.require_range(add(scale(remainder, -1), scale(size, -1)), None, -1)
    signed = add(problem.gated(quotient, positive), scale(problem.gated(quotient, negative), -1))
    return signed, remainder, problem.conjunction((positive ^ 1, negative ^ 1))

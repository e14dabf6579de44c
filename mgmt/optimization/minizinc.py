"""A problem as MiniZinc text, to be given to other solvers or to a reader.

MiniZinc has one objective: the text minimises one tier, with what the tiers before it have reached as constraints.

What it is not: nothing here runs MiniZinc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mgmt.optimization.optimize import tier_objectives
from mgmt.optimization.problem import TRUE, Linear, Operation, OperationKind, Problem, Tag


def minizinc(problem: Problem, *, tier: int | None = None, reached: Mapping[int, int] | None = None) -> str:
    """The text for one tier, the first one if none is named; ``reached`` are the values of others, by tier."""
    tiers = tier_objectives(problem)
    lines = [
        f"var {lower}..{upper}: x{variable};"
        for variable, (lower, upper) in enumerate(zip(problem.lower, problem.upper, strict=True))
        if variable
    ]
    lines += _demands(problem)
    for other, value in sorted((reached or {}).items()):
        lines.append(f"constraint {_linear(tiers[other])} <= {value}; % tier {other}")
    chosen = min(tiers, default=None) if tier is None else tier
    lines.append("solve satisfy;" if chosen is None else f"solve minimize {_linear(tiers[chosen])};")
    return "\n".join(lines) + "\n"


def _demands(problem: Problem) -> Iterator[str]:
    for clause in problem.clauses:
        yield _constraint(f"{_sum_of(clause.literals)} >= 1", TRUE, clause.tag)
    for cardinality in problem.cardinalities:
        relation = "=" if cardinality.exactly else "<="
        text = f"{_sum_of(cardinality.literals)} {relation} 1"
        yield _constraint(text, cardinality.enforcement, cardinality.tag)
    for row in problem.rows:
        linear = _linear(row.linear)
        if row.lower is not None and row.lower == row.upper:
            yield _constraint(f"{linear} = {row.lower}", row.enforcement, row.tag)
            continue
        if row.lower is not None:
            yield _constraint(f"{linear} >= {row.lower}", row.enforcement, row.tag)
        if row.upper is not None:
            yield _constraint(f"{linear} <= {row.upper}", row.enforcement, row.tag)
    for operation in problem.operations:
        yield _constraint(f"x{operation.target} = {_operation(operation)}", TRUE, None)


def _constraint(text: str, condition: int, tag: Tag | None) -> str:
    guard = "" if condition == TRUE else f"{_literal(condition)} = 1 -> "
    note = "" if tag is None else f" % {' '.join(tag.constraint.split())}, row {tag.row}"
    return f"constraint {guard}{text};{note}"


def _operation(operation: Operation) -> str:
    operands = [_linear(operand) for operand in operation.operands]
    if operation.kind is OperationKind.MAXIMUM:
        return f"max([{', '.join(operands)}])"
    # MiniZinc's div truncates and its mod has the sign of the first operand, as ours.
    sign = {OperationKind.PRODUCT: "*", OperationKind.QUOTIENT: "div", OperationKind.REMAINDER: "mod"}
    return f"({operands[0]}) {sign[operation.kind]} ({operands[1]})"


def _literal(literal: int) -> str:
    variable, negated = divmod(literal, 2)
    if not variable:
        return "0" if negated else "1"
    return f"(1 - x{variable})" if negated else f"x{variable}"


def _sum_of(literals: tuple[int, ...]) -> str:
    return " + ".join(map(_literal, literals)) or "0"


def _linear(linear: Linear) -> str:
    text = ""
    for variable, coefficient in zip(linear.variables, linear.coefficients, strict=True):
        name = f"x{variable}" if variable else "1"
        size = name if abs(coefficient) == 1 else f"{abs(coefficient)} * {name}"
        text += (" - " if coefficient < 0 else " + ") + size
    if linear.constant or not text:
        text += f" {'-' if linear.constant < 0 else '+'} {abs(linear.constant)}"
    return text.removeprefix(" + ") if not text.startswith(" - ") else f"-{text.removeprefix(' - ')}"

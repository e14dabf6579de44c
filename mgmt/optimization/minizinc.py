"""A problem as MiniZinc text, to be given to other solvers or to a reader.

MiniZinc has one objective: the text minimises one tier, with what the tiers before it have reached as constraints.

What it is not: nothing here runs MiniZinc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mgmt.optimization.columns import TRUE, Linear
from mgmt.optimization.optimize import tier_objectives
from mgmt.optimization.problem import NO_BOUND, LiteralRows, OperationKind, Problem, Relation, Rows, Tag


def minizinc(problem: Problem, *, tier: int | None = None, reached: Mapping[int, int] | None = None) -> str:
    """The text for one tier, the first one if none is named; ``reached`` are the values of others, by tier."""
    tiers = tier_objectives(problem)
    lines = [
        f"var {lower}..{upper}: x{variable};"
        for variable, (lower, upper) in enumerate(
            zip(problem.lower.tolist(), problem.upper.tolist(), strict=True)
        )
        if variable
    ]
    lines += _demands(problem)
    for other, value in sorted((reached or {}).items()):
        lines.append(f"constraint {_linear(tiers[other])} <= {value}; % tier {other}")
    chosen = min(tiers, default=None) if tier is None else tier
    lines.append("solve satisfy;" if chosen is None else f"solve minimize {_linear(tiers[chosen])};")
    return "\n".join(lines) + "\n"


def _demands(problem: Problem) -> Iterator[str]:
    for definition in problem.conjunctions:
        for row, target in enumerate(definition.targets.tolist()):
            literals = [_literal(literal) for literal in definition.literals.row(row).tolist()]
            yield _constraint(f"{_literal(target)} = min([{', '.join(literals)}])", TRUE, None)
    for block in problem.rows:
        for row, condition in enumerate(block.enforcement.tolist()):
            tag = None if block.source is None else Tag(block.source.constraint, int(block.source.rows[row]))
            for text in _texts(block, row):
                yield _constraint(text, condition, tag)
    for operations in problem.operations:
        bounds = operations.starts.tolist()
        for target, first, last in zip(operations.targets.tolist(), bounds[:-1], bounds[1:], strict=True):
            operands = [_linear(operations.operands.row(place)) for place in range(first, last)]
            yield _constraint(f"x{target} = {_operation(operations.kind, operands)}", TRUE, None)


def _texts(block: Rows, row: int) -> Iterator[str]:
    """What a row of a block demands."""
    if isinstance(block, LiteralRows):
        relation = {Relation.AT_LEAST_ONE: ">=", Relation.AT_MOST_ONE: "<=", Relation.EXACTLY_ONE: "="}
        yield f"{_sum_of(block.literals.row(row).tolist())} {relation[block.relation]} 1"
        return
    linear, lower, upper = _linear(block.linears.row(row)), int(block.lower[row]), int(block.upper[row])
    if lower == upper:
        yield f"{linear} = {lower}"
        return
    if lower > -NO_BOUND:
        yield f"{linear} >= {lower}"
    if upper < NO_BOUND:
        yield f"{linear} <= {upper}"


def _constraint(text: str, condition: int, tag: Tag | None) -> str:
    guard = "" if condition == TRUE else f"{_literal(condition)} = 1 -> "
    note = "" if tag is None else f" % {' '.join(tag.constraint.split())}, row {tag.row}"
    return f"constraint {guard}{text};{note}"


def _operation(kind: OperationKind, operands: list[str]) -> str:
    if kind is OperationKind.MAXIMUM:
        return f"max([{', '.join(operands)}])"
    # MiniZinc's div truncates and its mod has the sign of the first operand, as ours.
    sign = {OperationKind.PRODUCT: "*", OperationKind.QUOTIENT: "div", OperationKind.REMAINDER: "mod"}
    return f"({operands[0]}) {sign[kind]} ({operands[1]})"


def _literal(literal: int) -> str:
    variable, negated = divmod(literal, 2)
    if not variable:
        return "0" if negated else "1"
    return f"(1 - x{variable})" if negated else f"x{variable}"


def _sum_of(literals: list[int]) -> str:
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

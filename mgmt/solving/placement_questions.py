"""Questions about a placement as it is: why, why not, what if; and their answers in words.

Values, and the way from a compiled model to an answer.  What explains is loaded on first use, in the solver's process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mgmt.placement.placement_rows import PlacementState

if TYPE_CHECKING:
    from mgmt.compiler.model import Model
    from mgmt.explaining.solutions.what_if import WhatIf
    from mgmt.explaining.solutions.why import WhyNot

MOST_COPIES = 8
"""Copies of one host that are explained; each takes a solve of its own."""
MOST_CHANGES = 200
"""Decisions of a what-if that are listed."""


@dataclass(frozen=True, slots=True)
class Question:
    """``kind``: ``why`` (of a segment or a host), ``why-not`` (a segment on a host), ``what-if`` (after SQL),
    ``relaxations`` (what would help, if no placement satisfies the rules)."""

    kind: str
    segment: str = ""
    host: str = ""
    sql: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """``possible``: whether what was asked about can be; ``error``: why there is no answer, empty if there is one;
    ``malformed``: it is the question's own fault."""

    lines: tuple[str, ...] = ()
    possible: bool = True
    error: str = ""
    malformed: bool = False

    def to_json(self) -> dict[str, Any]:
        """The answer for programs; a malformed question is an error of its own there."""
        return {"lines": list(self.lines), "possible": self.possible, "error": self.error}


def explain(model: Model, state: PlacementState, question: Question, budget: float, seed: int) -> Explanation:
    """Ask the model, whose database holds ``state``.  Each solve it takes may use ``budget`` seconds.

    Raises PolicyError.
    """
    match question:
        case Question("why", segment=segment) if segment:
            keys = [(row.segment, row.slot) for row in state.replicas if row.segment == segment]
            return _why(model, [("replica", key, "host") for key in keys], budget, seed)
        case Question("why", host=host):
            return _why_host(model, state, host, budget, seed)
        case Question("why-not", segment=segment, host=host):
            return _why_not(model, state, segment, host, budget, seed)
        case Question("relaxations"):
            return _relaxations(model, budget, seed)
        case _:
            return _what_if(model, question.sql, budget, seed)


def _why(
    model: Model, decisions: list[tuple[str, tuple[str | int, ...], str]], budget: float, seed: int
) -> Explanation:
    from mgmt.explaining.solutions.why import why

    lines: list[str] = []
    for table, key, column in decisions:
        lines += map(str, why(model, table, key, column, budget=budget, seed=seed))
    return Explanation(tuple(lines))


def _why_host(model: Model, state: PlacementState, host: str, budget: float, seed: int) -> Explanation:
    held = [(row.segment, row.slot) for row in state.replicas if row.host == host]
    asked: list[tuple[str, tuple[str | int, ...], str]] = [
        ("host", (host,), role) for role in ("layout_server", "sequencer")
    ]
    asked += [("replica", key, "host") for key in held[:MOST_COPIES]]
    found = _why(model, asked, budget, seed)
    more = len(held) - MOST_COPIES
    further = (f"and {more} more copies; ask for their segments",) if more > 0 else ()
    return Explanation((*found.lines, *further) if held else (*found.lines, f"{host} holds no copy"))


def _why_not(
    model: Model, state: PlacementState, segment: str, host: str, budget: float, seed: int
) -> Explanation:
    """Whichever copy it takes least to have there is told of."""
    from mgmt.explaining.solutions.why import why_not

    rows = [row for row in state.replicas if row.segment == segment]
    here = [row for row in rows if row.host == host]
    answers = [
        why_not(model, "replica", (segment, row.slot), host, "host", budget=budget, seed=seed)
        for row in here or rows
    ]
    best = min(answers, key=_cost)
    return Explanation((str(best),), best.possible)


def _cost(answer: WhyNot) -> tuple[bool, bool, int, int]:
    """Possible before impossible, ties first, then by the tier and how much worse it gets there."""
    if answer.difference is None:
        return True, True, 0, len(answer.core)
    tier = answer.difference.decisive_tier
    worse = sum(change.worse_by for change in answer.difference.decisive)
    return False, not answer.tie, -(tier or 0), worse


def _relaxations(model: Model, budget: float, seed: int) -> Explanation:
    """The smallest changes that would help, a line for each; none where there is a placement."""
    from mgmt.errors import InfeasibleError

    try:
        model.solve(budget=budget, seed=seed)
    except InfeasibleError as error:
        return Explanation(tuple(relaxation.text for relaxation in error.relaxations), possible=False)
    return Explanation()


def _what_if(model: Model, sql: str, budget: float, seed: int) -> Explanation:
    from mgmt.errors import DataError, InfeasibleError, PolicySyntaxError
    from mgmt.explaining.solutions.what_if import what_if

    try:
        answer = what_if(model, sql, budget=budget, seed=seed)
    except (DataError, PolicySyntaxError) as error:
        # The policies are compiled and the state is what a plan was made of: it is the statements.
        return Explanation(error=str(error), malformed=True)
    if isinstance(answer.after, InfeasibleError):
        clash = ", ".join(map(str, answer.after.core))
        helping = [f"it would help to {relaxation.text}" for relaxation in answer.after.relaxations]
        return Explanation((f"then no placement satisfies {clash}", *helping), possible=False)
    return Explanation(tuple(_changes(answer)))


def _changes(answer: WhatIf) -> list[str]:
    difference = answer.difference
    if difference is None:
        return ["then there is a placement; as things are there is none"]
    changes = [
        f"{change.decision}: {change.decision.variable} {change.one} -> {change.other}"
        for change in difference.decisions
    ]
    more = len(changes) - MOST_CHANGES
    lines = [*changes[:MOST_CHANGES], *([f"and {more} more"] if more > 0 else [])]
    lines += map(str, difference.objectives)
    return lines or ["nothing would change"]

"""Questions about a placement as it is: why, why not, what if; and their answers in words.

Values, and the way from a compiled model to an answer.  What explains is loaded on first use, in the solver's process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mgmt.placement.placement_rows import PlacementState

if TYPE_CHECKING:
    from mgmt.compiler.model import Model
    from mgmt.errors import InfeasibleError
    from mgmt.explaining.solutions.decisions import Decision
    from mgmt.explaining.solutions.difference import Difference
    from mgmt.explaining.solutions.why import Verdict, WhyNot

MOST_COPIES = 8
"""Copies of one host that are explained; each takes a solve of its own."""
MOST_LINES = 40
"""Lines of moves."""
MOST_NAMED = 6
"""Segments named in one of them."""
MOST_REQUESTS = 8
"""Drains and pins that are tried without, where no placement is possible."""


@dataclass(frozen=True, slots=True)
class Question:
    """``kind``: ``why`` (of a segment or a host), ``why-not`` (a segment on a host), ``what-if`` (after SQL),
    ``relaxations`` (what would help, if no placement satisfies the rules; ``host``: not to take its drain back)."""

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
    """Ask the model, whose database holds ``state``.  The answer takes ``budget`` seconds at most.

    Raises PolicyError.
    """
    match question:
        case Question("why", segment=segment) if segment:
            copies = [_copy(segment, row.slot) for row in state.replicas if row.segment == segment]
            return _why(model, copies, budget, seed)
        case Question("why", host=host):
            return _why_host(model, state, host, budget, seed)
        case Question("why-not", segment=segment, host=host):
            return _why_not(model, state, segment, host, budget, seed)
        case Question("relaxations"):
            return _relaxations(model, state, question.host, budget, seed)
        case _:
            return _what_if(model, state, question.sql, budget, seed)


def _why(model: Model, decisions: Sequence[Decision], budget: float, seed: int) -> Explanation:
    from mgmt.explaining.solutions.why import why_each

    return Explanation(tuple(map(_told, why_each(model, decisions, budget=budget, seed=seed))))


def _why_host(model: Model, state: PlacementState, host: str, budget: float, seed: int) -> Explanation:
    from mgmt.explaining.solutions.decisions import Decision

    held = [(row.segment, row.slot) for row in state.replicas if row.host == host]
    asked = [Decision("host", (host,), f"controllable__{role}") for role in ("layout_server", "sequencer")]
    asked += [_copy(*key) for key in held[:MOST_COPIES]]
    found = _why(model, asked, budget, seed)
    more = len(held) - MOST_COPIES
    further = (f"and {more} more copies; ask for their segments",) if more > 0 else ()
    return Explanation((*found.lines, *further) if held else (*found.lines, f"{host} holds no copy"))


def _why_not(
    model: Model, state: PlacementState, segment: str, host: str, budget: float, seed: int
) -> Explanation:
    """Whichever copy it takes least to have there is told of."""
    from mgmt.explaining.solutions.why import why_not_each

    rows = [row for row in state.replicas if row.segment == segment]
    here = [row for row in rows if row.host == host]
    copies = [_copy(segment, row.slot) for row in here or rows]
    best = min(why_not_each(model, copies, host, budget=budget, seed=seed), key=_cost)
    lines = [_told(best), *_moves(best.consequences)]
    if best.relaxations:
        lines += [f"it would help to {relaxation.text}" for relaxation in best.relaxations]
    return Explanation(tuple(lines), best.possible)


def _copy(segment: str, slot: int) -> Decision:
    from mgmt.explaining.solutions.decisions import Decision

    return Decision("replica", (segment, slot), "controllable__host")


def _told(verdict: Verdict) -> str:
    """The answer in the words of a cluster: copies of segments have no numbers there."""
    name = str(verdict.decision.primary_key[0])
    return verdict.sentence(f"a copy of {name}" if verdict.decision.table == "replica" else name)


def _moves(difference: Difference) -> list[str]:
    """What moves with it, all that goes from one host to another one in one line."""
    from mgmt.explaining.solutions.difference import shown

    lines = []
    for changes in difference.alike:
        names = [str(change.decision.primary_key[0]) for change in changes]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        column = changes[0].decision.column
        what = "" if column == "host" else f"{column} "
        lines.append(
            f"{what}{shown(changes[0].one)} -> {shown(changes[0].other)}: {', '.join(names[:MOST_NAMED])}{more}"
        )
    left = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"and {left} more such lines"] if left > 0 else [])]


def _cost(answer: WhyNot) -> tuple[bool, bool, int, int]:
    """Possible before impossible, ties first, then by the tier and how much worse it gets there."""
    if answer.difference is None:
        return True, True, 0, len(answer.core)
    tier = answer.difference.decisive_tier
    worse = sum(change.worse_by for change in answer.difference.decisive)
    return False, not answer.tie, -(tier or 0), worse


def _relaxations(model: Model, state: PlacementState, asked: str, budget: float, seed: int) -> Explanation:
    """The smallest changes that would help, a line for each; none where there is a placement."""
    from mgmt.errors import InfeasibleError

    deadline = time.monotonic() + budget
    try:
        model.solve(budget=budget, seed=seed)
    except InfeasibleError as error:
        return Explanation(tuple(_helping(model, state, error, deadline, seed, asked)), possible=False)
    return Explanation()


def _helping(
    model: Model, state: PlacementState, error: InfeasibleError, deadline: float, seed: int, asked: str = ""
) -> list[str]:
    """What would help: first what operators have asked for and can take back, but for the drain that is asked for."""
    found: list[str] = []
    requests = [*_drains(state, asked), *_pins(state)]
    for (statement, text), left in zip(
        requests, range(min(len(requests), MOST_REQUESTS), 0, -1), strict=False
    ):
        without = model.database.clone()
        without.execute(statement)
        seconds = (deadline - time.monotonic()) / (left + 1)
        if seconds > 0 and model.revised(database=without).satisfiable(seconds, seed):
            found.append(text)
    further = error.relaxations_within(deadline - time.monotonic())
    return [*found, *(relaxation.text for relaxation in further)]


def _drains(state: PlacementState, asked: str) -> Iterator[tuple[str, str]]:
    from mgmt.state.schema import literal

    for row in state.hosts:
        if row.drained and row.alive and row.name != asked:
            yield (
                f"UPDATE host SET drained = FALSE WHERE name = {literal(row.name)}",
                f"let {row.name} be used again (`rota undrain {row.name}`)",
            )


def _pins(state: PlacementState) -> Iterator[tuple[str, str]]:
    from mgmt.state.schema import literal

    for pin in state.pins:
        yield (
            f"DELETE FROM pin WHERE segment = {literal(pin.segment)} AND host = {literal(pin.host)}",
            f"let {pin.segment} leave {pin.host} (`rota unpin {pin.segment} {pin.host}`)",
        )


def _what_if(model: Model, state: PlacementState, sql: str, budget: float, seed: int) -> Explanation:
    from mgmt.errors import DataError, InfeasibleError, PolicySyntaxError
    from mgmt.explaining.solutions.what_if import what_if

    deadline = time.monotonic() + budget
    try:
        answer = what_if(model, sql, budget=budget, seed=seed)
    except (DataError, PolicySyntaxError) as error:
        # The policies are compiled and the state is what a plan was made of: it is the statements.
        return Explanation(error=str(error), malformed=True)
    if isinstance(answer.after, InfeasibleError):
        helping = _helping(answer.then, state, answer.after, deadline, seed)
        return Explanation((str(answer), *(f"it would help to {each}" for each in helping)), possible=False)
    difference = answer.difference
    return Explanation((str(answer), *(_moves(difference) if difference else ())))

"""Is there one order of all operations that explains every answer?

A decision, per register, whether a history is linearizable: whether each operation can be given a moment between its
call and its answer so that, one after the other, they give just the answers that clients got. Registers are judged
one by one, since a history is linearizable when each object's part of it is (locality). An operation without an
answer may have happened or not.
Source: M. Herlihy and J. Wing, *Linearizability*, 1990, section 3 (definition, locality); J. Wing and C. Gong, *Testing
and Verifying Concurrent Objects*, 1993 (the search); G. Lowe, *Testing for Linearizability*, 2017, section 3 (not
visiting the same pair of what has happened and what the register holds twice).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from chaos.checkers.history import Kind, Operation


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A register whose answers no order explains."""

    key: str
    operations: tuple[Operation, ...]
    """The shortest beginning of its history, by time of answer, that has no order; by time of call."""

    def __str__(self) -> str:
        lines = "".join(f"\n  {operation}" for operation in self.operations)
        return f"no order of these operations on {self.key!r} gives the answers that clients got:{lines}"


def contradictions(history: Iterable[Operation], initial: Any = None) -> list[Contradiction]:
    """The registers of a history that are not linearizable, in order of their names; `initial`: what each held.

    Values must be hashable. The work grows with the number of operations, and doubles with each more that overlap on
    one register: ten clients are no trouble, twenty that write the same register at once are.
    """
    registers: dict[str, list[Operation]] = {}
    for operation in history:
        registers.setdefault(operation.key, []).append(operation)
    found = []
    for key, operations in sorted(registers.items()):
        told = [operation for operation in operations if _tells(operation)]
        if not is_linearizable(told, initial):
            found.append(Contradiction(key, _shortest(told, initial)))
    return found


def is_linearizable(operations: Iterable[Operation], initial: Any = None) -> bool:
    """Whether the operations on one register have an order that explains them; `initial`: what it held before."""
    ordered = sorted((operation for operation in operations if _tells(operation)), key=_by_call)
    must = sum(1 << place for place, operation in enumerate(ordered) if not operation.is_open)
    seen: set[tuple[int, Hashable]] = {(0, initial)}
    undecided = [(0, initial)]
    while undecided:
        happened, value = undecided.pop()
        if happened & must == must:
            return True
        for place in _possible_next(ordered, happened):
            possible, next_value = ordered[place].after(value)
            state = (happened | 1 << place, next_value)
            if possible and state not in seen:
                seen.add(state)
                undecided.append(state)
    return False


def _possible_next(ordered: Sequence[Operation], happened: int) -> list[int]:
    """Which operation may come next: one called before any that has not happened yet was answered."""
    first_answer = inf
    found = []
    first = (~happened & (happened + 1)).bit_length() - 1
    for place in range(first, len(ordered)):
        operation = ordered[place]
        if operation.invoked > first_answer:  # so its answer is no earlier either
            break
        if not happened >> place & 1:
            found.append(place)
            first_answer = min(first_answer, operation.completed)
    # Sorted by call, so what was called after the first answer is at the end.
    while found and ordered[found[-1]].invoked > first_answer:
        found.pop()
    return found


def _shortest(operations: Sequence[Operation], initial: Any) -> tuple[Operation, ...]:
    """The operations up to the first answer that cannot be explained; those answered later count as open."""
    answers = sorted(operation.completed for operation in operations if not operation.is_open)
    low, high = 0, len(answers) - 1
    while low < high:
        middle = (low + high) // 2
        if is_linearizable(_until(operations, answers[middle]), initial):
            low = middle + 1
        else:
            high = middle
    return tuple(sorted(_until(operations, answers[low]), key=_by_call))


def _until(operations: Iterable[Operation], moment: float) -> list[Operation]:
    """What was known at a moment: operations called by then, without the answers that came later."""
    known = []
    for operation in operations:
        if operation.completed <= moment:
            known.append(operation)
        elif operation.invoked <= moment and operation.kind is not Kind.READ:
            known.append(replace(operation, completed=inf, succeeded=True))
    return known


def _tells(operation: Operation) -> bool:
    """A read without an answer tells nothing and changes nothing."""
    return not (operation.is_open and operation.kind is Kind.READ)


def _by_call(operation: Operation) -> tuple[float, float]:
    return operation.invoked, operation.completed

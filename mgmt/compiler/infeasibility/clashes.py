"""What clashes in an infeasible state, in terms of policies and their rows, and the error that says it.

A clash has a core, found in the same way whatever it is found in (``mgmt.optimization.infeasibility.deletion_filter``):
in what is lifted out of the problem (``lifted_clash``), here in the problem cell by cell, or where that is too large in
the constraints as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mgmt.compiler.encoding.encoder import Encoding
from mgmt.compiler.encoding.tables import choices_of
from mgmt.errors import CoreMember, InfeasibleError, PolicyError, Relaxation
from mgmt.language.bound_queries.queries import BoundQuery, PushedView
from mgmt.language.parsing.trailing_clauses import Tail
from mgmt.optimization.backends import Backend
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.infeasibility.deletion_filter import minimal_core
from mgmt.optimization.infeasibility.elastic import Slack, least_slack
from mgmt.optimization.infeasibility.problem_core import Core, find_core, restricted, shortfall
from mgmt.optimization.problem import Problem

MOST_ROWS = 20
"""Per constraint; more would not be read."""
_MOST_REASONS = 3


class Clash(Protocol):
    """What clashes, and how much it must give."""

    @property
    def core(self) -> tuple[str, ...]:
        """Names of constraints that clash."""

    @property
    def minimal(self) -> bool:
        """Whether each of these was shown to be needed."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all constraints that may be asked to give."""

    @property
    def certain(self) -> bool:
        """Whether what gives is known to be enough for everything there is, without trying."""

    @property
    def rows(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Per constraint the constants of its rows; gives speak of them by number."""

    def members(self, queries: Mapping[str, BoundQuery]) -> list[CoreMember]:
        """The members of the core, by the queries that constraints are."""

    def missing(self, name: str) -> int:
        """By how much a constraint's rows need more than they allow together; 0 where that is not known."""

    def slack(self, names: set[str], deadline: Deadline, *, whole: bool) -> Slack | None:
        """The amounts by which these constraints must give, or if ``whole`` the fewest of their rows to be let go.

        None if that cannot help, or not in time.
        """


@dataclass(frozen=True, slots=True)
class CellClash:
    """An infeasible problem, cell by cell."""

    encoding: Encoding
    found: Core
    backend: Backend
    seed: int
    certain: bool = False

    @classmethod
    def of(cls, encoding: Encoding, backend: Backend, *, deadline: Deadline, seed: int) -> CellClash:
        """The clash of an encoded problem, as far as it is found in time.

        SolveTimeout and UnsupportedConstructError where the problem is not even written down.
        """
        problem = encoding.written_out(deadline)
        return cls(encoding, find_core(problem, backend, deadline=deadline, seed=seed), backend, seed)

    @property
    def core(self) -> tuple[str, ...]:
        return self.found.constraints

    @property
    def minimal(self) -> bool:
        return self.found.minimal

    @property
    def names(self) -> tuple[str, ...]:
        return self.encoding.problem.constraint_names

    @property
    def rows(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return self.encoding.rows

    def members(self, queries: Mapping[str, BoundQuery]) -> list[CoreMember]:
        left = restricted(self.encoding.problem, rows=frozenset(self.found.rows))
        choices = choices_of(self.encoding.columns)
        members = []
        for name in self.core:
            tags = [tag for tag in self.found.rows if tag.constraint == name]
            known = self.rows.get(name, [])
            rows = [known[tag.row] for tag in tags if tag.row < len(known)]
            missing = shortfall(left, tags, choices)
            members.append(core_member(name, queries.get(name), rows, missing, len(tags)))
        return members

    def missing(self, name: str) -> int:
        return 0

    def slack(self, names: set[str], deadline: Deadline, *, whole: bool) -> Slack | None:
        return slack_of_cells(
            self.encoding.problem, self.backend, names, whole=whole, deadline=deadline, seed=self.seed
        )


def slack_of_cells(
    problem: Problem, backend: Backend, names: set[str], *, whole: bool, deadline: Deadline, seed: int
) -> Slack | None:
    """What constraints must give in a problem cell by cell."""
    return least_slack(
        problem,
        backend,
        amounts=lambda tag: not whole and tag.constraint in names,
        waivers=lambda tag: whole and tag.constraint in names,
        deadline=deadline,
        seed=seed,
    )


class Revisable(Protocol):
    """What a compiled model can do, as far as it is needed here."""

    def revised(self, revise: Callable[[BoundQuery], BoundQuery | None] = ...) -> Revisable: ...

    def satisfiable(self, budget: float = ..., seed: int = ...) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class ConstraintClash:
    """Constraints that clash, where there are too many cells to look at rows.  Nothing is known of what would help."""

    core: tuple[str, ...]
    minimal: bool
    names: tuple[str, ...] = ()
    certain: bool = False
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: Revisable, queries: Mapping[str, BoundQuery], *, deadline: Deadline, seed: int
    ) -> ConstraintClash:
        """Each constraint is left out once, and the rest solved; all of them if nothing could be told in time."""
        checks = [name for name, query in queries.items() if query.demand and not query.demand.is_objective]

        def clashes(names: Sequence[str]) -> bool | None:
            dropped = {*checks} - {*names}
            try:
                rest = model.revised(lambda query: None if query.name in dropped else query)
                satisfiable = rest.satisfiable(deadline.left, seed)
            except PolicyError:
                return None  # others read it, or without it the rest is not solved in whole columns
            return None if satisfiable is None else not satisfiable

        names, minimal = minimal_core(checks, clashes, deadline)
        return cls(tuple(names), minimal)

    def members(self, queries: Mapping[str, BoundQuery]) -> list[CoreMember]:
        return [core_member(name, queries.get(name), (), None) for name in self.core]

    def missing(self, name: str) -> int:
        return 0

    def slack(self, names: set[str], deadline: Deadline, *, whole: bool) -> Slack | None:
        return None


def error_of(
    clash: Clash,
    results: Sequence[PushedView | BoundQuery],
    relax: Callable[[float | None], Sequence[Relaxation]] | None = None,
) -> InfeasibleError:
    """The error for a clash: what is to be given up first comes first, then in the order of the policies."""
    members = clash.members({query.name: query for query in results if isinstance(query, BoundQuery)})
    written = {query.name: place for place, query in enumerate(results)}
    members.sort(key=lambda member: (-member.priority, written.get(member.constraint, -1)))
    return InfeasibleError(members, minimal=clash.minimal, relax=relax)


def core_member(
    name: str,
    query: BoundQuery | None,
    rows: Sequence[Mapping[str, Any]],
    missing: tuple[int, int] | None,
    count: int | None = None,
    examples: Sequence[Mapping[str, Any]] = (),
) -> CoreMember:
    """One constraint of a core; ``missing`` is what its rows need and allow, ``examples`` have all that REASON asks."""
    tail = query.demand.tail if query is not None and query.demand is not None else None
    clash = "" if missing is None else f"together they need at least {missing[0]} and allow {missing[1]}"
    return CoreMember(
        name,
        None if query is None else query.position,
        tuple(rows[:MOST_ROWS]),
        len(rows) if count is None else count,
        clash,
        _reason(tail, rows) or _reason(tail, examples),
        1 if tail is None else tail.priority,
    )


def _reason(tail: Tail | None, rows: Sequence[Mapping[str, Any]]) -> str:
    """What the policy says of the rows; of so many that somebody reads it."""
    if tail is None or tail.reason is None:
        return ""
    rows = [row for row in rows if set(tail.reason.names) <= set(row)]
    texts = [tail.reason.of(row) for row in rows] if rows or tail.reason.names else [tail.reason.of({})]
    return "; ".join(list(dict.fromkeys(texts))[:_MOST_REASONS])

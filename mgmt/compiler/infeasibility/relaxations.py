"""What would help an infeasible state, the smallest of each kind, each tried before it is offered.

Where more is amiss than what clashes at first, what helps against that is joined with what helps against the rest,
until all of it holds.

Three kinds: to raise (or lower) numbers of the state that constraints of the core compare with, by the least amounts;
to add rows that variables choose from (a host, a host in a new rack); to let as few rows as possible of one constraint
go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

from mgmt.compiler.infeasibility.additional_rows import Additions
from mgmt.compiler.infeasibility.adjustable_numbers import Adjustable, Limits
from mgmt.compiler.infeasibility.clashes import Clash
from mgmt.compiler.infeasibility.waivers import condition_without, joined_waivers, with_waiver
from mgmt.errors import InfeasibleError, PolicyError, Relaxation, Waiver
from mgmt.language.bound_queries.queries import BoundQuery, PushedView
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.infeasibility.elastic import Give, Placement, Slack
from mgmt.state.database import Database
from mgmt.state.row_duplication import row_condition
from mgmt.state.schema import quote, shown_row

_SHARE = 0.5  # of the time left, for one question
_NOT_THE_LEAST = "(less may do)"
_MOST_NAMED = 5  # rows told one by one in a sentence


class Solvable(Protocol):
    """What a compiled model can do, as far as it is needed here."""

    @property
    def database(self) -> Database: ...

    @property
    def queries(self) -> tuple[PushedView | BoundQuery, ...]: ...

    def revised(
        self, revise: Callable[[BoundQuery], BoundQuery | None] = ..., database: Database | None = None
    ) -> Solvable: ...

    def without_objectives(self) -> Solvable: ...

    def satisfiable(self, budget: float = ..., seed: int = ...) -> bool | None: ...

    def solve(self, budget: float = ..., seed: int = ...) -> object: ...

    def accepts(self, assignments: Placement) -> bool: ...


def relaxed(model: Solvable, relaxation: Relaxation) -> Solvable:
    """The model with a relaxation applied, over a private copy of its state."""
    database = model.database
    if relaxation.statements:
        database = database.clone()
        for statement in relaxation.statements:
            database.execute(statement)

    def revise(query: BoundQuery) -> BoundQuery | None:
        for waiver in relaxation.waivers:
            if waiver.constraint == query.name:
                if not waiver.condition:
                    return None
                query = with_waiver(query, waiver)
        return query

    return model.revised(revise, database)


def find_relaxations(
    model: Solvable, clash: Clash, *, deadline: Deadline, seed: int
) -> tuple[Relaxation, ...]:
    """What was found until then, changes of the state first."""
    finder = _Finder(model, clash, seed, deadline)
    kinds = (finder.numbers, finder.waivers, finder.additions)  # those last that take many tries
    singly = (candidates([name]) for candidates in kinds for name in finder.core)
    together = (candidates(finder.all) for candidates in (finder.numbers, finder.waivers))
    found, insufficient = finder.sorted_out(chain.from_iterable(singly))
    if not found:  # else giving way in one place is enough
        found, more = finder.sorted_out(chain.from_iterable(together))
        insufficient |= more
    if not found:
        return finder.completed(insufficient.values())
    return tuple(sorted(found.values(), key=lambda relaxation: bool(relaxation.waivers)))


_Candidate = tuple[Relaxation, Placement | None]
"""With the values that are satisfied then, where they are known."""


class _Finder:
    """Candidates, not yet tried."""

    def __init__(self, model: Solvable, clash: Clash, seed: int, deadline: Deadline) -> None:
        self._model = model
        self._clash = clash
        self._seed = seed
        self._deadline = deadline
        self._queries = {query.name: query for query in model.queries if isinstance(query, BoundQuery)}
        self.core = [name for name in clash.core if name in self._queries] or ["" for _ in clash.core[:1]]
        self.all = [name for name in clash.names if name in self._queries]
        self._limits = Limits(model.database.schema, model.queries)
        self._tried: dict[tuple[str, tuple[str, ...]], bool] = {}

    def sorted_out(
        self, candidates: Iterable[_Candidate]
    ) -> tuple[dict[str, Relaxation], dict[str, Relaxation]]:
        """Those that help, and those that do not by themselves, by their texts; as many as there is time for."""
        found: dict[str, Relaxation] = {}
        insufficient: dict[str, Relaxation] = {}
        for relaxation, placement in candidates:
            if self._deadline.passed:
                break
            if relaxation.text not in found and relaxation.text not in insufficient:
                known = bool(relaxation.waivers) and self._clash.certain
                helps = known or self.helps(relaxation, placement)
                (found if helps else insufficient)[relaxation.text] = relaxation
        return found, insufficient

    def completed(self, insufficient: Iterable[Relaxation]) -> tuple[Relaxation, ...]:
        """The first of these that can be, in each way: with something that helps against the clash it leaves."""
        for first in insufficient:
            if self._deadline.passed:
                break
            found = tuple(_joined_with(first, then) for then in self._left(first))
            if found:
                return found
        return ()

    def _left(self, first: Relaxation) -> Sequence[Relaxation]:
        """What helps besides."""
        try:
            relaxed(self._model, first).without_objectives().solve(self._share.left, self._seed)
        except InfeasibleError as error:
            return error.relaxations_within(self._share.left)
        except PolicyError:
            pass  # there can be no such rows, or time is up
        return ()

    def helps(self, relaxation: Relaxation, placement: Placement | None = None) -> bool:
        """Whether it does when applied; with values at hand the database needs only to look at these.

        It is tried once: the constraints of a core are often helped, and not helped, by the same rows.
        """
        what = relaxation.text, relaxation.statements
        if what not in self._tried:
            self._tried[what] = not self._deadline.passed and self._tried_out(relaxation, placement)
        return self._tried[what]

    def _tried_out(self, relaxation: Relaxation, placement: Placement | None) -> bool:
        try:
            model = relaxed(self._model, relaxation)
            if placement is not None and model.accepts(placement):
                return True
            return bool(model.satisfiable(self._share.left, self._seed))
        except PolicyError:
            return False  # there can be no such rows

    @property
    def _share(self) -> Deadline:
        """For one question, so that there is time for others."""
        return self._deadline.part(_SHARE)

    # ---- numbers of the state -----------------------------------------------------------------------

    def numbers(self, names: Sequence[str]) -> Iterator[_Candidate]:
        """By how much the numbers of these constraints must change."""
        limits: dict[str, Adjustable] = {}
        for name in names:
            rows = self._clash.rows.get(name)
            limit = self._limits.adjustable(self._queries[name], list(rows[0])) if rows else None
            if limit is not None:
                limits[name] = limit
        slack = self._clash.slack(set(limits), self._share, whole=False)
        if slack is not None and slack.gives:
            yield _told(self._raised(limits, slack.gives), slack), slack.placement

    def _raised(self, limits: Mapping[str, Adjustable], gives: Sequence[Give]) -> Relaxation:
        amounts: dict[tuple[str, str, str], tuple[int, str]] = {}
        for give in gives:
            limit = limits[give.tag.constraint]
            row = self._clash.rows[give.tag.constraint][give.tag.row]
            key = {column: row[output] for column, output in limit.key.items()}
            place = (limit.table, limit.column, row_condition(key))
            beyond = give.below - give.above if limit.smaller_on_right else give.above - give.below
            change = limit.sign * beyond
            if abs(change) > abs(amounts.get(place, (0, ""))[0]):
                amounts[place] = (change, "/".join(map(str, key.values())))
        words, statements = [], []
        for (table, column, where), (change, shown) in amounts.items():
            verb, sign = ("raise", "+") if change > 0 else ("lower", "-")
            words.append(f"{verb} {shown}.{column} by {abs(change)}")
            name = quote(column)
            statements.append(f"UPDATE {quote(table)} SET {name} = {name} {sign} {abs(change)} WHERE {where}")
        return Relaxation(_joined(words), tuple(statements))

    # ---- more to choose from ------------------------------------------------------------------------

    def additions(self, names: Sequence[str]) -> Iterator[_Candidate]:
        """Further rows like those that variables choose from."""
        queries = [self._queries[name] for name in names if name in self._queries]
        rows = Additions(
            self._model.database,
            self._clash,
            self._limits,
            self.helps,
        )
        for found in rows.of(queries):
            yield found, None

    # ---- rows let go --------------------------------------------------------------------------------

    def waivers(self, names: Sequence[str]) -> Iterator[_Candidate]:
        """The fewest rows of these constraints that must be let go."""
        known = [name for name in names if name in self._queries]
        slack = self._clash.slack(set(known), self._share, whole=True)
        if slack is None or not slack.gives:
            return
        waived: dict[str, list[Mapping[str, Any]]] = {}
        for give in slack.gives:
            waived.setdefault(give.tag.constraint, []).append(
                self._clash.rows[give.tag.constraint][give.tag.row]
            )
        waivers, words = [], []
        for name, rows in waived.items():
            clause, condition = condition_without(self._queries[name], rows)
            waivers.append(Waiver(name, tuple(rows) if condition else (), condition, clause))
            shown = "; ".join(shown_row(row) for row in rows[:_MOST_NAMED])
            more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
            words.append(f"drop {name} for {shown}{more}" if condition else f"drop {name}")
        yield _told(Relaxation(_joined(words), (), tuple(waivers)), slack), slack.placement


def _joined_with(first: Relaxation, then: Relaxation) -> Relaxation:
    """One after the other.  Each is the least against its own clash, which together need not be."""
    texts = [part.text.removesuffix(_NOT_THE_LEAST).rstrip() for part in (first, then)]
    return Relaxation(
        f"{' and '.join(texts)} {_NOT_THE_LEAST}",
        (*first.statements, *then.statements),
        tuple(joined_waivers((*first.waivers, *then.waivers))),
    )


def _told(relaxation: Relaxation, slack: Slack) -> Relaxation:
    """It says so where it is not known to be the least: of amounts in all, or of rows."""
    return relaxation if slack.least else replace(relaxation, text=f"{relaxation.text} {_NOT_THE_LEAST}")


def _joined(words: Sequence[str]) -> str:
    shown = list(words[:_MOST_NAMED])
    if len(words) > _MOST_NAMED:
        shown.append(f"{len(words) - _MOST_NAMED} more (see the statements)")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"

"""The nearest solution: the best of a model that changes as little of a known plan as its objectives allow.

A large neighbourhood search around the plan (Shaw, CP 1998).  At first only the rows asked about may change, then some
that are near them, at last all; the changes are the objective of the last tier.  It ends when a neighbourhood holds a
solution that no other can beat, or with the time.  Changes that make no difference are taken back at the end.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from mgmt.compiler.decisions import delta_of
from mgmt.compiler.model import Model
from mgmt.compiler.verification.oracle import Verdict
from mgmt.errors import InfeasibleError, SolveTimeout, UnsupportedConstructError
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.optimization.deadline import Deadline
from mgmt.solution import Delta, PrimaryKey, Solution, SolveStatus, Value
from mgmt.source_text import SourceText
from mgmt.state.row_duplication import row_condition
from mgmt.state.schema import Column, SqlType, Table, literal, quote, storage

Row = tuple[str, PrimaryKey]
"""A table's name and a key in it."""
Cell = tuple[str, str, PrimaryKey]
"""A table, a variable column, and a key."""
Tell = Callable[[str], None]
"""Is told what is being done, for people who wait."""

_PLAN = "the plan of"
_STAYS = "what stays of"
_CHANGES = "changes of"
_FIRST, _GROWTH = 8, 8
"""Rows of the second neighbourhood, and how many times more each further one has."""
_SHARE = 0.25
"""Of the time that is left, for a neighbourhood; the last takes all of it."""
_SEARCH_SHARE = 0.85
_COMMON = 0.125
"""A value that more than this share of the rows have makes none of them near."""
_LEAST_SECONDS = 0.3


def nearest(
    model: Model,
    plan: Solution,
    asked: Collection[Row],
    *,
    bounded: bool,
    deadline: Deadline,
    seed: int,
    tell: Tell,
) -> Solution:
    """The best solution found until ``deadline``, near ``plan``.

    ``asked``: the rows that the question is about; none, where that cannot be told.  ``bounded``: the plan is one of
    the same state with fewer demands, so that nothing is better than a proven one.  Raises InfeasibleError, with the
    core, and SolveTimeout.
    """
    search = _Search(model, plan, frozenset(asked), bounded, deadline, seed, tell)
    found = search.run()
    if found is None:  # without a plan to stay near: what clashes is a clash of the model's own
        if deadline.left < _LEAST_SECONDS:
            raise SolveTimeout("neither a plan with it nor a clash was found in the time given")
        tell("looking for what clashes")
        return model.solve(deadline.left, seed)
    return search.without_needless(found)


def decided_anew(
    model: Model, plan: Solution, rows: Collection[Row], *, deadline: Deadline, seed: int
) -> Solution | None:
    """The best solution found until ``deadline`` in which only these rows of a plan change, and near it; None: none."""
    search = _Search(model, plan, frozenset(rows), False, deadline, seed, lambda _: None)
    return search._try(rows, deadline.left)


@dataclass(slots=True)
class _Search:
    model: Model
    plan: Solution
    asked: frozenset[Row]
    bounded: bool
    deadline: Deadline
    seed: int
    tell: Tell
    _links: Mapping[Row, frozenset[tuple[str, Value]]] = field(default_factory=dict)

    @property
    def _left(self) -> float:
        """Seconds for the search: a part of all there are is for what comes after it."""
        return _SEARCH_SHARE * self.deadline.left

    def run(self) -> Solution | None:
        """None if nothing was found."""
        self._links = self._linked()
        best: Solution | None = None
        size = len(self.asked)
        while size < len(self._links) and size:
            near = self._nearest(size, best)
            what = "the row asked about" if size == 1 else f"{size} rows"
            self.tell(f"looking for a plan that changes {what} of {len(self._links)}")
            found = self._try(near, _SHARE * self._left)
            best = self._better(best, found)
            if best is not None and self._as_good_as_can_be(best):
                return best
            size = max(_FIRST, _GROWTH * size)
        if best is not None and self.plan.status is SolveStatus.FEASIBLE:
            return best  # where no time was enough for the plan, another plan of all rows says nothing about this one
        self.tell(f"looking for a plan that changes any of {len(self._links)} rows")
        return self._better(best, self._try(None, self._left))

    def _try(self, free: Collection[Row] | None, seconds: float) -> Solution | None:
        """The best solution in which only these rows change (None: all may); None if there is none, or not in time."""
        if seconds < _LEAST_SECONDS:
            return None
        try:
            found = self._near(free).solve(seconds, self.seed, clashes=False)
        except (InfeasibleError, SolveTimeout, UnsupportedConstructError):
            return None
        return self._judged(found, whole=free is None)

    def _better(self, one: Solution | None, other: Solution | None) -> Solution | None:
        if one is None or other is None:
            return one or other
        return min((one, other), key=lambda each: (worth(each), each.status is SolveStatus.FEASIBLE))

    def _as_good_as_can_be(self, found: Solution) -> bool:
        return self.bounded and worth(found) <= worth(self.plan)

    def _judged(self, found: Solution, *, whole: bool) -> Solution:
        """Without the objectives that are none of the model's, and proven only where nothing else could be better."""
        names = {objective.name for objective in self.plan.objectives}
        found = replace(found, objectives=tuple(each for each in found.objectives if each.name in names))
        bound = self.bounded and self.plan.status is not SolveStatus.FEASIBLE
        proven = bound and self._as_good_as_can_be(found)
        objectives = tuple(
            replace(
                each,
                proven=proven or (whole and each.proven),
                bound=each.after if proven else each.bound if whole else None,
            )
            for each in found.objectives
        )
        status = SolveStatus.OPTIMAL if found.deltas else SolveStatus.UNCHANGED
        if not all(each.proven for each in objectives):
            status = SolveStatus.FEASIBLE
        return replace(found, objectives=objectives, status=status)

    # ---- the model near the plan --------------------------------------------------------------------

    def _near(self, free: Collection[Row] | None) -> Model:
        """The model with the demand that other rows stay as they are, and few changes as its last objective."""
        tiers = [
            query.demand.tail.tier
            for query in self.model.queries
            if isinstance(query, BoundQuery) and query.demand is not None
        ]
        texts: list[str] = []
        for table in self.model.database.schema.tables:
            if table.variables and self.plan.assignments.get((table.name, table.variables[0].name)):
                texts += self._demands(table, free, 1 + max(tiers, default=0))
        return self.model.extended(SourceText("near the plan", "\n".join(texts)))

    def _demands(self, table: Table, free: Collection[Row] | None, tier: int) -> list[str]:
        """The plan of a table as a view, and what is demanded of its rows."""
        view, name = quote(f"{_PLAN} {table.name}"), quote(table.name)
        keys = [quote(column) for column in table.primary_key]
        joined = " AND ".join(f"plan.{key} = {name}.{key}" for key in keys)
        source = (
            f"SELECT {', '.join(f'{name}.{key}' for key in keys)} FROM {name} JOIN {view} AS plan ON {joined}"
        )
        found = [f"CREATE VIEW {view} AS {self._values(table, free)};"]
        for column in table.variables:
            variable, planned = f"{name}.{quote(column.name)}", f"plan.{quote(column.name)}"
            same, other = ("=", "<>")
            if column.nullable:
                same, other = ("IS NOT DISTINCT FROM", "IS DISTINCT FROM")
            what = f"{table.name}.{column.name}"
            if free is not None:
                found.append(
                    f"CREATE CONSTRAINT {quote(f'{_STAYS} {what}')} AS {source} WHERE NOT plan.free "
                    f"CHECK {variable} {same} {planned};"
                )
            # Flags after all else, so that the choice they are beside stays an assignment (see FlaggedPart).
            last = tier if column.type is SqlType.BOOLEAN else tier + 1
            found.append(
                f"CREATE CONSTRAINT {quote(f'{_CHANGES} {what}')} AS {source} WHERE {variable} {other} {planned} "
                f"MINIMIZE count(*) TIER {last};"
            )
        return found

    def _values(self, table: Table, free: Collection[Row] | None) -> str:
        """The plan's values of a table, and which rows are free, as SQL that the database computes."""
        columns = [*(table.column(name) for name in table.primary_key), *table.variables]
        types = {column.name: storage(column.type) for column in columns}
        plans = [self.plan.assignments[table.name, column.name] for column in table.variables]
        rows = [
            {
                **dict(zip(types, (*key, *(plan[key] for plan in plans)), strict=True)),
                "free": free is None or (table.name, key) in free,
            }
            for key in plans[0]
        ]
        shape = json.dumps([{**types, "free": "BOOLEAN"}])
        listed = ", ".join(f"planned.{quote(name)}" for name in (*types, "free"))
        values = f"from_json({literal(json.dumps(rows))}, {literal(shape)})"
        return f"SELECT {listed} FROM (SELECT unnest({values}) AS planned)"

    # ---- what is near -------------------------------------------------------------------------------

    def _nearest(self, size: int, best: Solution | None) -> set[Row]:
        """So many rows: those asked about, what shares a value with them or stands where they are to go, and others.

        Where they are to go is known from the best solution so far.
        """
        own, goals = set[tuple[str, Value]](), set[tuple[str, Value]]()
        for table, key in self.asked:
            own |= self._links.get((table, key), frozenset())
            if best is not None:
                goals |= self._goals(table, key, best)
        common = Counter(link for links in self._links.values() for link in links)
        most = _COMMON * len(self._links)
        shuffled = list(self._links)
        Random(self.seed).shuffle(shuffled)

        def distance(row: Row) -> tuple[float, float]:
            if row in self.asked:
                return 0, 0
            shared = self._links[row] & (own | goals)
            rarest = min((common[link] for link in shared), default=most)
            return (1, rarest) if rarest < most else (2, 0)

        return set(sorted(shuffled, key=distance)[:size])

    def _goals(self, table: str, key: PrimaryKey, found: Solution) -> set[tuple[str, Value]]:
        columns = self.model.database.schema.table(table).variables
        values = ((column, found.assignments[table, column.name].get(key)) for column in columns)
        return {(_domain(column), value) for column, value in values if value is not None}

    def _linked(self) -> dict[Row, frozenset[tuple[str, Value]]]:
        """Each row with what it refers to, its parts of the key, and where the plan has it."""
        found: dict[Row, frozenset[tuple[str, Value]]] = {}
        database = self.model.database
        for table in database.schema.tables:
            if not table.variables:
                continue
            others = [
                column
                for column in table.columns
                if not column.is_variable and (column.references or column.name in table.primary_key)
            ]
            names = ", ".join(quote(name) for name in (*table.primary_key, *(each.name for each in others)))
            keys = len(table.primary_key)
            for row in database.execute(f"SELECT {names} FROM {quote(table.name)}"):
                key = row[:keys]
                links = {(_domain(column), value) for column, value in zip(others, row[keys:], strict=True)}
                links |= {(table.name.lower(), key[0])} if keys == 1 else set()
                found[table.name, key] = frozenset(links | self._goals(table.name, key, self.plan))
        return found

    # ---- what need not change -----------------------------------------------------------------------

    def without_needless(self, found: Solution) -> Solution:
        """The same without the changes that can be taken back, alone or together, at no cost."""
        changed = self._changed(found)
        most = worth(found)
        if self.bounded:
            most = max(most, worth(self.plan))
        if len(changed) < 2:
            return found
        self.tell(f"looking for which of {len(changed)} changes are needed")
        with self.model.database.snapshot() as snapshot:

            def verdict_on(kept: Sequence[Cell]) -> Verdict | None:
                verdict = self.model.oracle.examine(snapshot, self._with(found, kept))
                fine = not verdict.violations and self._worth(found, verdict) <= most
                return verdict if fine else None

            kept = fewest(changed, lambda some: verdict_on(some) is not None, self.deadline)
            if len(kept) == len(changed):
                return found
            verdict = verdict_on(kept)
        assert verdict is not None
        back = set(changed) - set(kept)
        deltas = [each for each in found.deltas if (*each.place, each.primary_key) not in back]
        deltas += [delta for cell in changed if cell in back for delta in self._delta(cell)]
        objectives = tuple(replace(each, after=verdict.objectives[each.name]) for each in found.objectives)
        return replace(
            found, deltas=tuple(deltas), assignments=self._with(found, kept), objectives=objectives
        )

    def _changed(self, found: Solution) -> list[Cell]:
        """The cells that differ from the plan, those of one chain or circle of moves one after the other."""
        changes = [
            (*place, key)
            for place, values in found.assignments.items()
            for key, value in values.items()
            if key in self.plan.assignments.get(place, {}) and self.plan.assignments[place][key] != value
        ]
        leaving: dict[tuple[str, str, Value], list[Cell]] = defaultdict(list)
        for table, column, key in reversed(changes):
            leaving[table, column, self.plan.assignments[table, column][key]].append((table, column, key))
        ordered: dict[Cell, None] = {}
        for cell in changes:
            following: Cell | None = cell
            while following is not None and following not in ordered:
                ordered[following] = None
                table, column, key = following
                beside = leaving[table, column, found.assignments[table, column][key]]
                while beside and beside[-1] in ordered:
                    beside.pop()
                following = beside[-1] if beside else None
        return list(ordered)

    def _with(
        self, found: Solution, kept: Iterable[Cell]
    ) -> dict[tuple[str, str], Mapping[PrimaryKey, Value]]:
        """What was found, but the plan's values where a change is not kept."""
        values = {place: dict(cells) for place, cells in found.assignments.items()}
        for place, cells in values.items():
            planned = self.plan.assignments.get(place, {})
            cells.update((key, planned[key]) for key in cells if key in planned)
        for table, column, key in kept:
            values[table, column][key] = found.assignments[table, column][key]
        return dict(values)

    def _worth(self, found: Solution, verdict: Verdict) -> tuple[int, ...]:
        changed = (replace(each, after=verdict.objectives[each.name]) for each in found.objectives)
        return worth(replace(found, objectives=tuple(changed)))

    def _delta(self, cell: Cell) -> list[Delta]:
        """The change against today of a cell that has the plan's value after all, if it is one."""
        table_name, column_name, key = cell
        table = self.model.database.schema.table(table_name)
        column = table.column(column_name)
        where = row_condition(dict(zip(table.primary_key, key, strict=True)))
        today = self.model.database.execute(
            f"SELECT {quote(column.current or column.name)} FROM {quote(table.name)} WHERE {where}"
        )
        old, new = today[0][0], self.plan.assignments[table_name, column_name][key]
        return [] if old == new else [delta_of(table, column, key, old, new)]


def worth(solution: Solution) -> tuple[int, ...]:
    """Per tier, the most important first, what a solution costs."""
    tiers: Counter[int] = Counter()
    for each in solution.objectives:
        tiers[each.tier] += (-1 if each.sense == "maximize" else 1) * each.weight * each.after
    return tuple(tiers[tier] for tier in sorted(tiers))


def _domain(column: Column) -> str:
    """What the values of a column are names of."""
    return column.references[0].lower() if column.references else column.name.lower()


def fewest(
    changes: Sequence[Cell], hold: Callable[[Sequence[Cell]], bool], deadline: Deadline
) -> Sequence[Cell]:
    """Some of the changes that hold, of which none can be left out (delta debugging: Zeller, TSE 2002).

    When the time ends first, more than these.
    """
    parts = 2
    while len(changes) > 1 and parts <= len(changes):
        size = -(-len(changes) // parts)
        for begin in range(0, len(changes), size):
            if deadline.passed:
                return changes
            fewer = [*changes[:begin], *changes[begin + size :]]
            if fewer and hold(fewer):
                changes, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(changes))
    return changes

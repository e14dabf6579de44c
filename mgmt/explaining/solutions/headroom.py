"""Headroom: how many more rows like one would fit.  Copies are added to a private copy of the state until none fits.

A row takes with it the rows that belong to it (a segment its replicas), and starts unplaced.  Where rows may stay
without a value, the copies must have one, and so must all rows that have one in the best plan as things are: else
everything would fit, or take the place of something.  The search doubles and
then halves, so the answer is exact where more rows never help to place fewer; a rule that demands rows ("at least
three") can break that, and is why the answer is checked on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from mgmt.compiler.infeasibility.waivers import any_of
from mgmt.compiler.model import Model
from mgmt.errors import CoreMember, InfeasibleError, SolveTimeout
from mgmt.explaining.solutions.decisions import ASKED
from mgmt.optimization.deadline import Deadline
from mgmt.solution import PrimaryKey
from mgmt.source_text import SourceText
from mgmt.state.row_duplication import NewRow, RowCopier, by_table
from mgmt.state.schema import quote

MOST_COPIES = 4096
"""Beyond this nobody asks."""


_CORE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Headroom:
    """``count`` further rows fit.  ``exact``: one more does not, for the reason in ``core``.

    Not exact where the search ended at its limit or for want of time: then at least ``count`` fit.
    """

    table: str
    primary_key: PrimaryKey
    count: int
    exact: bool
    core: tuple[CoreMember, ...] = ()


def headroom(model: Model, table: str, key: PrimaryKey, *, budget: float = 10.0, seed: int = 0) -> Headroom:
    """How many more rows like the one with this key can be placed, today's being placed anew where that helps.

    Raises InfeasibleError when not even today's rows can be placed, DataError when the row cannot be copied,
    SolveTimeout when not even that was known in ``budget`` seconds.
    """
    model = model.at()
    name = model.database.schema.table(table).name
    search = _Search(model, name, key, Deadline.after(budget, model.clock), seed)
    fits, fails = 0, 0
    answer = search.fits(0)
    if answer is None:
        raise SolveTimeout("no placement of today's rows was found in the time given")
    if not answer:
        search.why()
    number = 1
    while number <= MOST_COPIES:
        answer = search.fits(number)
        if answer is None:
            return Headroom(name, key, fits, False)
        if not answer:
            fails = number
            break
        fits, number = number, 2 * number
    else:
        return Headroom(name, key, fits, False)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        answer = search.fits(middle)
        if answer is None:
            return Headroom(name, key, fits, False)
        if answer:
            fits = middle
        else:
            fails = middle
    return Headroom(name, key, fits, True, search.core(fits + 1))


class _Search:
    def __init__(self, model: Model, table: str, key: PrimaryKey, deadline: Deadline, seed: int) -> None:
        self._model = model
        self._table = table
        self._key = key
        self._deadline = deadline
        self._seed = seed
        self._state = model.database.clone()
        self._copier = RowCopier(self._state)
        self._copies: list[list[NewRow]] = [self._copier.copy(table, key)]
        self._placing = self._all_placed()

    def fits(self, number: int) -> bool | None:
        if self._deadline.passed:
            return None
        return self._with(number).satisfiable(self._deadline.left, self._seed)

    def why(self) -> None:
        """Raises the error that says why not even today's rows can be placed."""
        self._model.solve(max(_CORE_SECONDS, self._deadline.left), self._seed)

    def core(self, number: int) -> tuple[CoreMember, ...]:
        try:
            self._with(number).solve(max(_CORE_SECONDS, self._deadline.left), self._seed)
        except InfeasibleError as error:
            return tuple(member for member in error.core if not member.constraint.startswith(ASKED))
        except SolveTimeout:
            return ()
        return ()

    def _with(self, number: int) -> Model:
        while len(self._copies) < number:
            self._copies.append(self._copier.copy(self._table, self._key))
        fuller = self._state.clone()
        for table, rows in by_table(chain.from_iterable(self._copies[:number])).items():
            fuller.insert(table, rows)
        return self._placing.revised(database=fuller)

    def _all_placed(self) -> Model:
        """The model with the further demand that the copies have values, and who has one in the best plan."""
        tables = [
            self._state.schema.table(name) for name in dict.fromkeys(row.table for row in self._copies[0])
        ]
        places = [(table, column) for table in tables for column in table.variables if column.nullable]
        if not places:
            return self._model
        remaining = max(_CORE_SECONDS, self._deadline.left)
        best = self._model.revised(database=self._state).solve(remaining / 2, self._seed)
        texts = []
        for number, (table, column) in enumerate(places):
            keys = [quote(name) for name in table.primary_key]
            values = best.assignments[table.name, column.name]
            left_out = [tuple(zip(keys, key, strict=True)) for key, value in values.items() if value is None]
            where = f"WHERE NOT ({any_of(left_out)}) " if left_out else ""
            texts.append(
                f"CREATE CONSTRAINT {quote(f'{ASKED} {number}')} AS SELECT {', '.join(keys)} FROM {quote(table.name)} "
                f"{where}CHECK {quote(column.name)} IS NOT NULL;"
            )
        return self._model.extended(SourceText("the question", "\n".join(texts)))

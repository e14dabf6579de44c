"""What an encoding asks the database, kept from one solve to the next while what is below it stays as it was.

A snapshot counts the changes of each column (``Snapshot.versions``).  What an encoding gives the database (the constant
columns of views, the rows around subqueries) has changed where it is not what the last one gave under that name.  It is
put there only when a statement that reads it has to be asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_

import numpy as np
from sqlglot import exp
from sqlglot.errors import SqlglotError

from mgmt.compiler.encoding.columns import Constants, objects
from mgmt.compiler.encoding.replay import Journal, Replay
from mgmt.compiler.relational.dependencies import UNKNOWN, may_change, names_in_text, read_by, read_by_text
from mgmt.compiler.relational.pushdown import pushed_sql
from mgmt.language.bound_queries.queries import PushedView
from mgmt.state.database import Snapshot
from mgmt.state.schema import SqlType
from mgmt.state.snapshot import WHOLE, Cells

_MOST_STATEMENTS = 1000
_MOST_CELLS = 20_000_000
"""Of all answers together."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The answer to a statement, in columns."""

    count: int
    columns: Sequence[Constants]


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer with the versions of what the statement reads."""

    versions: Mapping[Cells, int]
    answer: Answer


@dataclass(frozen=True, slots=True)
class _Given:
    """A table that an encoding gave the database."""

    names: Sequence[tuple[str, SqlType]]
    columns: Sequence[Constants]
    count: int
    version: int


@dataclass(slots=True)
class KeptAnswers:
    """The answers to statements over the tables and views of one model; ``below`` says what each view reads."""

    below: Mapping[str, frozenset[Cells]] = field(default_factory=dict)
    fetched_rows: int = 0
    """Rows asked of the database so far."""
    fetch_seconds: float = 0.0
    """The wall time that took."""
    _answers: dict[str, _Kept] = field(default_factory=dict)
    _given: dict[str, _Given] = field(default_factory=dict)
    _reads: dict[str, tuple[frozenset[str], frozenset[Cells]]] = field(default_factory=dict)
    """Of each statement the relations that its text may name, and what it reads of them."""
    _cells: int = 0
    _versions: int = 0
    replay: Replay = field(default_factory=Replay)
    """What the last encoding made of them."""

    def trim(self) -> None:
        """Forget everything when it is more than the statements of one model over one state take."""
        if len(self._answers) + len(self._given) > _MOST_STATEMENTS or self._cells > _MOST_CELLS:
            self._answers, self._given, self._reads, self._cells = {}, {}, {}, 0
            self.replay = Replay()

    def answer(self, sql: str, versions: Mapping[Cells, int]) -> Answer | None:
        """The answer at these versions, if it is known."""
        known = self._answers.get(sql)
        if known is None or known.versions != versions or -1 in versions.values():
            return None
        return known.answer

    def keep(self, sql: str, versions: Mapping[Cells, int], answer: Answer) -> Answer:
        """Keep an answer.  Columns that are as they were are the same objects, and so is the answer if all are."""
        known = self._answers.get(sql)
        if known is not None and len(known.answer.columns) == len(answer.columns):
            pairs = zip(known.answer.columns, answer.columns, strict=True)
            columns = [old if _same(old, new) else new for old, new in pairs]
            same = known.answer.count == answer.count and all(map(is_, columns, known.answer.columns))
            answer = known.answer if same else Answer(answer.count, columns)
        self._cells += _size(answer.columns) - (0 if known is None else _size(known.answer.columns))
        self._answers[sql] = _Kept(versions, answer)
        return answer

    def give(
        self, name: str, names: Sequence[tuple[str, SqlType]], columns: Sequence[Constants], count: int
    ) -> int:
        """A number for what is given under this name: that of before, if it is the same."""
        known = self._given.get(name)
        same = known is not None and known.count == count and known.names == list(names)
        if known is not None and same and all(map(_same, known.columns, columns)):
            return known.version
        self._versions += 1
        self._cells += _size(columns) - (0 if known is None else _size(known.columns))
        self._given[name] = _Given(list(names), columns, count, self._versions)
        return self._versions

    def reads(
        self, sql: str, find: Callable[[], tuple[frozenset[str], frozenset[Cells]]]
    ) -> tuple[frozenset[str], frozenset[Cells]]:
        """What a statement reads, by ``find`` where it is not known."""
        if sql not in self._reads:
            self._reads[sql] = find()
        return self._reads[sql]

    def count(self, started: float, rows: int) -> None:
        """So many rows have been asked for since then."""
        self.fetch_seconds += time.perf_counter() - started
        self.fetched_rows += rows


class Statements:
    """What one encoding asks a snapshot, and the tables and views that it gives it."""

    def __init__(
        self, snapshot: Snapshot, kept: KeptAnswers | None = None, journal: Journal | None = None
    ) -> None:
        """Without ``kept`` everything is asked, and everything that is given is there, whoever reads it."""
        self.snapshot = snapshot
        self.tables = 0
        """How many it has been given under names of its own."""
        self._journal = journal or Journal()
        self._journal.sources["statement"] = self._ask
        self._journal.sources["table"] = self._define_table
        self._kept = kept
        self._below = {} if kept is None else dict(kept.below)
        self._versions = dict(snapshot.versions)
        self._pending: dict[str, Callable[[], None]] = {}
        """What is given and not there yet, by names in lower case."""
        self._names = {table.name.lower() for table in snapshot.schema.tables} | set(self._below)

    def ask(self, sql: str, tree: Callable[[], exp.Expr] | None = None) -> Answer:
        """The answer to a statement; ``tree`` parses it, where it is not the compiler's own."""
        found: Answer = self._journal.ask("statement", sql, tree)
        return found

    def values(self, sql: str, tree: Callable[[], exp.Expr] | None = None) -> Constants:
        """The same of a statement with one column, whose values are as Python has them."""
        found: Answer = self._journal.ask("statement", sql, tree, True)
        return found.columns[0]

    def define_table(
        self, name: str, names: Sequence[tuple[str, SqlType]], columns: Sequence[Constants], count: int
    ) -> None:
        """Give the database a table, as :meth:`Snapshot.define_table` does."""
        self._journal.ask("table", name, names, columns, count)

    def new_table(
        self, kind: str, names: Sequence[tuple[str, SqlType]], columns: Sequence[Constants], count: int
    ) -> str:
        """The same under a name of its own, which is returned."""
        self.tables += 1
        name = f"{kind} {self.tables}"
        self.define_table(name, names, columns, count)
        return name

    def _define_table(
        self, name: str, names: Sequence[tuple[str, SqlType]], columns: Sequence[Constants], count: int
    ) -> None:
        def make() -> None:
            self.snapshot.define_table(name, names, [column.values for column in columns], count)

        if self._kept is None:
            make()
            return
        self._versions[name.lower(), WHOLE] = self._kept.give(name, names, columns, count)
        self._give(name, make)

    def define_view(self, view: PushedView) -> None:
        """Give it a view, unless it is there."""
        sql = pushed_sql(view)
        if self._kept is None or view.name.lower() in self._kept.below:
            self.snapshot.define_view(view.name, sql)
            return
        names, below = self._kept.reads(f"view {sql}", lambda: self._read_by(sql, lambda: view.tree))

        def make() -> None:
            self._make(names)
            self.snapshot.define_view(view.name, sql)

        self._below[view.name.lower()] = below
        self._give(view.name, make)

    def _ask(self, sql: str, tree: Callable[[], exp.Expr] | None, as_python: bool = False) -> Answer:
        fetch = self._fetch_values if as_python else self._fetch
        if self._kept is None:
            return fetch(sql)
        names, cells = self._kept.reads(sql, lambda: self._read_by(sql, tree))
        versions = {each: self._versions.get(each, -1) for each in cells}
        known = self._kept.answer(sql, versions)
        if known is not None:
            return known
        self._make(names)
        started = time.perf_counter()
        found = fetch(sql)
        self._kept.count(started, found.count)
        return self._kept.keep(sql, versions, found)

    def _fetch(self, sql: str) -> Answer:
        count, columns = self.snapshot.arrays(sql)
        return Answer(count, [Constants.of(cells) for cells in columns])

    def _fetch_values(self, sql: str) -> Answer:
        rows = self.snapshot.rows(sql)
        return Answer(len(rows), [objects([value for (value,) in rows])])

    def _give(self, name: str, make: Callable[[], None]) -> None:
        self._names.add(name.lower())
        self._pending[name.lower()] = make

    def _make(self, names: frozenset[str]) -> None:
        for name in sorted(names & self._pending.keys()):
            self._pending.pop(name)()

    def _read_by(
        self, sql: str, tree: Callable[[], exp.Expr] | None
    ) -> tuple[frozenset[str], frozenset[Cells]]:
        """The relations that a statement may name, and what it reads of them."""
        names, schema = names_in_text(sql) & self._names, self.snapshot.schema
        if tree is None:
            return names, read_by_text(sql, names, self._below, schema)
        try:
            found = read_by(tree(), self._below, schema)
        except SqlglotError:
            return names, frozenset({UNKNOWN})
        return names, found | {UNKNOWN} if may_change(sql) else found


def _same(one: Constants, other: Constants) -> bool:
    if one is other:
        return True
    if one.cells.dtype != other.cells.dtype or not np.array_equal(one.null, other.null):
        return False
    if one.cells.dtype.kind != "O":
        known = ~one.null
        return bool((one.cells[known] == other.cells[known]).all())
    mine, theirs = one.cells.tolist(), other.cells.tolist()
    return mine == theirs and list(map(type, mine)) == list(map(type, theirs))


def _size(columns: Sequence[Constants]) -> int:
    return sum(map(len, columns))

"""Views that stay in a private copy, those that take time as tables, and how these are brought up to date.

A table is computed anew when rows below it have changed; where the rows with a key come of the base tables' rows with
that key alone (see ``store.ByKey``), only those of the keys that changed.

What it is not: it does not find out which views have such a key (``mgmt.compiler.partitions`` does).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

import apsw

from mgmt.state.changes import ChangedRows
from mgmt.state.guard import Guard
from mgmt.state.schema import quote
from mgmt.state.store import ByKey, KeptRows, KeptView, Place

_MOST_KEYS = 1_000
_STATES = count(1)
"""Of all views of all copies, so that no two are taken for each other."""


class KeptViews:
    """The kept views of one private copy."""

    def __init__(self, connection: apsw.Connection, guard: Guard) -> None:
        self._connection, self._guard = connection, guard
        self._views: tuple[KeptView, ...] = ()
        self._stale: dict[str, ChangedRows | None] = {}
        """The tables that changed since the views were made; None: nobody knows which rows."""
        self._in_force = False
        self._rows: dict[str, KeptRows] = {}
        """Of the tables with a key."""

    def end(self) -> None:
        """Nobody asks these views any more, until they are wanted again."""
        self._in_force = False

    def has(self, name: str) -> bool:
        """Whether a view is kept and was wanted."""
        return self._in_force and any(view.name == name for view in self._views)

    def rows(self, name: str) -> KeptRows | None:
        """See ``Snapshot.kept_rows``."""
        return next((self._rows.get(view.name) for view in self._views if view.name.lower() == name), None)

    def make_way(self, name: str, *, lasting: bool) -> None:
        """Something else is to have this name; unless that is ``lasting``, the view is back when it is undone."""
        taken = [view for view in self._views if view.name.lower() == name.lower()]
        if taken and lasting:
            self.drop_all()
        else:
            for view in taken:
                self._drop(view)

    def changed(self, table: str, rows: ChangedRows) -> None:
        """Rows of a table have changed."""
        self._stale[table] = None if table in self._stale else rows

    def keep(self, views: Sequence[KeptView], at: Place) -> None:
        """Make these views, or bring them up to date if they are the ones that are kept; see ``Snapshot``."""
        if self._views == tuple(views):
            for view in self._views:
                if view.computed and (view.changing or view.reads & self._stale.keys()):
                    with at(view.name):
                        self._refresh(view)
        else:
            self.drop_all()
            for view in views:
                allowed = self._guard.keeping_a_view() if view.computed else self._guard.defining_a_view()
                with at(view.name), allowed:
                    kind = "TABLE" if view.computed else "VIEW"
                    self._connection.execute(
                        f"CREATE {kind} {quote(view.name)} AS {_in_order(view)}"
                    ).fetchall()
                self._count(view)
                self._views = (*self._views, view)
        self._stale.clear()
        self._in_force = True

    def drop_all(self) -> None:
        """Keep none."""
        for view in reversed(self._views):
            self._drop(view)
        self._views = ()

    def _drop(self, view: KeptView) -> None:
        kind = "TABLE" if view.computed else "VIEW"
        self._connection.execute(f"DROP {kind} IF EXISTS {quote(view.name)}").fetchall()

    def _refresh(self, view: KeptView) -> None:
        keys = self._changed_keys(view)
        if keys is not None and view.by_key is not None and self._refresh_keys(view, view.by_key, keys):
            return
        name = quote(view.name)
        self._connection.execute(f"DELETE FROM {name}").fetchall()
        with self._guard.filling(view.name):
            self._connection.execute(f"INSERT INTO {name} {_in_order(view)}").fetchall()
        self._count(view)

    def _count(self, view: KeptView) -> None:
        """All rows of a view are new."""
        self._rows.pop(view.name, None)
        if view.computed and view.by_key is not None:
            sql = f"SELECT count(*), coalesce(max(_rowid_), 0) FROM {quote(view.name)}"
            ((number, last),) = self._connection.execute(sql).fetchall()
            if number == last:  # so that places and row numbers are the same
                self._rows[view.name] = KeptRows(int(str(number)), next(_STATES))

    def _changed_keys(self, view: KeptView) -> list[int | str] | None:
        """The keys whose rows may have changed; None when that may be any."""
        if view.by_key is None or view.changing:
            return None
        keys: set[Any] = set()
        for table in view.reads & self._stale.keys():
            rows, column = self._stale[table], view.by_key.tables.get(table)
            if rows is None or column is None:
                return None
            keys |= rows.values(column)
        plain = all(isinstance(key, int) or (isinstance(key, str) and "\0" not in key) for key in keys)
        return list(keys) if plain and len(keys) <= _MOST_KEYS else None

    def _refresh_keys(self, view: KeptView, by: ByKey, keys: Sequence[int | str]) -> bool:
        """Compute the rows of these keys; False where they are not as many and of the same keys as before.

        The rows stay in the order of their keys.
        """
        name, key = quote(view.name), quote(by.column)
        listed = (json.dumps(list(keys), ensure_ascii=False),)
        within = "IN (SELECT value FROM json_each(?1))"
        shadows = [
            f"{quote(table)} AS (SELECT * FROM main.{quote(table)} WHERE {quote(column)} {within})"
            for table, column in by.tables.items()
        ]
        shadows += [f"{quote(below)} AS ({sql})" for below, sql in by.below]
        with self._guard.reading():
            found = self._connection.execute(
                f"WITH {', '.join(shadows)} SELECT * FROM ({view.sql})", listed
            ).fetchall()
        self._connection.execute(
            f"CREATE INDEX IF NOT EXISTS {quote(f'{view.name} by key')} ON {name} ({key})"
        ).fetchall()
        place = by.columns.index(by.column)
        before = self._connection.execute(
            f"SELECT _rowid_, * FROM {name} WHERE {key} {within}", listed
        ).fetchall()
        numbers = {row[1 + place]: (int(str(row[0])), row[1:]) for row in before}
        after = {row[place]: row for row in found}
        if len(numbers) < len(before) or len(after) < len(found) or numbers.keys() != after.keys():
            return False
        targets = ", ".join(f"{quote(column)} = ?{number}" for number, column in enumerate(by.columns, 2))
        changed = {numbers[key][0]: row for key, row in after.items() if numbers[key][1] != row}
        self._connection.executemany(
            f"UPDATE {name} SET {targets} WHERE _rowid_ = ?1",
            [(number, *row) for number, row in changed.items()],
        )
        rows = self._rows.get(view.name)
        if rows is not None and changed:
            places = tuple(number - 1 for number in changed)
            self._rows[view.name] = KeptRows(rows.number, next(_STATES), rows.state, places)
        return True


def _in_order(view: KeptView) -> str:
    """Its SQL, in the order of its keys if it has one, so that rows that are put anew keep their places."""
    if view.by_key is None:
        return view.sql
    return f"SELECT * FROM ({view.sql}) ORDER BY {quote(view.by_key.column)}"

"""Random LATERALs give the rows that PostgreSQL gives for the same text, in both kinds of database."""

from __future__ import annotations

from random import Random

import psycopg
import pytest

from tests.mgmt.support import database
from tests.mgmt.test_lateral import ROWS, plain, twin
from tests.mgmt.test_meaning import SCHEMA
from tests.mgmt.test_pushed_down import build

__all__ = ["twin"]

_LEFT = (
    ("task AS t", "t.weight", "t.id", "t.host"),
    ("host AS t", "t.size", "t.size", "t.name"),
    ("(SELECT id, weight, host FROM task WHERE id > 1) AS t", "t.weight", "t.id", "t.host"),
)
_JOINS = (
    ", LATERAL ({}) AS h",
    " CROSS JOIN LATERAL ({}) AS h",
    " LEFT JOIN LATERAL ({}) AS h ON TRUE",
    " JOIN LATERAL ({}) AS h ON h.c > 3",
    " LEFT JOIN LATERAL ({}) AS h ON h.c > 3",
)


class _Maker:
    """SELECTs of ``k``, ``a`` (a text) and ``c`` (a number)."""

    def __init__(self, random: Random) -> None:
        self.pick = random.choice
        self.left, self.number, self.key, self.name = self.pick(_LEFT)
        self.source, self.others = self.pick(
            [
                ("host AS b", "1"),
                ("host AS b JOIN host AS d ON b.rack = d.rack AND b.name <= d.name", "d.name"),
                (f"host AS b LEFT JOIN task AS u ON u.host = b.name AND u.weight < {self.number}", "u.id"),
                ("(SELECT name, rack, size, up FROM host WHERE up) AS b", "1"),
                ("host AS b, task AS u", "u.id"),
            ]
        )

    def select(self) -> str:
        kinds = [self._plain, self._plain, self._limited, self._of_all, self._grouped, self._distinct]
        body = self.pick([*kinds, self._united, self._over_windows, self._limited_groups])()
        where = self.pick(["", " WHERE h.c IS NOT NULL", f" WHERE {self.number} IS NULL OR h.a > 'a'"])
        return f"SELECT {self.key} AS k, h.a, h.c FROM {self.left}{self.pick(_JOINS).format(body)}{where}"

    def _value(self) -> str:
        number = self.number
        return self.pick(["b.size", number, f"b.size - {number}", "b.size * 2", f"coalesce({number}, 0)"])

    def _mixed(self) -> str:
        """For aggregates: one of outer columns alone would be of the SELECT around."""
        return self.pick(["b.size", f"b.size - {self.number}", f"coalesce({self.number}, b.size)"])

    def _rows(self) -> str:
        condition = self.pick(
            [
                f"b.size > {self.number}",
                f"b.name = {self.name}",
                f"b.name IS NOT DISTINCT FROM {self.name}",
                f"b.size + {self.key} > 9",
                "TRUE",
                f"b.up AND {self.name} IS NOT NULL",
                f"EXISTS (SELECT 1 FROM task AS x WHERE x.host = b.name AND x.weight <= {self.number})",
                f"b.size IN (SELECT y.size FROM host AS y WHERE y.size > {self.number})",
            ]
        )
        return f"FROM {self.source} WHERE {condition}"

    def _plain(self) -> str:
        return f"SELECT b.name AS a, {self._value()} AS c {self._rows()}"

    def _limited(self) -> str:
        first = f"{self.pick(['c', 'b.size', '2', 'b.rack'])} {self.pick(['', 'DESC', 'DESC NULLS LAST'])}"
        limit = f"LIMIT {self.pick('0123')}{self.pick(['', ' OFFSET 1', ' OFFSET 2'])}"
        return f"{self._plain()} ORDER BY {first}, b.name, 2, {self.others} {limit}"

    def _of_all(self) -> str:
        counted = ["count(*)", "count(b.name) + 1", "count(DISTINCT b.rack)", "count(*) FILTER (WHERE b.up)"]
        found = self.pick([*counted, f"sum({self._mixed()})", f"coalesce(max({self._mixed()}), -1)"])
        return f"SELECT {self.pick(['max', 'min'])}(b.name) AS a, {found} AS c {self._rows()}"

    def _grouped(self) -> str:
        found = self.pick(["count(*)", f"sum({self._mixed()})", "max(b.size)"])
        having = self.pick([" HAVING count(*) > 1", ""])
        return f"SELECT b.rack AS a, {found} AS c {self._rows()} GROUP BY {self.pick(['b.rack', '1', 'a'])}{having}"

    def _limited_groups(self) -> str:
        order = f"ORDER BY {self.pick(['c DESC', 'count(*)', 'max(b.size)'])}, a LIMIT {self.pick('12')}"
        return f"SELECT b.rack AS a, count(*) AS c {self._rows()} GROUP BY b.rack {order}"

    def _distinct(self) -> str:
        value = self.pick(["1", self.number, "b.size"])
        limit = self.pick([" ORDER BY a, c LIMIT 2", ""])
        return f"SELECT DISTINCT b.rack AS a, {value} AS c {self._rows()}{limit}"

    def _united(self) -> str:
        operation = self.pick(["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL"])
        return f"{self._plain()} {operation} SELECT b.rack, {self._value()} {self._rows()}"

    def _over_windows(self) -> str:
        numbered = f"row_number() OVER (ORDER BY b.size, b.name, {self.others.replace('1', 'b.up')})"
        others = ["sum(b.size) OVER (PARTITION BY b.rack)", "count(*) OVER w", "max(b.size) OVER ()"]
        found = self.pick([numbered, *others])
        return f"SELECT b.name AS a, {found} AS c {self._rows()} WINDOW w AS (PARTITION BY b.up)"


@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(3))
def test_random_ones_mean_what_postgresql_reads(
    each_database: str, twin: psycopg.Connection, seed: int
) -> None:
    random = Random(f"{each_database} {seed}")
    state = database(SCHEMA, ROWS)
    for _ in range(25):
        select = _Maker(random).select()
        expected = sorted(repr(tuple(map(plain, row))) for row in twin.execute(select))
        model = build(f"SELECT 1 AS x, q.* FROM ({select}) AS q", state)
        assert model.solve(budget=20)
        with model.database.snapshot() as snapshot, model.available_views(snapshot):
            found = sorted(map(repr, snapshot.rows("SELECT k, a, c FROM v")))
        assert found == expected, select

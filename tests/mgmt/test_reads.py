"""What a statement is taken to read: at least the columns that change its answer."""

from __future__ import annotations

import pytest
from sqlglot import parse_one

from mgmt.compiler.relational.dependencies import UNKNOWN, read_by, read_by_text
from mgmt.state.snapshot import NUMBER, WHOLE
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE pod (name TEXT PRIMARY KEY, cpu INTEGER, node TEXT);
CREATE TABLE node (name TEXT PRIMARY KEY, room INTEGER);
"""
POD, NODE = ("pod", NUMBER), ("node", NUMBER)

READS = {
    "SELECT count(*) FROM pod": {POD},
    "SELECT p.cpu FROM pod AS p WHERE p.cpu > 1": {POD, ("pod", "cpu")},
    "SELECT p.cpu FROM pod AS p, node WHERE node.room > 1": {POD, ("pod", "cpu"), NODE, ("node", "room")},
    "SELECT name FROM pod": {POD, ("pod", "name")},
    # Whose it is does not show: it may be either's.
    "SELECT cpu FROM pod JOIN node USING (name)": {POD, NODE}
    | {("pod", "cpu"), ("pod", "name"), ("node", "name")},
    'SELECT "P"."CPU" FROM "POD" AS "P"': {POD, ("pod", "cpu")},
    "SELECT (SELECT max(room) FROM node AS p WHERE p.name = q.node) FROM pod AS q": {
        *(POD, ("pod", "node"), NODE, ("node", "room"), ("node", "name"))
    },
    "SELECT name FROM pod UNION ALL SELECT name FROM node": {POD, ("pod", "name"), NODE, ("node", "name")},
    "SELECT * FROM pod": {("pod", WHOLE)},
    "SELECT p.* FROM pod AS p": {("pod", WHOLE)},
    "FROM pod": {("pod", WHOLE)},
    "SELECT COLUMNS('c.*') FROM pod": {("pod", WHOLE)},
    "SELECT p FROM pod AS p": {("pod", WHOLE)},
    "SELECT b FROM pod AS p(a, b)": {("pod", WHOLE)},
    "SELECT cpu FROM pod NATURAL JOIN node": {("pod", WHOLE), ("node", WHOLE)},
    "PIVOT pod ON node USING sum(cpu)": {("pod", WHOLE)},
    "SELECT 1 FROM elsewhere": {("elsewhere", WHOLE)},
}
OF_TEXTS = {
    # A name without a qualifier may be a column of any table.
    'SELECT "pod".rowid, "pod"."cpu" FROM "pod" AS "pod"': {("pod", "cpu")},
    'SELECT "a"."cpu", "b"."name" FROM "pod" AS "a" CROSS JOIN "node" AS "b" WHERE ("a"."node" = \'"b"."room"\')': {
        *(("pod", "cpu"), ("pod", "node"), NODE, ("node", "name"))
    },
    'SELECT "pod"."node" FROM "pod" AS "pod" ORDER BY "cpu"': {("pod", "node"), ("pod", "cpu")},
    'SELECT "pod"."cpu" FROM "pod" AS "pod" WHERE ("pod"."cpu" * 2 > 4)': {("pod", "cpu")},
    'SELECT "pod"."cpu" FROM "pod" AS "pod" WHERE now() IS NULL': {("pod", "cpu"), UNKNOWN},
}


@pytest.mark.parametrize("sql", READS)
def test_what_a_view_reads(sql: str) -> None:
    assert read_by(parse_one(sql, dialect="duckdb"), {}, database(SCHEMA).schema) == READS[sql]


@pytest.mark.parametrize("sql", OF_TEXTS)
def test_what_a_statement_of_ours_reads(sql: str) -> None:
    names = [name for name in ("pod", "node") if f'"{name}" AS' in sql]
    assert read_by_text(sql, names, {}, database(SCHEMA).schema) == OF_TEXTS[sql] | {POD}


def test_a_view_reads_what_the_views_below_it_read() -> None:
    below = {"busy": frozenset({("pod", "cpu"), UNKNOWN})}
    found = read_by(parse_one("SELECT busy.x, node.room FROM busy, node"), below, database(SCHEMA).schema)
    assert found == {("pod", "cpu"), UNKNOWN, NODE, ("node", "room")}


def test_a_snapshot_counts_the_changes_of_each_column() -> None:
    state = database(SCHEMA)
    state.insert("pod", [{"name": name, "cpu": 1, "node": None} for name in "abc"])
    state.insert("node", [{"name": "n", "room": 1}])

    def changed_by(sql: str) -> set[tuple[str, str]]:
        with state.snapshot() as snapshot:
            before = dict(snapshot.versions)
        state.execute(sql)
        with state.snapshot() as snapshot:
            assert snapshot.rows("FROM pod ORDER BY ALL") == state.execute("FROM pod ORDER BY ALL")
            return {cells for cells, number in snapshot.versions.items() if before[cells] != number}

    everything = {("pod", part) for part in (WHOLE, NUMBER, "name", "cpu", "node")}
    assert changed_by("UPDATE pod SET cpu = 2 WHERE name = 'b'") == {("pod", WHOLE), ("pod", "cpu")}
    assert changed_by("UPDATE pod SET node = NULL, cpu = 2 WHERE name = 'b'") == set()
    assert changed_by("UPDATE pod SET node = 'n'") == {("pod", WHOLE), ("pod", "node")}
    assert changed_by("DELETE FROM pod WHERE name = 'a'") == everything
    assert changed_by("INSERT INTO pod (name, cpu, node) VALUES ('d', 2, 'n')") == everything
    assert changed_by("UPDATE node SET room = 2") == {("node", WHOLE), ("node", "room")}

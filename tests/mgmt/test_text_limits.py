"""Searches in texts, none of which a database can be stopped in: they are short, or refused, alike in both."""

from __future__ import annotations

import pytest
import sqlglot

from mgmt.compiler.readable import readable
from mgmt.compiler.sql_text import to_sql
from mgmt.errors import DataError, PolicyError, StatementTimeoutError
from mgmt.state.database import Database
from tests.mgmt.support import BACKEND
from tests.mgmt.test_meaning import SCHEMA
from tests.mgmt.test_pushed_down import ROWS, build, rows

LONG = "repeat(name, 100000)"
SOUGHT = "a" * 400 + "b"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"{LONG} LIKE '%aaaaaaaaab'", False),
        (f"{LONG} LIKE '%{SOUGHT}'", False),
        (f"{LONG} NOT LIKE '%{SOUGHT}'", True),
        (f"{LONG} ILIKE '%A'", True),
        (f"{LONG} LIKE '%' || name", True),
        ("'a' LIKE name", True),
        ("'aaaaaaaaaaaaaaaaaaa' LIKE name || '%'", True),
        ("7 LIKE size || ''", False),
        (f"strpos({LONG}, '{SOUGHT}') = 0", True),
        (f"strpos({LONG}, repeat(name, 500)) = 1", True),
        (f"length(replace({LONG}, name, 'bb')) = 200000", True),
        (f"trim({LONG}, 'abcdefghijklm') = ''", True),
        ("trim(name, name) = ''", True),
        (f"split_part({LONG}, '{SOUGHT}', 2) = ''", True),
        (f"translate({LONG}, 'abcdefghijklm', 'b') = repeat('b', 100000)", True),
        ("max(name) OVER () LIKE '%aaaaaaaaaaaaaaaaaa' OR TRUE", True),
        ("name || NULL LIKE 'aaaaaaaaaaaaaaaaaaaaaa' IS NULL", True),
        (f"{LONG} ~ '^a*$'", True),
    ],
)
def test_what_takes_a_moment_is_searched(each_database: str, condition: str, expected: bool) -> None:
    assert each_database
    view = f"SELECT x FROM (SELECT name, ({condition}) AS x FROM host) AS h WHERE name = 'a'"
    assert rows(view) == [expected]


@pytest.mark.parametrize(
    "condition",
    [
        f"repeat({LONG}, 3) LIKE '%{SOUGHT}'",
        f"'%{SOUGHT}' LIKE repeat({LONG}, 3)",
        f"repeat({LONG}, 3) ILIKE '%{SOUGHT}'",
        f"repeat({LONG}, 3) LIKE '%' || name",
        "name LIKE repeat(name, 501)",
        f"strpos(repeat({LONG}, 3), '{SOUGHT}') = 1",
        f"position(name IN repeat({LONG}, 3)) = 1",
        f"replace(repeat({LONG}, 3), '{SOUGHT}', 'b') = 'a'",
        "replace(name, repeat(name, 501), 'b') = 'a'",
        f"trim(repeat({LONG}, 3), '{SOUGHT}') = 'a'",
        f"rtrim(repeat({LONG}, 3), name) = 'a'",
        f"split_part(repeat({LONG}, 3), '{SOUGHT}', 1) = 'a'",
        f"translate(repeat({LONG}, 3), '{SOUGHT}', '') = 'a'",
        f"{LONG} ~ '{SOUGHT[2:]}'",
        f"{LONG} ~ '(a|aa){{40}}'",
        f"{LONG} ~* '^[^b]{{100}}$'",
        f"{LONG} SIMILAR TO '%{SOUGHT[4:]}'",
    ],
)
def test_what_would_take_long_is_refused(each_database: str, condition: str) -> None:
    assert each_database
    model = build(f"SELECT name AS x FROM host WHERE {condition}")  # there are no rows yet
    with pytest.raises(DataError, match="characters is searched, which would take too long") as caught:
        model.solve(budget=20)
    assert caught.value.line == 2
    assert "at most" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [f"{LONG} || upper(name) || lower(name) || {' || '.join(['name'] * 40)}", "(SELECT max(name) FROM host)"],
)
def test_what_is_computed_at_length_is_searched_once(each_database: str, text: str) -> None:
    """PostgreSQL has to write it again to look at its length, unless that is long."""
    assert each_database
    assert rows(f"SELECT {text} LIKE '%aaaaaaaaaaaaaaaaaaaaaaaaaa%' AS x FROM host WHERE name = 'a'") in (
        [0],
        [1],
    )


def test_a_nest_of_searches_stays_small(each_database: str) -> None:
    assert each_database
    nest = "name"
    for number in range(11):
        nest = f"replace({nest}, 'not to be found {number}', size || '')"
    assert rows(f"SELECT {nest} AS x FROM host WHERE name = 'a'") == ["a"]


@pytest.mark.parametrize(
    "heavy",
    [
        "(hex_ LIKE '%' || hex_ || '1')",
        "instr(hex_, hex_ || '1')",
        "(hex_ GLOB '*' || hex_ || '1')",
        "length(upper(lower(hex_)))",
    ],
)
def test_what_constants_make_is_short(heavy: str) -> None:
    """Over empty tables, in SQLite: a policy is refused before it meets a row."""
    text = heavy.replace("hex_", "printf('%09000000d', 1)")
    with pytest.raises(PolicyError) as caught:
        build(f"SELECT {text} AS x")
    assert "too long" in caught.value.message


def test_many_matches_end_in_time() -> None:
    """Each is short; SQLite asks by itself after some hundred steps, which may be a hundred matches."""
    state = Database(BACKEND.address(), statement_seconds=0.1)
    BACKEND.opened.append(state)
    state.load_schema(SCHEMA)
    state.replace_rows(ROWS)
    text = "repeat(h.name, 5000)"
    alternatives = "|".join(f"aa{number}" for number in range(25))
    crossed = ", ".join(["host AS h", *(f"host AS h{number}" for number in range(6))])
    model = build(f"SELECT count(*) AS x FROM {crossed} WHERE {text} || h5.name ~ '{alternatives}'", state)
    with pytest.raises(StatementTimeoutError):
        model.solve(budget=20)


def test_many_large_documents_end_in_time() -> None:
    """Each is read in a moment, and between them is no row at which SQLite could be stopped."""
    document = "('[' || repeat('1,', 90000) || '1]')"
    members = ", ".join(f"{document} ->> {number} AS c{number}" for number in range(60))
    with pytest.raises(StatementTimeoutError):
        build(f"SELECT {members}, 1 AS x")


def test_people_read_nothing_of_it() -> None:
    tree = sqlglot.parse_one("SELECT name LIKE 'disk-of-a-host-%' AS x FROM host", dialect="postgres")
    assert "rota_" in to_sql(tree).lower()
    assert readable(to_sql(tree)) == "SELECT name LIKE 'disk-of-a-host-%' AS x FROM host"

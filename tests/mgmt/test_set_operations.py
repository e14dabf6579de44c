"""Set operations that SQLite lacks, in both kinds of database: EXCEPT ALL and INTERSECT ALL, and parentheses."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mgmt.test_pushed_down import rows

LEFT = "(VALUES (1), (1), (1), (2), (NULL), (NULL), (3)) AS a (n)"
RIGHT = "(VALUES (1), (2), (2), (NULL), (4)) AS b (n)"


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (f"SELECT n AS x FROM {LEFT} EXCEPT ALL SELECT n FROM {RIGHT}", [1, 1, 3, None]),
        (f"SELECT n AS x FROM {LEFT} INTERSECT ALL SELECT n FROM {RIGHT}", [1, 2, None]),
        (f"SELECT n AS x FROM {LEFT} EXCEPT ALL SELECT n FROM {RIGHT} EXCEPT ALL SELECT 1", [1, 3, None]),
        (
            f"SELECT n AS x FROM {LEFT} EXCEPT ALL (SELECT n FROM {RIGHT} INTERSECT ALL SELECT 1)",
            [1, 1, 2, 3, None, None],
        ),
        (
            f"SELECT n AS x FROM {LEFT} EXCEPT ALL SELECT n FROM {RIGHT} UNION ALL SELECT 9",
            [1, 1, 3, 9, None],
        ),
        (
            f"SELECT 9 AS x UNION ALL (SELECT n FROM {LEFT} INTERSECT ALL SELECT n FROM {RIGHT})",
            [1, 2, 9, None],
        ),
        (f"SELECT x FROM (SELECT n AS x FROM {LEFT} EXCEPT ALL SELECT n FROM {RIGHT}) AS d WHERE x > 1", [3]),
        (
            f"WITH w AS (SELECT n FROM {LEFT} EXCEPT ALL SELECT n FROM {RIGHT}) SELECT count(*) AS x FROM w",
            [4],
        ),
        (f"SELECT n AS x FROM {LEFT} WHERE n > 0 EXCEPT ALL SELECT 1 ORDER BY x DESC LIMIT 2", [3, 2]),
        ("SELECT rack AS x, up FROM host EXCEPT ALL SELECT 'r1', TRUE", ["r1", "r2"]),
        ("SELECT rack AS x FROM host EXCEPT ALL SELECT rack FROM host WHERE name = 'a'", ["r1", "r2"]),
        ("SELECT upper(rack) AS x FROM host INTERSECT ALL VALUES ('R1'), ('R1'), ('R1')", ["R1", "R1"]),
        (f"SELECT n AS x FROM {LEFT} EXCEPT SELECT n FROM {RIGHT}", [3]),
        (
            "SELECT rack AS x FROM host WHERE size IN (SELECT size FROM host EXCEPT ALL SELECT 5)",
            ["r1", "r2"],
        ),
        ("SELECT 1 AS x UNION ALL (SELECT size FROM host ORDER BY size LIMIT 1)", [1, 5]),
        ("(SELECT size AS x FROM host ORDER BY size DESC LIMIT 1) UNION ALL SELECT 1", [1, 9]),
        ("(SELECT size AS x FROM host) EXCEPT (SELECT size FROM host INTERSECT SELECT 9)", [5, 7]),
        ("SELECT 9 AS x UNION ALL (SELECT 1 UNION ALL (SELECT 2 UNION SELECT 2))", [1, 2, 9]),
    ],
)
def test_equal_rows_are_counted(each_database: str, view: str, expected: list[object]) -> None:
    assert each_database
    found = rows(view)
    if not view.endswith("LIMIT 2"):
        found, expected = sorted(found, key=repr), sorted(expected, key=repr)
    assert found == expected


_VALUES = st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=7)


@given(_VALUES, _VALUES, st.sampled_from(["EXCEPT ALL", "INTERSECT ALL"]))
def test_as_counters_do(left: list[int | None], right: list[int | None], operation: str) -> None:
    def select(values: list[int | None]) -> str:
        rows_of = ", ".join(f"({'NULL' if value is None else value})" for value in [-1, *values])
        return f"SELECT n FROM (VALUES (-1), {rows_of}) AS t (n) WHERE coalesce(n, 0) >= 0"

    one, other = Counter(left), Counter(right)
    expected = one - other if operation == "EXCEPT ALL" else one & other
    found = rows(f"{select(left)} {operation} {select(right)}".replace("SELECT n", "SELECT n AS x", 1))
    assert Counter(found) == expected

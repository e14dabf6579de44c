"""Outer joins, UNION and DISTINCT over what the solver decides; every answer is worked out by hand."""

from __future__ import annotations

import pytest

from mgmt.errors import PolicyError, TypeMismatchError, UnsupportedConstructError
from tests.mgmt.test_meaning import SCHEMA, THREE, place, placed, solve, tasks

pytestmark = pytest.mark.usefixtures("each_database")

# Hosts a (r1, 5), b (r1, 9) and c (r2, 7, not up); tasks 1 and 2 of weight 1.
LEFT = "host LEFT JOIN task ON task.variable__host = host.name"
TWO = tasks((1, 1, None), (2, 1, None))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # A row without a partner is there only when the solver leaves it without one.
        (f"SELECT host.name FROM {LEFT} CHECK task.id IS NOT NULL OR host.name = 'a' OR host.up", {"cc", "ac", "bc"}),
        (f"SELECT host.name, host.size, count(*) AS n, count(task.id) AS k, sum(task.weight) AS w FROM {LEFT} "
         "GROUP BY host.name CHECK (k = 0 AND n = 1 AND w = 0 AND host.size > 5) OR (k = 2 AND n = 2 AND w = 2)",
         {"aa"}),
        (f"SELECT * FROM {LEFT} WHERE task.id IS NULL MAXIMIZE sum(host.size)", {"aa"}),
        (f"SELECT host.name FROM {LEFT} JOIN host other ON other.rack = host.rack AND other.name <> host.name "
         "CHECK task.id IS NULL", {"cc"}),
        ("SELECT h.* FROM task t RIGHT JOIN host h ON t.variable__host = h.name WHERE t.id IS NULL "
         "MINIMIZE sum(h.size)", {"bc"}),
        ("SELECT 1 AS x FROM task t FULL JOIN (SELECT * FROM host WHERE up) h ON t.variable__host = h.name "
         "MINIMIZE sum(CASE WHEN t.id IS NULL THEN 100 WHEN h.name IS NULL THEN 1000 ELSE h.size END)", {"ab"}),
        ("SELECT t.id, h.name FROM task t LEFT JOIN host h ON t.variable__host = h.name AND h.up "
         "CHECK h.name IS NULL", {"cc"}),
        (f"SELECT variable__host FROM {LEFT} GROUP BY variable__host CHECK count(*) IN (0, 2)", {"aa", "bb", "cc"}),
        ("SELECT DISTINCT host.rack FROM task JOIN host ON variable__host = name MAXIMIZE count(*)",
         {"ac", "bc"}),
        ("SELECT DISTINCT host.rack AS place FROM task JOIN host ON variable__host = name CHECK host.rack = 'r2'",
         {"cc"}),
        ("SELECT DISTINCT variable__host FROM task MINIMIZE count(variable__host)", {"aa", "bb", "cc"}),
        ("SELECT * FROM (SELECT variable__host AS place FROM task UNION SELECT variable__host FROM task WHERE id = 1) "
         "AS u CHECK count(*) = 1", {"aa", "bb", "cc"}),
        ("SELECT name FROM (SELECT variable__host AS place FROM task UNION ALL SELECT 'b') AS u "
         "JOIN host ON place = name GROUP BY name CHECK count(*) IN (0, 3)", {"bb"}),
        ("SELECT * FROM (SELECT id FROM task WHERE variable__host = 'a' UNION ALL SELECT id FROM task WHERE "
         "variable__host = 'b' UNION ALL SELECT 7) AS u CHECK count(*) = 1", {"cc"}),
        ("WITH x AS (SELECT id, variable__host AS h FROM task UNION ALL SELECT 9, 'b') SELECT * FROM x "
         "WHERE h <> 'a' CHECK all_different(h) AND count(*) = 3", set()),
        ("WITH x AS (SELECT id, variable__host AS h FROM task UNION ALL SELECT 9, 'b') SELECT * FROM x "
         "WHERE h <> 'a' CHECK all_different(h) AND count(*) = 2", {"ac"}),
        ("SELECT * FROM (SELECT variable__host AS h FROM task UNION SELECT name FROM host WHERE name = 'a') AS u "
         "CHECK count(*) = 1", {"aa"}),
        ("SELECT host.name FROM host JOIN task USING (name) CHECK TRUE", None),
    ],
)  # fmt: skip
def test_rows_that_the_solver_joins_and_unites(policy: str, expected: set[str] | None) -> None:
    text = f"CREATE CONSTRAINT c AS {policy}"
    if not expected:
        with pytest.raises(PolicyError):
            place(text, THREE, TWO)
        return
    found = "".join(sorted(place(text, THREE, TWO).values()))
    assert found in expected


def test_null_is_a_group_of_a_variable_that_may_be_null() -> None:
    schema = SCHEMA.replace("variable__host TEXT NOT NULL", "variable__host TEXT")
    rows = {"host": THREE[:2], "task": tasks((1, 1, None), (2, 1, None), (3, 1, None))}
    policy = (
        "CREATE CONSTRAINT c AS SELECT variable__host FROM task GROUP BY variable__host CHECK count(*) = 1"
    )
    assert set(placed(solve(schema, rows, policy)).values()) == {None, "a", "b"}


@pytest.mark.parametrize(
    ("policy", "error", "what"),
    [
        ("CREATE VIEW v AS SELECT id FROM task WHERE variable__host = 'a'\n  EXCEPT SELECT 1", "unsupported", "EXCEPT"),
        ("CREATE VIEW v AS SELECT id FROM task WHERE variable__host = 'a'\n  INTERSECT SELECT 1", "unsupported",
         "INTERSECT"),
        ("CREATE VIEW v AS SELECT variable__host FROM task\n  UNION ALL SELECT size FROM host", "type", "text"),
        ("CREATE VIEW v AS SELECT variable__host FROM task\n  UNION ALL SELECT size, 1 FROM host", "syntax", "columns"),
    ],
)  # fmt: skip
def test_what_cannot_be_united_is_refused_by_name(policy: str, error: str, what: str) -> None:
    with pytest.raises(PolicyError) as caught:
        place(policy + "; CREATE CONSTRAINT c AS SELECT * FROM v CHECK TRUE", THREE, TWO)
    kinds = {"unsupported": UnsupportedConstructError, "type": TypeMismatchError}
    assert isinstance(caught.value, kinds.get(error, PolicyError))
    assert what in str(caught.value)
    assert caught.value.position is not None

"""Subqueries over what the solver decides; every answer is worked out by hand."""

from __future__ import annotations

import pytest

from mgmt.errors import InfeasibleError, PolicyError, UnknownColumnError, UnsupportedConstructError
from tests.mgmt.test_meaning import THREE, place, tasks

pytestmark = pytest.mark.usefixtures("each_database")

# Hosts a (r1, 5), b (r1, 9) and c (r2, 7, not up); tasks 1 and 2 of weight 1, unless one is enough.


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("task CHECK EXISTS (SELECT 1 FROM host WHERE name = variable__host AND rack = 'r2')", "cc"),
        ("task CHECK (SELECT rack FROM host WHERE name = variable__host) = 'r2'", "cc"),
        ("task CHECK (SELECT h.size FROM host h WHERE h.name = variable__host) > 7", "bb"),
        ("host CHECK size <> 9 OR (SELECT count(*) FROM task WHERE variable__host = host.name) = 2", "bb"),
        ("host CHECK size = 7 OR (SELECT sum(weight) FROM task WHERE variable__host = host.name) = 0", "cc"),
        ("host CHECK size = 7 OR (SELECT coalesce(sum(weight), 5) FROM task WHERE variable__host = name) = 0", "cc"),
        ("task JOIN host ON variable__host = name CHECK host.size + 8 < "  # of what the solver has no say in it is NULL
         "(SELECT sum(h.size) FROM host h WHERE h.rack = host.rack AND h.size > 8)", "cc"),
        ("task CHECK variable__host = (SELECT t.variable__host FROM task t WHERE t.id = 2) AND "
         "(id = 1 OR variable__host = 'b')", "bb"),
        ("host CHECK name IN (SELECT variable__host FROM task) OR up", "c"),
        ("host CHECK name NOT IN (SELECT variable__host FROM task WHERE id < 5) OR NOT up", "cc"),
        ("host CHECK name IN (SELECT DISTINCT variable__host FROM task ORDER BY 1) OR up", "c"),
        ("task CHECK variable__host IN (SELECT h.name FROM host h WHERE h.size > task.weight + 7)", "bb"),
        ("task CHECK (variable__host, id) IN (('a', 1), ('c', 2))", "ac"),
        ("task CHECK (variable__host, id) = ('b', 1) OR id = 2 AND variable__host = 'a'", "ba"),
        ("task CHECK (variable__host, id) IN (SELECT name, size - 6 FROM host) OR (id = 2 AND "
         "variable__host = 'b')", "cb"),
        ("task CHECK (SELECT size FROM host WHERE name = variable__host) >= ALL (SELECT size FROM host)", "bb"),
        ("task CHECK (SELECT size FROM host WHERE name = variable__host) < ANY (SELECT size - 1 FROM host)"
         " AND variable__host <> 'a'", "cc"),
        ("host CHECK size >= ALL (SELECT size FROM host) OR NOT EXISTS "
         "(SELECT * FROM task WHERE task.variable__host = host.name)", "bb"),
        ("task WHERE EXISTS (SELECT 1 FROM host WHERE name = variable__host AND EXISTS (SELECT 1 FROM host o "
         "WHERE o.rack = host.rack AND o.name <> task.variable__host)) CHECK FALSE", "cc"),
        ("task CHECK variable__host = 'b' AND variable__host IN "
         "(SELECT variable__host FROM task GROUP BY variable__host HAVING count(*) = 2)", "bb"),
        ("task JOIN host ON variable__host = name GROUP BY host.name, host.size CHECK host.size <= "
         "(SELECT min(size) FROM host) OR count(*) = 0", "aa"),
        ("task JOIN host ON variable__host = name GROUP BY host.name CHECK count(*) = 0 OR "
         "sum((SELECT h.size FROM host h WHERE h.name = variable__host)) >= 18", "bb"),
        ("host CHECK name <> 'b' OR 1 < (SELECT count(*) FROM (SELECT id FROM task WHERE variable__host = 'b') "
         "AS some)", "bb"),
        ("host WHERE name = 'a' CHECK 2 = ALL (SELECT count(*) FROM task WHERE variable__host = host.name)", "aa"),
    ],
)  # fmt: skip
def test_a_subquery_over_what_the_solver_decides(policy: str, expected: str) -> None:
    rows = tasks((1, 1, None), (2, 1, None))[: len(expected)]
    found = place(f"CREATE CONSTRAINT c AS SELECT 1 AS one FROM {policy}", THREE, rows)
    assert "".join(found[number] for number in sorted(found)) == expected


def test_not_in_is_unknown_beside_a_null_and_passes_a_check_but_no_where() -> None:
    rows = tasks((1, 1, None))
    nothing = "(SELECT host FROM task WHERE variable__host <> 'a')"  # holds NULL unless on a
    assert place(
        f"CREATE CONSTRAINT c AS SELECT 1 AS x FROM host CHECK name NOT IN {nothing};"
        f"CREATE CONSTRAINT d AS SELECT 1 AS x FROM host WHERE name NOT IN {nothing} CHECK FALSE",
        THREE,
        rows,
    )[1] in {"b", "c"}
    with pytest.raises(InfeasibleError):
        place(
            f"CREATE CONSTRAINT c AS SELECT 1 AS x FROM host WHERE name NOT IN {nothing} CHECK FALSE;"
            "CREATE CONSTRAINT d AS SELECT * FROM task CHECK variable__host = 'a'",
            THREE,
            rows,
        )


@pytest.mark.parametrize(
    ("check", "error", "what"),
    [
        ("(SELECT variable__host FROM task) = 'b'", UnsupportedConstructError, "several rows"),
        ("size = (SELECT t.weigth FROM task t)", UnknownColumnError, "weigth"),
        ("name IN (SELECT t.variable__host, t.id FROM task t)", PolicyError, "2 columns"),
        ("size = (SELECT t.id FROM task t WHERE t.variable__host = host.name ORDER BY t.id LIMIT 1)",
         UnsupportedConstructError, "limit"),
    ],
)  # fmt: skip
def test_what_is_no_sound_subquery_is_refused_with_its_place(
    check: str, error: type[PolicyError], what: str
) -> None:
    with pytest.raises(error) as caught:
        place(
            f"CREATE CONSTRAINT c AS SELECT * FROM host CHECK\n  {check}",
            THREE,
            tasks((1, 1, None), (2, 1, None)),
        )
    assert caught.value.line == 2
    assert what in str(caught.value).lower()

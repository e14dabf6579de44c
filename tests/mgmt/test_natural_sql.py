"""SQL as people write it, over what the solver decides: the answer is the one that trying every choice finds."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.solution import Value
from tests.mgmt.support import UNHURRIED, brute_force, database, solution_value

TIMETABLE = """
CREATE TABLE slot (id INTEGER PRIMARY KEY, day INTEGER NOT NULL, hour INTEGER NOT NULL);
CREATE TABLE lecture (id INTEGER PRIMARY KEY, teacher TEXT NOT NULL, variable__slot INTEGER REFERENCES slot (id));
"""
LECTURES: dict[str, list[dict[str, Value]]] = {
    "slot": [{"id": slot, "day": slot // 2, "hour": 9 + slot % 2} for slot in range(4)],
    "lecture": [{"id": 1, "teacher": "t"}, {"id": 2, "teacher": "t"}, {"id": 3, "teacher": "u"}],
}
HELD = """
CREATE VIEW held AS SELECT l.id, l.teacher, s.id AS slot, s.day, s.hour, s.id / 2 AS half
  FROM lecture AS l JOIN slot AS s ON l.variable__slot = s.id;
CREATE VIEW busy AS SELECT l.teacher, l.variable__slot / 2 AS day FROM lecture AS l;
CREATE VIEW often AS SELECT s.id AS slot, count(*) AS lectures
  FROM lecture AS l JOIN slot AS s ON l.variable__slot = s.id GROUP BY s.id;
"""
EVERY = (
    "CREATE CONSTRAINT every AS SELECT * FROM lecture MINIMIZE sum(coalesce(variable__slot, 9) * id) TIER 2;"
)
OF_LECTURES = {
    "a self join by the key of what is chosen":
        "x.id FROM held AS x JOIN held AS y ON y.teacher = x.teacher AND y.slot = x.slot + 1 CHECK FALSE",
    "a CTE beside NOT EXISTS": """b.id FROM used AS b WHERE b.hour > 9
        AND NOT EXISTS (SELECT 1 FROM used AS o WHERE o.day = b.day AND o.hour = b.hour - 1) CHECK FALSE""",
    "GROUP BY and HAVING of the rows around": """l.id FROM lecture AS l CHECK NOT EXISTS (
        SELECT s.day FROM lecture AS k JOIN slot AS s ON k.variable__slot = s.id WHERE k.teacher = l.teacher
        GROUP BY s.day HAVING count(*) > 1)""",
    "HAVING alone": """s.id FROM slot AS s CHECK s.hour = 10
        OR NOT EXISTS (SELECT 1 FROM lecture AS l WHERE l.variable__slot = s.id HAVING count(*) > 0)""",
    "a group of a choice, correlated": """s.id FROM slot AS s CHECK 1 >= ALL (
        SELECT count(*) FROM lecture AS l WHERE l.variable__slot <= s.id GROUP BY l.variable__slot % 2)""",
    "groups by what a view computes": "teacher FROM busy GROUP BY teacher, day CHECK count(*) <= 1",
    "groups by an expression": """CASE WHEN variable__slot < 2 THEN 'early' ELSE 'late' END AS part,
        variable__slot % 2 AS half FROM lecture GROUP BY part, half CHECK count(*) < 2""",
    "groups by a count": "lectures FROM often GROUP BY lectures CHECK count(*) <= 2",
    "no group without rows": "day FROM busy GROUP BY day CHECK count(*) <> 1",
    "distances": """a.id FROM lecture AS a JOIN lecture AS b ON a.id < b.id AND a.teacher = b.teacher
        CHECK abs(a.variable__slot - b.variable__slot) >= 2""",
    "modulo": """a.id FROM lecture AS a JOIN lecture AS b ON a.id < b.id AND a.teacher = b.teacher
        CHECK (a.variable__slot - b.variable__slot) % 2 <> 0""",
    "a function of two choices": """a.id FROM lecture AS a JOIN lecture AS b ON b.id = a.id + 1
        CHECK CAST(a.variable__slot AS TEXT) || CAST(b.variable__slot AS TEXT) IN ('01', '12', '20')""",
}  # fmt: skip
CALENDAR = """
CREATE TABLE day (date DATE PRIMARY KEY, need INTEGER NOT NULL);
CREATE TABLE duty (id INTEGER PRIMARY KEY, days INTEGER NOT NULL, variable__start DATE NOT NULL REFERENCES day (date));
"""
DUTIES: dict[str, list[dict[str, Value]]] = {
    "day": [{"date": f"2026-01-0{day}", "need": 1} for day in range(2, 6)],
    "duty": [{"id": 1, "days": 2}, {"id": 2, "days": 2}],
}
EARLY = """CREATE CONSTRAINT early AS SELECT * FROM duty JOIN day ON date = variable__start
  MINIMIZE sum(id * (date - DATE '2026-01-01')) TIER 2;"""
OF_DUTIES = {
    "a calendar by range": """day.date FROM day JOIN duty ON date BETWEEN variable__start AND variable__start + days - 1
        GROUP BY day.date, day.need CHECK count(*) >= day.need""",
    "an open range": """day.date FROM day JOIN duty ON day.date >= variable__start AND day.date < variable__start + days
        GROUP BY day.date CHECK count(*) <= 1""",
    "days apart": "a.id FROM duty AS a, duty AS b WHERE a.id < b.id CHECK b.variable__start - a.variable__start >= 2",
    "in turn": "a.id FROM duty AS a, duty AS b WHERE a.id < b.id CHECK a.variable__start > b.variable__start",
    "no weekend": "id FROM duty CHECK isodow(variable__start) < 6 AND monthname(variable__start) LIKE 'J%'",
    "groups of weeks": "week(variable__start) AS week FROM duty GROUP BY week CHECK count(*) = 1",
    "next day": "a.id FROM duty AS a, duty AS b WHERE b.id = a.id + 1 CHECK b.variable__start = 1 + a.variable__start",
    "a date and a time": """a.id FROM duty AS a JOIN duty AS b ON b.id = a.id + 1
        CHECK b.variable__start = a.variable__start + INTERVAL 2 DAY""",
}  # fmt: skip


def agrees(schema: str, rows: dict[str, list[dict[str, Value]]], policies: str) -> None:
    """By the engines, and by the constraint model alone; where nothing is allowed, neither finds anything."""
    state = database(schema, rows)
    found = set[tuple[int, ...] | None]()
    for backend in (None, CpSatBackend()):
        model = Model.build(state, policies, backend=backend)
        try:
            found.add(solution_value(model, model.solve(budget=UNHURRIED, clashes=False)))
        except InfeasibleError:
            found.add(None)
    best = brute_force(model, state)
    assert found == {None if best is None else best[0]}


@pytest.mark.slow("a second each: solved twice, and by trying every timetable")
@pytest.mark.parametrize("says", OF_LECTURES.values(), ids=OF_LECTURES)
def test_a_timetable_in_natural_sql(says: str) -> None:
    used = "WITH used AS (SELECT id, teacher, day, hour FROM held)" if "FROM used" in says else ""
    agrees(TIMETABLE, LECTURES, f"{HELD} CREATE CONSTRAINT c AS {used} SELECT {says}; {EVERY}")


@pytest.mark.parametrize("says", OF_DUTIES.values(), ids=OF_DUTIES)
def test_a_calendar_in_natural_sql(says: str) -> None:
    agrees(CALENDAR, DUTIES, f"CREATE CONSTRAINT c AS SELECT {says}; {EARLY}")


@pytest.mark.parametrize(
    "listed", ["task, host FROM listed", "task + 1, host FROM listed WHERE host IS NULL"]
)
@pytest.mark.parametrize("how", ["CHECK {}", "WHERE {} CHECK id > 1", "MAXIMIZE count(*) FILTER (WHERE {})"])
@pytest.mark.parametrize("test", ["IN", "NOT IN"])
def test_a_row_is_in_a_list_with_a_null_only_where_the_rest_is_the_same(
    listed: str, how: str, test: str
) -> None:
    schema = """
    CREATE TABLE host (name TEXT PRIMARY KEY);
    CREATE TABLE listed (number INTEGER PRIMARY KEY, task INTEGER, host TEXT);
    CREATE TABLE task (id INTEGER PRIMARY KEY, variable__host TEXT REFERENCES host (name));
    """
    rows: dict[str, list[dict[str, Value]]] = {
        "host": [{"name": "a"}, {"name": "b"}],
        "listed": [{"number": 1, "task": 1, "host": "a"}, {"number": 2, "task": 2, "host": None}],
        "task": [{"id": 1}, {"id": 2}, {"id": 3}],
    }
    says = how.format(f"(id, variable__host) {test} (SELECT {listed})")
    agrees(
        schema,
        rows,
        f"CREATE CONSTRAINT c AS SELECT * FROM task {says};"
        "CREATE CONSTRAINT price AS SELECT * FROM task "
        "MINIMIZE sum(id * CASE variable__host WHEN 'a' THEN 1 WHEN 'b' THEN 0 ELSE 3 END) TIER 2;",
    )

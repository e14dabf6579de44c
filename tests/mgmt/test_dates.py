"""Dates and times: the same texts in both databases, computed as PostgreSQL does, stored, solved with, re-checked."""

from __future__ import annotations

from datetime import UTC, date, datetime
from random import Random

import pytest

import mgmt
from mgmt.compiler.model import Model
from mgmt.errors import (
    DataError,
    PolicyError,
    PolicySyntaxError,
    TypeMismatchError,
    UnsupportedConstructError,
)
from mgmt.state.database import Database
from tests.mgmt.support import BACKEND, database
from tests.postgres_server import PostgresServer

SCHEMA = """
CREATE TABLE calendar (day DATE PRIMARY KEY, holiday BOOLEAN NOT NULL);
CREATE TABLE job (id INTEGER PRIMARY KEY, since DATE, seen TIMESTAMP, note TEXT, size INTEGER, day DATE,
  variable__day DATE NOT NULL REFERENCES calendar (day));
"""
ROWS: dict[str, list[dict[str, mgmt.Value]]] = {
    "calendar": [
        {"day": "2026-11-23", "holiday": False},
        {"day": "2026-11-24", "holiday": True},
        {"day": "2026-12-01", "holiday": False},
    ],
    "job": [
        {"id": 1, "since": "2026-01-31", "seen": "2026-11-23 07:40:00", "note": "2024-02-29", "size": 3},
        {
            "id": 2,
            "since": "2024-02-29",
            "seen": "2026-11-23 07:40:00.25",
            "note": "2026-11-23 01:02",
            "size": 40,
        },
        {"id": 3, "since": None, "seen": None, "note": None, "size": None},
    ],
}


def state() -> Database:
    return database(SCHEMA, ROWS)


def values(expression: str, source: str = "FROM job ORDER BY id") -> list[object]:
    """What a view of one column holds."""
    text = f"CREATE VIEW v AS\nSELECT {expression} AS x {source};"
    rule = "CREATE CONSTRAINT c AS SELECT * FROM job, v CHECK variable__day IS NOT NULL OR x IS NULL"
    model = Model.build(state(), mgmt.SourceText("p", f"{text} {rule}"))
    model.solve(budget=20)
    with model.database.snapshot() as snapshot, model.available_views(snapshot):
        return [value for (value,) in snapshot.rows("SELECT x FROM v")]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("since", ["2026-01-31", "2024-02-29", None]),
        ("seen", ["2026-11-23 07:40:00", "2026-11-23 07:40:00.25", None]),
        ("CAST(note AS DATE)", ["2024-02-29", "2026-11-23", None]),
        ("CAST(note AS TIMESTAMP)", ["2024-02-29 00:00:00", "2026-11-23 01:02:00", None]),
        ("date(seen)", ["2026-11-23", "2026-11-23", None]),
        ("datetime(since)", ["2026-01-31 00:00:00", "2024-02-29 00:00:00", None]),
        ("CAST(seen AS DATE) - since", [296, 998, None]),
        ("since + size", ["2026-02-03", "2024-04-09", None]),
        ("size + since", ["2026-02-03", "2024-04-09", None]),
        ("since - size", ["2026-01-28", "2024-01-20", None]),
        ("since - '2026-01-01'", [30, -672, None]),
        ("since + INTERVAL '1 month'", ["2026-02-28 00:00:00", "2024-03-29 00:00:00", None]),
        ("since + INTERVAL '1 year'", ["2027-01-31 00:00:00", "2025-02-28 00:00:00", None]),
        ("since - INTERVAL '1 month 1 day'", ["2025-12-30 00:00:00", "2024-01-28 00:00:00", None]),
        ("INTERVAL '-2 hours' + seen", ["2026-11-23 05:40:00", "2026-11-23 05:40:00.25", None]),
        ("seen + size * INTERVAL '1 minute'", ["2026-11-23 07:43:00", "2026-11-23 08:20:00.25", None]),
        ("seen - make_interval(hours => size)", ["2026-11-23 04:40:00", "2026-11-21 15:40:00.25", None]),
        ("seen + (INTERVAL '1 week' - INTERVAL '00:00:00.25')", ["2026-11-30 07:39:59.75",
         "2026-11-30 07:40:00", None]),
        ("EXTRACT(YEAR FROM since)", [2026, 2024, None]),
        ("date_part('month', since)", [1, 2, None]),
        ("EXTRACT(DOW FROM since) * 10 + EXTRACT(ISODOW FROM seen)", [61, 41, None]),
        ("EXTRACT(SECOND FROM seen)", [0.0, 0.25, None]),
        ("EXTRACT(EPOCH FROM seen - since)", [25602000.0, 86254800.25, None]),
        ("CAST(EXTRACT(EPOCH FROM seen) AS BIGINT)", [1795419600, 1795419600, None]),
        ("strftime('%d.%m.%Y %H:%M', seen)", ["23.11.2026 07:40", "23.11.2026 07:40", None]),
        ("julianday(since)", [2461071.5, 2460369.5, None]),
        ("unixepoch(since)", [1769817600, 1709164800, None]),
        ("to_timestamp(size)", ["1970-01-01 00:00:03", "1970-01-01 00:00:40", None]),
        ("date_trunc('month', since)", ["2026-01-01 00:00:00", "2024-02-01 00:00:00", None]),
        ("date_trunc('week', seen)", ["2026-11-23 00:00:00", "2026-11-23 00:00:00", None]),
        ("to_char(since, 'DD/MM/YYYY')", ["31/01/2026", "29/02/2024", None]),
        ("to_char(seen, 'IYYY-IW-ID DDD Q HH24:MI:SS.US')", ["2026-48-1 327 4 07:40:00.000000",
         "2026-48-1 327 4 07:40:00.250000", None]),
        ("make_date(2020 + id, 2, 28)", ["2021-02-28", "2022-02-28", "2023-02-28"]),
        ("since || '!'", ["2026-01-31!", "2024-02-29!", None]),
        ("coalesce(since, '2020-02-02')", ["2026-01-31", "2024-02-29", "2020-02-02"]),
        ("greatest(since, DATE '2025-01-01')", ["2026-01-31", "2025-01-01", None]),
        ("CASE WHEN id = 1 THEN seen ELSE since END", ["2026-11-23 07:40:00", "2024-02-29 00:00:00", None]),
        ("nullif(since, '2024-02-29')", ["2026-01-31", None, None]),
        ("lag(since) OVER (ORDER BY id) + 1", [None, "2026-02-01", "2024-03-01"]),
        ("since < '2025-01-01'", [0, 1, None]),
        ("TIMESTAMP '2024-02-29 00:00:00' = since", [0, 1, None]),
        ("seen BETWEEN '2026-11-23' AND '2026-11-23T07:40Z'", [1, 0, None]),
        ("since IN ('2026-01-31', '2026-02-01')", [1, 0, None]),
        ("since IN (SELECT day FROM calendar)", [0, 0, None]),
        ("since > ALL (SELECT c.day - 300 FROM calendar c)", [0, 0, None]),
        ("(SELECT max(c.day) FROM calendar c) - since", [304, 1006, None]),
        ("(SELECT count(*) FROM calendar c WHERE c.day > job.seen)", [2, 2, 0]),
        ("rank() OVER (ORDER BY since - DATE '2020-01-01')", [2, 1, 3]),
    ],
)  # fmt: skip
def test_dates_are_computed_alike(each_database: str, expression: str, expected: list[object]) -> None:
    assert each_database
    assert values(expression) == expected


def test_dates_are_grouped_ordered_and_aggregated(each_database: str) -> None:
    assert each_database
    assert values("max(since) - min(since)", "FROM job") == [702]
    assert values("count(*)", "FROM calendar GROUP BY date_trunc('month', day) ORDER BY min(day)") == [2, 1]
    assert values("day", "FROM calendar ORDER BY day + 1 DESC LIMIT 1") == ["2026-12-01"]
    assert values("day", "FROM calendar GROUP BY day HAVING max(day) > '2026-11-30'") == ["2026-12-01"]
    assert values("x.d", "FROM (SELECT day + 1 AS d FROM calendar) AS x WHERE x.d < '2026-11-25'") == [
        "2026-11-24"
    ]
    assert values(
        "d", "FROM (SELECT day AS d FROM calendar EXCEPT SELECT DATE '2026-11-23') AS u ORDER BY d"
    ) == [
        "2026-11-24",
        "2026-12-01",
    ]


@pytest.mark.parametrize(
    ("expression", "kind", "column", "hint"),
    [
        ("DATE '2026-02-30'", PolicySyntaxError, 13, "2026-11-23"),
        ("CAST('yesterday' AS DATE)", PolicySyntaxError, 13, "2026-11-23"),
        ("since < '23.11.2026'", PolicySyntaxError, 16, "2026-11-23"),
        ("CAST(note AS TIMESTAMPTZ)", UnsupportedConstructError, 13, "UTC"),
        ("CAST(note AS TIME)", UnsupportedConstructError, 13, "UTC"),
        ("seen AT TIME ZONE 'UTC'", UnsupportedConstructError, 8, "UTC"),
        ("CAST(size AS DATE)", TypeMismatchError, 13, "made of a text"),
        ("EXTRACT(YEAR FROM note)", TypeMismatchError, 26, "CAST"),
        ("since = note", TypeMismatchError, 16, "CAST"),
        ("since = size", TypeMismatchError, 8, "one type"),
        ("since = '2026-11-23 07:40'", TypeMismatchError, 16, "CAST"),
        ("seen + 1", TypeMismatchError, 15, "INTERVAL"),
        ("since + '2026-01-01'", TypeMismatchError, 16, "whole numbers"),
        ("since * 2", TypeMismatchError, 8, "texts"),
        ("seen - since", UnsupportedConstructError, 8, "EPOCH"),
        ("INTERVAL '1 day'", UnsupportedConstructError, 35, "add it to a date"),
        ("since + INTERVAL '1.5 days'", UnsupportedConstructError, 8, "whole numbers"),
        ("since + INTERVAL '1 fortnight'", UnsupportedConstructError, 8, "INTERVAL '1 year"),
        ("EXTRACT(JULIAN FROM since)", UnsupportedConstructError, 28, "dow"),
        ("date_trunc('century', since)", UnsupportedConstructError, 8, "month"),
        ("to_char(since, 'FMMonth')", UnsupportedConstructError, 8, "YYYY"),
        ("age(since, seen)", UnsupportedConstructError, 8, "subtract"),
        ("julianday(since, '+1 month')", UnsupportedConstructError, 8, "INTERVAL"),
        ("strftime('%s', since)", UnsupportedConstructError, 8, "%Y"),
        ("strftime('%Y MM', since)", UnsupportedConstructError, 8, "%Y"),
        ("strftime('%Y', since, 'start of month')", UnsupportedConstructError, 8, "date_trunc"),
        ("timediff(since, seen)", UnsupportedConstructError, 8, "EPOCH"),
        ("date(since, '+1 month')", UnsupportedConstructError, 8, "INTERVAL"),
        ("to_date(note, 'YYYY')", UnsupportedConstructError, 8, "CAST"),
        ("datetime('now', 'localtime')", UnsupportedConstructError, 8, "INTERVAL"),
        ("rota_date(note)", mgmt.UnknownFunctionError, 8, ""),
    ],
)  # fmt: skip
def test_what_has_no_one_meaning_is_refused_where_it_stands(
    each_database: str, expression: str, kind: type[PolicyError], column: int, hint: str
) -> None:
    assert each_database
    with pytest.raises(kind) as caught:
        values(expression)
    assert (caught.value.line, caught.value.column) == (2, column), caught.value
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(note || 'x' AS DATE)",
        "DATE '9999-12-31' + size",
        "DATE '0001-01-01' - size",
        "TIMESTAMP '0001-01-01 00:00:00' - INTERVAL '1 second'",
        "DATE '2026-01-31' + INTERVAL '8000 years'",
        "make_date(2026, size, 40)",
    ],
)
def test_what_is_no_date_in_some_row_is_told_with_its_place(each_database: str, expression: str) -> None:
    assert each_database
    with pytest.raises(DataError) as caught:
        values(expression)
    assert caught.value.line in {1, 2}


@pytest.mark.parametrize(
    "text",
    [
        "today", "infinity", "2026-11-31", "0000-01-01", "20261123", "2026-11-23 24:00", "2026-11-23 07:40+02", "",
        " 2026-11-23", "2026-11-23 BC", "J2461368", "Nov 23 2026", "2026-11-23 07:40:60", "2026-W48-1", "2026-11-23\n",
        "٢٠٢٦-١١-٢٣",
    ],
)  # fmt: skip
def test_neither_database_reads_more_than_the_other(each_database: str, text: str) -> None:
    """PostgreSQL by itself takes most of these."""
    assert each_database
    made = database("CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT, due DATE, variable__up BOOLEAN)")
    made.insert("t", [{"id": 1, "word": text}])
    model = Model.build(
        made,
        "CREATE VIEW v AS SELECT CAST(word AS DATE) AS x FROM t;"
        " CREATE CONSTRAINT c AS SELECT * FROM t, v CHECK variable__up OR x > '2026-01-01'",
    )
    with pytest.raises(DataError):
        model.solve(budget=20)
    with pytest.raises(DataError):
        made.insert("t", [{"id": 2, "due": text}])


# ---- against PostgreSQL's own arithmetic -------------------------------------------------------------------


def moment(random: Random) -> str:
    day = date.fromordinal(random.choice([random.randint(1, 3_652_059), random.randint(739_000, 740_500)]))
    clock = random.choice(["00:00:00", "23:59:59.999999", "07:40:00.5", f"{random.randrange(24):02}:00:59"])
    return f"{day} {clock}"


def random_expression(random: Random) -> str:
    """One over literals, which both databases compute."""
    pick, number = random.choice, random.randint
    one, other = (f"TIMESTAMP '{moment(random)}'" for _ in range(2))
    day, later = (f"DATE '{moment(random)[:10]}'" for _ in range(2))
    units = ["year", "month", "week", "day", "hour", "minute", "second", "microsecond"]
    larger, smaller = random.sample(units, 2)
    interval = f"INTERVAL '{number(-30, 30)} {larger} {number(-900, 900)} {smaller}'"
    return pick(
        [
            f"{pick([one, day])} {pick('+-')} {interval}",
            f"{pick([one, day])} {pick('+-')} {number(-50, 50)} * {interval}",
            f"{day} {pick('+-')} {number(-100_000, 100_000)}",
            f"{day} - {later}",
            f"EXTRACT(EPOCH FROM {one} - {other})",
            f"EXTRACT({pick(['year', 'quarter', 'month', 'week', 'day'])} FROM {pick([one, day])})",
            f"EXTRACT({pick(['dow', 'isodow', 'doy', 'isoyear'])} FROM {pick([one, day])})",
            f"EXTRACT({pick(['hour', 'minute', 'second', 'epoch'])} FROM {one})",
            f"date_trunc('{pick(['year', 'quarter', 'month', 'week', 'day', 'hour', 'minute', 'second'])}', {one})",
            f"to_char({one}, 'YYYY-MM-DD HH24:MI:SS.US MS DDD Q IYYY IW ID')",
            f"to_timestamp({number(-(10**9), 4 * 10**9)} + 0.25)",
            f"CAST({one} AS DATE) < {day}",
            f"{one} {pick(['<', '<=', '=', '>'])} {day}",
            f"CAST({day} AS TIMESTAMP)",
        ]
    )


@pytest.mark.postgres
def test_random_dates_are_what_postgresql_makes_of_them(postgres_server: PostgresServer) -> None:
    """SQLite's answer, PostgreSQL's by way of our translation, and PostgreSQL's own, to the text as it is written."""
    random = Random(11)
    states = [BACKEND.open(), BACKEND.open(postgres_server.url(postgres_server.new_namespace()))]
    for each in states:
        each.load_schema("CREATE TABLE t (id INTEGER PRIMARY KEY, variable__up BOOLEAN)")
    compared = 0
    for text in [random_expression(random) for _ in range(120)]:
        found = [computed(each, text) for each in states]
        assert found[0] == found[1], text
        if found[0] is not None:
            ((native,),) = postgres_server.run(f"SELECT {text}")
            assert plain(native) == found[0], text
            compared += 1
    BACKEND.close()
    assert compared > 100


def computed(each: Database, text: str) -> object:
    """What a state database computes; None for what lies outside of the years 1 to 9999."""
    rule = "CREATE CONSTRAINT c AS SELECT * FROM t, v CHECK variable__up"
    try:
        model = Model.build(each, f"CREATE VIEW v AS SELECT {text} AS x; {rule}")
    except DataError:
        return None
    with each.snapshot() as snapshot, model.available_views(snapshot):
        ((value,),) = snapshot.rows("SELECT x FROM v")
        return value


def plain(value: object) -> object:
    """What psycopg makes of an answer, as we write it."""
    if isinstance(value, datetime):
        found = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        text = found.isoformat(" ")
        return text.rstrip("0") if found.microsecond else text
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, (str, bool)) else float(str(value))


# ---- columns -----------------------------------------------------------------------------------------------


def test_columns_of_dates_take_dates_alone(each_database: str) -> None:
    made = state()
    made.insert("calendar", [{"day": date(2027, 1, 2), "holiday": False}])
    made.insert("job", [{"id": 9, "seen": datetime(2027, 1, 2, 3, 4, 5, 600000, UTC)}])
    made.insert("job", [{"id": 10, "seen": "2027-01-02T03:04Z"}])
    assert made.execute("SELECT seen FROM job WHERE id > 8 ORDER BY id") == [
        ("2027-01-02 03:04:05.6",),
        ("2027-01-02 03:04:00",),
    ]
    assert made.execute("SELECT day FROM calendar WHERE day > '2027-01-01'") == [("2027-01-02",)]
    made.execute("UPDATE job SET since = '2026-12-24' WHERE id = 9")
    made.execute("UPDATE job SET since = ? WHERE id = ?", ("2026-12-25", 10))
    assert made.execute("SELECT since FROM job WHERE id > 8 ORDER BY id") == [
        ("2026-12-24",),
        ("2026-12-25",),
    ]
    for column, value in (
        ("since", "2026-02-30"),
        ("since", 7),
        ("since", "2026-11-23 07:40:00"),
        ("seen", "noon"),
    ):
        with pytest.raises(DataError):
            made.insert("job", [{"id": 11, column: value}])
    with pytest.raises(PolicyError):
        made.execute("UPDATE job SET since = 'now and then'")
    if each_database == "sqlite":  # what another program may write into the file
        for wrong in ("2026-11-31", "2026-11-23 01:00:00", "0000-01-01", "now", "2026-1-1", ""):
            with pytest.raises(DataError):
                made.execute("UPDATE job SET since = ?", (wrong,))
        for wrong in (
            "2026-11-23",
            "2026-11-23T01:00:00",
            "2026-11-23 01:00:00.50",
            "2026-11-23 24:00:00",
            "2026-11-23 01:00:00.",
        ):
            with pytest.raises(DataError):
                made.execute("UPDATE job SET seen = ?", (wrong,))


@pytest.mark.postgres
def test_postgresql_stores_dates_natively(postgres_server: PostgresServer) -> None:
    namespace = postgres_server.new_namespace()
    made = BACKEND.open(postgres_server.url(namespace))
    made.load_schema(SCHEMA)
    made.insert("job", [{"id": 1, "since": "2026-11-23", "seen": "2026-11-23 07:40:00"}])
    assert postgres_server.run("SELECT since, seen FROM job", namespace) == [
        (date(2026, 11, 23), datetime(2026, 11, 23, 7, 40))
    ]
    with pytest.raises(Exception, match="check"):
        postgres_server.run("UPDATE job SET since = 'infinity'", namespace)
    other = BACKEND.open(postgres_server.url(namespace))
    other.load_schema(SCHEMA)  # it is there, and of these types
    BACKEND.close()


@pytest.mark.parametrize(
    "check",
    [
        "since > '2000-01-01'",
        "since > DATE '2000-01-01'",
        "since BETWEEN DATE '2000-01-01' AND '2999-12-31'",
        "since <> day",
        "DATE '2000-01-01' < since",
        "since IS NOT NULL OR day IS NULL",
    ],
)
def test_a_schema_compares_dates(each_database: str, check: str) -> None:
    made = database(
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, since DATE DEFAULT '2026-11-23', day DATE, CHECK ({check}))"
    )
    made.insert("t", [{"id": 1}])
    assert made.execute("SELECT since FROM t") == [("2026-11-23",)]
    with pytest.raises(DataError):
        made.insert("t", [{"id": 2, "since": None if "NULL" in check else "1999-12-31", "day": "1999-12-31"}])


@pytest.mark.parametrize(
    ("definition", "error"),
    [
        ("since DATE CHECK (since + 1 > '2026-11-23')", UnsupportedConstructError),
        ("since DATE, n INTEGER CHECK (EXTRACT(YEAR FROM since) > n)", UnsupportedConstructError),
        ("since DATE, seen TIMESTAMP CHECK (since < seen)", UnsupportedConstructError),
        ("since DATE CHECK (length(since) = 10)", UnsupportedConstructError),
        ("since TEXT CHECK (CAST(since AS DATE) > '2026-11-23')", UnsupportedConstructError),
        ("since DATE CHECK (since > '2026-02-30')", PolicySyntaxError),
        ("since DATE DEFAULT 'tomorrow'", PolicySyntaxError),
        ("since TIMESTAMPTZ", UnsupportedConstructError),
        ("since INTERVAL", UnsupportedConstructError),
    ],
)
def test_a_schema_does_not_compute_with_dates(definition: str, error: type[PolicyError]) -> None:
    """Known error of ours: CAST (... AS DATE) in a CHECK was the number 2026 in SQLite."""
    with pytest.raises(error) as caught:
        database(f"CREATE TABLE t (id INTEGER PRIMARY KEY,\n{definition})")
    assert caught.value.line == 2
    assert caught.value.hint


# ---- solving -----------------------------------------------------------------------------------------------

WORK = """
CREATE VIEW deadline AS SELECT id, since + INTERVAL '10 months' AS latest FROM job WHERE since > DATE '2026-01-01';
CREATE CONSTRAINT no_holiday AS SELECT * FROM job JOIN calendar ON variable__day = calendar.day CHECK NOT holiday;
CREATE CONSTRAINT in_time AS
SELECT * FROM job JOIN deadline ON deadline.id = job.id JOIN calendar ON job.variable__day = calendar.day
CHECK calendar.day <= deadline.latest;
CREATE VIEW placed AS SELECT id, since, seen, variable__day AS d FROM job WHERE since IS NOT NULL;
CREATE CONSTRAINT by_view AS
SELECT * FROM placed WHERE placed.since + 900 < placed.seen CHECK d <> '2026-11-23';
CREATE CONSTRAINT late AS
SELECT * FROM job JOIN calendar ON variable__day = calendar.day MAXIMIZE sum(calendar.day - DATE '2026-11-23');
"""


def test_a_solve_with_dates_is_checked_applied_and_kept_up_to_date(each_database: str) -> None:
    assert each_database
    made = state()
    model = Model.build(made, WORK)
    first = model.solve(budget=20)
    assert first.assignments["job", "variable__day"] == {
        (1,): "2026-11-23",
        (2,): "2026-12-01",
        (3,): "2026-12-01",
    }
    assert first.objectives[0].after == 16
    made.apply(first)
    assert made.execute("SELECT variable__day FROM job ORDER BY id") == [
        ("2026-11-23",),
        ("2026-12-01",),
        ("2026-12-01",),
    ]
    assert model.solve(budget=20).deltas == ()
    made.execute("UPDATE job SET since = '2026-02-01' WHERE id = 1")  # now there is a day more
    again = model.solve(budget=20)
    assert again.assignments["job", "variable__day"][1,] == "2026-12-01"
    assert again.assignments == Model.build(made, WORK).solve(budget=20).assignments
    assert again.assignments == Model.build(made.clone(), WORK).solve(budget=20).assignments


def test_days_that_the_solver_chooses_are_compared_by_what_they_are(each_database: str) -> None:
    assert each_database
    rule = "CREATE CONSTRAINT c AS SELECT * FROM job CHECK {}"
    fixed = Model.build(state(), rule.format("variable__day = '2026-12-01'")).solve(budget=20)
    assert set(fixed.assignments["job", "variable__day"].values()) == {"2026-12-01"}
    listed = Model.build(
        state(), rule.format("variable__day IN (DATE '2026-11-24') PINNED WHERE since > '2999-01-01'")
    )
    assert set(listed.solve(budget=20).assignments["job", "variable__day"].values()) == {"2026-11-24"}


@pytest.mark.parametrize(
    ("check", "what"),
    [
        ("variable__day > '2026-11-23'", "text that the solver decides"),
        ("variable__day + 1 > since", "which the solver decides"),
        ("variable__day - since < 3", "which the solver decides"),
        ("EXTRACT(DOW FROM variable__day) < 6", "which the solver decides"),
        ("variable__day + INTERVAL '1 month' > seen", "which the solver decides"),
        ("to_char(variable__day, 'MM') = '11'", "which the solver decides"),
        ("CAST(variable__day AS TIMESTAMP) = seen", "which the solver decides"),
    ],
)
def test_dates_that_the_solver_decides_are_not_computed_with(
    each_database: str, check: str, what: str
) -> None:
    assert each_database
    with pytest.raises(UnsupportedConstructError) as caught:
        Model.build(state(), f"CREATE CONSTRAINT c AS\nSELECT * FROM job CHECK {check}")
    assert caught.value.line == 2
    assert caught.value.hint
    assert what in caught.value.message

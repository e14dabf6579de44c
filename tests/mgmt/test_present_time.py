"""The present time in policies: one moment for a whole solve and all that is asked of it, alike in both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

import mgmt
from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, PolicySyntaxError, VerificationError
from mgmt.explaining.policies.compilation_report import report_compilation
from mgmt.explaining.policies.policy_test_syntax import parse_tests
from mgmt.explaining.policies.policy_tests import run_tests
from mgmt.explaining.solutions.decision_log import decision_log
from mgmt.explaining.solutions.headroom import headroom
from mgmt.explaining.solutions.replay_bundle import Bundle, answer_of, bundle_of, bundle_of_error
from mgmt.explaining.solutions.what_if import what_if
from mgmt.explaining.solutions.why import why, why_not
from mgmt.placement.intent import PolicyChoice
from mgmt.solving.placement_solver import PolicySolver, Solved
from mgmt.source_text import SourceText
from mgmt.state import database as database_module
from tests.mgmt.control.test_with_the_datastore_pack import small_state
from tests.mgmt.support import database
from tests.mgmt.test_solving import LyingBackend

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, room INTEGER NOT NULL, until TIMESTAMP NOT NULL, bought DATE NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, host TEXT, variable__host TEXT NOT NULL REFERENCES host (name));
"""
ROWS: dict[str, list[dict[str, mgmt.Value]]] = {
    "host": [
        {"name": "a", "room": 9, "until": "2026-11-20 12:00:00", "bought": "2024-02-29"},
        {"name": "b", "room": 2, "until": "2026-11-30 12:00:00", "bought": "2025-02-28"},
        {"name": "c", "room": 2, "until": "2026-12-24 12:00:00", "bought": "2026-02-28"},
    ],
    "task": [{"id": 1}, {"id": 2}],
}
LEASED = """
CREATE VIEW leased AS SELECT name, room FROM host WHERE until > now() + INTERVAL '1 day';
CREATE CONSTRAINT on_leased AS SELECT id FROM task CHECK variable__host IN (SELECT name FROM leased);
CREATE CONSTRAINT room AS SELECT host.name FROM task JOIN host ON variable__host = host.name
  GROUP BY host.name, host.room CHECK count(*) <= host.room;
CREATE CONSTRAINT early AS SELECT id FROM task JOIN host ON variable__host = host.name
  MINIMIZE sum(EXTRACT(DAY FROM until));
"""
NOVEMBER = datetime(2026, 11, 10, 7, 40, 0, 250000)
LATER = datetime(2026, 11, 23)
DECEMBER = datetime(2026, 12, 1)


def model_of(policy: str = LEASED) -> Model:
    return Model.build(database(SCHEMA, ROWS), SourceText("p", policy))


def hosts(solution: mgmt.Solution) -> str:
    return "".join(str(value) for value in solution.assignments["task", "variable__host"].values())


def value(expression: str) -> object:
    """What a view of one cell holds, in the solve that has checked it."""
    rule = "CREATE CONSTRAINT c AS SELECT * FROM task, v CHECK variable__host IS NOT NULL OR x IS NULL"
    model = model_of(f"CREATE VIEW v AS SELECT {expression} AS x FROM host WHERE name = 'a'; {rule}")
    moment = model.solve(20, now=NOVEMBER).moment
    assert moment == NOVEMBER.replace(tzinfo=UTC)
    with model.database.snapshot(moment) as snapshot, model.available_views(snapshot):
        return snapshot.rows("SELECT x FROM v")[0][0]


class Clock(datetime):
    """Goes on by a day whenever somebody looks."""

    days = 0

    @classmethod
    def now(cls, tz: object = None) -> Clock:
        cls.days += 1
        return cls(2026, 11, 10, tzinfo=UTC) + timedelta(days=cls.days - 1)


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Clock]]:
    """Inside, each look at the clock says another day."""
    Clock.days = 0
    with monkeypatch.context() as patch:
        for module in (database_module, mgmt.compiler.model):
            patch.setattr(module, "datetime", Clock)
        yield Clock


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        *((word, "2026-11-10 07:40:00.25") for word in (
            "now()", "CURRENT_TIMESTAMP", "localtimestamp", "transaction_timestamp()", "current_localtimestamp()",
        )),
        *((word, "2026-11-10") for word in ("CURRENT_DATE", "today()")),
        ("strftime(now(), '%d.%m. %H:%M')", "10.11. 07:40"),
        ("now() - INTERVAL '1 day'", "2026-11-09 07:40:00.25"),
        ("current_date + 1", "2026-11-11"),
        ("CURRENT_DATE - bought", 985),
        ("EXTRACT(EPOCH FROM until - now())", 879599.75),
        ("date_trunc('month', now())", "2026-11-01 00:00:00"),
        ("until < now() + INTERVAL '11 days'", 1),
        ("CASE WHEN bought < current_date - 365 THEN 'old' ELSE 'new' END", "old"),
        ("(SELECT count(*) FROM host h WHERE h.until > now() + INTERVAL '15 days')", 2),
        ("max(now()) OVER ()", "2026-11-10 07:40:00.25"),
    ],
)  # fmt: skip
def test_it_is_the_moment_of_the_snapshot(each_database: str, expression: str, expected: object) -> None:
    assert each_database
    assert value(expression) == expected


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("SELECT * FROM task JOIN host ON variable__host = name WHERE until < now() - INTERVAL '1 day' CHECK FALSE",
         ("aa", "bb", "bb")),
        ("SELECT * FROM task JOIN host ON variable__host = name CHECK until > CURRENT_TIMESTAMP", ("aa", "bb", "cc")),
        ("SELECT * FROM task CHECK variable__host IN (SELECT name FROM host WHERE until::DATE > current_date)",
         ("aa", "bb", "cc")),
        ("SELECT * FROM task CHECK variable__host = CASE WHEN CURRENT_DATE < DATE '2026-11-20' THEN 'c' ELSE 'b' END",
         ("cc", "bb", "bb")),
        ("SELECT * FROM task PINNED WHERE now() < TIMESTAMP '2026-11-20 00:00:00'", ("cc", "aa", "aa")),
        ("SELECT * FROM task WHERE EXTRACT(MONTH FROM now()) = 12 CHECK variable__host = 'b'", ("aa", "aa", "bb")),
    ],
)  # fmt: skip
def test_wherever_it_stands_it_moves_with_the_solve(
    each_database: str, columns: bool, rule: str, expected: tuple[str, ...]
) -> None:
    """The same model, over rows that stay as they are; what was known of the earlier moment is not taken for it."""
    assert each_database
    first = (
        "SELECT id FROM task JOIN host ON variable__host = host.name MINIMIZE sum(EXTRACT(MONTH FROM bought))"
    )
    policy = f"CREATE CONSTRAINT c AS {rule}; CREATE CONSTRAINT f AS {first}"
    state = database(SCHEMA, ROWS)
    state.execute("UPDATE task SET host = 'c'")
    state.execute("UPDATE host SET bought = '2026-01-01' WHERE name = 'a'")
    state.execute("UPDATE host SET bought = '2026-02-01' WHERE name = 'b'")
    state.execute("UPDATE host SET bought = '2026-03-01' WHERE name = 'c'")
    backend = None if columns else mgmt.compiler.model.CpSatBackend()
    model = Model.build(state, policy, backend=backend)
    for _ in range(2):
        found = tuple(hosts(model.solve(20, now=now)) for now in (NOVEMBER, LATER, DECEMBER))
        assert found == expected
    assert hosts(model.solve(20, now=NOVEMBER)) == expected[0]


def test_views_that_are_kept_with_their_rows_move_with_it(each_database: str) -> None:
    assert each_database
    model = model_of(
        """
        CREATE VIEW spare AS SELECT name, max(room) AS room FROM host WHERE until > now() GROUP BY name;
        CREATE VIEW large AS SELECT name, sum(room) AS room FROM spare GROUP BY name;
        CREATE CONSTRAINT fits AS SELECT large.name FROM task JOIN large ON variable__host = large.name
          GROUP BY large.name, large.room CHECK count(*) <= large.room;
        CREATE CONSTRAINT here AS SELECT id FROM task CHECK variable__host IN (SELECT name FROM large);
        CREATE CONSTRAINT most AS SELECT id FROM task JOIN large ON variable__host = large.name
          MAXIMIZE sum(large.room);
        """
    )
    assert any(view.computed for view in model._compilation.kept_views)
    assert [hosts(model.solve(20, now=now))[0] for now in (NOVEMBER, DECEMBER, NOVEMBER)] == ["a", "c", "a"]
    model.database.execute("UPDATE host SET room = 99 WHERE name = 'b'")
    assert [hosts(model.solve(20, now=now))[0] for now in (NOVEMBER, DECEMBER)] == ["b", "c"]


def test_what_does_not_depend_on_it_is_kept_though_it_moves() -> None:
    def fetched(model: Model, now: datetime) -> int:
        before = model._answers.fetched_rows
        model.solve(20, now=now)
        return model._answers.fetched_rows - before

    oldest = """CREATE CONSTRAINT oldest AS SELECT id FROM task JOIN host ON variable__host = host.name
      MAXIMIZE sum({} - bought);"""
    timeless = model_of(
        LEASED.replace("now()", "TIMESTAMP '2026-11-10 00:00:00'") + oldest.format("DATE '2026-11-10'")
    )
    timely = model_of(LEASED + oldest.format("CURRENT_DATE"))
    everything = fetched(timeless, NOVEMBER)
    assert everything == fetched(timely, NOVEMBER) > 0
    assert fetched(timeless, DECEMBER) == 0
    assert 0 < fetched(timely, DECEMBER) < everything


def test_one_solve_looks_at_the_clock_once(each_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched, and what the database checks, would be of other days."""
    assert each_database
    model = model_of()
    with running(monkeypatch) as clock:
        solution = model.solve(20)
        assert clock.days == 1
    assert solution.moment == datetime(2026, 11, 10, tzinfo=UTC)
    with model.database.snapshot(solution.moment) as snapshot:
        assert not model.oracle.examine(snapshot, solution.assignments).violations
    with model.database.snapshot(DECEMBER.replace(tzinfo=UTC)) as snapshot:
        assert model.oracle.examine(snapshot, solution.assignments).broken == ("on_leased",)


def test_statements_on_the_state_ask_for_it_too() -> None:
    state = database("CREATE TABLE host (name TEXT PRIMARY KEY, seen TIMESTAMP);", {"host": [{"name": "a"}]})
    state = state.at(datetime(2026, 3, 1, 12, tzinfo=UTC))
    state.execute("UPDATE host SET seen = now()")
    assert state.execute(
        "SELECT name FROM host WHERE seen = current_timestamp AND seen = TIMESTAMP '2026-03-01 12:00'"
    )


def test_a_time_is_given_with_a_zone_or_in_utc_or_in_seconds() -> None:
    model = model_of()
    east = datetime(2026, 11, 10, 9, 40, 0, 250000, tzinfo=timezone(timedelta(hours=2)))
    found = [model.solve(20, now=now) for now in (NOVEMBER, east, 1794296400.25)]
    assert {solution.moment for solution in found} == {NOVEMBER.replace(tzinfo=UTC)}
    assert len({hosts(solution) for solution in found}) == 1
    with pytest.raises(mgmt.DataError, match="no time"):
        model.solve(now=1e30)


def test_a_plan_of_policies_that_do_not_ask_has_no_moment() -> None:
    model = model_of("CREATE CONSTRAINT c AS SELECT id FROM task CHECK variable__host <> 'a'")
    assert model.solve(20, now=NOVEMBER).moment is None
    assert model.at(NOVEMBER) is model


def test_a_snapshot_before_and_one_after_have_their_own(each_database: str) -> None:
    """Also when what an earlier one left is used again."""
    assert each_database
    state = database(SCHEMA, ROWS)
    asked = "SELECT now()"
    for moment in (NOVEMBER, DECEMBER, NOVEMBER):
        with state.snapshot(moment.replace(tzinfo=UTC)) as snapshot:
            with snapshot.scratch():
                snapshot.define_view("v", f"{asked} AS x")
                first = snapshot.rows("SELECT x FROM v")
            assert (
                first
                == snapshot.rows(asked)
                == [(str(moment).rstrip("0") if moment.microsecond else str(moment),)]
            )


def test_it_stands_still_in_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()
    with running(monkeypatch):
        copy = model.revised(database=model.database.clone())
        first, second = copy.solve(20), copy.revised(database=copy.database.clone()).solve(20)
        assert first.moment == second.moment == datetime(2026, 11, 10, tzinfo=UTC)
        assert model.solve(20).moment != first.moment


# ---- what is asked of a plan ------------------------------------------------------------------------------


def test_what_is_asked_of_a_plan_is_asked_of_its_moment(each_database: str) -> None:
    assert each_database
    model = model_of()
    november = model.at(NOVEMBER)
    assert hosts(november.solve(20)) == "aa"
    assert why_not(november, "task", (1,), "b").possible
    december = model.at(model.solve(20, now=DECEMBER).moment)
    answer = why_not(december, "task", (1,), "b")
    assert [member.constraint for member in answer.core] == ["on_leased"]
    assert headroom(november, "task", (1,)).count == 11
    assert headroom(december, "task", (1,)).count == 0
    change = what_if(december, "UPDATE host SET until = '2027-01-01 00:00:00' WHERE name = 'a'")
    assert isinstance(change.after, mgmt.Solution)
    assert (hosts(change.after), change.after.moment) == ("aa", DECEMBER.replace(tzinfo=UTC))


def test_a_question_is_of_one_moment(each_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its solves; were they of their own, the second would be of a day when what the first says is wrong."""
    assert each_database
    text = "CREATE CONSTRAINT c AS SELECT id FROM task CHECK variable__host = CASE CURRENT_DATE {} END"
    days = " ".join(f"WHEN DATE '2026-11-{10 + n}' THEN '{host}'" for n, host in enumerate("abcabcabc"))
    model = model_of(text.format(days))
    for ask in (
        lambda: why(model, "task", (1,))[0].core[0].constraint,
        lambda: why_not(model, "task", (1,), "b").core[0].constraint,
        lambda: what_if(model, "DELETE FROM task WHERE id = 2").difference is not None and "c",
        lambda: headroom(model, "task", (1,)).exact or "c",
        lambda: str(report_compilation(model).solve) and "c",
    ):
        with running(monkeypatch) as clock:
            assert ask() == "c"
            assert clock.days == 1


def test_the_log_of_a_plan_is_of_its_moment(each_database: str) -> None:
    assert each_database
    model = model_of()
    model.database.execute("UPDATE task SET host = 'b'")
    solution = model.solve(20, now=DECEMBER)
    assert {str(move.cause) for move in decision_log(model, solution)} == {"required"}


def test_what_would_help_is_found_for_the_moment_of_the_clash(each_database: str) -> None:
    assert each_database
    with pytest.raises(InfeasibleError) as caught:
        model_of().solve(20, now=datetime(2027, 1, 1))
    assert "on_leased" in caught.value.constraints
    assert caught.value.relaxations


def test_a_bundle_gives_the_same_years_later(each_database: str) -> None:
    assert each_database
    model = model_of()
    bundle = bundle_of(model, now=DECEMBER)
    solution = model.solve(20, now=DECEMBER)
    assert hosts(solution) == "cc"
    saved = Bundle.load(replace(bundle, answer=answer_of(solution)).save())
    assert answer_of(saved.model().solve(20)) == saved.answer
    assert hosts(saved.solution()) == "cc"
    wrong = replace(saved, now=datetime(2027, 6, 1, tzinfo=UTC).timestamp())
    with pytest.raises(mgmt.DataError, match="on_leased"):
        wrong.solution()


def test_a_bundle_of_an_error_keeps_it() -> None:
    model = Model.build(database(SCHEMA, ROWS), LEASED, backend=LyingBackend())
    with pytest.raises(VerificationError) as caught:
        model.solve(now=DECEMBER)
    assert bundle_of_error(caught.value).now == DECEMBER.replace(tzinfo=UTC).timestamp()


# ---- tests of policies, and the loop ----------------------------------------------------------------------

CASES = """
INSERT INTO host VALUES ('a', 9, '2026-11-20 12:00:00', '2026-01-01'), ('b', 9, '2026-11-30 12:00:00', '2026-01-01');
INSERT INTO task (id) VALUES (1);
{}
TEST 'before'; EXPECT task(1) = 'a';
TEST 'after'; NOW '2026-11-23'; EXPECT task(1) = 'b';
"""


def test_a_test_of_policies_says_which_time_it_is() -> None:
    model = Model.build(database(SCHEMA), LEASED)
    report = run_tests(model, parse_tests(SourceText("t", CASES.format("NOW '2026-11-10 07:40:00';"))))
    assert report.passed
    assert report.covered["on_leased"] == "after"


@pytest.mark.parametrize(
    ("now", "line", "message"),
    [
        ("", 5, "'before'"),
        ("NOW 'today';", 4, "no date"),
        ("NOW;", 4, "needs a time"),
        ("NOW 5;", 4, "needs a time"),
    ],
)
def test_a_test_that_does_not_is_refused_where_it_stands(now: str, line: int, message: str) -> None:
    model = Model.build(database(SCHEMA), LEASED)
    with pytest.raises(PolicySyntaxError, match=message) as caught:
        run_tests(model, parse_tests(SourceText("t", CASES.format(now))))
    assert (caught.value.line, "NOW '2026-11-23 07:40:00'" in caught.value.hint) == (line, True)


def test_it_is_said_which_of_the_policies_ask() -> None:
    stages = report_compilation(model_of(), solve=False).queries
    assert [stage.name for stage in stages if stage.asks_for_the_time] == ["leased"]
    (leased,) = (stage for stage in stages if stage.name == "leased")
    assert "now()" in leased.database_sql


def test_the_solver_of_the_control_loop_is_told_the_time_with_the_state() -> None:
    closing = """
    CREATE CONSTRAINT closed AS SELECT * FROM replica CHECK controllable__host <> 'n0' OR now() < '2026-11-23'
    """
    choice, solver = PolicyChoice(texts=(("closing.sql", closing),)), PolicySolver()
    for moment, empty in ((NOVEMBER, False), (LATER, True), (NOVEMBER, False)):
        outcome = solver.solve(
            replace(small_state(3), moment=moment.replace(tzinfo=UTC).timestamp()), choice, 20.0, 0
        )
        assert isinstance(outcome, Solved)
        assert outcome.asks_for_the_time
        hosts = {delta.new for delta in outcome.deltas if delta.variable == "controllable__host"}
        assert ("n0" not in hosts) == empty

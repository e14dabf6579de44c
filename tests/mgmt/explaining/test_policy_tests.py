"""Tests of policies: every kind of expectation comes true and fails, and coverage names what no test would miss."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import PolicyError, PolicySyntaxError, UnsupportedConstructError
from mgmt.explaining.policies.coverage import Coverage, solved
from mgmt.explaining.policies.policy_test_syntax import parse_tests
from mgmt.explaining.policies.policy_tests import PolicyTestReport, run_tests
from mgmt.source_text import SourceText
from tests.mgmt.explaining.test_placing import POLICY, SCHEMA
from tests.mgmt.policy_grammar import NULLABLE, PolicyMaker
from tests.mgmt.support import database

HOSTS = "INSERT INTO host VALUES ('h0', 'r0', 10), ('h1', 'r0', 10), ('h2', 'r1', 10);\n"


def run(text: str) -> PolicyTestReport:
    model = Model.build(database(SCHEMA), POLICY)
    return run_tests(model, parse_tests(SourceText("t.sql", HOSTS + text)))


TASKS = "TEST 'it'; INSERT INTO task (id, weight, host) VALUES (1, 8, 'h0'), (2, 2, 'h0'), (3, 8, NULL);"


@pytest.mark.parametrize(
    ("expectation", "found"),
    [
        ("task(1) = 'h0'", ""),
        ("task(1).variable__host = 'h0'", None),
        ("task.host(1) = 'h2'", "task(1) is h0"),
        ("task(1) IN ('h0', 'h1')", ""),
        ("task(1), task(2) IN ('h2')", "task(1) is h0; task(2) is h0"),
        ("task(3) NOT IN ('h0', 'h1')", ""),
        ("task NOT IN ('h2')", "task(3) is h2"),
        ("task(1), task(2) COLOCATED", ""),
        ("task COLOCATED", "task(1), task(2) on h0; task(3) on h2"),
        ("task WHERE weight = 8 SPREAD BY host.rack", ""),
        ("task WHERE weight = 8 COLOCATED BY host.rack", "task(1) on r0; task(3) on r1"),
        ("task SPREAD", "task(1), task(2) share h0"),
        ("task WHERE id IN (1, 3) SPREAD", ""),
        ("task WHERE weight = 99 SPREAD", "no such row"),
        ("OBJECTIVE stay = 0", ""),
        ("OBJECTIVE first_rack < 8", "first_rack is 8"),
        ("INFEASIBLE", "there is a plan"),
    ],
)
def test_what_can_be_expected(expectation: str, found: str | None) -> None:
    if found is None:
        with pytest.raises(PolicySyntaxError):
            run(f"{TASKS} EXPECT {expectation};")
        return
    (result,) = run(f"{TASKS} EXPECT {expectation};").results
    assert [failure.found for failure in result.failures] == ([found] if found else [])


def test_what_is_infeasible_names_its_core() -> None:
    text = "TEST 'too heavy'; INSERT INTO task (id, weight) VALUES (1, 11); EXPECT {};"
    assert run(text.format("INFEASIBLE (room)")).passed
    assert run(text.format("INFEASIBLE")).passed
    (result,) = run(text.format("INFEASIBLE (heavy_apart, room)")).results
    assert (
        str(result.failures[0]) == "t.sql:2:65: EXPECT INFEASIBLE (heavy_apart, room): what clashes is room"
    )
    (result,) = run(text.format("task(1) = 'h0'")).results
    assert "no placement satisfies" in result.failures[0].found


def test_names_of_what_clashes_are_those_of_constraints() -> None:
    """A misspelt one made the test fail, as if the policies were to blame."""
    heavy = "TEST 'it'; INSERT INTO task (id, weight) VALUES (1, {}); EXPECT INFEASIBLE ({});"
    assert run(heavy.format(11, '"room"')).passed
    assert run(heavy.format(11, "ROOM")).passed
    for weight in (1, 11):  # whether or not there is a plan
        with pytest.raises(PolicySyntaxError) as caught:
            run(heavy.format(weight, "room, heavy_appart"))
        assert caught.value.message == "there is no constraint 'heavy_appart'"
        assert caught.value.hint == "did you mean heavy_apart?"
        assert caught.value.column == heavy.format(weight, "room, heavy_appart").index("heavy_a") + 1
    with pytest.raises(PolicySyntaxError, match=r"no constraint 'stay'.*there are room, heavy_apart"):
        run(heavy.format(1, "stay"))  # an objective


def test_each_case_starts_from_the_same_rows() -> None:
    report = run(TASKS + "EXPECT task(3) = 'h2'; TEST 'alone'; INSERT INTO task (id, weight) VALUES (3, 8);"
                 "EXPECT task(3) IN ('h0', 'h1');")  # fmt: skip
    assert report.passed
    assert [result.test.name for result in report.results] == ["it", "alone"]


def test_coverage_is_what_some_test_would_miss() -> None:
    light = "TEST 'light'; INSERT INTO task (id, weight) VALUES (1, 1); EXPECT OBJECTIVE stay = 0;"
    assert run(light).covered == {"room": None, "heavy_apart": None, "stay": None, "first_rack": "light"}
    heavy = light + (
        "TEST 'heavy'; INSERT INTO task (id, weight) VALUES (1, 11); EXPECT INFEASIBLE;"
        "TEST 'apart'; INSERT INTO task (id, weight) VALUES (1, 8), (2, 8); EXPECT task SPREAD BY host.rack;"
        "TEST 'stays'; INSERT INTO task (id, weight, host) VALUES (1, 8, 'h2'); EXPECT task = 'h2';"
    )
    report = run(heavy)
    assert report.passed
    assert report.covered["room"] == "heavy"
    assert report.covered["heavy_apart"] == "apart"
    assert report.covered["stay"] == "stays"
    assert report.coverage == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("EXPECT task(1) = 'h0';", "t.sql:2:1: EXPECT before the first TEST"),
        ("TEST it;", "t.sql:2:1: TEST needs a name"),
        ("TEST 'it';", "t.sql:2:1: the test 'it' expects nothing"),
        ("TEST 'it'; SELECT 1;", "t.sql:2:12: unexpected 'SELECT'"),
        ("TEST 'it'; EXPECT task(1);", "t.sql:2:19: this expects nothing that is known"),
        ("TEST 'it'; EXPECT task(1) IN 'h0';", "t.sql:2:30: IN needs a list"),
        ("TEST 'it'; EXPECT task(1) = h0;", "t.sql:2:29: a value is expected"),
        ("TEST 'it'; EXPECT task(1) SPREAD rack;", "t.sql:2:34: unexpected 'rack'"),
        ("TEST 'it'; EXPECT OBJECTIVE stay;", "t.sql:2:29: OBJECTIVE is compared with a number"),
        ("TEST 'it'; EXPECT OBJECTIVE play = 1;", "t.sql:2:29: there is no objective 'play'"),
        ("TEST 'it'; EXPECT tusk(1) = 'h0';", "t.sql:2:12: no table 'tusk'"),
        ("TEST 'it'; EXPECT task.weight(1) = 'h0';", "t.sql:2:12: the solver decides 0 columns"),
        ("TEST 'it'; EXPECT task WHERE x = 'h0' = 1;", "t.sql:2:12: the state database refuses this"),
        (
            "TEST 'it'; INSERT INTO task VALUES (1); EXPECT task = 1;",
            "t.sql:2:12: the state database refuses this",
        ),
    ],
)
def test_mistakes_have_a_position(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        run(text)
    assert str(caught.value).startswith(message)


def refused_without_rows(seed: int) -> int:
    """How many policies of a random text coverage does not ask about, and rightly so."""
    maker = PolicyMaker(seed)
    state = database(NULLABLE, {**maker.data(), **({"task": []} if seed % 3 == 0 else {})})
    try:
        model = Model.build(state, maker.policies())
        outcome = solved(model, 20, 0)
    except UnsupportedConstructError:
        return 0
    coverage = Coverage(model)
    unasked = set(model.constraints) - coverage.may_bind(state)
    assert [name for name in unasked if coverage.binds(model, outcome, name, 20, 0)] == [], seed
    return len(unasked)


@pytest.mark.slow("twenty random states are solved")
def test_a_policy_without_rows_does_not_bind() -> None:
    assert sum(map(refused_without_rows, range(20))) > 5

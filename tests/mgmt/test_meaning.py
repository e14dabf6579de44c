"""What policies mean: one test for each rule of the language, and for each silent error of earlier systems.

Answers are worked out by hand, so that a misreading shared by solver and oracle is seen.
"""

from __future__ import annotations

from typing import Any

import pytest

import mgmt
from mgmt.errors import (
    DataError,
    EmptyDomainError,
    InfeasibleError,
    TypeMismatchError,
    UnsupportedConstructError,
)
from mgmt.solution import Solution, SolveStatus
from tests.mgmt.support import database, solve

pytestmark = pytest.mark.usefixtures("each_database")

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT, size INTEGER, up BOOLEAN NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, weight INTEGER, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
JOINED = "FROM task JOIN host ON task.variable__host = host.name"


def hosts(*rows: tuple[str, str | None, int | None, bool]) -> list[dict[str, Any]]:
    return [dict(zip(("name", "rack", "size", "up"), row, strict=True)) for row in rows]


def tasks(*rows: tuple[int, int | None, str | None]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "weight", "host"), row, strict=True)) for row in rows]


THREE = hosts(("a", "r1", 5, True), ("b", "r1", 9, True), ("c", "r2", 7, False))


def placed(solution: Solution) -> dict[Any, Any]:
    return {key[0]: value for key, value in solution.assignments["task", "variable__host"].items()}


def place(policy: str, host_rows: list[dict[str, Any]], task_rows: list[dict[str, Any]]) -> dict[Any, Any]:
    return placed(solve(SCHEMA, {"host": host_rows, "task": task_rows}, policy))


# ---- rule 1: CHECK holds for every row, or every group ------------------------------------------------


def test_check_holds_for_every_row() -> None:
    found = place(
        "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host = 'b'",
        THREE,
        tasks((1, 1, None), (2, 1, None)),
    )
    assert found == {1: "b", 2: "b"}


def test_check_holds_for_every_group() -> None:
    policy = (
        f"CREATE CONSTRAINT c AS SELECT host.name, host.size {JOINED} GROUP BY host.name, "
        f"host.size CHECK sum(weight) <= size"
    )
    found = place(policy, THREE, tasks((1, 6, None), (2, 8, None), (3, 5, None)))
    assert found == {1: "c", 2: "b", 3: "a"}


def test_an_aggregate_in_the_tail_is_over_all_rows() -> None:
    found = place(
        "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'a' CHECK count(*) = 2",
        THREE,
        tasks((1, 1, None), (2, 1, None)),
    )
    assert found == {1: "a", 2: "a"}


# ---- rule 2: predicates over variables gate -----------------------------------------------------------


def test_where_over_a_variable_gates_the_check() -> None:
    """Known error of DCM: the predicate was dropped and the check enforced everywhere."""
    policy = "CREATE CONSTRAINT c AS SELECT * FROM task WHERE variable__host = 'a' CHECK weight >= 5"
    found = place(
        policy + "; CREATE CONSTRAINT m AS SELECT * FROM task MAXIMIZE sum(CASE WHEN variable__host = "
        "'a' THEN 1 ELSE 0 END)",
        THREE,
        tasks((1, 3, None), (2, 6, None)),
    )
    assert found[1] != "a"
    assert found[2] == "a"


def test_both_join_predicates_count_when_two_variables_meet() -> None:
    """Known error of DCM: with two variable qualifiers the join predicate was dropped."""
    policy = """
        CREATE CONSTRAINT apart AS SELECT * FROM task a JOIN task b
          ON a.variable__host = b.variable__host AND a.id < b.id AND a.weight = b.weight CHECK FALSE;
        CREATE CONSTRAINT at_home AS SELECT * FROM task MAXIMIZE sum(CASE WHEN variable__host = 'a' THEN 1 ELSE 0 END);
    """
    found = place(policy, THREE, tasks((1, 1, None), (2, 1, None), (3, 2, None)))
    assert found[3] == "a", "of another weight, so it may share"
    assert [found[1], found[2]].count("a") == 1


def test_minimum_and_maximum_look_at_the_rows_that_exist() -> None:
    """Known error of DCM: MIN and MAX over a gated join were not gated."""
    policy = f"""
        CREATE CONSTRAINT small AS SELECT host.name {JOINED} GROUP BY host.name
          CHECK max(weight) - min(weight) <= 1;
        CREATE CONSTRAINT few AS SELECT host.name {JOINED} WHERE host.up GROUP BY host.name CHECK count(*) <= 2;
        CREATE CONSTRAINT only_up AS SELECT * {JOINED} CHECK host.up;
    """
    found = place(policy, THREE, tasks((1, 1, None), (2, 9, None), (3, 2, None), (4, 8, None)))
    assert found[1] == found[3] != found[2] == found[4]


# ---- rule 3: possible groups --------------------------------------------------------------------------


def test_an_empty_host_is_a_group_with_count_and_sum_zero() -> None:
    policy = (
        f"CREATE CONSTRAINT each AS SELECT host.name {JOINED} GROUP BY host.name CHECK count(*) "
        f">= 1 AND sum(weight) >= 1"
    )
    found = place(policy, THREE, tasks((1, 1, None), (2, 1, None), (3, 1, None)))
    assert sorted(found.values()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("bool_or(host.up)", True),
        ("any(host.up)", True),
        ("NOT bool_and(NOT host.up)", True),
        ("NOT any(NOT host.up)", True),
        ("all(host.up)", True),
        ("CASE WHEN any(NOT host.up) THEN FALSE ELSE TRUE END", True),
        ("coalesce(any(host.up), FALSE)", False),
        ("any(host.up) FILTER (WHERE weight > 0)", True),
        ("min(size) > 9", True),
        ("max(size) < 5 OR any(host.up)", True),
        ("any(host.up) IS NULL", True),
        ("count(*) = 0", True),
        ("count(DISTINCT rack) = 1 AND any(host.up)", False),
        ("sum(size) > 0 AND bool_or(host.up)", False),
    ],
)
@pytest.mark.parametrize("having", [False, True], ids=["check", "having"])
def test_of_no_rows_any_and_all_are_unknown(check: str, expected: bool, having: bool) -> None:
    """A task may stay without a host; then its group has no row, of which bool_or says nothing."""
    tail = f"HAVING NOT ({check}) CHECK FALSE" if having else f"CHECK {check}"
    policy = f"CREATE CONSTRAINT c AS SELECT task.id {JOINED} GROUP BY task.id {tail};"
    schema = SCHEMA.replace("TEXT NOT NULL REFERENCES", "TEXT REFERENCES")
    rows = {"host": hosts(("c", "r2", 7, False)), "task": tasks((1, 1, None))}
    if expected:
        assert placed(solve(schema, rows, policy)) == {1: None}
    else:
        with pytest.raises(InfeasibleError):
            solve(schema, rows, policy)


def test_strict_groups_are_those_with_rows() -> None:
    policy = (
        f"CREATE CONSTRAINT pairs AS SELECT host.name {JOINED} GROUP BY host.name STRICT GROUPS "
        f"CHECK count(*) = 2"
    )
    found = place(policy, THREE, tasks((1, 1, None), (2, 1, None)))
    assert found[1] == found[2]


def test_load_balancing_sees_empty_hosts() -> None:
    policy = f"""
        CREATE VIEW load AS SELECT host.name, sum(weight) AS total {JOINED} GROUP BY host.name;
        CREATE CONSTRAINT even AS SELECT * FROM load MAXIMIZE min(total);
    """
    found = place(policy, THREE, tasks((1, 3, None), (2, 3, None), (3, 2, None), (4, 1, None)))
    load = dict.fromkeys("abc", 0)
    for task, name in found.items():
        load[name] += {1: 3, 2: 3, 3: 2, 4: 1}[task]
    assert sorted(load.values()) == [3, 3, 3]


def test_a_variable_that_a_key_settles_makes_no_further_groups() -> None:
    """If each value of it were a group, what is asked of the one that is taken would clash with itself."""
    schema = """
        CREATE TABLE host (name TEXT PRIMARY KEY, variable__size TEXT NOT NULL DOMAIN (SELECT * FROM sizes));
        CREATE TABLE sizes (size TEXT PRIMARY KEY);
        CREATE TABLE task (id INTEGER PRIMARY KEY, variable__host TEXT NOT NULL REFERENCES host (name));
    """
    rows: dict[str, list[dict[str, Any]]] = {
        "host": [{"name": name} for name in "ab"],
        "sizes": [{"size": size} for size in "SML"],
        "task": [{"id": number} for number in range(5)],
    }
    policy = f"""
        CREATE CONSTRAINT room AS SELECT host.name {JOINED} GROUP BY host.name, host.variable__size
        CHECK (variable__size = 'S' AND count(*) <= 2) OR (variable__size = 'M' AND count(*) <= 3);
        CREATE CONSTRAINT budget AS SELECT * FROM host WHERE variable__size = 'M' CHECK count(*) <= """
    sizes = solve(schema, rows, f"{policy} 1;").assignments["host", "variable__size"]
    assert sorted(map(str, sizes.values())) == ["M", "S"]
    with pytest.raises(InfeasibleError) as caught:
        solve(schema, rows, f"{policy} 0;")
    assert sorted(caught.value.constraints) == ["budget", "room"]


def test_group_by_a_variable_ranges_over_its_domain() -> None:
    policy = (
        "CREATE CONSTRAINT c AS SELECT variable__host, count(*) AS n FROM task GROUP BY "
        "variable__host CHECK n = 1"
    )
    found = place(policy, THREE, tasks((1, 1, None), (2, 1, None), (3, 1, None)))
    assert sorted(found.values()) == ["a", "b", "c"]
    with pytest.raises(InfeasibleError):
        place(policy, THREE, tasks((1, 1, None), (2, 1, None)))


def test_minimum_over_no_row_is_null_and_passes() -> None:
    policy = f"CREATE CONSTRAINT c AS SELECT host.name {JOINED} GROUP BY host.name CHECK min(weight) >= 5"
    assert place(policy, THREE, tasks((1, 5, None)))[1] in {"a", "b", "c"}


# ---- rule 4: three-valued logic on constants ----------------------------------------------------------


def test_check_passes_on_unknown_and_where_does_not() -> None:
    unknown = hosts(("a", None, None, True), ("b", "r1", 1, True))
    assert place(
        "CREATE CONSTRAINT c AS SELECT * " + JOINED + " CHECK host.size > 5", unknown, tasks((1, 1, None))
    ) == {1: "a"}
    policy = f"CREATE CONSTRAINT c AS SELECT * {JOINED} WHERE NOT (host.size > 5) CHECK FALSE"
    assert place(policy, unknown, tasks((1, 1, None))) == {1: "a"}, "b is not larger than 5; a is unknown"
    policy = (
        "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host NOT IN ('a', NULL) "
        "AND variable__host <> 'a'"
    )
    assert place(policy, unknown, tasks((1, 1, None))) == {1: "b"}


def test_null_operands_are_skipped_by_aggregates() -> None:
    policy = (
        f"CREATE CONSTRAINT c AS SELECT host.name {JOINED} GROUP BY host.name CHECK count(weight) "
        f"= count(*) OR host.name = 'a'"
    )
    assert place(policy, THREE, tasks((1, None, None), (2, 1, None)))[1] == "a"


# ---- rule 5: domains ----------------------------------------------------------------------------------


def test_booleans_are_zero_and_one() -> None:
    """Known error of DCM: booleans ranged over 32-bit integers."""
    schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, variable__on BOOLEAN NOT NULL);"
    solution = solve(
        schema,
        {"t": [{"id": 1}, {"id": 2}]},
        "CREATE CONSTRAINT c AS SELECT * FROM t MAXIMIZE sum(variable__on)",
    )
    assert solution.assignments["t", "variable__on"] == {(1,): True, (2,): True}
    assert solution.objectives[0].after == 2


def test_a_domain_query_gives_the_values() -> None:
    schema = """
        CREATE TABLE size (n INTEGER PRIMARY KEY);
        CREATE TABLE t (id INTEGER PRIMARY KEY, variable__n INTEGER NOT NULL DOMAIN (SELECT n FROM size WHERE n > 1));
    """
    rows: dict[str, list[dict[str, Any]]] = {
        "size": [{"n": n} for n in (1, 2, 4)],
        "t": [{"id": 1}, {"id": 2}],
    }
    policy = (
        "CREATE CONSTRAINT c AS SELECT * FROM t CHECK sum(variable__n) = 6 AND all_different(variable__n)"
    )
    assert sorted(solve(schema, rows, policy).assignments["t", "variable__n"].values()) == [2, 4]


def test_nothing_to_choose_from_is_an_error_with_the_rows() -> None:
    with pytest.raises(EmptyDomainError) as caught:
        place("CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE", [], tasks((7, 1, None)))
    assert caught.value.rows == ((7,),)


def test_a_nullable_variable_may_stay_unassigned() -> None:
    schema = SCHEMA.replace("variable__host TEXT NOT NULL", "variable__host TEXT")
    policy = f"""
        CREATE CONSTRAINT room AS SELECT host.name, host.size {JOINED}
          GROUP BY host.name, host.size CHECK sum(weight) <= size;
        CREATE CONSTRAINT most AS SELECT * FROM task WHERE variable__host IS NOT NULL MAXIMIZE count(*);
    """
    rows = {"host": hosts(("a", "r1", 5, True)), "task": tasks((1, 4, None), (2, 2, None), (3, 3, None))}
    assert placed(solve(schema, rows, policy)) == {1: None, 2: "a", 3: "a"}


def test_variables_keep_their_meaning_through_views() -> None:
    policy = """
        CREATE VIEW heavy AS SELECT id, variable__host AS place FROM task WHERE weight > 5;
        CREATE VIEW light AS SELECT id, variable__host AS place FROM task WHERE weight <= 5;
        CREATE VIEW renamed AS SELECT place AS target, id FROM heavy;
        CREATE CONSTRAINT c AS SELECT * FROM renamed JOIN light ON renamed.target = light.place CHECK FALSE;
        CREATE CONSTRAINT d AS SELECT * FROM renamed CHECK target = 'b';
        CREATE CONSTRAINT e AS SELECT place FROM light GROUP BY place CHECK count(*) <= 1;
    """
    found = place(policy, THREE, tasks((1, 9, None), (2, 1, None), (3, 1, None)))
    assert found[1] == "b"
    assert {found[2], found[3]} == {"a", "c"}


# ---- rule 6: keys -------------------------------------------------------------------------------------


def test_unique_over_variables_holds_also_with_constants_beside_them() -> None:
    """Known error of DCM: composite keys were not enforced."""
    schema = SCHEMA.replace(
        "REFERENCES host (name));", "REFERENCES host (name), UNIQUE (weight, variable__host));"
    )
    rows = {"host": THREE[:2], "task": tasks((1, 1, None), (2, 1, None), (3, 2, None))}
    solution = solve(
        schema, rows, "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host <> 'b' OR weight = 1"
    )
    found = placed(solution)
    assert {found[1], found[2]} == {"a", "b"}
    assert found[3] == "a"
    rows["task"] = tasks((1, 1, None), (2, 1, None), (3, 1, None))
    with pytest.raises(InfeasibleError) as caught:
        solve(schema, rows, "CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE")
    assert caught.value.constraints == ("UNIQUE (weight, variable__host) of task",)


# ---- rule 7: current values ---------------------------------------------------------------------------


def test_deltas_speak_of_the_current_value() -> None:
    state = database(SCHEMA, {"host": THREE, "task": tasks((1, 1, "a"), (2, 1, "b"), (3, 1, None))})
    policy = """
        CREATE CONSTRAINT not_b AS SELECT * FROM task CHECK variable__host <> 'b';
        CREATE CONSTRAINT stay AS SELECT * FROM task WHERE variable__host <> host MINIMIZE count(*);
        CREATE CONSTRAINT then_c AS SELECT * FROM task WHERE variable__host = 'c' MAXIMIZE count(*) TIER 2;
    """
    solution = mgmt.Model.build(state, policy).solve()
    assert [(d.table, d.primary_key, d.column, d.old, d.new, d.variable) for d in solution.deltas] == [
        ("task", (2,), "host", "b", "c", "variable__host"),
        ("task", (3,), "host", None, "c", "variable__host"),
    ]
    assert solution.value("task", "variable__host", 1) == "a"


def test_a_state_in_order_is_left_unchanged_without_a_solver() -> None:
    state = database(SCHEMA, {"host": THREE, "task": tasks((1, 1, "a"), (2, 1, "b"))})
    policy = "CREATE CONSTRAINT stay AS SELECT * FROM task WHERE variable__host <> host MINIMIZE count(*)"
    solution = mgmt.Model.build(state, policy).solve()
    assert (solution.status, solution.deltas) == (SolveStatus.UNCHANGED, ())
    assert solution.statistics["solver_calls"] == 0


# ---- rule 8: exact integers ---------------------------------------------------------------------------


def test_division_and_remainder_truncate_toward_zero() -> None:
    """Known error of DCM: % was documented and not supported."""
    schema = """
        CREATE TABLE size (n INTEGER PRIMARY KEY);
        CREATE TABLE t (id INTEGER PRIMARY KEY, variable__n INTEGER NOT NULL DOMAIN (SELECT n FROM size));
    """
    rows: dict[str, list[dict[str, Any]]] = {"size": [{"n": n} for n in (-7, -1, 5)], "t": [{"id": 1}]}
    policy = "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n / 2 = -3 AND variable__n % 2 = -1"
    assert solve(schema, rows, policy).value("t", "variable__n", 1) == -7


def test_large_integers_are_exact_and_overflow_is_an_error() -> None:
    policy = (
        f"CREATE CONSTRAINT c AS SELECT host.name, host.size {JOINED} GROUP BY host.name, "
        f"host.size CHECK sum(weight) <= size"
    )
    big = 2**61
    two = hosts(("a", "r1", big, True), ("b", "r1", big - 1, True))
    assert place(policy, two, tasks((1, big, None))) == {1: "a"}
    with pytest.raises(mgmt.OverflowError, match="64-bit") as caught:
        place(policy, two, tasks((1, big, None), (2, big, None), (3, big, None)))
    assert caught.value.position is not None


def test_reals_are_not_rounded_silently() -> None:
    schema = SCHEMA.replace("weight INTEGER", "weight DOUBLE PRECISION")
    with pytest.raises((TypeMismatchError, UnsupportedConstructError)):
        solve(
            schema,
            {"host": THREE, "task": tasks((1, 1.5, None))},
            f"CREATE CONSTRAINT c AS SELECT host.name {JOINED} GROUP BY host.name CHECK sum(weight) <= 1",
        )  # type: ignore[arg-type]


# ---- rule 10: empty input -----------------------------------------------------------------------------


def test_no_rows_no_demands() -> None:
    policy = f"""
        CREATE CONSTRAINT impossible AS SELECT * FROM task CHECK count(*) = 99;
        CREATE CONSTRAINT each AS SELECT host.name {JOINED} GROUP BY host.name CHECK count(*) = 1;
        CREATE CONSTRAINT most AS SELECT * FROM task MAXIMIZE sum(weight);
    """
    solution = solve(SCHEMA, {"host": THREE}, policy)
    assert (solution.status, solution.deltas) == (SolveStatus.UNCHANGED, ())
    assert solution.objectives[0].after == 0


# ---- constants, lists, functions ----------------------------------------------------------------------


def test_a_constraint_without_variables_is_checked_against_the_rows() -> None:
    policy = (
        "CREATE CONSTRAINT known AS SELECT name FROM host CHECK size > 6; CREATE CONSTRAINT "
        "x AS SELECT * FROM task CHECK TRUE"
    )
    with pytest.raises(InfeasibleError) as caught:
        place(policy, THREE, tasks((1, 1, None)))
    (member,) = caught.value.core
    assert (member.constraint, member.rows) == ("known", ({"name": "a"},))


def test_in_lists_and_queries() -> None:
    """Known error of DCM: IN (list) crashed."""
    policy = """
        CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host IN ('b', 'c', 'elsewhere');
        CREATE CONSTRAINT d AS SELECT * FROM task CHECK variable__host IN (SELECT name FROM host WHERE up);
        CREATE CONSTRAINT e AS SELECT * FROM task CHECK variable__host NOT IN (SELECT name FROM host WHERE size = 5);
    """
    assert place(policy, THREE, tasks((1, 1, None))) == {1: "b"}


def test_all_different_also_inside_a_condition() -> None:
    policy = "CREATE CONSTRAINT c AS SELECT * FROM task CHECK NOT all_different(variable__host)"
    found = place(policy, THREE, tasks((1, 1, None), (2, 1, None)))
    assert found[1] == found[2]


def test_soft_constraints_measure_how_far_they_are_missed() -> None:
    policy = f"""
        CREATE CONSTRAINT room AS SELECT host.name, host.size {JOINED} GROUP BY host.name, host.size
          CHECK sum(weight) <= size SOFT;
    """
    solution = solve(
        SCHEMA,
        {"host": hosts(("a", "r1", 5, True), ("b", "r1", 9, True)), "task": tasks((1, 20, None))},
        policy,
    )
    assert placed(solution) == {1: "b"}
    assert solution.objectives[0].after == 11


def test_tiers_are_lexicographic_and_weights_count_within_one() -> None:
    policy = """
        CREATE CONSTRAINT low AS SELECT * FROM task WHERE variable__host = 'a' MAXIMIZE count(*) TIER 2 WEIGHT 1000;
        CREATE CONSTRAINT top AS SELECT * FROM task WHERE variable__host = 'b' MAXIMIZE count(*) TIER 1;
    """
    assert place(policy, THREE, tasks((1, 1, None))) == {1: "b"}
    policy = policy.replace("TIER 2", "TIER 1")
    assert place(policy, THREE, tasks((1, 1, None))) == {1: "a"}


def test_having_filters_groups() -> None:
    policy = (
        f"CREATE CONSTRAINT c AS SELECT host.name {JOINED} GROUP BY host.name HAVING count(*) "
        f"> 1 CHECK host.name = 'b'"
    )
    found = place(policy, THREE[:2], tasks((1, 1, None), (2, 1, None), (3, 1, None)))
    assert list(found.values()).count("b") >= 2


def test_weave_and_dcm_forms_mean_the_same() -> None:
    task_rows = tasks((1, 1, None))
    assert place(
        "create view constraint_1 as select * from task where variable__host = 'b'", THREE, task_rows
    ) == {1: "b"}
    assert place("create view c as select * from task check variable__host = 'b'", THREE, task_rows) == {
        1: "b"
    }
    text = "create view objective_1 as select sum(case when variable__host = 'c' then 1 else 0 end) from task"
    assert place(text, THREE, task_rows) == {1: "c"}


def test_with_and_derived_tables() -> None:
    policy = """
        CREATE CONSTRAINT c AS WITH big AS (SELECT name FROM host WHERE size > 6),
          up AS (SELECT b.name FROM big b JOIN host h ON h.name = b.name WHERE h.up)
          SELECT * FROM (SELECT id, variable__host AS place FROM task) AS t
            LEFT JOIN up ON TRUE CHECK t.place = up.name;
    """
    assert place(policy, THREE, tasks((1, 1, None))) == {1: "b"}


def test_rows_refused_by_the_schema_never_reach_the_solver() -> None:
    with pytest.raises(DataError):
        place("CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE", THREE, tasks((1, "heavy", None)))  # type: ignore[arg-type]


def test_a_group_may_use_what_its_keys_determine_in_a_view() -> None:
    view = f"CREATE VIEW loads AS SELECT name AS n, size AS s, sum(weight) AS load {JOINED} GROUP BY name;"
    rule = "CREATE CONSTRAINT c AS SELECT l.n FROM loads l JOIN host o ON o.name <> l.n GROUP BY l.n CHECK "
    rows = {"host": THREE, "task": tasks((1, 6, None), (2, 3, None))}
    solution = solve(
        SCHEMA, rows, f"{view}{rule} l.load = 0 OR l.load + count(*) = l.s AND l.s > 5 OR l.s = 9"
    )
    assert set(placed(solution).values()) == {"b"}


def test_a_view_of_an_outer_join_with_nothing_but_nulls_on_one_side() -> None:
    join = "task t LEFT JOIN host h ON t.variable__host = h.name AND h.up"
    view = f"CREATE VIEW v AS SELECT t.id, h.rack, h.size, h.up FROM {join};"
    rule = "CREATE CONSTRAINT c AS SELECT * FROM v CHECK rack IS NULL AND size IS NULL AND up IS NULL"
    rows = {"host": THREE, "task": tasks((1, 6, None))}
    assert placed(solve(SCHEMA, rows, view + rule)) == {1: "c"}

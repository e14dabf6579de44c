"""Integer variables of wide ranges are numbers: what they may be used for, and what needs their values listed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

import mgmt
from mgmt.compiler.encoding.integer_variables import quantities_of
from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, OverflowError, PolicyError, UnsupportedConstructError  # noqa: A004
from mgmt.explaining.solutions.why import why, why_not
from mgmt.solution import SolveStatus
from mgmt.state.schema_parsing.column_bounds import FEW_VALUES, MOST_VALUES
from tests.budget import budgeted
from tests.mgmt.support import brute_force, database, solution_value, solve

Rows = dict[str, list[dict[str, Any]]]
WIDE = 1_000_000
POOL = """
CREATE TABLE pool (name TEXT PRIMARY KEY, price INTEGER NOT NULL, most INTEGER NOT NULL, workers INTEGER,
  variable__workers INTEGER NOT NULL CHECK (variable__workers BETWEEN 0 AND {most}),
  variable__open BOOLEAN NOT NULL);
"""
POOLS: Rows = {
    "pool": [
        {"name": "a", "price": 3, "most": 400_000, "workers": 7},
        {"name": "b", "price": 2, "most": 250_001, "workers": 250_001},
        {"name": "c", "price": 5, "most": 900_000, "workers": None},
    ]
}
DEMAND = "CREATE CONSTRAINT enough AS SELECT 1 AS one FROM pool CHECK sum(variable__workers) >= 600000;"
LIMITS = "CREATE CONSTRAINT limits AS SELECT * FROM pool CHECK variable__workers <= most;"
CHEAP = "CREATE CONSTRAINT cost AS SELECT * FROM pool MINIMIZE sum(price * variable__workers);"


def workers(text: str, most: int = WIDE) -> list[Any]:
    solution = solve(POOL.format(most=most), POOLS, text)
    return list(solution.assignments["pool", "variable__workers"].values())


def is_number(policies: str, most: int) -> bool:
    model = Model.build(database(POOL.format(most=most)), policies)
    return ("pool", "variable__workers") in quantities_of(model.program, model.catalog)


@pytest.mark.parametrize(
    ("policies", "found"),
    [
        (DEMAND + LIMITS + CHEAP, [349_999, 250_001, 0]),
        (DEMAND + "CREATE CONSTRAINT c AS SELECT name FROM pool MINIMIZE max(variable__workers)", [200_000] * 3),
        ("CREATE CONSTRAINT c AS SELECT name FROM pool CHECK variable__workers / 1000 = price;"
         "CREATE CONSTRAINT d AS SELECT name FROM pool MAXIMIZE sum(variable__workers)", [3999, 2999, 5999]),
        ("CREATE CONSTRAINT c AS SELECT name FROM pool CHECK variable__workers IN (17, 300000, price * 100000);"
         "CREATE CONSTRAINT d AS SELECT name FROM pool MINIMIZE sum(abs(variable__workers - 290000))",
         [300_000, 300_000, 300_000]),
        ("CREATE CONSTRAINT c AS SELECT name FROM pool CHECK variable__open = (variable__workers > 0);"
         "CREATE CONSTRAINT d AS SELECT 1 AS one FROM pool CHECK sum(variable__workers) = 20000;"
         "CREATE CONSTRAINT e AS SELECT name FROM pool MINIMIZE sum(price * variable__workers + CASE WHEN "
         "variable__open THEN most ELSE 0 END)", [0, 20_000, 0]),
        ("CREATE CONSTRAINT c AS SELECT x.name FROM pool AS x JOIN pool AS y ON y.name > x.name "
         "AND y.variable__workers = x.variable__workers CHECK x.variable__workers < 0;"
         "CREATE CONSTRAINT d AS SELECT name FROM pool MINIMIZE sum(variable__workers * price)", [1, 2, 0]),
    ],
)  # fmt: skip
def test_numbers_are_added_compared_and_multiplied(policies: str, found: list[int]) -> None:
    assert is_number(policies, WIDE)
    assert workers(policies) == found


def test_what_need_not_change_stays_and_is_no_delta() -> None:
    moved = "CREATE CONSTRAINT c AS SELECT * FROM pool WHERE variable__workers <> workers MINIMIZE count(*);"
    few = "CREATE CONSTRAINT d AS SELECT 1 AS one FROM pool CHECK sum(variable__workers) <= 250008;"
    solution = solve(POOL.format(most=WIDE), POOLS, moved + few)
    changed = {delta.primary_key: (delta.old, delta.new) for delta in solution.deltas}
    changed = {key: pair for key, pair in changed.items() if isinstance(pair[1], int) and pair[1] is not True}
    assert solution.value("pool", "variable__workers", "a") == 7
    assert solution.value("pool", "variable__workers", "b") == 250_001
    assert solution.objectives[0].after == 0


def test_a_value_of_today_outside_the_range_is_left() -> None:
    rows: Rows = {"pool": [{"name": "a", "price": 1, "most": 5, "workers": 2 * WIDE}]}
    moved = "CREATE CONSTRAINT c AS SELECT * FROM pool MINIMIZE sum(abs(variable__workers - workers))"
    assert solve(POOL.format(most=WIDE), rows, moved).value("pool", "variable__workers", "a") == WIDE


def test_the_state_as_it_stands_is_optimal_without_a_solver() -> None:
    schema = POOL.format(most=WIDE).replace(",\n  variable__open BOOLEAN NOT NULL", "")
    rows: Rows = {"pool": [{"name": "a", "price": 3, "most": 4, "workers": 0}]}
    assert solve(schema, rows, CHEAP).status is SolveStatus.UNCHANGED


@pytest.mark.parametrize("most", [FEW_VALUES - 1, FEW_VALUES, MOST_VALUES - 1, MOST_VALUES, WIDE, 2**40])
def test_ranges_are_numbers_unless_values_are_told_apart(most: int) -> None:
    assert is_number(CHEAP, most)
    one_of_them = "CREATE CONSTRAINT c AS SELECT name FROM pool CHECK variable__workers <> 3;"
    assert is_number(one_of_them, most) is (most >= FEW_VALUES)
    joined = (
        "CREATE CONSTRAINT c AS SELECT y.name FROM pool AS x JOIN pool AS y ON y.most = x.variable__workers "
    )
    joined += "CHECK x.price < 9;"
    assert is_number(joined, most) is (most >= MOST_VALUES)
    apart = "CREATE CONSTRAINT c AS SELECT x.name FROM pool AS x JOIN pool AS y ON x.name < y.name "
    apart += "CHECK x.variable__workers {} y.variable__workers;"
    assert is_number(apart.format("<>"), most) is (most >= MOST_VALUES)
    assert is_number(apart.format("<"), most)
    assert workers(joined + CHEAP.replace("price", "-1"), most) == [most] * 3


TOLD_APART = [
    "GROUP BY variable__workers CHECK count(*) <= 1",
    "CHECK count(DISTINCT variable__workers) >= 2",
    "CHECK all_different(variable__workers)",
]


@pytest.mark.parametrize("rest", TOLD_APART)
def test_values_that_are_told_apart_are_listed_as_long_as_they_are_few(rest: str) -> None:
    selected = "variable__workers" if rest.startswith("GROUP") else "1 AS one"
    text = f"CREATE CONSTRAINT c AS\n  SELECT {selected} FROM pool {rest};\n{CHEAP}"
    assert not is_number(text, 999)
    assert len(set(workers(text, 999))) >= 2
    with pytest.raises(UnsupportedConstructError) as caught:
        Model.build(database(POOL.format(most=WIDE)), text)
    assert caught.value.line == 2
    assert "1000000" in str(caught.value)


def test_unique_over_a_wide_range_is_refused_where_the_column_is() -> None:
    schema = POOL.format(most=WIDE).replace(
        "BOOLEAN NOT NULL", "BOOLEAN NOT NULL, UNIQUE (variable__workers)"
    )
    with pytest.raises(UnsupportedConstructError) as caught:
        Model.build(database(schema), CHEAP)
    assert (caught.value.position.source, caught.value.line) == ("schema.sql", 3)


def test_a_computed_number_is_refused_with_its_place_when_its_values_are_counted() -> None:
    text = (
        "CREATE CONSTRAINT c AS SELECT 1 AS one FROM pool\nCHECK count(DISTINCT variable__workers + 1) >= 2"
    )
    with pytest.raises(UnsupportedConstructError) as caught:
        workers(text)
    assert caught.value.line == 2


def test_beyond_64_bits_is_an_overflow_of_the_statement() -> None:
    text = "CREATE CONSTRAINT c AS SELECT name FROM pool\nMINIMIZE sum(variable__workers * variable__workers)"
    with pytest.raises(OverflowError) as caught:
        workers(text, 2**40)
    assert caught.value.line in {1, 2}


def test_null_is_possible_where_the_column_may_be_null() -> None:
    schema = POOL.format(most=WIDE).replace("variable__workers INTEGER NOT NULL", "variable__workers INTEGER")
    text = "CREATE CONSTRAINT c AS SELECT * FROM pool CHECK variable__workers >= most + 100001;"
    text += (
        "CREATE CONSTRAINT d AS SELECT * FROM pool WHERE variable__workers IS NULL MINIMIZE count(*) TIER 1;"
    )
    text += "CREATE CONSTRAINT e AS SELECT name FROM pool MINIMIZE sum(variable__workers) TIER 2"
    solution = solve(schema, POOLS, text)
    assert list(solution.assignments["pool", "variable__workers"].values()) == [500_001, 350_002, None]


def test_a_clash_names_its_rows_and_what_would_help() -> None:
    with pytest.raises(InfeasibleError) as caught:
        workers(
            DEMAND + "CREATE CONSTRAINT limits AS SELECT * FROM pool CHECK variable__workers <= most / 10"
        )
    assert set(caught.value.constraints) == {"enough", "limits"}
    assert caught.value.relaxations


def test_why_and_why_not() -> None:
    model = Model.build(database(POOL.format(most=WIDE), POOLS), DEMAND + LIMITS + CHEAP)
    (because, *_) = why(model, "pool", ("b",), "variable__workers")
    assert (because.chosen, because.other) == (250_001, 250_000)
    assert {
        member.constraint for member in why_not(model, "pool", ("b",), 250_002, "variable__workers").core
    } == {"limits"}
    dearer = why_not(model, "pool", ("b",), 250_000, "variable__workers")
    assert dearer.difference is not None
    outside = why_not(model, "pool", ("b",), WIDE + 1, "variable__workers")
    assert outside.difference is None
    assert not outside.core


def test_what_if() -> None:
    model = Model.build(database(POOL.format(most=WIDE), POOLS), DEMAND + LIMITS + CHEAP)
    found = mgmt.what_if(model, "UPDATE pool SET most = 500000 WHERE name = 'b'")
    assert found.difference is not None
    assert [(o.name, o.one, o.other) for o in found.difference.objectives] == [("cost", 1_549_999, 1_300_000)]


def test_lint_does_not_call_the_bounds_useless() -> None:
    findings = mgmt.lint(Model.build(database(POOL.format(most=WIDE), POOLS), DEMAND + CHEAP))
    assert not [finding for finding in findings if "whatever is decided" in finding.message]


# ---- as a list and as a number, beside brute force ------------------------------------------------------

LOW, HIGH = -1, 3
FAR = 2 * MOST_VALUES
BOTH = """
CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, n INTEGER,
  variable__n INTEGER{null} CHECK (variable__n BETWEEN {low} AND {high}), variable__b BOOLEAN NOT NULL);
CREATE TABLE u (id INTEGER PRIMARY KEY, v INTEGER NOT NULL, w INTEGER NOT NULL);
"""
BOUND = f"CREATE CONSTRAINT bound AS SELECT id FROM t CHECK variable__n BETWEEN {LOW} AND {HIGH};"


class Maker:
    """Random policies over the columns of a number."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)

    def rows(self) -> Rows:
        draw = self.draw
        present = [*range(LOW, HIGH + 1), None]
        return {
            "t": [{"id": i, "k": draw.randint(-2, 3), "n": draw.choice(present)} for i in range(2)],
            "u": [{"id": i, "v": draw.randint(LOW, HIGH), "w": draw.randint(0, 2)} for i in range(3)],
        }

    def number(self, depth: int = 2) -> str:
        pick = self.draw.choice
        if depth == 0 or self.draw.random() < 0.3:
            return pick(["variable__n", "variable__n", "k", str(self.draw.randint(-3, 3))])
        one, other = self.number(depth - 1), self.number(depth - 1)
        return pick([
            f"({one} + {other})", f"({one} - {other})", f"({one} * {other})", f"({one} * variable__b::INTEGER)",
            f"greatest({one}, {other})", f"abs({one})", f"coalesce({one}, 1)", f"({one} // 2)", f"({one} % 3)",
            f"CASE WHEN {self.truth(depth - 1)} THEN {one} ELSE {other} END",
        ])  # fmt: skip

    def truth(self, depth: int = 1) -> str:
        pick = self.draw.choice
        if depth > 0 and self.draw.random() < 0.4:
            join = pick(["AND", "OR"])
            return f"({self.truth(depth - 1)} {join} NOT {self.truth(depth - 1)})"
        low = self.draw.randint(LOW, HIGH)
        return pick([
            f"{self.number(depth)} {pick(['=', '<>', '<', '<=', '>', '>='])} {self.number(depth)}",
            f"variable__n BETWEEN {low} AND {low + 2}", f"variable__n IN ({low}, {low + 2})", "variable__n IS NULL",
            "variable__n IS DISTINCT FROM n", "variable__n = n", "variable__n IN (SELECT v FROM u)", "variable__b",
            "EXISTS (SELECT 1 FROM u WHERE u.v = variable__n AND u.w > 0)",
        ])  # fmt: skip

    def policies(self) -> str:
        pick = self.draw.choice
        functions = ["sum", "min", "max"]
        check = pick([
            f"SELECT id FROM t CHECK {self.truth()}",
            f"SELECT id FROM t WHERE {self.truth()} CHECK {self.truth()}",
            f"SELECT 1 AS one FROM t CHECK {pick(functions)}({self.number(1)}) {pick(['<=', '>=', '='])} "
            f"{self.draw.randint(-3, 5)}",
            "SELECT u.id FROM t JOIN u ON u.v = t.variable__n GROUP BY u.id, u.w CHECK count(*) <= u.w",
        ])  # fmt: skip
        goal = pick([f"SELECT id FROM t {pick(['MINIMIZE', 'MAXIMIZE'])} {pick(functions)}({self.number()})",
                     f"SELECT id FROM t WHERE {self.truth()} MINIMIZE count(*)",
                     f"SELECT id FROM t WHERE {self.truth()} MAXIMIZE sum({self.number(1)})"])  # fmt: skip
        return f"CREATE CONSTRAINT c AS {check};\nCREATE CONSTRAINT o AS {goal};\n"


def outcome(schema: str, rows: Rows, text: str, *, enumerate_all: bool = False) -> Any:
    state = database(schema, rows)
    try:
        model = Model.build(state, text)
        if enumerate_all:
            found = brute_force(model, state)
            return "infeasible" if found is None else found[0]
        assert bool(quantities_of(model.program, model.catalog)) or str(FAR) not in schema
        return solution_value(model, model.solve(budget=30))
    except InfeasibleError:
        return "infeasible"
    except PolicyError as error:
        return type(error), error.position is not None


def check_both(seed: int) -> Any:
    maker = Maker(seed)
    rows, text, null = maker.rows(), BOUND + maker.policies(), maker.draw.choice(["", " NOT NULL"])
    listed = BOTH.format(null=null, low=LOW, high=HIGH)
    number = BOTH.format(null=null, low=-FAR, high=FAR)
    expected = outcome(listed, rows, text, enumerate_all=True)
    assert outcome(listed, rows, text) == expected, text
    assert outcome(number, rows, text) == expected, text
    return "solved" if isinstance(expected, tuple) else expected


@pytest.mark.parametrize("chunk", budgeted(range(2), 1))
def test_a_number_and_a_list_have_the_optimum_that_enumeration_finds(chunk: int) -> None:
    outcomes = Counter(check_both(1000 * chunk + number) for number in range(12))
    assert outcomes["solved"] >= 6, outcomes


@pytest.mark.parametrize("chunk", budgeted(range(8), 0))
def test_many_more(chunk: int) -> None:
    for number in range(40):
        check_both(100_000 + 1000 * chunk + number)

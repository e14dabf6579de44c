"""Views that use views: what they come to when each is written out where it is used, and what is too much."""

from __future__ import annotations

import time
from random import Random

import pytest
from mgmt.language.sizes import Sizes
from sqlglot import exp, parse_one

from mgmt.compiler.model import Model
from mgmt.errors import PolicySyntaxError
from mgmt.language.bound import PushedView
from mgmt.language.sql_text import to_sql
from mgmt.source import Position
from tests.mgmt.support import database
from tests.mgmt.test_meaning import SCHEMA

DEMAND = "CREATE CONSTRAINT demand AS SELECT * FROM task CHECK variable__host = 'a';"
# Each view computes with the one before it, of what the database or what the solver decides.
CHAINS = {
    "constants": ("SELECT id, 1 AS n FROM task", "SELECT id, n + 1 AS n FROM {} WHERE n > 0"),
    "doubled": ("SELECT id, 1 AS n FROM task", "SELECT id, n + n AS n FROM {}"),
    "unions": ("SELECT id, 1 AS n FROM task", "SELECT id, n - 1 AS n FROM {} UNION ALL SELECT id, n FROM {}"),
    "stars": (
        "SELECT id, 1 AS n FROM task",
        "SELECT id, n * 2 AS n FROM (SELECT * FROM {}) AS x",
    ),
    "beside a variable": (
        "SELECT id, variable__host AS h, 1 AS n FROM task",
        "SELECT id, h, n + 1 AS n FROM {} WHERE h <> 'b'",
    ),
    "of a variable": (
        "SELECT variable__host AS h, count(*) AS n FROM task GROUP BY variable__host",
        "SELECT h, n + 1 AS n FROM {}",
    ),
}


def chain(kind: str, views: int) -> str:
    first, further = CHAINS[kind]
    texts = [f"CREATE VIEW v0 AS {first};"]
    texts += [f"CREATE VIEW v{n} AS {further.replace('{}', f'v{n - 1}')};" for n in range(1, views)]
    demand = f"CREATE CONSTRAINT c AS SELECT * FROM v{views - 1} CHECK n < 1000;"
    return "\n".join([*texts, demand, DEMAND])


@pytest.mark.parametrize("kind", CHAINS)
def test_views_that_compute_from_one_another_are_refused_where_they_become_too_much(kind: str) -> None:
    state = database(SCHEMA)
    started = time.process_time()
    with pytest.raises(
        PolicySyntaxError, match=r"^policy:\d+:1: v\d+ .*(compute with \d+|reads \d+ tables)"
    ) as caught:
        Model.build(state, chain(kind, 120))
    assert time.process_time() - started < 1
    assert caught.value.position is not None
    assert 6 <= caught.value.position.line <= 16
    assert Model.build(state, chain(kind, 4)).queries


def test_what_is_grouped_is_made_before_anything_is_computed_with_it() -> None:
    text = "CREATE VIEW v0 AS SELECT id, 1 AS n FROM task;\n"
    text += "\n".join(
        f"CREATE VIEW v{n} AS SELECT id, max(n) + 1 AS n FROM v{n - 1} GROUP BY id;" for n in range(1, 40)
    )
    assert Model.build(database(SCHEMA), text + DEMAND).queries


def letters_of(tree: exp.Expr, letters: dict[str, int]) -> int:
    """How many columns of a table an expression names, as SQLite is given it, if each column stands for so many."""
    guarded = parse_one(to_sql(tree), dialect="sqlite")
    return sum(letters[column.name] for column in guarded.find_all(exp.Column))


def test_operands_are_counted_as_often_as_they_are_written() -> None:
    for seed in range(60):
        random, sizes, source = Random(seed), Sizes(), "t"
        letters = {"a": 1, "b": 1}
        for number in range(4):
            terms = [random.choice(list(letters)) for _ in range(random.randint(1, 3))]
            tree = parse_one(f"SELECT {' + '.join(terms)} AS c, a, b FROM {source}")
            source = f"v{number}"
            sizes.add_result(PushedView(source, tree, Position("policy", 1, 1)))
            letters["c"] = letters_of(tree.expressions[0].this, letters)
            assert dict(sizes._columns[source]) == {"a": 1, "b": 1, "c": letters["c"]}, f"seed {seed}"


def test_columns_are_counted_over_all_statements() -> None:
    wide = "CREATE VIEW wide AS SELECT " + ", ".join(f"id AS c{n}" for n in range(500)) + " FROM task;\n"
    text = wide + "\n".join(
        f"CREATE CONSTRAINT c{n} AS SELECT * FROM task JOIN wide ON wide.c0 = task.id CHECK variable__host <> 'x{n}';"
        for n in range(60)
    )
    with pytest.raises(PolicySyntaxError, match=r"^policy:10:1: c8 and what .* at most 5000") as caught:
        Model.build(database(SCHEMA), text)
    assert "instead of *" in caught.value.hint


@pytest.mark.parametrize("opening", ["(", "CASE WHEN weight > 0 THEN TRUE ELSE "])
def test_what_is_nested_too_deep_is_pointed_at(opening: str) -> None:
    closing = ")" if opening == "(" else " END"
    text = f"CREATE CONSTRAINT c AS SELECT * FROM task CHECK {opening * 95}variable__host = 'a'{closing * 95}"
    with pytest.raises(PolicySyntaxError, match="nested deeper than 32 levels") as caught:
        Model.build(database(SCHEMA), text)
    assert caught.value.column == text.index("CHECK") + len("CHECK ") + 32 * len(opening) + 1


def test_what_is_too_deep_without_parentheses_is_pointed_at() -> None:
    text = f"CREATE CONSTRAINT c AS SELECT * FROM task CHECK {'NOT ' * 900}variable__host = 'a'"
    with pytest.raises(PolicySyntaxError, match="nested too deep") as caught:
        Model.build(database(SCHEMA), text)
    assert (caught.value.line, "view of its own" in caught.value.hint) == (1, True)

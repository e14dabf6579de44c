"""Statements: heads and tails, five generations of surface syntax, and positions in errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgmt.errors import PolicyError, PolicySyntaxError
from mgmt.language.parsing.statements import parse_statements
from mgmt.language.parsing.trailing_clauses import TailKind
from mgmt.source_text import SourceText
from mgmt.sql.tokens import MAXIMUM_NESTING


def parse(text: str):  # type: ignore[no-untyped-def]
    return parse_statements(SourceText("p.sql", text))


def one(text: str):  # type: ignore[no-untyped-def]
    (statement,) = parse(text)
    return statement


def test_a_constraint_of_dcm_and_ours() -> None:
    statement = one("CREATE CONSTRAINT c AS SELECT * FROM t WHERE a CHECK b <= 1 AND d = 'CHECK'")
    assert statement.name == "c"
    assert statement.tail.kind is TailKind.CHECK
    assert statement.tail.expression.sql() == "b <= 1 AND d = 'CHECK'"
    assert statement.select.args["where"] is not None


@pytest.mark.parametrize(
    ("tail", "kind", "tier", "weight", "soft"),
    [
        ("MAXIMIZE sum(a)", TailKind.MAXIMIZE, 1, 1, False),
        ("minimize a TIER 3", TailKind.MINIMIZE, 3, 1, False),
        ("MINIMIZE a WEIGHT 7 TIER 2", TailKind.MINIMIZE, 2, 7, False),
        ("CHECK a = 1 SOFT", TailKind.CHECK, 1, 1, True),
        ("CHECK a = 1 SOFT WEIGHT 5 TIER 2", TailKind.CHECK, 2, 5, True),
    ],
)
def test_tail_options(tail: str, kind: TailKind, tier: int, weight: int, soft: bool) -> None:
    found = one(f"CREATE CONSTRAINT c AS SELECT * FROM t {tail}").tail
    assert (found.kind, found.tier, found.weight, found.soft) == (kind, tier, weight, soft)


@pytest.mark.parametrize(
    "check", ["weight <= 5", "a <= weight", "5 >= tier AND soft", "weight = tier", "NOT soft OR weight > 2"]
)
def test_columns_may_be_named_like_options(check: str) -> None:
    tail = one(f"CREATE CONSTRAINT c AS SELECT * FROM t CHECK {check}").tail
    assert tail.expression.sql() == check
    assert not tail.soft


def test_a_column_named_like_an_option_before_the_option() -> None:
    tail = one("CREATE CONSTRAINT c AS SELECT * FROM t MINIMIZE a + weight WEIGHT 3").tail
    assert (tail.expression.sql(), tail.weight) == ("a + weight", 3)


def test_early_dcm_and_osdi_write_views() -> None:
    assert one("create view c as select * from t check a").tail.kind is TailKind.CHECK
    assert (
        one("-- @hard_constraint\ncreate view c as select * from t check (a = 1)").tail.kind is TailKind.CHECK
    )
    soft = one("-- @soft_constraint\ncreate view c as select sum(a) from t")
    assert soft.tail.kind is TailKind.MAXIMIZE
    assert soft.tail.expression.sql() == "SUM(a)"


def test_weave_enforces_where_or_having() -> None:
    rows = one("create view constraint_1 as select * from t where a = 1")
    assert rows.tail.expression.sql() == "a = 1"
    assert rows.select.args.get("where") is None
    groups = one("create view constraint_2 as select b from t where c group by b having sum(a) = 1")
    assert groups.tail.expression.sql() == "SUM(a) = 1"
    assert groups.select.args.get("where") is not None
    assert one("create view objective_1 as select sum(a) from t").tail.kind is TailKind.MAXIMIZE


def test_a_view_without_a_tail_is_for_others_to_read() -> None:
    assert one("CREATE VIEW v AS SELECT * FROM t").tail is None


@pytest.mark.parametrize(
    ("body", "column", "hint"),
    [
        ("SELECT * FROM t", 39, "end it in CHECK condition, MINIMIZE number"),
        ("SELECT * FROM t -- CHECK a", 39, "end it in CHECK condition, MINIMIZE number"),
        ("SELECT * FROM t WHERE a = 2", 51, "WHERE only chooses rows: end it in CHECK"),
        ("SELECT a FROM t GROUP BY a HAVING count(*) < 3", 51, "write CHECK in place of HAVING"),
        ("SELECT count(*) FROM t HAVING count(*) < 3", 47, "write CHECK in place of HAVING"),
        ("SELECT a FROM t GROUP BY a STRICT GROUPS", 64, "or write CREATE VIEW c"),
        ("SELECT * FROM t TABLESAMPLE SYSTEM (10)", 63, "or write CREATE VIEW c"),
        ("SELECT * FROM t PINED WHERE a = 1", 40, "did you mean PINNED?"),
    ],
)
def test_a_constraint_demands_something(body: str, column: int, hint: str) -> None:
    """It was taken for a view, which demands nothing, without a word."""
    with pytest.raises(PolicySyntaxError) as caught:
        parse(f"CREATE CONSTRAINT c AS {body};")
    assert (caught.value.line, caught.value.column) == (1, column)
    assert hint in caught.value.hint


def test_strict_groups() -> None:
    assert one(
        "CREATE CONSTRAINT c AS SELECT a FROM t GROUP BY a STRICT GROUPS CHECK count(*) > 0"
    ).strict_groups


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("SELECT 1", 1, 1),
        ("CREATE TABLE t (a INTEGER)", 1, 1),
        ("\n  DROP TABLE t", 2, 3),
        ("CREATE CONSTRAINT", 1, 8),
        ("CREATE CONSTRAINT c SELECT 1", 1, 21),
        ("CREATE CONSTRAINT c AS CHECK a", 1, 24),
        ("CREATE CONSTRAINT c AS SELECT * FROM t\nCHECK", 2, 1),
        ("CREATE CONSTRAINT c AS\nSELECT * FRM t CHECK a", 2, 10),
        ("CREATE CONSTRAINT c AS SELECT * FROM t CHECK a b", 1, 48),
        ("CREATE CONSTRAINT c AS SELECT * FROM t\n  CHECK (a = 1", 2, 14),
        ("CREATE CONSTRAINT c AS SELECT * FROM t MINIMIZE a TIER 0", 1, 51),
        ("CREATE CONSTRAINT c AS SELECT * FROM t MINIMIZE a TIER 1 TIER 2", 1, 58),
        ("CREATE CONSTRAINT c AS SELECT * FROM t CHECK a TIER 2", 1, 40),
        ("CREATE VIEW constraint_1 AS SELECT * FROM t", 1, 1),
        ("CREATE VIEW objective_1 AS SELECT * FROM t", 1, 1),
        ("-- @soft_constraint\nCREATE VIEW v AS SELECT t.* FROM t", 2, 1),
        ("CREATE CONSTRAINT c AS SELECT 'open", 1, 31),
    ],
)
def test_a_mistake_has_line_and_column(text: str, line: int, column: int) -> None:
    with pytest.raises(PolicySyntaxError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"p.sql:{line}:{column}: ")


def test_a_reason_needs_its_text() -> None:
    tail = one("CREATE CONSTRAINT c AS SELECT * FROM t CHECK a REASON 'because of {a}' PRIORITY 3").tail
    assert (tail.reason.template, tail.reason.names, tail.priority) == ("because of {a}", ("a",), 3)
    with pytest.raises(PolicySyntaxError):
        parse("CREATE CONSTRAINT c AS SELECT * FROM t CHECK a REASON because")


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("(", ")"), ("CASE WHEN a THEN ", " END"), ("abs(", ")"), ("coalesce(1, ", ")"),
     ("(SELECT x FROM t WHERE a = ", ")"), ("a IN (", ")")],
)  # fmt: skip
def test_as_deep_as_the_limit_says_is_read(opening: str, closing: str) -> None:
    def nested(levels: int) -> str:
        return "CREATE CONSTRAINT c AS SELECT * FROM t CHECK " + opening * levels + "a" + closing * levels

    parse(nested(MAXIMUM_NESTING))
    with pytest.raises(PolicySyntaxError, match=f"nested deeper than {MAXIMUM_NESTING} levels"):
        parse(nested(MAXIMUM_NESTING + 1))


def test_huge_and_deep_texts_are_refused_quickly() -> None:
    with pytest.raises(PolicySyntaxError, match="nested deeper"):
        parse("CREATE CONSTRAINT c AS SELECT * FROM t CHECK " + "(" * 1000 + "a" + ")" * 1000)
    with pytest.raises(PolicySyntaxError, match="at most"):
        parse("-- " + "x" * 2_000_000)
    with pytest.raises(PolicySyntaxError):
        parse("CREATE CONSTRAINT c AS SELECT * FROM t CHECK " + "NOT " * 5000 + "a")


WORDS = [
    "CREATE",
    "CONSTRAINT",
    "VIEW",
    "AS",
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "HAVING",
    "CHECK",
    "MINIMIZE",
    "TIER",
    "SOFT",
    "JOIN",
    "ON",
    "AND",
    "NOT",
    "(",
    ")",
    ",",
    ";",
    "*",
    "=",
    "<=",
    "1",
    "'x'",
    "t",
    "a",
    "c",
    ".",
    "count(*)",
    "CASE",
    "END",
    "--",
]


@given(st.lists(st.sampled_from(WORDS), max_size=30), st.text(max_size=8))
def test_any_text_is_parsed_or_refused_with_a_position(words: list[str], noise: str) -> None:
    refusal: PolicyError | None = None
    try:
        parse(" ".join(words) + noise)
    except PolicyError as error:
        refusal = error
    assert refusal is None or refusal.position is not None

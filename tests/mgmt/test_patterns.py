"""Regular expressions and SIMILAR TO: one meaning in both databases, and none for what they could read differently."""

from __future__ import annotations

import re

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgmt.errors import UnsupportedConstructError
from mgmt.language.patterns import written_pattern
from mgmt.state.sqlite_connection import connect
from tests.mgmt.test_pushed_down import build, rows
from tests.postgres_server import PostgresServer


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("'disk-17' ~ '^disk-[0-9]+$'", True),
        ("'disk-' ~ '^disk-[0-9]+$'", False),
        ("'a disk-17' ~ 'disk'", True),
        ("'DISK' ~ 'disk'", False),
        ("'DISK' ~* 'd[i-k]sk'", True),
        ("'DISK' !~* 'disk'", False),
        ("'disk' !~ 'DISK'", True),
        ("regexp_like('disk', 'is')", True),
        ("'disk' REGEXP '^d'", True),
        ("'a.c' ~ 'a\\.c' AND 'abc' !~ 'a\\.c' AND 'abc' ~ 'a.c'", True),
        ("'a' || chr(10) || 'b' ~ '^a.b$'", True),
        ("'b' || chr(10) ~ 'b$'", False),
        ("'a' || chr(10) || 'b' ~ '^b'", False),
        ("'a1_' ~ '^\\w\\d[_]$' AND 'é' !~ '\\w'", True),
        ("'a b' ~ 'a\\sb' AND 'ab' ~ '^\\S\\D$'", True),
        ("'x]y' ~ 'x[]]y' AND 'x-y' ~ 'x[a-]y' AND 'x^y' ~ 'x[y^]y' AND 'x\\y' ~ 'x[\\\\]y'", True),
        ("'xy' ~ '^[^a-w]{2}$' AND 'x-' !~ '^[^-]+$'", True),
        ("'A1' ~ '^[[:upper:]][[:digit:]]$'", True),
        ("'aaa' ~ '^a{3}$' AND 'aaa' ~ '^a{2,}$' AND 'aaa' !~ '^a{0,2}$' AND '' ~ '^a{0}$'", True),
        ("'' ~ '' AND 'x' ~ '' AND '' ~ '^$'", True),
        ("'b' ~ '^(a|)b$' AND 'ab' ~ '^(a|)b$'", True),
        ("'😀x' ~ '^.x$' AND '😀' ~ '[😀]'", True),
        ("'xb' ~ '^a|b' AND 'cb' ~ '^a|b$' AND 'ca' !~ '^a|b$'", True),
        ("'é' ~* 'É'", False),
        ("(CASE WHEN name = 'z' THEN 'x' END) ~ 'x' IS NULL", True),
        ("name ~ 'a'", True),
        ("'disk-17' SIMILAR TO 'disk-[0-9]+'", True),
        ("'disk-17' SIMILAR TO 'disk'", False),
        ("'disk-17' SIMILAR TO '(disk|ssd)-%' AND 'disk-17' SIMILAR TO 'disk__'", False),
        ("'disk-17' SIMILAR TO '(disk|ssd)-%' AND 'disk-17' SIMILAR TO 'disk___'", True),
        ("'a.b' SIMILAR TO 'a.b' AND 'axb' NOT SIMILAR TO 'a.b' AND 'a^$' SIMILAR TO 'a^$'", True),
        ("'ab' SIMILAR TO 'b|a_' AND 'a%' SIMILAR TO 'a\\%' AND 'ax' NOT SIMILAR TO 'a\\%'", True),
        ("17 ~ '^1'", True),
    ],
)
def test_a_pattern_means_the_same_in_both(each_database: str, condition: str, expected: bool) -> None:
    assert each_database
    assert rows(f"SELECT ({condition}) AS x FROM host WHERE name = 'a'") == [expected]


def test_a_constraint_reads_patterns_where_no_variable_stands(each_database: str) -> None:
    assert each_database
    model = build("SELECT name AS x FROM host WHERE name ~ '^[bc]$'")
    assert model.solve(budget=20)
    rule = "CREATE CONSTRAINT d AS SELECT * FROM task JOIN host ON variable__host = name WHERE name !~ 'b' CHECK FALSE"
    found = build(f"SELECT name AS x FROM host WHERE FALSE; {rule}").solve(budget=20)
    assert set(found.assignments["task", "variable__host"].values()) == {"b"}


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("(a)\\1", "\\1"),
        ("a(?=b)", "(?"),
        ("(?:a)", "(?"),
        ("a*?", "a quantifier after a quantifier"),
        ("a++", "a quantifier after a quantifier"),
        ("*a", "* after nothing"),
        ("a|*", "* after nothing"),
        ("^*", "^ or $ in what is repeated"),
        ("(a|b$)+", "^ or $ in what is repeated"),
        ("$^", "$ with something after it"),
        ("(a|b$)c*", "$ with something after it"),
        ("a^", "^ with something before it"),
        ("()(^a|b)", "^ with something before it"),
        ("\\bdisk", "\\b"),
        ("\\ydisk", "\\y"),
        ("[[:graph:]]", "[: :]"),
        ("[[=a=]]", "[: :]"),
        ("[a-Z]", "the range a-Z"),
        ("[+-9]", "the range +-9"),
        ("[a", "[ without its ]"),
        ("[]", "[ without its ]"),
        ("(a", "( without its )"),
        ("a)", ") without its ("),
        ("a{", "{ without numbers"),
        ("a{x}", "{ without numbers"),
        ("a{,3}", "{ without numbers"),
        ("a{3,2}", "{m,n}"),
        ("a{101}", "{m,n}"),
        ("(a{100}){100}", "more than 400"),
        ("((((a{9}){9}){9}){9}){9}", "more than 400"),
        ("a" * 401, "more than 400"),
        ("(" * 5000, "groups in groups"),
        ("(((a*)*)*)*" * 100, "more than 400"),
        ("a\\", "\\ at the end"),
    ],
)
def test_what_is_no_common_pattern_is_refused(pattern: str, what: str) -> None:
    with pytest.raises(UnsupportedConstructError) as caught:
        build(f"SELECT name AS x FROM host WHERE name ~ '{pattern}'")
    assert what in caught.value.message
    assert (caught.value.line, caught.value.column) == (2, 41)
    assert "[a-z]" in str(caught.value)


@pytest.mark.parametrize(
    "condition",
    [
        "name ~ name",
        "name ~ ('a' || 'b')",
        "name ~ NULL",
        "regexp_like(name, 'a', 'i')",
        "name SIMILAR TO 'a' ESCAPE '#'",
    ],
)
def test_so_is_one_that_is_computed(each_database: str, condition: str) -> None:
    assert each_database
    with pytest.raises(UnsupportedConstructError):
        build(f"SELECT name AS x FROM host WHERE {condition}")


def test_variables_take_none() -> None:
    with pytest.raises(UnsupportedConstructError) as caught:
        build("SELECT id AS x FROM task WHERE variable__host ~ '^a'")
    assert caught.value.line == 2


_PARTS = st.recursive(
    st.one_of(
        st.sampled_from(["a", "b", "-", "é", "A", "9"]).map(lambda sign: (sign, re.escape(sign))),
        st.sampled_from([".", "[ab]", "[^ab]", "[a-c9]", "\\d", "\\w", "\\s", "\\.", "[^\\]-]"]).map(
            lambda part: (part, part)
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(
            lambda parts: tuple(map("".join, zip(*parts, strict=True)))
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda parts: tuple(f"({'|'.join(side)})" for side in zip(*parts, strict=True))
        ),
        st.tuples(
            inner, st.sampled_from(["*", "+", "?", "{0}", "{2}", "{1,2}", "{0,2}", "{2,}", "{0,}"])
        ).map(lambda pair: tuple(f"({side}){pair[1]}" for side in pair[0])),
    ),
    max_leaves=6,
)


def _anchored(parts: list[tuple[str, tuple[str, str], str]]) -> tuple[str, str]:
    """Alternatives, each perhaps from the beginning or to the end of a text, in both spellings."""
    ours = "|".join(f"{begin}{body[0]}{end}" for begin, body, end in parts)
    python = "|".join(f"{begin}{body[1]}{end and chr(92) + 'Z'}" for begin, body, end in parts)
    return ours, python


_PATTERNS = st.lists(
    st.tuples(st.sampled_from(["", "^"]), st.one_of(_PARTS, st.just(("", ""))), st.sampled_from(["", "$"])),
    min_size=1,
    max_size=3,
).map(_anchored)
_TEXTS = st.text(alphabet="abcA9-é. \n]", max_size=6)


@given(_PATTERNS, st.lists(_TEXTS, min_size=3, max_size=9), st.booleans())
def test_random_patterns_mean_what_python_reads(
    pattern: tuple[str, str], texts: list[str], ignore_case: bool
) -> None:
    written, _ = written_pattern(pattern[0], ignore_case=ignore_case)
    connection = connect(":memory:")
    found = [bool(connection.execute("SELECT ? REGEXP ?", (text, written)).get) for text in texts]
    assert found == [_python(pattern[1], text, ignore_case) for text in texts]


@pytest.mark.postgres
def test_so_they_do_in_postgresql(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:

        @given(_PATTERNS, st.lists(_TEXTS, min_size=3, max_size=9), st.booleans())
        def compare(pattern: tuple[str, str], texts: list[str], ignore_case: bool) -> None:
            written, _ = written_pattern(pattern[0], ignore_case=ignore_case)
            sql = 'SELECT t COLLATE "C" ~ %s FROM unnest(%s::text[]) WITH ORDINALITY AS u (t, n) ORDER BY n'
            found = [row[0] for row in connection.execute(sql, (written, texts))]
            assert found == [_python(pattern[1], text, ignore_case) for text in texts]

        compare()


def _python(pattern: str, text: str, ignore_case: bool) -> bool:
    flags = re.DOTALL | re.ASCII | (re.IGNORECASE if ignore_case else 0)
    return re.search(pattern, text, flags) is not None

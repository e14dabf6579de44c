"""Malformed, huge and hostile policies: an error with its place each time, and never a write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest

from mgmt.compiler.compilation import MOST_STATEMENTS
from mgmt.compiler.model import Model
from mgmt.errors import PolicyError, PolicySyntaxError
from mgmt.language.implied_constraints import bind_settings
from mgmt.language.names.catalog import Catalog
from mgmt.language.parsing.set_statements import parse_settings
from mgmt.language.parsing.statements import parse_statements
from mgmt.language.policy_packs import load_pack, pack_names
from mgmt.language.pushdown.column_types import EngineTypes
from mgmt.language.statement_binder import QueryBinder
from mgmt.source_text import SourceText
from mgmt.sql.tokens import MAXIMUM_TEXT_TOKENS, refuse_too_many, split_statements, tokenize
from mgmt.state.database import Database
from mgmt.state.duckdb_access.engine import RefusedStatementError
from mgmt.state.schema_parsing.parser import parse_schema
from tests.budget import budgeted
from tests.mgmt.support import database
from tests.mgmt.test_meaning import SCHEMA

DEMAND = "; CREATE CONSTRAINT demand AS SELECT * FROM task CHECK variable__host = 'a'"
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_TROUBLE = (
    "(", ")", "'", '"', ";", ",", ".", "--", "/*", "*", "%", "\x00", "\\", "🦆", "SELECT", "FROM", "WHERE", "GROUP BY",
    "CHECK", "NOT", "NULL", "CASE", "END", "JOIN", "LEFT JOIN", "IN (", "EXISTS (SELECT", "UNION ALL", "WITH x AS (",
    "DISTINCT", "OVER ()", "1e999", "99999999999999999999", "MAXIMIZE", "SOFT", "TIER 0", "PINNED WHERE", "$1", "::int",
    "ATTACH", "PRAGMA", "INTERVAL '1 day'", "ARRAY[", "LATERAL", "VALUES (1)", "@hard_constraint", "COLLATE nocase",
)  # fmt: skip


def mutated(text: str, random: Random) -> str:
    """The text with one to three words lost, doubled, swapped, replaced, or put in."""
    words = _WORDS.findall(text)
    for _ in range(random.randint(1, 3)):
        place, other = random.randrange(len(words)), random.randrange(len(words))
        kind = random.randrange(6)
        if kind == 0:
            del words[place : place + random.choice([1, 1, 2, 20])]
        elif kind == 1:
            words[place:place] = words[place : place + random.choice([1, 5, 30])]
        elif kind == 2:
            words[place], words[other] = words[other], words[place]
        elif kind == 3:
            words[place] = words[other]
        else:
            words.insert(place, f" {random.choice(_TROUBLE)} ")
        if not words:
            return ""
    return "".join(words)


@cache
def bases() -> tuple[tuple[Database, tuple[SourceText, ...]], ...]:
    """Every pack: a database with its schema, and its texts."""
    return tuple((database(pack.schema), pack.policies) for pack in map(load_pack, pack_names()))


@cache
def names_before(state: Database, texts: tuple[SourceText, ...]) -> tuple[Catalog, EngineTypes]:
    """The catalog once these texts are bound, and the engine with their views."""
    catalog = Catalog(state.schema)
    engine = EngineTypes(state.rehearsal())
    binder = QueryBinder(catalog, engine)
    for text in texts:
        for statement in parse_statements(text):
            binder.bind(statement)
    return catalog, engine


def refusal_of_a_mutation(seed: int, *, whole: bool) -> PolicyError | None:
    """What the compiler says of one mutated file of a pack, after the files before it; any other exception escapes."""
    random = Random(seed)
    state, texts = random.choice(bases())
    number = random.randrange(len(texts))
    text = SourceText(texts[number].name, mutated(texts[number].text, random))
    try:
        if whole:
            Model.build(state, [*texts[:number], text])
            return None
        catalog, engine = names_before(state, texts[:number])
        binder = QueryBinder(catalog.copy(), engine)
        for statement in parse_statements(text):
            binder.bind(statement)
        bind_settings(parse_settings([text]), binder, state.schema)
    except PolicyError as error:
        return error
    return None


@pytest.mark.parametrize("chunk", budgeted(range(4), 2))
def test_a_mutated_pack_is_compiled_or_refused_where_it_is_wrong(chunk: int) -> None:
    refusals = [refusal_of_a_mutation(1000 * chunk + number, whole=number % 10 == 0) for number in range(50)]
    assert sum(error is not None for error in refusals) > 10
    assert [error for error in refusals if error is not None and not _has_its_place(error)] == []


@pytest.mark.parametrize("chunk", budgeted(range(20), 0))
def test_ten_thousand_mutations(chunk: int) -> None:
    for number in range(500):
        error = refusal_of_a_mutation(1_000_000 + 1000 * chunk + number, whole=number % 50 == 0)
        assert error is None or _has_its_place(error), error


def _has_its_place(error: PolicyError) -> bool:
    # That nothing is demanded at all is a mistake of no line.
    return error.position is not None or "demand nothing" in error.message


@pytest.mark.parametrize("parameter", ["$1", "?"])
def test_a_parameter_is_refused_where_it_is(each_database: str, parameter: str) -> None:
    """Found by a mutation: who writes a policy has no values to give for it."""
    rule = f"CREATE CONSTRAINT rule AS SELECT * FROM task\nWHERE id < {parameter} CHECK variable__host = 'a'"
    with pytest.raises(PolicySyntaxError, match="a parameter") as caught:
        Model.build(database(SCHEMA), rule)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "text", ["-- \ud800\n", "/* \udfff */", "REASON '\ud800'", "CHECK '\ud800' = 'a'", "\udc80"]
)
def test_half_of_a_character_is_no_text(each_database: str, text: str) -> None:
    """JSON can bring it in; no database takes it."""
    with pytest.raises(PolicySyntaxError, match="half of a character") as caught:
        Model.build(database(SCHEMA), f"{DEMAND[2:]}\n{text}")
    assert caught.value.line == 2


def test_half_of_a_character_is_no_value(each_database: str) -> None:
    state = database(SCHEMA)
    for insert in (
        lambda: state.insert("host", [{"name": "\ud800", "up": True}]),
        lambda: state.execute("INSERT INTO host (name, up) VALUES ('\ud800', TRUE)"),
        lambda: state.execute("INSERT INTO host (name, up) VALUES (?, TRUE)", ("\ud800",)),
    ):
        with pytest.raises(PolicyError):
            insert()
    assert state.execute("SELECT count(*) FROM host") == [(0,)]


def huge() -> Iterator[tuple[str, str]]:
    """Texts that would keep a careless compiler busy."""
    start = "CREATE CONSTRAINT c AS SELECT * FROM task CHECK "
    yield "deep parentheses", start + "(" * 1000 + "TRUE" + ")" * 1000
    yield "deep CASE", start + "CASE WHEN TRUE THEN " * 1000 + "TRUE" + " END" * 1000
    yield "deep NOT", start + "NOT " * 1000 + "TRUE"
    yield "deep subqueries", start + "EXISTS (SELECT 1 WHERE " * 1000 + "TRUE" + ")" * 1000
    yield "deep derived tables", "CREATE VIEW v AS " + "SELECT * FROM (" * 1000 + "task" + ") AS x" * 1000
    yield "deep minus", start + "id > " + "- " * 1000 + "1"
    yield "deep casts", start + "id" + "::int" * 1000 + " > 1"
    yield "deep functions", start + "abs(" * 1000 + "id" + ")" * 1000 + " > 1"
    yield "ten megabytes of one statement", start + "TRUE AND " * 1_200_000 + "TRUE"
    yield "ten megabytes of comment", "-- " + "x" * 10_000_000
    yield "ten megabytes of lines", "\n" * 10_000_000 + start
    yield "ten megabytes of string", start + "'" + "x" * 10_000_000 + "' = 'y'"
    yield "one long name", start + "x" * 500_000 + " = 1"
    doubled = "CREATE VIEW v0 AS SELECT id AS x0 FROM task;"
    for number in range(1, 30):
        doubled += (
            f"CREATE VIEW v{number} AS SELECT a.x0 FROM v{number - 1} a JOIN v{number - 1} b ON a.x0 = b.x0;"
        )
    yield "views that double", doubled
    widened = "CREATE VIEW v0 AS SELECT id AS x0, weight AS y0 FROM task;"
    for number in range(1, 30):
        more = ", ".join(f"a.x0 AS z{number}_{place}" for place in range(100))
        widened += f"CREATE VIEW v{number} AS SELECT a.*, {more} FROM v{number - 1} a;"
    yield "views that widen", widened
    sum_of_all = " + ".join(["id"] * 1000)
    yield (
        "aliases of aliases",
        f"CREATE CONSTRAINT c AS SELECT {sum_of_all} AS a FROM task CHECK "
        + (" + ".join(["a"] * 1000) + " > 1"),
    )
    ten = " UNION ALL ".join(f"SELECT {number} AS n" for number in range(10))
    crossed = ", ".join(f"({ten}) AS t{number}" for number in range(12))
    yield "a product of nothing but constants", f"CREATE VIEW v AS SELECT count(*) AS n FROM {crossed}"
    yield "a string of a billion", "CREATE VIEW v AS SELECT length(printf('%1000000000d', 1)) AS n"
    yield "a blob of a billion", "CREATE VIEW v AS SELECT length(zeroblob(2000000000)) AS n"


# DuckDB writes the billion for three seconds before anybody can stop it.
LONG = {"a string of a billion": [pytest.mark.slow("DuckDB makes a gigabyte of text first")]}


@pytest.mark.parametrize(
    ("name", "text"), [pytest.param(*entry, id=entry[0], marks=LONG.get(entry[0], [])) for entry in huge()]
)
def test_what_is_huge_or_deep_is_refused_at_once(name: str, text: str) -> None:
    if "VIEW v AS SELECT count" in text or "length(" in text:
        text += "; CREATE CONSTRAINT c AS SELECT * FROM task, v CHECK id < n"
    with pytest.raises(PolicyError) as caught:
        Model.build(database(SCHEMA), text)
    assert caught.value.position is not None, name


def repeated(piece: str, size: int = 1_000_000) -> str:
    return (piece * (size // len(piece) + 1))[:size]


@pytest.mark.parametrize(
    "piece",
    [
        "CREATE CONSTRAINT c AS SELECT * FROM task CHECK id <= 3;\n",
        ";",
        "x y ",
        "'a' ",
        "E'\\'' b ",
        "$a$ ' $a$ b c d ",
        "/* no */ -- more\n {# none #} a ",
        "1.5e3 <= -> ",
    ],
)
def test_a_text_of_too_many_tokens_is_not_even_tokenized(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what would take seconds; the refusal is where the first token stands that is not read."""
    monkeypatch.setattr("mgmt.sql.tokens.tokenize", lambda source: pytest.fail("it was tokenized"))
    for parse in (parse_statements, parse_schema):
        with pytest.raises(
            PolicySyntaxError, match=f"more than {MAXIMUM_TEXT_TOKENS} words and signs"
        ) as caught:
            parse(SourceText("p.sql", repeated(piece)))
        assert caught.value.position is not None


def test_the_last_token_that_is_read() -> None:
    start = "CREATE VIEW v AS SELECT 1 -- a comment, with words and 'signs'\n"
    fill = MAXIMUM_TEXT_TOKENS - 6
    assert len(parse_statements(SourceText("p.sql", start + ";" * fill))) == 1
    with pytest.raises(PolicySyntaxError) as caught:
        parse_statements(SourceText("p.sql", start + ";" * fill + "\nCREATE"))
    assert (caught.value.line, caught.value.column) == (3, 1)


def test_comments_blanks_and_strings_of_a_megabyte_are_read() -> None:
    for more in (
        f"-- {repeated('a b ', 999_000)}",
        repeated("\n", 999_000),
        f"REASON '{repeated('so it is; ', 999_000)}'",
    ):
        (statement,) = parse_statements(SourceText("p.sql", f"{DEMAND[2:]} {more}"))
        assert statement.name == "demand"


@pytest.mark.parametrize("name", pack_names())
def test_real_policies_are_far_below_the_limits(name: str) -> None:
    pack = load_pack(name)
    statements = [tokens for text in pack.policies for tokens in split_statements(text)]
    assert 5 * len(statements) <= MOST_STATEMENTS
    assert 2 * sum(map(len, statements)) <= MAXIMUM_TEXT_TOKENS


@pytest.mark.parametrize("chunk", range(4))
def test_a_text_has_at_most_as_many_tokens_as_are_counted(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit one below what there is, each text is refused: nothing hides from the count."""
    refused = 0
    for seed in range(50):
        random = Random(1000 * chunk + seed)
        text = SourceText("p.sql", mutated(random.choice(random.choice(bases())[1]).text, random))
        monkeypatch.setattr("mgmt.sql.tokens.MAXIMUM_TEXT_TOKENS", 10**9)
        try:
            found = len(tokenize(text))
        except PolicySyntaxError:
            continue
        monkeypatch.setattr("mgmt.sql.tokens.MAXIMUM_TEXT_TOKENS", found - 1)
        with pytest.raises(PolicySyntaxError, match="more than"):
            refuse_too_many(text)
        refused += 1
    assert refused > 20


def test_too_many_policies_are_refused_at_the_first_that_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgmt.compiler.compilation.MOST_STATEMENTS", 3)
    statement = "CREATE CONSTRAINT c{} AS SELECT * FROM task CHECK variable__host = 'a';\n"
    Model.build(database(SCHEMA), [statement.format(number) for number in range(3)])
    with pytest.raises(PolicySyntaxError, match="more than 3 constraints and views") as caught:
        Model.build(
            database(SCHEMA),
            [statement.format(0), "".join(statement.format(number) for number in range(1, 4))],
        )
    assert (caught.value.line, caught.value.column) == (3, 1)


WRITES = (
    "ATTACH DATABASE '{path}' AS other",
    "CREATE VIEW v AS ATTACH DATABASE '{path}' AS other",
    "PRAGMA enable_logging",
    "COPY task TO '{path}'",
    "DELETE FROM task",
    "CREATE VIEW v AS DELETE FROM task",
    "CREATE VIEW v AS COPY task TO '{path}'",
    "CREATE VIEW v AS WITH x AS (DELETE FROM task RETURNING id) SELECT * FROM x",
    "CREATE VIEW v AS WITH x AS (INSERT INTO task (id) VALUES (9) RETURNING id) SELECT * FROM x",
    "CREATE VIEW v AS SELECT * FROM (UPDATE task SET weight = 0 RETURNING id) AS x",
    "CREATE VIEW v AS SELECT 1 AS a; DROP TABLE task",
    "CREATE VIEW v AS SELECT content AS a FROM read_text('/etc/hostname')",
    "CREATE VIEW v AS SELECT column0 AS a FROM read_csv('/etc/hostname', header = false)",
    "CREATE VIEW v AS SELECT 1 AS a FROM 'http://127.0.0.1:1/x.csv'",
    "CREATE VIEW v AS SELECT 1 AS a FROM glob('/*')",
    "CREATE VIEW v AS SELECT getenv('HOME') AS a",
    "CREATE VIEW v AS SELECT random() AS a",
    "CREATE VIEW v AS SELECT nextval('s') AS a",
    "CREATE VIEW v AS EXPLAIN SELECT 1",
    "CREATE TABLE x AS SELECT 1",
    "INSTALL httpfs",
    "SET threads = 9",
    "BEGIN",
)


@pytest.mark.parametrize("statement", WRITES)
def test_no_statement_of_a_policy_writes(statement: str, tmp_path: Path) -> None:
    target = tmp_path / "other.db"
    state = database(SCHEMA, {"host": [{"name": "a", "up": True}], "task": [{"id": 1}]})
    before = state.execute("SELECT * FROM task, host"), state.version
    # A view that the database alone computes and that reads only may pass: then it must compile, and still not write.
    text = statement.format(path=target) + (
        DEMAND.replace("task", "task, v") if " AS a" in statement else DEMAND
    )
    refused = False
    try:
        Model.build(state, text).solve()
    except PolicyError as error:
        refused = error.position is not None
    assert refused, statement
    assert (state.execute("SELECT * FROM task, host"), state.version) == before
    assert not target.exists()


def test_a_view_cannot_hide_a_write() -> None:
    with database(SCHEMA).snapshot() as snapshot, pytest.raises(RefusedStatementError):
        snapshot.define_view("v", "SELECT 1; DELETE FROM task")

"""Files as people have them: saved by spreadsheets, libraries and shells; and damaged ones, refused in our words."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

import mgmt
from mgmt.errors import DataError, PolicyError
from tests.mgmt.damaged_files import FORMATS, SCHEMA, written

NODES = "CREATE TABLE nodes (name TEXT PRIMARY KEY, memory INTEGER NOT NULL);"
ROWS = [("Köln", 8), ("n2", 9)]
JSON = '[{"name": "Köln", "memory": 8}, {"name": "n2", "memory": 9}]'
CSV = "name,memory\nKöln,8\nn2,9\n"


def rows_of(path: Path | dict[str, Path], schema: str = "", table: str = "nodes") -> list[tuple[Any, ...]]:
    """All rows of a table from a file; of one that no schema declares, if it has none."""
    with closing(mgmt.Database()) as state:
        if schema:
            state.load_schema(schema)
        state.attach(path)
        return state.execute(f"SELECT * FROM {table} ORDER BY rowid")


def types_of(path: Path, table: str) -> dict[str, str]:
    with closing(mgmt.Database(data=path)) as state:
        return {column.name: str(column.type) for column in state.schema.table(table).columns}


def saved(path: Path, content: str | bytes, encoding: str = "utf-8") -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize(
    ("name", "text"),
    [("nodes.csv", CSV), ("nodes.json", JSON), ("nodes.jsonl", JSON[1:-1].replace("},", "}\n"))],
)
def test_a_byte_order_mark_says_how_a_text_is_encoded(
    tmp_path: Path, name: str, text: str, encoding: str
) -> None:
    assert rows_of(saved(tmp_path / name, text, encoding), NODES) == ROWS


def test_a_schema_and_policies_may_be_strings_with_a_mark() -> None:
    state = mgmt.Database()
    state.load_schema(f"\ufeff{NODES}")
    with pytest.raises(PolicyError) as refused:
        mgmt.Model.build(state, "\ufeffCREATE CONSTRAINT c AS SELECT nam FROM nodes CHECK memory > 0;")
    assert (refused.value.line, refused.value.column) == (1, 31)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (CSV.encode("latin-1"), "line 2, column 2: byte f6 is no UTF-8 (save it as UTF-8)"),
        (CSV.encode("utf-16")[:-1], "line 3, column 5: byte 0a is no UTF-16-LE (save it as UTF-8)"),
        (CSV.encode("utf-16-le"), "line 1, column 2: a NUL is in no text (save it as UTF-8)"),
    ],
)
def test_what_cannot_be_decoded_is_refused_with_line_and_column(
    tmp_path: Path, content: bytes, place: str
) -> None:
    for name in ("nodes.csv", "nodes.json"):
        path = saved(tmp_path / name, content)
        with pytest.raises(DataError) as refused:
            rows_of(path, NODES)
        assert str(refused.value) == f"{path}: {place}"


@pytest.mark.parametrize(
    "text",
    [
        ",name,memory\n0,Köln,8\n1,n2,9\n",  # an index without a name
        "name,memory,\nKöln,8,\nn2,9,\n",
        "name,memory\nKöln,8,\nn2,9,\n",
        "name;memory;;\r\nKöln;8;;\r\nn2;9;;\r\n",
        " name ,\tmemory \nKöln, 8\nn2,9 \n",
        "sep=;\nname;memory\nKöln;8\nn2;9\n",
        '"sep=|"\r\nname|memory\r\nKöln|8\r\nn2|9',
        "sep=\t\nname\tmemory\nKöln\t8\nn2\t9\n",
        "\n\nname,memory\nKöln,8\n\nn2,9\n\n",
        "name,memory\r\nKöln,8\nn2,9\r\n",
        "name,memory\rKöln,8\nn2,9\r\n",
        '"name","memory","a\nb"\n"Köln","8",\n"n2","9",\n',
    ],
)
def test_what_spreadsheets_leave_at_the_edges_of_a_csv_file_is_no_value(tmp_path: Path, text: str) -> None:
    assert rows_of(saved(tmp_path / "nodes.csv", text), NODES) == ROWS


def test_line_ends_of_two_kinds_are_kept_within_values(tmp_path: Path) -> None:
    path = saved(tmp_path / "nodes.csv", 'name,memory\r\n"a\r\n""b""",1\n"c\nd",2\r\n"e\rf",3\n')
    assert rows_of(path, NODES) == [('a\r\n"b"', 1), ("c\nd", 2), ("e\rf", 3)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            'name,memory\n"a\nb",8\nn2\n',
            "line 4: 1 value(s) for 2 column(s)",
        ),
        (
            "name,memory\nn1,8\nn2,9,x\n",
            "line 3: 3 value(s) for 2 column(s)",
        ),
        (
            'name,memory\nn1,8\n"n2"x,9\n',
            "line 3, column 'name': 'x' stands behind the quote that ends the value",
        ),
        (
            'name,memory\nn1,8\nn2,"9\n',
            "line 3, column 'memory': the double quote that begins the value has no end",
        ),
    ],
)
def test_a_row_that_is_none_is_named_by_its_line(tmp_path: Path, text: str, fault: str) -> None:
    path = saved(tmp_path / "nodes.csv", text)
    for schema in (NODES, ""):  # declared or not
        with pytest.raises(DataError) as refused:
            rows_of(path, schema)
        assert str(refused.value) == f"{path}: {fault} (mend it there)"


SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


def test_json_values_end_where_they_end_whatever_their_texts_hold(tmp_path: Path) -> None:
    rows = [{"name": f"a{SEPARATORS[0]}b{SEPARATORS[2]}", "memory": 8}, {"name": "n2", "memory": 9}]
    lines = "\r\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    assert rows_of(saved(tmp_path / "nodes.jsonl", lines), NODES) == [("a\u2028b\x85", 8), ("n2", 9)]
    spread = "\n".join(json.dumps(row, indent=2) for row in rows)  # as jq prints them
    assert rows_of(saved(tmp_path / "nodes.ndjson", spread), NODES)[1] == ("n2", 9)
    text = f"name,memory\nx{SEPARATORS},8\n"
    assert rows_of(saved(tmp_path / "nodes.csv", text), NODES) == [(f"x{SEPARATORS}", 8)]


def test_one_object_is_a_row_and_a_list_of_kubernetes_its_items(tmp_path: Path) -> None:
    assert rows_of(saved(tmp_path / "nodes.json", '{"name": "n1",\n "memory": 8}'), NODES) == [("n1", 8)]
    item = {"name": "n1", "memory": 8, "metadata": {"labels": {"rack": "a"}, "owners": [1, None]}}
    listed = {"apiVersion": "v1", "items": [item], "kind": "List", "metadata": {"resourceVersion": ""}}
    path = saved(tmp_path / "nodes.json", json.dumps(listed, indent=4))
    assert rows_of(path, NODES) == [("n1", 8)]
    with closing(mgmt.Database(data=path)) as state:
        nested = "SELECT metadata ->> '$.labels.rack', metadata FROM nodes"
        assert state.execute(nested) == [("a", '{"labels":{"rack":"a"},"owners":[1,null]}')]


def test_json_of_any_values_can_be_read_and_is_not_changed(tmp_path: Path) -> None:
    values = [
        1,
        2**63,
        10**60,
        0.5,
        True,
        None,
        "0100",
        [1, "x"],
        {"a": {"b": 2**70}},
        {"a": 1, "A": 2},
        {"": 1},
        [],
    ]
    path = saved(
        tmp_path / "t.json", json.dumps([{"id": n, "any": value, "": 3} for n, value in enumerate(values)])
    )
    assert types_of(path, "t") == {"id": "integer", "any": "text"}
    found = [value for _, value in rows_of(path, table="t")]
    assert [found[n] for n in (1, 2, 6)] == [str(2**63), str(10**60), "0100"]
    assert [json.loads(found[n]) for n in (0, 3, 4, 7, 8, 9, 10, 11)] == [
        values[n] for n in (0, 3, 4, 7, 8, 9, 10, 11)
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[{"name": "n1",}]', " is no JSON: line 1, column 16: Expecting property name enclosed in double quotes"),
        ('{"name": "n1"}\n{"name": "n2"\n', " is no JSON: line 3, column 1: Expecting ',' delimiter, in what"),
        ('{"name": "n1"}\n' + "[" * 100_000, " is no JSON: what begins in line 2 is nested too deeply"),
        ('[{"memory": ' + "9" * 5000 + "}]", " is no JSON: what begins in line 1 is nested too"),
        ('{"name": "n1"}\n3', " holds no rows: value 2 is no object"),
        ('{"name": "n1", "Name": "n2"}', " has two columns 'Name'"),
        ('[{"name": "n"}, {"name": "\\ud800", "memory": 2}]', ", row 2: column 'name': '\\ud800' is no text"),
        ('[{"name\\ud800": "n1"}]', ", column 'name\\ud800': its name is no text"),
        ('{"nodes": [{"name": "n1"}]}', " holds the rows of several tables: nodes"),
    ],
)  # fmt: skip
def test_json_that_is_none_or_holds_no_rows(tmp_path: Path, text: str, fault: str) -> None:
    path = saved(tmp_path / "nodes.json", text)
    with pytest.raises(PolicyError) as refused:
        rows_of(path, NODES)
    assert str(refused.value).startswith(f"{path}{fault}")


def test_a_type_is_that_of_all_values_in_whatever_row_they_stand(tmp_path: Path) -> None:
    columns = {
        "whole": ("integer", ["1", "-20"]), "code": ("text", ["100", "0100"]), "word": ("text", ["1", "x"]),
        "part": ("real", ["1", "0.50"]), "long": ("text", ["1", "9223372036854775808"]),
        "exact": ("text", ["0.5", "9007199254740993"]), "day": ("date", ["2026-11-25", "2026-11-26"]),
        "other_day": ("text", ["25/11/2026", "1/2/2026"]), "hour": ("text", ["12:00", "13:30"]),
        "at": ("timestamp", ["2026-11-25 10:00:00+02", "2026-11-25T10:00"]), "yes": ("boolean", ["true", "False"]),
        "none": ("text", ["", ""]), "phone": ("text", ["1", "+49"]),
    }  # fmt: skip
    lines = [",".join(columns), *(",".join(values[n] for _, values in columns.values()) for n in (0, 1))]
    path = saved(tmp_path / "t.csv", "\n".join(lines))
    assert types_of(path, "t") == {name: kind for name, (kind, _) in columns.items()}
    found = dict(zip(columns, rows_of(path, table="t")[-1], strict=True))
    assert (found["code"], found["exact"], found["whole"]) == ("0100", "9007199254740993", -20)
    many = "100\n" * 25_000  # more than anybody would look at to find a type
    assert types_of(saved(path, f"code\n{many}0100\n"), "t") == {"code": "text"}
    assert types_of(saved(path, f"code\n{many}101\n"), "t") == {"code": "integer"}


def test_types_of_parquet_that_no_rule_can_use_are_texts(tmp_path: Path) -> None:
    values = {
        "small": ("7::UBIGINT", "integer", 7), "large": ("18446744073709551615::UBIGINT", "text", str(2**64 - 1)),
        "id": ("CAST(12345678901234567890 AS DECIMAL(38, 0))", "text", "12345678901234567890"),
        "count": ("CAST(5 AS DECIMAL(20, 0))", "integer", 5), "price": ("CAST(1.25 AS DECIMAL(10, 2))", "real", 1.25),
        "fine": ("CAST(1234567890123456.789 AS DECIMAL(38, 3))", "text", "1234567890123456.789"),
        "hour": ("TIME '12:00:00'", "text", "12:00:00"), "span": ("INTERVAL 3 DAY", "text", "3 days"),
        "raw": ("CAST('ab' AS BLOB)", "text", "ab"), "tags": ("[1, 2]", "text", "[1,2]"),
        "map": ("MAP {'a': 1}", "text", '{"a":1}'),
        "rowid": ("1", "", None), "variable__x": ("1", "", None),
    }  # fmt: skip
    path = tmp_path / "t.parquet"
    chosen = ", ".join(f'{sql} AS "{name}"' for name, (sql, _, _) in values.items())
    duckdb.sql(f"COPY (SELECT {chosen}) TO '{path}'")
    assert types_of(path, "t") == {name: kind for name, (_, kind, _) in values.items() if kind}
    assert rows_of(path, table="t") == [tuple(value for _, kind, value in values.values() if kind)]


def test_a_check_names_the_row_that_breaks_it(tmp_path: Path) -> None:
    schema = (
        "CREATE TABLE nodes (name TEXT PRIMARY KEY, memory INTEGER CHECK (memory > 0), cap INTEGER DEFAULT 5,"
    )
    schema += " CHECK (memory < cap OR cap IS NULL));"
    path = tmp_path / "nodes.csv"
    for text, check, row in (
        ("name,memory\nn1,1\nn2,-1\n", '"memory" > 0', "name 'n2', memory -1, cap 5"),
        (
            "name,memory,cap\nn1,1,\nn2,7,7\n",
            '"memory" < "cap" OR "cap" IS NULL',
            "name 'n2', memory 7, cap 7",
        ),
    ):
        with pytest.raises(DataError) as refused:
            rows_of(saved(path, text), schema)
        assert (
            refused.value.message == f"{path}: table 'nodes' refuses a row: CHECK ({check}) is broken: {row}"
        )


def test_a_reference_that_leads_nowhere_is_told_with_the_row_that_has_it(tmp_path: Path) -> None:
    nodes = (
        "CREATE TABLE hosts (name TEXT PRIMARY KEY); CREATE TABLE nodes (id INTEGER PRIMARY KEY, host TEXT,"
    )
    path = saved(tmp_path / "nodes.csv", "id,host\n1,\n7,h9\n")
    with pytest.raises(DataError, match=r"FOREIGN KEY \(host\): hosts has no such row: id 7, host 'h9'"):
        rows_of(path, f"{nodes} FOREIGN KEY (host) REFERENCES hosts (name));")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2026-11-25 10:00:00 Europe/Berlin", "2026-11-25 09:00:00"),
        ("2026-11-25 10:00:00+02:30:15", "2026-11-25 07:29:45"),
        ("2026-11-25T10:00:00.1234560", "2026-11-25 10:00:00.123456"),
        ("2026-11-25t10:00:00.5z", "2026-11-25 10:00:00.5"),
        ("2026-11-25 10:00:00 -05", None),
        ("2026-11-25 10:00:00.123456789", None),
        ("2026-11-25 10:00:00 Foo/Bar", None),
    ],
)
def test_a_time_is_read_with_its_zone_and_whole_or_refused(
    tmp_path: Path, text: str, read: str | None
) -> None:
    schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP);"
    path = saved(tmp_path / "t.csv", f"id,at\n1,{text}\n")
    if read is None:
        with pytest.raises(DataError, match=rf"row 1: column 'at' of table 't': '{re.escape(text)}' is no"):
            rows_of(path, schema, "t")
        assert types_of(path, "t")["at"] == "text"
    else:
        assert rows_of(path, schema, "t") == [(1, read)]


def test_nanoseconds_of_parquet_are_not_rounded(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    duckdb.sql(
        "SELECT 1 AS id, TIMESTAMP_NS '2026-11-25 10:00:00.000000001' AS at, TIMESTAMP_NS '2026-11-25' AS day"
    ).write_parquet(path)
    assert types_of(Path(path), "t") == {"id": "integer", "at": "text", "day": "timestamp"}
    with pytest.raises(DataError, match=r"row 1: column 'at' of table 't': .*01' is no timestamp"):
        rows_of(Path(path), "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP);", "t")


def test_numbers_that_no_double_keeps_are_not_read_as_others(tmp_path: Path) -> None:
    schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, x {});"
    path = saved(tmp_path / "t.json", '[{"id": 9007199254740993.0, "x": 1e400}]')
    assert rows_of(path, schema.format("TEXT"), "t") == [(2**53 + 1, "1e400")]
    for each in (path, saved(tmp_path / "t.csv", "id,x\n1,1e400\n")):
        with pytest.raises(DataError, match=r"row 1: column 'x' of table 't': '1e400' is no real"):
            rows_of(each, schema.format("REAL"), "t")


@pytest.mark.parametrize("word", ["NaN", "true"])
def test_what_is_no_number_is_none_and_no_value(tmp_path: Path, word: str) -> None:
    schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER);"
    duckdb.sql(f"SELECT 1 AS id, '{word}'::{'BOOLEAN' if word == 'true' else 'DOUBLE'} AS n").write_parquet(
        str(tmp_path / "t.parquet")
    )
    saved(tmp_path / "t.json", f'[{{"id": 1, "n": {word}}}]')
    for name in ("t.parquet", "t.json"):
        with pytest.raises(DataError, match=rf"row 1: column 'n' of table 't': '(?i:{word})' is no integer"):
            rows_of(tmp_path / name, schema, "t")
    with closing(mgmt.Database()) as state:
        state.load_schema(schema)
        with pytest.raises(DataError, match=r"True is no whole number"):
            state.insert("t", [{"id": 1, "n": True}])


def test_a_column_of_parquet_whose_name_is_no_text(tmp_path: Path) -> None:
    duckdb.sql("SELECT 1 AS id, 'x' AS nameless").write_parquet(str(tmp_path / "t.parquet"))
    path = saved(
        tmp_path / "t.parquet", (tmp_path / "t.parquet").read_bytes().replace(b"nameless", b"name\xc3ess")
    )
    with pytest.raises(DataError, match=r"t\.parquet: it is damaged, or no Parquet file"):
        rows_of(path, "CREATE TABLE t (id INTEGER PRIMARY KEY);", "t")


def test_a_folder_brings_no_column(tmp_path: Path) -> None:
    (tmp_path / "host=n1").mkdir()
    path = tmp_path / "host=n1" / "t.parquet"
    duckdb.sql("SELECT 1 AS id").write_parquet(str(path))
    assert rows_of(path, table="t") == [(1,)]


def test_a_value_may_be_long(tmp_path: Path) -> None:
    path = saved(tmp_path / "nodes.csv", f'name,memory,note\nKöln,8,"{"x" * 3_000_000}"\nn2,9,\n')
    assert rows_of(path, NODES) == ROWS


def test_a_row_that_is_too_long_is_named_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgmt.state.sources.csv_file._LONGEST", 1 << 20)
    path = saved(tmp_path / "nodes.csv", f'name,memory\nn1,8\n"{"x" * 3_000_000}",9\n')
    with pytest.raises(DataError, match=r"nodes\.csv: line 3: the row is longer than 1 MiB"):
        rows_of(path, NODES)


def test_a_name_may_begin_as_a_packed_file_does(tmp_path: Path) -> None:
    assert rows_of(saved(tmp_path / "t.csv", "BZhour,id\n1,2\n"), table="t") == [(1, 2)]


def test_bytes_of_sqlite_are_shown_alike_beside_texts_and_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    values = [b"n1", b"\xc3'\"\\\n ~"]
    for texts in ([], ["n2"]):
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as file:
            file.execute("CREATE TABLE t (id, host)")
            file.executemany("INSERT INTO t VALUES (?, ?)", enumerate([*values, *texts]))
            file.commit()
        found = rows_of(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, host TEXT);", "t")
        assert found == list(enumerate(["n1", r"\xC3\x27\x22\x5C\x0A ~", *texts]))


def test_a_text_of_sqlite_that_is_none_is_named_by_its_row(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(
            "CREATE TABLE t (id, host); INSERT INTO t VALUES (1, 'a'), (2, CAST(x'ff41' AS TEXT))"
        )
    with pytest.raises(DataError, match=r"t\.sqlite, row 2: column 'host': '.udcffA' is no text"):
        rows_of(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, host TEXT);", "t")


@pytest.mark.parametrize(
    ("ending", "pack"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), ("", gzip.compress)],
)
def test_packed_files_are_unpacked(tmp_path: Path, ending: str, pack: Any) -> None:
    for name, text in (("nodes.csv", CSV), ("nodes.json", JSON)):
        path = saved(tmp_path / f"{name}{ending}", pack(text.encode()))
        assert rows_of(path, NODES) == ROWS
        saved(path, pack(text.encode())[:-12])
        with pytest.raises(DataError, match=rf"{path.name}: it cannot be unpacked: .* \(pack it again\)"):
            rows_of(path, NODES)
    saved(tmp_path / "nodes.csv.gz", CSV)  # called so, and not packed
    assert rows_of(tmp_path / "nodes.csv.gz", NODES) == ROWS
    path = saved(tmp_path / "nodes.csv.zst", b"\x28\xb5\x2f\xfd")
    with pytest.raises(DataError, match=r"packed by zstd, which is not read \(unpack it: zstd -d\)"):
        rows_of(path, NODES)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Any]:
    """A function that puts bytes into a pipe and returns its path; they can be read once."""
    threads = []

    def piped(content: bytes) -> Path:
        path = tmp_path / f"pipe{len(threads)}"
        os.mkfifo(path)
        threads.append(threading.Thread(target=path.write_bytes, args=(content,)))
        threads[-1].start()
        return path

    yield piped
    for thread in threads:
        thread.join()


def test_a_pipe_is_read_once_and_known_by_how_it_begins(tmp_path: Path, pipe: Any) -> None:
    duckdb.sql(
        f"COPY (SELECT 'Köln' AS name, 8 AS memory UNION ALL SELECT 'n2', 9) TO '{tmp_path}/n.parquet'"
    )
    parquet = (tmp_path / "n.parquet").read_bytes()
    for content in (CSV.encode(), JSON.encode("utf-8-sig"), gzip.compress(JSON.encode()), parquet):
        with closing(mgmt.Database(data={"nodes": pipe(content)})) as state:
            state.load_schema(NODES)  # which reads it again
            assert state.execute("SELECT * FROM nodes ORDER BY memory") == ROWS


def test_no_plan_is_written_to_a_pipe(pipe: Any) -> None:
    path = pipe(b"id,host\n1,\n")
    state = mgmt.Database(data={"t": path})
    keys = "id INTEGER PRIMARY KEY, host TEXT"
    state.load_schema(f"CREATE TABLE t ({keys}, variable__host TEXT NOT NULL DOMAIN (SELECT 'a'));")
    plan = mgmt.Model.build(
        state, "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__host = 'a';"
    ).solve(budget=2)
    with pytest.raises(DataError, match="pipe0 is a pipe, to which no plan can be written"):
        state.apply(plan)
    state.close()


_OF_LIBRARIES = re.compile(r"Exception|Error\b|std::|Traceback|Binder|Invalid Input|exception_message|\n")


def require_our_words(path: Path, schema: str) -> None:
    """A file that cannot be read is refused by an error of ours, which names it and says what to do."""
    try:
        with closing(mgmt.Database()) as state:
            if schema:
                state.load_schema(schema)
            state.attach(path)
            with state.snapshot() as snapshot:
                snapshot.dump()
    except PolicyError as error:
        said = str(error).replace(str(path), "FILE")
        if _OF_LIBRARIES.search(said) or not said.startswith(("FILE", "cannot use FILE")) or not error.hint:
            pytest.fail(f"in whose words? {said}")


def damaged_files_are_refused_or_read(directory: Path, form: str, seeds: Sequence[int]) -> None:
    for seed in seeds:
        path = written(directory, form, seed)
        for schema in (SCHEMA, ""):
            try:
                require_our_words(path, schema)
            except BaseException as error:
                error.add_note(f"{form} {seed}, {'declared' if schema else 'not declared'}")
                raise


@pytest.mark.slow("dozens of files, each a database")
@pytest.mark.parametrize("form", FORMATS)
def test_what_is_in_a_damaged_file_is_read_or_refused_in_our_words(tmp_path: Path, form: str) -> None:
    damaged_files_are_refused_or_read(tmp_path, form, range(36))


@pytest.mark.sweep("a thousand files of each format")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("part", range(10))
def test_what_is_in_a_thousand_damaged_files(tmp_path: Path, form: str, part: int) -> None:
    damaged_files_are_refused_or_read(tmp_path, form, range(36 + part * 100, 136 + part * 100))

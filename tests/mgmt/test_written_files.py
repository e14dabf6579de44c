"""Writing changes nothing of a file but the values of the plan: the same bytes, or as much as DuckDB lets be kept."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mgmt
from mgmt.errors import StateDatabaseError
from mgmt.solution import Delta, PrimaryKey, Solution, SolveStatus, Value
from mgmt.state.sources.csv_file import Records
from mgmt.state.sources.json_file import Objects
from mgmt.state.sources.source import Cell

SCHEMA = """
CREATE TABLE t (id INTEGER PRIMARY KEY, host {0},
                variable__host {0} DOMAIN (SELECT host FROM t WHERE host IS NOT NULL));
"""


def apply(path: Path, hosts: Sequence[Value], kind: str = "TEXT") -> None:
    """Apply a plan that gives these hosts to the rows 1, 2, and so on."""
    state = mgmt.Database(data={"t": path})
    state.load_schema(SCHEMA.format(kind))
    state.refresh()
    values: dict[PrimaryKey, Value] = {(number,): host for number, host in enumerate(hosts, 1)}
    changed = (Delta("t", (1,), "host", None, hosts[0], "variable__host"),)
    state.apply(Solution(SolveStatus.FEASIBLE, state.version, changed, (), {("t", "variable__host"): values}))
    state.close()


GOLDEN = {
    "marks, line ends and quotes of CSV": (
        "t.csv",
        '\ufeffid,memory,host,rack,code\r\n1,1.0,n1,Zürich,"007"\r\n\r\n2,1e3,,"Kö""ln\r\n",008\r\n3,,"n2",,""\r\n',
        '\ufeffid,memory,host,rack,code\r\n1,1.0,"n2",Zürich,"007"\r\n\r\n2,1e3,n 3,"Kö""ln\r\n",008\r\n3,,,,""\r\n',
        ("n2", "n 3", None),
    ),
    "a CSV with everything in quotes": (
        "t.csv",
        '"host";"id";"x"\n"n1";"1";"a"\n;"2";"b;c"\n"n2";"3";"007"',
        '"host";"id";"x"\n"n;3";"1";"a"\n"";"2";"b;c"\n"n1";"3";"007"',
        ("n;3", "", "n1"),
    ),
    "a new column of a CSV": (
        "t.tsv",
        "id\tx\r1\t 1\r2\t\r3\t\r",
        'id\tx\thost\r1\t 1\tn1\r2\t\t\r3\t\t"\t"\r',
        ("n1", None, "\t"),
    ),
    "numbers, escapes and blanks of JSON": (
        "t.json",
        '[ {"id":1,"host":"n1","x":1e400} ,\r\n\t{ "x" : 1.10, "id" : 2 }\r\n,{"id":3.0,"host":null,"x":'
        '[100000000000000000000000.5, {"\\u00fc":"\\/"}]}]',
        '[ {"id":1,"host":"n2","x":1e400} ,\r\n\t{ "x" : 1.10, "id" : 2, "host" : "n1" }\r\n,'
        '{"id":3.0,"host":"\\u00fc","x":[100000000000000000000000.5, {"\\u00fc":"\\/"}]}]',
        ("n2", "n1", "ü"),
    ),
    "a mark before JSON, and a list as kubectl writes it": (
        "t.json",
        '\ufeff{"kind": "List", "items": [{"id": 1}, {"id": 2, "host": "n1"}], "more": {"items": []}}\n',
        '\ufeff{"kind": "List", "items": [{"id": 1, "host": "n1"}, {"id": 2, "host": "n2"}], "more": {"items": []}}\n',
        ("n1", "n2"),
    ),
    "the edges that a spreadsheet leaves": (
        "t.csv",
        '\ufeffsep=;\r\n\nid; host ;;x;\r1;n1;;"\r\n";\n\n2;;;7;\r\n',
        '\ufeffsep=;\r\n\nid; host ;;x;\r1;n2;;"\r\n";\n\n2;n1;;7;\r\n',
        ("n2", "n1"),
    ),
    "indented JSON": (
        "t.json",
        json.dumps(
            [{"id": 1, "host": "n1"}, {"id": 2, "host": "Köln"}, {"id": 3}], indent=4, ensure_ascii=False
        ),
        json.dumps(
            [{"id": 1, "host": "Köln"}, {"id": 2, "host": "ü"}, {"id": 3, "host": "n1"}],
            indent=4,
            ensure_ascii=False,
        ),
        ("Köln", "ü", "n1"),
    ),
    "lines of JSON": (
        "t.jsonl",
        '{"id":1,"host":"n1"}\n\n{"id": 2, "a": "\u2028"}\r\n{"host":"n2","id":3}',
        '{"id":1,"host":null}\n\n{"id": 2, "a": "\u2028", "host": "n1"}\r\n{"host":"n2","id":3}',
        (None, "n1", "n2"),
    ),
}


@pytest.mark.parametrize(("name", "before", "after", "hosts"), GOLDEN.values(), ids=GOLDEN)
def test_a_text_keeps_every_byte_but_those_of_the_plan(
    tmp_path: Path, name: str, before: str, after: str, hosts: Sequence[Value]
) -> None:
    path = tmp_path / name
    path.write_bytes(before.encode())
    apply(path, hosts)
    assert path.read_bytes().decode() == after


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_a_text_keeps_its_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("\ufeffid,host\n1,ü\n".encode(encoding))
    apply(path, ("ö",))
    assert path.read_bytes() == "\ufeffid,host\n1,ö\n".encode(encoding)


def test_what_is_packed_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(packed := gzip.compress(b"id,host\n1,n1\n"))
    with pytest.raises(mgmt.DataError, match=r"t\.csv\.gz is packed, .* \(unpack it\)"):
        apply(path, ("n2",))
    assert path.read_bytes() == packed


def test_what_came_through_a_pipe_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    os.mkfifo(path)
    writer = Thread(target=path.write_text, args=["id,host\n1,n1\n"])
    writer.start()
    with pytest.raises(mgmt.DataError, match=r"t\.csv is a pipe, .* \(give a file\)"):
        apply(path, ("n2",))
    writer.join()
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("t.csv", "id,host\n1,007\n2,08\n3,\n", "id,host\n1,08\n2,9\n3,007\n"),
        ("t.json", '[{"id":1,"host":"007"},{"id":2,"host":"08"},{"id":3}]',
                   '[{"id":1,"host":"08"},{"id":2,"host":"9"},{"id":3,"host":"007"}]'),
        ("t.json", '[{"id":1,"host":7.0},{"id":2,"host":8e0},{"id":3}]',
                   '[{"id":1,"host":8e0},{"id":2,"host":9},{"id":3,"host":7.0}]'),
    ],
)  # fmt: skip
def test_a_value_is_written_as_its_column_has_it(tmp_path: Path, name: str, before: str, after: str) -> None:
    path = tmp_path / name
    path.write_text(before)
    apply(path, (8, 9, 7), "INTEGER")
    assert path.read_text() == after


def described(path: Path) -> tuple[list[Any], ...]:
    """Of a Parquet file: columns, what is said about it, and how it is stored; of types the older names only."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return tuple(
            connection.execute(sql.format(f"'{path}'")).fetchall()
            for sql in (
                "SELECT name, type, repetition_type, duckdb_type,"
                " coalesce(regexp_extract(logical_type, 'Timestamp.*'), '') FROM parquet_schema({}) OFFSET 1",
                "SELECT key, value FROM parquet_kv_metadata({})",
                "SELECT DISTINCT compression FROM parquet_metadata({})",
                "SELECT * EXCLUDE host FROM {}",
            )
        )


def test_a_parquet_file_keeps_types_metadata_and_compression(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    moments = ["2026-11-25 10:00:00.123456789", None, "1970-01-01 00:00:00"]
    frame = pl.DataFrame({"id": [1, 2, 3], "host": ["n1", None, "n2"], "text": moments})
    frame = frame.with_columns(
        pl.lit(7, pl.UInt8).alias("small"),
        pl.lit(2**64 - 1, pl.UInt64).alias("large"),
        pl.lit(0.1, pl.Float32).alias("single"),
        pl.lit("1.50").cast(pl.Decimal(9, 2)).alias("price"),
        pl.col("text").cast(pl.Categorical).alias("category"),
        *(pl.col("text").str.to_datetime(time_unit=unit).alias(unit) for unit in ("ms", "us", "ns")),
        pl.col("text").str.to_datetime(time_unit="us", time_zone="UTC").alias("zoned"),
        pl.lit(b"\x00\xff").alias("bytes"),
        pl.Series("nested", [[{"a": 1}], [], None]),
    )
    frame.write_parquet(path, compression="gzip", metadata={"team": "a"})
    before = described(path)
    apply(path, ("n2", "n1", "n3"))
    assert described(path) == before
    after = pl.read_parquet(path)
    assert after["host"].to_list() == ["n2", "n1", "n3"]
    assert after.drop("host").equals(frame.drop("host"))
    assert after.schema == frame.schema


def test_a_parquet_file_that_needs_values_goes_on_needing_them(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (id INT NOT NULL, host TEXT NOT NULL, since TIMESTAMP NOT NULL)")
        connection.execute("INSERT INTO t VALUES (1, 'n1', '2026-11-25'), (2, 'n2', '2026-11-26')")
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet, WRITE_TIMESTAMP_AS_INT96 true)")
    before = described(path)
    assert {kind for _, kind, *_ in before[0]} >= {"INT96"}
    apply(path, ("n2", "n1"))
    assert described(path) == before
    assert {needed for _, _, needed, *_ in before[0]} == {"REQUIRED"}


def test_a_column_may_be_called_as_duckdb_calls_its_row_ids(tmp_path: Path) -> None:
    rows = (
        "SELECT unnest([1, 2, 3]) AS id, unnest(['n1', NULL, 'n2']) AS host, 7 AS \"RowId\", 'a,''b' AS \" \""
    )
    for name, made in (
        ("t.parquet", "COPY (FROM rows) TO '{}'"),
        ("t.duckdb", "ATTACH '{}' AS d; CREATE TABLE d.t AS FROM rows; DETACH d"),
    ):
        path = tmp_path / name
        with duckdb.connect() as connection:
            connection.execute(f"CREATE TABLE rows AS {rows}; {made.format(path)}")
        apply(path, ("n2", "n1", "n3"))
        with duckdb.connect(str(path) if name == "t.duckdb" else ":memory:") as connection:
            found = connection.execute(f"FROM {'t' if name == 't.duckdb' else repr(str(path))}").fetchall()
        assert sorted(found) == [
            (number, host, 7, "a,'b") for number, host in ((1, "n2"), (2, "n1"), (3, "n3"))
        ]


def test_a_parquet_file_that_duckdb_cannot_write_as_it_was_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for other, said in (
        (pl.Series("half", [0.5], pl.Float16), "column 'half' is FIXED_LEN_BYTE_ARRAY, and would be FLOAT"),
        (pl.Series("", [1]), "column '' is read as 'C2'"),
        (pl.Series("ID", [1]), "column 'ID' is read as 'ID_1'"),
    ):
        pl.DataFrame({"id": [1], "host": ["n1"], other.name: other}).write_parquet(path)
        before = path.read_bytes()
        with pytest.raises(mgmt.DataError, match=said):
            apply(path, ("n2",))
        assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_keeps_its_rights_and_what_leads_to_it(tmp_path: Path) -> None:
    path, link = tmp_path / "rows.csv", tmp_path / "t.csv"
    path.write_text("id,host\n1,n1\n")
    path.chmod(0o640)
    owner = (1234, 4321) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    os.utime(path, (0, 0))
    link.symlink_to("rows.csv")
    apply(link, ("n2",))
    found = path.stat()
    assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o640, *owner)
    assert found.st_mtime > 0
    assert link.is_symlink()
    assert link.read_text() == "id,host\n1,n2\n"
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_a_file_that_may_not_be_written_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,host\n1,n1\n")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may
    with pytest.raises(StateDatabaseError, match="may not be written"):
        apply(path, ("n2",))
    assert path.read_text() == "id,host\n1,n1\n"


def test_a_file_of_two_names_is_not_made_two(tmp_path: Path) -> None:
    path, other = tmp_path / "t.csv", tmp_path / "backup.csv"
    path.write_text("id,host\n1,n1\n")
    other.hardlink_to(path)
    with pytest.raises(mgmt.DataError, match=r"a hard link.* \(make it a file of its own: cp "):
        apply(path, ("n2",))
    assert path.read_text() == "id,host\n1,n1\n"
    assert path.samefile(other)


# What a spreadsheet or a program may write between separators, and what is read there.
CELLS = st.sampled_from(["", "a", "007", '"a"', '"a,b"', '"a""b"', '"x\ny"', 'x"y', " a", '""'])


@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.data(),
)
def test_a_changed_record_is_the_only_one_that_changes(
    rows: list[tuple[str, str]], end: str, ended: bool, data: st.DataObject
) -> None:
    lines = [f"{number},{a},{b}" for number, (a, b) in enumerate(rows)]
    text = end.join(["id,a,b", *lines]) + (end if ended else "")
    place = data.draw(st.integers(0, len(rows) - 1))
    new = data.draw(st.sampled_from(["n", "", "a,b", '"', "x\r\ny", " ", None]))
    changed = Records(text, ",", 3).edited(
        ["id", "a", "b"], "a", [Cell(place, (place,), new, None, None, new)]
    )
    before, after = (list(csv.reader(io.StringIO(each, newline=""))) for each in (text, changed))
    assert after == [
        *before[: place + 1],
        [str(place), new or "", before[place + 1][2]],
        *before[place + 2 :],
    ]
    # Around the value every character is the same.
    at = text.index(lines[place] + end) if place + 1 < len(rows) or ended else text.rindex(lines[place])
    start = at + len(f"{place},")
    assert changed[:start] == text[:start]
    rest = text[start + len(rows[place][0]) :]
    assert changed.endswith(rest)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


def objects_of(text: str) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    if text.startswith("["):
        yield from json.loads(text)
        return
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        at += 1
        yield value


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b", 'c"]', "ü"]), JSON, max_size=3), min_size=1, max_size=4
    ),
    st.sampled_from([None, 0, 2]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :\n")]),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_a_changed_member_is_the_only_one_that_changes(
    rows: list[dict[str, Any]],
    indent: int | None,
    separators: tuple[str, str],
    as_list: bool,
    is_ascii: bool,
    data: st.DataObject,
) -> None:
    def written(rows: list[dict[str, Any]]) -> str:
        form: dict[str, Any] = {"indent": indent, "separators": separators, "ensure_ascii": is_ascii}
        return json.dumps(rows, **form) if as_list else "\n".join(json.dumps(row, **form) for row in rows)

    place = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(["a", "b", 'c"]']))
    new = data.draw(st.sampled_from(["n", "", '"', None]))
    changed = Objects(written(rows)).edited(name, [Cell(place, (place,), new, None, None, new)])
    row = rows[place]
    expected = [*rows[:place], {**row, name: new}, *rows[place + 1 :]]
    assert list(objects_of(changed)) == expected
    if name in row or len(row) > 1:
        assert changed == written(expected)  # as if it had been written so from the first

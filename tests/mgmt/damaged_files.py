"""Files of rows, damaged at random: whatever is in a file is read right, or refused in words of ours."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from random import Random

import polars as pl

SCHEMA = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, n INTEGER CHECK (n >= 0), x REAL, yes BOOLEAN, day DATE);"
ROWS = [
    {"id": 1, "name": "Köln", "n": 8, "x": 0.5, "yes": True, "day": "2026-11-25", "tags": ["a", {"b": 1}]},
    {"id": 2, "name": 'a "b"', "n": 9, "x": None, "yes": False, "day": None, "tags": []},
    {"id": 3, "name": "", "n": 0, "x": 2.0, "yes": None, "day": "2026-11-26", "tags": None},
]
FORMATS = ("csv", "json", "jsonl", "parquet")
_PIECES = (
    *(b'"', b'""', b",", b";", b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3"),
    *(b"[", b"]", b"{", b"}", b":", b"\\", b"\\ud800", b"null", b"NaN", b"1e999", b"-", b"'", b" ", b"\t"),
    *(b"9" * 19, b"9" * 40, b"0100", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b'"id"', b"id,", b"{" * 3000),
)


def whole_file(form: str) -> bytes:
    """A good file of this format."""
    if form == "parquet":
        buffer = BytesIO()
        frame = pl.DataFrame([{**row, "tags": [str(row["tags"])]} for row in ROWS])
        frame.write_parquet(buffer, compression="uncompressed")
        return buffer.getvalue()
    if form == "json":
        return json.dumps(ROWS, ensure_ascii=False, indent=1).encode()
    if form == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    lines = ["id,name,n,x,yes,day,tags"]
    lines += ['1,Köln,8,0.5,true,2026-11-25,"[""a""]"', '2,"a ""b""",9,,false,,', '3,"",0,2.0,,2026-11-26,x']
    return ("\n".join(lines) + "\n").encode()


def damaged(content: bytes, random: Random) -> bytes:
    """The same with one to three places changed."""
    for _ in range(random.randint(1, 3)):
        place, end = sorted(random.choices(range(len(content) + 1), k=2))
        change = random.randrange(5)
        if change == 0:
            content = content[:place] + random.choice(_PIECES) + content[place:]
        elif change == 1:
            content = content[:place] + random.choice(_PIECES) + content[min(end, place + 8) :]
        elif change == 2:
            content = content[:place] + bytes([random.randrange(256)]) + content[place + 1 :]
        elif change == 3:
            content = content[:place] + content[min(end, place + 40) :]
        else:
            content = content[:place]
    return content


def written(directory: Path, form: str, seed: int) -> Path:
    """A damaged file."""
    path = directory / f"t.{form}"
    path.write_bytes(damaged(whole_file(form), Random(f"{form} {seed}")))
    return path

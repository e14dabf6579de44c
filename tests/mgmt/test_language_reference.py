"""The pages on the policy language: every example is compiled and solved, every line of the table is what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import PolicyError, UnsupportedConstructError
from mgmt.state.database import Database
from tests.mgmt.support import database

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "policy-language.md").read_text()
GUIDE = (DOCS / "first-policy.md").read_text()
ROWS: dict[str, list[dict[str, Any]]] = {
    "host": [
        {"name": "a", "rack": "r1", "size": 5, "up": True, "since": "2024-02-29"},
        {"name": "b", "rack": "r1", "size": 9, "up": True, "since": "2026-01-31"},
        {"name": "c", "rack": "r2", "size": 7, "up": False},
    ],
    "task": [
        {"id": 1, "weight": 1, "host": "a"},
        {"id": 2, "weight": 2, "host": "a"},
        {"id": 3, "weight": 4, "host": None},
    ],
    "allowed": [{"task": 1, "host": "a"}, {"task": 1, "host": "b"}],
}


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^<!-- {kind} -->\n```sql\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


def state() -> Database:
    return database(blocks(REFERENCE, "schema")[0], ROWS)


def constructs() -> list[tuple[str, str, str]]:
    """Construct, statement, and whether it works or is refused."""
    section = REFERENCE.partition("## Every construct")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| `(.*)` \| (works|refused) \|$", section, flags=re.MULTILINE)
    return [(construct, statement.replace("\\|", "|"), status) for construct, statement, status in rows]


def test_the_table_is_read_in_full() -> None:
    lines = REFERENCE.partition("## Every construct")[2].partition("\n## ")[0].count("\n| ")
    assert len(constructs()) == lines - 1 > 60, "all but the head"


@pytest.mark.parametrize(("construct", "statement", "status"), constructs())
def test_a_construct_is_what_the_table_says(
    each_database: str, construct: str, statement: str, status: str
) -> None:
    assert each_database
    text = f"CREATE CONSTRAINT c AS {statement}"
    if status == "works":
        Model.build(state(), text).solve(budget=20)
        return
    with pytest.raises(UnsupportedConstructError) as caught:
        Model.build(state(), text).solve(budget=20)
    assert caught.value.position is not None, construct
    assert caught.value.hint, construct


@pytest.mark.parametrize("text", blocks(REFERENCE, "policy"))
def test_an_example_of_the_reference_gives_its_answer(each_database: str, text: str) -> None:
    assert each_database
    expected = re.search(r"^-- answer: (\w+)$", text, flags=re.MULTILINE)
    solution = Model.build(state(), text).solve(budget=20)
    found = solution.assignments["task", "variable__host"]
    assert expected is not None
    assert "".join(str(found[key]) for key in sorted(found)) == expected[1]


def test_the_example_of_quantities_gives_its_answer(each_database: str) -> None:
    assert each_database
    (text,) = blocks(REFERENCE, "quantities")
    schema, _, policies = text.partition(";\n\n")
    told = re.findall(r"`(\w+)` \(price (\d+), at most (\d+)\)", REFERENCE)
    rows: list[dict[str, Any]] = [
        {"name": n, "price": int(price), "most": int(most)} for n, price, most in told
    ]
    model = Model.build(database(schema + ";", {"pool": rows}), policies)
    found = model.solve(budget=20).assignments["pool", "variable__workers"]
    answer = re.findall(r"`(east|west)`(?: gets)?\s(\d+)", REFERENCE)
    assert {name: int(number) for name, number in answer} == {key[0]: value for key, value in found.items()}
    assert len(found) == 2


def test_the_guide_works_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each python block of the guide runs after those before it, and what it says it prints is what it prints."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, flags=re.MULTILINE | re.DOTALL):
        if language == "sql":
            Path(block.split()[2]).write_text(block)
            continue
        printed: list[str] = []
        names["print"] = lambda *parts, lines=printed: lines.append(" ".join(map(str, parts)))
        exec(compile(block, "first-policy.md", "exec"), names)
        assert printed == re.findall(r"^# -> (.*)$", block, flags=re.MULTILINE)


def test_every_error_class_of_the_page_exists() -> None:
    import mgmt

    section = REFERENCE.partition("## Errors")[2]
    for name in re.findall(r"`(\w+(?:Error|Timeout))`", section):
        assert issubclass(getattr(mgmt, name), PolicyError)

"""The page on exports: its files are written, its commands run, and what they print is what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.datastore_adapter.exported_formats import CockroachStatement, kafka_partitions, pd_rules
from tests.rota.test_command_line import run

PAGE = (Path(__file__).parents[2] / "docs/exports.md").read_text()
FILES = re.findall(r"<!-- file: (\S+) -->\n```json\n(.*?)```", PAGE, re.DOTALL)
TRANSCRIPTS = re.findall(r"```console\n\$ rota (.*?)\n(.*?)```", PAGE, re.DOTALL)


def test_every_transcript_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    assert len(TRANSCRIPTS) == 4
    for command, printed in TRANSCRIPTS:
        status, out, err = run(capsys, *command.split())
        assert out + err == printed, command
        assert status == (1 if err.startswith("rota: ") else 0)


def test_every_document_shown_is_one_of_its_format() -> None:
    shown = {command.split()[1]: text.rpartition("exported: ")[0] for command, text in reversed(TRANSCRIPTS)}
    assert len(kafka_partitions(json.loads(shown["kafka"]))) == 2
    assert [CockroachStatement(line).target[0] for line in shown["cockroachdb"].splitlines()] == [
        "TABLE",
        "PARTITION",
    ]
    assert {rule["group_id"] for rule in pd_rules(json.loads(shown["pd"]))} == {"rota"}

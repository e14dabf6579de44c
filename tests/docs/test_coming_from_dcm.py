"""The page for people who come from DCM: its files are written, its commands run, and print what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_policies_page import lines
from tests.rota.test_command_line import run

PAGE = (Path(__file__).parents[2] / "docs/coming-from-dcm.md").read_text()


def test_every_transcript_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    for text, name in re.findall(r"```sql\n(-- file: (\S+)\n.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(text)
    transcripts = re.findall(r"```console\n\$ rota (.*?)\n(.*?)```", PAGE, re.DOTALL)
    assert len(transcripts) == 6
    for command, printed in transcripts:
        status, out, err = run(capsys, *command.split())
        assert lines(out + err) == lines(printed), command
        assert (status != 0) == ("\nrota: " in f"\n{printed}"), command

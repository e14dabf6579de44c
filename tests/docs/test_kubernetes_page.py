"""The page on Kubernetes: its commands on the example print what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.rota.test_command_line import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/kubernetes.md").read_text()
TRANSCRIPTS = re.findall(r"```console\n\$ rota (.*?)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("command", "printed"), TRANSCRIPTS, ids=[command for command, _ in TRANSCRIPTS])
def test_every_transcript_is_what_the_command_prints(
    command: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    status, out, _ = run(capsys, *shlex.split(command))
    assert status == 0
    assert [line.rstrip() for line in out.splitlines()] == [line.rstrip() for line in printed.splitlines()]

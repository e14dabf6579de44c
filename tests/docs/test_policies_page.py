"""The page on policies: its files are written, its commands run, and what they print is what the page says."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.rota.test_command_line import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/policies.md").read_text()
FILES = re.findall(r"```sql\n(-- file: (\S+)\n.*?)```", PAGE, re.DOTALL)
TRANSCRIPTS = re.findall(r"```console\n\$ rota (.*?)\n(.*?)```", PAGE, re.DOTALL)
# Of several answers that are equally good one is printed: of these commands only the first line is compared.
FREE = ("policy solve", "policy why", "policy what-if", "policy explain", "policy diff")


def lines(text: str) -> list[str]:
    """Without blank lines, times, and what solved it."""
    text = re.sub(r"\d+(\.\d+)? (s|ms)\b", r"0.0 \2", text)
    text = re.sub(r"in 0.0 s \(.*\)", "in 0.0 s", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_the_page_shows_every_command() -> None:
    shown = {command.split()[1] for command, _ in TRANSCRIPTS}
    assert shown == {
        "list",
        "lint",
        "solve",
        "why",
        "why-not",
        "what-if",
        "diff",
        "headroom",
        "test",
        "explain",
    }


@pytest.mark.slow("a command of each kind is run, most of them solve")
def test_every_transcript_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    for text, name in FILES:
        (tmp_path / name).write_text(text)
    for command, printed in TRANSCRIPTS:
        arguments = [part.strip('"') for part in re.findall(r'"[^"]*"|\S+', command)]
        status, out, err = run(capsys, *arguments)
        expected, found = lines(printed), lines(out + err)
        assert (status != 0) == ("\nrota: " in f"\n{printed}"), command
        if command.startswith(FREE) and not expected[0].startswith("rota: "):
            expected, found = expected[:1], found[:1]
        assert found == expected, command


def test_readme_quotes_the_rule_as_the_pack_has_it() -> None:
    quoted = re.findall(r" *```sql\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    rules = (ROOT / "policies/datastore/10_rules.sql").read_text()
    assert quoted
    for block in quoted:
        assert textwrap.dedent(block).strip() in rules

"""The page on one's own data: its commands, its Python and its SQL are run, and say what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_policies_page import lines
from tests.postgres_server import PostgresServer
from tests.rota.test_command_line import run

PAGE = (Path(__file__).parents[2] / "docs/your-own-data.md").read_text()
ADDRESS = "postgresql://rota@db1.example/cluster"
BEFORE, _, ON_SERVER = PAGE.partition("## Rows in PostgreSQL")


def blocks(text: str) -> list[tuple[str, str]]:
    """Languages and contents, in order."""
    return re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)


def play(
    text: str, capsys: pytest.CaptureFixture[str], address: str = "", server: PostgresServer | None = None
) -> None:
    """Do what a page says, in the present directory."""
    names: dict[str, object] = {}
    printed = ""
    for language, block in blocks(text):
        if language == "csv":
            Path("nodes.csv").write_text(block)
        elif language == "sql" and block.startswith("-- server\n"):
            assert server is not None
            server.run(block, address)
        elif language == "sql":
            Path(block.split()[2]).write_text(block)
        elif language == "python":
            url = server.url(address) if server is not None else ""
            exec(block.replace(ADDRESS, url), names)
            printed = capsys.readouterr().out
        elif language == "text":
            assert printed == block
        else:
            assert language == "console"
            command, _, expected = block.removeprefix("$ rota ").partition("\n")
            status, out, err = run(capsys, *command.split())
            assert (status, lines(out + err)) == (0, lines(expected))


def test_files_and_frames(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    play(BEFORE, capsys)


@pytest.mark.postgres
def test_rows_on_a_server(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgres_server: PostgresServer,
) -> None:
    monkeypatch.chdir(tmp_path)
    for language, block in blocks(BEFORE):
        if language == "sql":
            Path(block.split()[2]).write_text(block)
    play(ON_SERVER, capsys, postgres_server.new_namespace(), postgres_server)

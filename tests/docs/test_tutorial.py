"""The commands of the tutorial and of the pages on the stores are run as they stand.

Every fenced ``console`` block of ``docs/tutorial.md``, ``store.md`` and ``valkey.md`` is run, its ``$`` lines one after
the other in one shell; those of ``remote.md`` in ``tests/deploy``.  A remark before a block says what is expected:

    <!-- background -->     runs on (``rota up``); the next block starts when it says that it answers, and asks it where
                            it says so: on a machine where somebody has the default port that is another one
    <!-- fails -->          the command must exit with status 1
    <!-- usage -->          the same with status 2
    <!-- skip: why -->      not run here
    <!-- expect: text -->   the output must contain the text
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"((?:<!-- [^\n]* -->\n)*)```console\n(.*?)```", re.DOTALL)
STEP_TIMEOUT = 90


@dataclass(frozen=True)
class Block:
    commands: str
    remarks: tuple[str, ...]

    @property
    def expectations(self) -> list[str]:
        return [remark.removeprefix("expect: ") for remark in self.remarks if remark.startswith("expect: ")]


def blocks(text: str) -> list[Block]:
    found = []
    for remarks, body in BLOCK.findall(text):
        commands = "\n".join(line[2:] for line in body.splitlines() if line.startswith(("$ ", "> ")))
        found.append(Block(commands, tuple(re.findall(r"<!-- (.*?) -->", remarks))))
    return found


@contextmanager
def background(block: Block, environment: dict[str, str], directory: Path) -> Iterator[str]:
    """Yields where it answers."""
    process = subprocess.Popen(
        ["bash", "-ec", f"exec {block.commands}"],
        env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if found := re.search(r"(http://\S+?)/? answers", line):
                break
        else:
            pytest.fail(f"{block.commands} ended early:\n{printed}")
        yield found[1]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STEP_TIMEOUT)
    assert process.returncode == 0


def run(block: Block, environment: dict[str, str], directory: Path, *within: str) -> None:
    """``within``: a command that runs another one somewhere else."""
    done = subprocess.run(
        [*within, "bash", "-eo", "pipefail", "-c", block.commands],
        env=environment, cwd=directory, capture_output=True, text=True, timeout=STEP_TIMEOUT, check=False,
    )  # fmt: skip
    output = done.stdout + done.stderr
    expected = 1 if "fails" in block.remarks else 2 if "usage" in block.remarks else 0
    assert done.returncode == expected, f"{block.commands}\nexited with {done.returncode}:\n{output}"
    assert "Traceback" not in output
    for text in block.expectations:
        assert text in output, f"{block.commands}\ndid not print {text!r} but:\n{output}"


def test_the_block_reader() -> None:
    text = (
        "a\n<!-- fails -->\n<!-- expect: no -->\n```console\n$ one \\\n> two\noutput\n```\n```sh\n$ no\n```\n"
    )
    (block,) = blocks(text)
    assert block.commands == "one \\\ntwo"
    assert block.remarks == ("fails", "expect: no")
    assert block.expectations == ["no"]


@pytest.mark.first
@pytest.mark.demo
@pytest.mark.parametrize(("page", "least"), [("tutorial.md", 8), ("store.md", 7), ("valkey.md", 7)])
def test_every_command_of_the_page_works(page: str, least: int, tmp_path: Path) -> None:
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    environment["XDG_CONFIG_HOME"] = str(tmp_path)
    todo = [
        block
        for block in blocks((ROOT / "docs" / page).read_text())
        if not any(r.startswith("skip") for r in block.remarks)
    ]
    assert len(todo) >= least
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    position = next(index for index, block in enumerate(todo) if "background" in block.remarks)
    for block in todo[:position]:
        run(block, environment, tmp_path)
    with background(todo[position], environment, tmp_path) as address:
        for block in todo[position + 1 :]:
            run(block, environment | {"ROTA_API": address}, tmp_path)

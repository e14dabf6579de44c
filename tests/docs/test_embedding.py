"""The programs of `docs/embedding.md` are run as they stand.

Every fenced `python` block is a whole program. A remark before it, `<!-- expect: text -->`, says what it prints, and
another one, `<!-- warns: text -->`, how what it logs begins; without that it logs nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/embedding.md").read_text()
PROGRAM = re.compile(
    r"<!-- expect: ([^\n]*) -->\n(?:<!-- warns: ([^\n]*) -->\n)?```python\n(.*?)```", re.DOTALL
)
PROGRAMS = PROGRAM.findall(PAGE)
PATIENCE = 60


def test_every_program_says_what_it_prints() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") == 4


@pytest.mark.socket
@pytest.mark.parametrize(
    ("expected", "warning", "program"), PROGRAMS, ids=["trio", "asyncio", "threads", "leader"]
)
def test_the_program_does_what_the_page_says(expected: str, warning: str, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(warning) if warning else done.stderr == ""
    assert expected in done.stdout


def test_the_examples_it_names_are_those_there_are() -> None:
    named = set(re.findall(r"\]\(\.\./examples/(\w+\.py)\)", PAGE))
    assert named == {path.name for path in (ROOT / "examples").glob("*.py")} - {"embedding.py"}

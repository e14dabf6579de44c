"""What an agent costs before it does anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.agent_footprint import LIMIT_MEMORY, measure

HEAVY = ("ortools", "pandas", "numpy", "sqlglot", "matplotlib")
"""What only the controller's solver, or a plot, needs."""


def loaded_by(code: str) -> set[str]:
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code}; import sys; print(*sorted({{n.partition('.')[0] for n in sys.modules}}))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.split())


def test_an_agent_starts_without_the_solver() -> None:
    assert not loaded_by("import agent.main, hypercorn.trio") & set(HEAVY)


def test_the_command_line_starts_without_the_agent() -> None:
    assert not loaded_by("import agent.command_line") & {
        *HEAVY,
        "trio",
        "starlette",
        "hypercorn",
        "rich",
        "apsw",
    }


@pytest.mark.slow
@pytest.mark.socket
def test_an_agent_alone_stays_small() -> None:
    without_store = measure(store=False)
    assert without_store.settled_rss < LIMIT_MEMORY
    assert measure(store=True).ready_rss < LIMIT_MEMORY

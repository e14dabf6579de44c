"""What an agent costs before it does anything."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from bench.agent_footprint import ALONE, KINDS, LIMIT_MEMORY, STORELESS, memory_of, start_of
from rota.imports import importing

HEAVY = ("ortools", "pandas", "numpy", "sqlglot", "duckdb", "matplotlib")
"""What only the solver's process, or a plot, needs."""


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
    assert not loaded_by("import rota.agent.process, hypercorn.trio") & set(HEAVY)


def test_the_command_line_starts_without_the_agent() -> None:
    assert not loaded_by("import rota.commands.command_line") & {
        *HEAVY,
        "trio",
        "starlette",
        "hypercorn",
        "rich",
        "ssl",
        "email",
    }


def test_the_garbage_collector_is_off_for_imports_only() -> None:
    assert gc.isenabled()
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.slow("real agents of each kind for four seconds")
@pytest.mark.socket
def test_an_agent_stays_small_whatever_it_is() -> None:
    memories = dict(zip(KINDS, memory_of(KINDS, seconds=4), strict=True))
    for kind, memory in memories.items():
        assert memory.last <= memory.peak < LIMIT_MEMORY, kind
    assert memories[STORELESS].solver_peak == 0
    assert memories[ALONE].solver_peak > memories[ALONE].peak, "it is not the agent that solves"


@pytest.mark.socket
def test_an_agent_says_when_it_is_ready() -> None:
    assert 0 < start_of(ALONE).rss < LIMIT_MEMORY

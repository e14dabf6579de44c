"""What is not installed is one line that names the extra; what applications import loads no more than it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from datastore_adapter.interface import StepGraph
from mgmt.control.dry_run import DryRun
from mgmt.plans.plan import Plan
from mgmt.solving.libraries import LIBRARIES
from mgmt.solving.placement_solver import Undecided
from tests.rota.test_command_line import run as run_here

HEAVY = ("trio", "click", "rich", "starlette", "hypercorn", "sqlglot", "duckdb", "ortools", "numpy", "pandas")


def run(program: str, *without: str) -> subprocess.CompletedProcess[str]:
    """Run a program where some libraries are not installed."""
    missing = f"import sys; sys.modules.update(dict.fromkeys({without!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", missing + program], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("program", "library", "what", "extra"),
    [
        ("from rota.entry import main; main()", "click", "rota: the command line", "agent"),
        ("import rota; rota.Model", "sqlglot", "ImportError: rota.Model", "plane"),
        (
            "import rota; rota.Database()",
            "duckdb",
            "mgmt.errors.StateDatabaseError: a state database",
            "plane",
        ),
        (
            "from rota.commands.command_line import main; main(['policy', 'list'])",
            "sqlglot",
            "rota: this command",
            "plane",
        ),
    ],
)
def test_what_is_missing_is_one_line_that_names_the_extra(
    program: str, library: str, what: str, extra: str
) -> None:
    found = run(program, library)
    assert found.returncode == 1
    said = found.stderr.splitlines()[-1]
    assert said.startswith(f"{what} needs {library}, which is not installed")
    assert f"pip install 'rota[{extra}]'" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("demo",),
        ("up",),
        ("chaos", "run", "kill-sequencer"),
        ("chaos", "run", "crash", "--store"),
        ("chaos", "fuzz"),
        ("chaos", "replay", "STORE"),
    ],
    ids=" ".join,
)
def test_what_places_data_says_at_once_that_the_solver_is_not_installed(
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.txt"
    script.write_text("nodes 6\nduration 5s\nstore yes\n")
    monkeypatch.setitem(sys.modules, "ortools", None)
    status, _, err = run_here(capsys, *(str(script) if each == "STORE" else each for each in arguments))
    assert status == 2
    assert "needs ortools, which is not installed: pip install 'rota[plane]'" in err
    assert err.count("\n") == 1


def test_members_alone_are_simulated_without_the_solver(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)
    assert run_here(capsys, "chaos", "run", "bootstrap", "--nodes", "5")[0] == 0


def test_a_plan_without_a_solver_speaks_of_nothing_else() -> None:
    missing = "the solver needs ortools, which is not installed: pip install 'rota[plane]'"
    plan = cast(Plan, SimpleNamespace(is_empty=True))
    assert DryRun(plan, StepGraph(()), Undecided(missing, 0.0)).text() == missing


def test_a_solver_without_its_libraries_says_so() -> None:
    program = (
        "from mgmt.solving.solver_worker import _in_words\n"
        "try:\n    import sqlglot\nexcept ImportError as error:\n    print(_in_words(error))"
    )
    assert run(program, "sqlglot").stdout.strip() == (
        "the solver needs sqlglot, which is not installed: pip install 'rota[plane]'"
    )


def test_importing_rota_loads_nothing_else_until_a_name_is_used() -> None:
    program = f"import sys, rota; print([name for name in {HEAVY} if name in sys.modules])"
    assert run(program).stdout.strip() == "[]"


def test_a_member_of_a_cluster_needs_neither_command_line_nor_policies() -> None:
    program = (
        "import rota, trio\n"
        "async def main():\n"
        "    async with rota.join('127.0.0.1:0', insecure=True) as cluster:\n"
        "        print(len(cluster.view.members))\n"
        "trio.run(main)"
    )
    assert run(program, *HEAVY[1:]).stdout.strip() == "1"

"""The example of the embedding interface does what it says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from trio.testing import MockClock

from membership import InMemoryNetwork

EXAMPLE = Path(__file__).parents[2] / "examples" / "embedding.py"


async def test_the_embedding_example(capsys: pytest.CaptureFixture[str], autojump_clock: MockClock) -> None:
    specification = importlib.util.spec_from_file_location("embedding", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    await example.main(network=InMemoryNetwork())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ada: view 0: ada"
    for name in ("ada", "ben", "cleo"):
        assert any(line.startswith(f"{name}: view") and line.endswith(": ada, ben, cleo") for line in lines)
    for name in ("ada", "ben"):
        assert [line for line in lines if line.startswith(name)][-1].endswith(": ada, ben; cleo failed")

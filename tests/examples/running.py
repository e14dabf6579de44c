"""The examples, loaded as modules and run as programs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which a wait fails; long, for machines that are busy with other things."""


def load(name: str) -> Any:
    """`examples/NAME.py` as a module."""
    specification = importlib.util.spec_from_file_location(
        f"example_{name}", ROOT / "examples" / f"{name}.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


class Program:
    """`python examples/NAME.py ...`, its output read line by line as it comes."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(ROOT / "examples" / f"{name}.py"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,  # so that what it starts itself can be ended with it
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, condition: Callable[[str], Any]) -> str:
        """The first line that meets the condition, once it is printed."""
        seen = 0
        with self._news:
            while True:
                for line in self.lines[seen:]:
                    if condition(line):
                        return line
                seen = len(self.lines)
                if self._ended or not self._news.wait(PATIENCE):
                    raise AssertionError("not printed, but:\n" + "\n".join(self.lines))

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def stop(self) -> int:
        """Ask it to end as Ctrl-C does; the exit status."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        status = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.stop()

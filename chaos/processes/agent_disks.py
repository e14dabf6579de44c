"""The data directories of real agents: copied, put back, emptied, or robbed of a file.

What an operator does with `cp` and `rm`. A copy of an agent that runs takes what is there, file by file.
"""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

from chaos.faults import DiskLoss, LoseFile, RestoreDisk, WipeDisk


class AgentDisks:
    """The data directory of each agent is `folder` / its name; copies are kept in `copies`."""

    def __init__(self, folder: Path, copies: Path, rng: random.Random) -> None:
        self._folder = folder
        self._copies = copies
        self._rng = rng

    def copy(self, name: str) -> None:
        """Keep a copy in place of an earlier one."""
        _copy(self._folder / name, self._copies / name)

    def lose(self, name: str, fault: DiskLoss) -> str:
        """Do this to the directory of an agent that does not run; what was done, in words."""
        match fault:
            case RestoreDisk():
                if not (self._copies / name).exists():
                    return f"there is no copy of the disk of {name}"
                _copy(self._copies / name, self._folder / name)
                return f"{name} has an old copy of its disk"
            case WipeDisk():
                shutil.rmtree(self._folder / name, ignore_errors=True)
                return f"{name} has an empty disk"
            case LoseFile():
                files = sorted(path for path in (self._folder / name).rglob("*") if path.is_file())
                if not files:
                    return f"{name} has no file to lose"
                lost = self._rng.choice(files)
                lost.unlink()
                return f"{name} has lost {lost.relative_to(self._folder / name)}"


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        if path.is_dir():
            (target / path.relative_to(source)).mkdir(parents=True, exist_ok=True)
        else:
            with suppress(FileNotFoundError):  # it was there a moment ago
                shutil.copyfile(path, target / path.relative_to(source))

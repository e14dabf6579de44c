"""Version 0.1, as the repository's own history has it: what a rolling upgrade comes from and goes back to.

Its agents run from a directory of their own, on what is installed for this version.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest

COMMIT: Final = "361265587be9ead8f7f1fcb7272768717ba37645"
"""The last one on main before `agent/` became `rota/`, and before a cluster's first view is written down by those whom
it counts on."""
PACKAGES: Final = ("agent", "consensus", "membership", "datastore_adapter", "mgmt", "policies", "chaos")
REPOSITORY: Final = Path(__file__).parents[2]


def frozen_build(directory: Path) -> tuple[list[str], dict[str, str]]:
    """Put version 0.1 into `directory`: the program, and what its environment has to have.

    Skips the test where the history is not there (a copy, or a shallow clone).
    """
    archive = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", COMMIT, *PACKAGES], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(
            f"version 0.1 is commit {COMMIT}, which is not in this history: {archive.stderr.decode()}"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    # Not what is where the tests are started, which also has packages of these names.
    return [sys.executable, "-m", "agent"], {"PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1"}

"""What a store needs on the simulator, and elsewhere: the solver that places its copies."""

from __future__ import annotations

from chaos.errors import NotInstalledError
from mgmt.solving.libraries import what_is_missing


def check_installed() -> None:
    """Raises :class:`NotInstalledError`."""
    if missing := what_is_missing("a store"):
        raise NotInstalledError(f"{missing}; scenarios of members alone need it not: --no-store")

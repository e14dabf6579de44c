"""Replacing a file as a whole: a reader, also after a power cut, finds the old content or the new one.

What it is: write beside it, sync, rename, sync the directory.
What it is not: aware of what the file says; nor fit for an event loop: it waits for the disk.
"""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """The content is durable on return. Raises OSError; then the former content stands, if there was one."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

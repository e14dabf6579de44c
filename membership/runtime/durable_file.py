"""Replacing a file as a whole: after a power cut too, a reader finds either the old content or the new one.

Write a new file beside it, sync, rename, sync the directory. This waits for the disk: not for an event loop.
"""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """The content is durable on return. Raises OSError; then the former content stands, if there was one.

    `mode`: who may read and write the file, as far as the umask lets them.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # one that was left behind might be open to others
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

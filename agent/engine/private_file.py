"""Files that only this user may read: passwords, and configurations that contain one."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: str) -> None:
    """The content as a whole, mode 0600, durable on return.  Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # one that was left behind might be open to others
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

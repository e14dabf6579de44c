"""Names that operators give: of tokens and of contexts."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def checked_name(name: str) -> str:
    """The name itself.  Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not a name: letters, digits, '.', '_' and '-', at most 64")
    return name

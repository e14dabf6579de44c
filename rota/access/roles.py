"""The roles of the HTTP interface."""

from __future__ import annotations

from typing import Final

READ: Final = "read"
"""See everything, change nothing."""
OPERATE: Final = "operate"
"""Everything."""
PUBLIC: Final = "public"
"""Of an operation that needs no token.  Nobody has this role."""
ROLES: Final = (READ, OPERATE)


def suffices(role: str, needed: str) -> bool:
    """Whether who has ``role`` may do what needs ``needed``."""
    return needed == PUBLIC or role in (needed, OPERATE)

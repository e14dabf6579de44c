"""Whom a command is for: an address says where, never who."""

from __future__ import annotations

from typing import NamedTuple


class Recipient(NamedTuple):
    """One server: where it answered last, and who it is.  Whoever else answers there gets nothing that is for it."""

    address: str
    """``host:port``."""
    node_id: str

"""How many connections the process's file descriptors allow.

The bound is fitted to what the system grants; a program may have the grant raised. Half of all descriptors are left to
the rest of the process: its files, its own connections to others, HTTP and datagrams.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger("membership")

DESCRIPTORS_PER_CONNECTION: Final = 2
"""Descriptors a process should have for each accepted connection: the second is for all else it opens."""

_told: set[int] = set()


def fit_connections(wanted: int) -> int:
    """As many connections as half of the process's descriptors, at most `wanted`. Says once when it is less."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fitting = max(1, soft // DESCRIPTORS_PER_CONNECTION)
    if soft == resource.RLIM_INFINITY or wanted <= fitting:
        return wanted
    if fitting not in _told:
        _told.add(fitting)
        need = DESCRIPTORS_PER_CONNECTION * wanted
        log.info(
            "at most %d connections at a time are accepted, not %d: the process may open %d files (hard limit %s); "
            "`ulimit -n %d` makes room for all", fitting, wanted, soft,
            "none" if hard == resource.RLIM_INFINITY else hard, need,
        )  # fmt: skip
    return fitting


def raise_descriptor_limit(connections: int) -> None:
    """Raise the soft limit of open files as far as `connections` need, and the hard limit allows.

    For programs, not libraries: it changes the whole process, and the children that inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_PER_CONNECTION * connections
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

"""Under which names an agent answers, as the ``Host`` of a request says them.

A page whose own name resolves to the agent's address (DNS rebinding) comes under that name, so only the names of
loopback and those of the agent's certificate are accepted.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit


class HostNames:
    """Loopback, and ``names``: DNS names (``*.example.com`` stands for one label) and IP addresses."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(name.lower() for name in names)

    def allows(self, host: str) -> bool:
        """Whether a ``Host`` can only mean this agent.  The port is free: there may be a tunnel."""
        name = host_name(host)
        if name is None:
            return False
        return is_loopback(name) or any(_matches(name, each) for each in self.names)

    def __str__(self) -> str:
        return ", ".join(self.names) or "127.0.0.1 or localhost"


LOOPBACK = HostNames()


def host_name(host: str) -> str | None:
    """The name in a ``Host``, in lower case; None if it is no such thing."""
    try:
        parts = urlsplit(f"http://{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return None if parts.netloc != host or parts.username is not None else name


def is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _matches(name: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        first, _, rest = name.partition(".")
        return bool(first) and rest == pattern[2:]
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(pattern)
    except ValueError:
        return name == pattern

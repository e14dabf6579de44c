"""A network address: one host and one port, and their one text form.

A host may be a DNS name; `membership.transport.resolve` turns it into an IP address.
"""

from typing import NamedTuple

from membership.errors import MembershipError


class AddressError(MembershipError, ValueError):
    """Raised when text is not an address. The message says what is wrong and shows the right form."""


class Address(NamedTuple):
    """Host (an IP address without brackets, or a DNS name) and port (1 to 65535)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, lowest_port: int = 1) -> "Address":
        """Read `host:port`; an IPv6 host stands in brackets, as in `[::1]:7946`.

        `lowest_port=0` allows port 0, for addresses to listen at: the system then chooses a free one.
        """
        host, separator, port_text = text.strip().rpartition(":")
        if not separator or not host:
            raise AddressError(f"{text!r} is not an address: write host:port, for example 10.0.0.5:7946")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        elif ":" in host:
            raise AddressError(f"{text!r} is ambiguous: write an IPv6 host in brackets, as in [::1]:7946")
        if not host or any(character.isspace() or character in "[]/@" for character in host):
            raise AddressError(f"{text!r} has no valid host: write host:port, for example node1.example:7946")
        if len(host) > 255:
            raise AddressError(f"the host of an address is at most 255 characters, not {len(host)}")
        if not (port_text.isascii() and port_text.isdigit() and lowest_port <= int(port_text[:6]) <= 65535):
            raise AddressError(f"{text!r} has no valid port: a port is a number from {lowest_port} to 65535")
        return cls(host, int(port_text))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

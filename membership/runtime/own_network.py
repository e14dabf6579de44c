"""A part of 127.0.0.0/8 that nobody else on this machine uses: addresses known before anybody listens there.

A process that can listen at port 0 and say what it got needs none.  But members that name each other, and whoever is to
come back at the address it had, must know it beforehand, and a port that was free a moment ago is no answer: the system
gives it to the next process, or to the next connection.  Here whoever holds a network's lock, a name that the system
frees with the process, has all ports of its addresses.  They are below those that the system gives to connections.
"""

from __future__ import annotations

import errno
import random
import socket
from functools import cached_property
from typing import Final

from membership.address import Address

_LOWEST_PORT: Final = 7946
_HIGHEST_PORT: Final = 30000
_STEP: Final = 10
_HOSTS: Final = 254


class OwnNetwork:
    """127.X.Y.1 to 127.X.Y.254, until it is closed or the process ends."""

    def __init__(self, prefix: str, lock: socket.socket) -> None:
        self._prefix = prefix
        self._lock = lock

    @classmethod
    def claim(cls) -> OwnNetwork:
        """One that nobody has.  Raises OSError where there are no such names (other systems than Linux)."""
        while True:
            # 127.0.Y.Z is left to those who write addresses by hand.
            prefix = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"
            lock = _locked(prefix)
            if lock is not None:
                return cls(prefix, lock)

    @classmethod
    def claim_again(cls, host: str) -> OwnNetwork | None:
        """The one that this address is of; None while somebody else has it."""
        prefix = host.rpartition(".")[0]
        lock = _locked(prefix)
        return None if lock is None else cls(prefix, lock)

    def host(self, number: int) -> str:
        """From 1 on."""
        if not 1 <= number <= _HOSTS:
            raise ValueError(f"there is no host {number} in {self._prefix}.0/24")
        return f"{self._prefix}.{number}"

    @cached_property
    def port(self) -> int:
        """This one and the next are free, UDP and TCP, on all hosts.

        The network's lock does not bind somebody who listens on every interface of the machine: his ports are left out.
        """
        for port in range(_LOWEST_PORT, _HIGHEST_PORT, _STEP):
            if all(_is_free(self.host(_HOSTS), number) for number in (port, port + 1)):
                return port
        raise OSError(errno.EADDRINUSE, "no port is free on loopback")

    def address(self, number: int) -> Address:
        """Of the host of that number, at `port`."""
        return Address(self.host(number), self.port)

    def close(self) -> None:
        """Anybody may have it from now on."""
        self._lock.close()


def _locked(prefix: str) -> socket.socket | None:
    """The lock; None if somebody holds it.  An abstract name is one per network namespace, as the addresses are."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0rota {prefix}.0/24")
    except OSError as error:
        lock.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return lock


def _is_free(host: str, port: int) -> bool:
    try:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind((host, port))
    except OSError:
        return False
    return True

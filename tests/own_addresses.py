"""Addresses of this test process's own, for what must be known before anybody listens there.

For processes that name each other, or are to be started again where they were, and for those that are not there.
Whoever can listen at port 0 and say what it got needs none.
"""

from __future__ import annotations

import atexit
import errno
import functools
import itertools
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from membership import Address
from membership.runtime.own_network import OwnNetwork

_HOSTS: Final = range(2, 255)
_STEP: Final = 10

_given = itertools.count()


@functools.cache
def _network() -> OwnNetwork:
    network = OwnNetwork.claim()
    atexit.register(network.close)
    return network


def own_host() -> str:
    """An address of loopback, all of whose ports are this process's; none of them is given by `own_address`."""
    return _network().host(1)


def own_address() -> Address:
    """Never the same again.  Nobody listens there, UDP or TCP, whom this process has not told to."""
    lap, number = divmod(next(_given), len(_HOSTS))
    return Address(_network().host(_HOSTS[number]), _network().port + lap * _STEP)


@contextmanager
def reserved_port() -> Iterator[int]:
    """For a server that listens at 127.0.0.1 and ::1 and nowhere else: only a server gets the port that is told to.

    It has the port beside those who hold it here, since all set SO_REUSEADDR and these do not listen.
    """
    with ExitStack() as held:
        while not (port := _reserve(held)):
            pass
        yield port


def _reserve(held: ExitStack) -> int:
    """0 if one IP version's is free and the other's is not."""
    port = 0
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            one = held.enter_context(socket.socket(family))
            one.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return 0
            continue  # there is no IPv6 here
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = one.getsockname()[1]
    return port

"""What holds for all tests."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer


@pytest.fixture(autouse=True, scope="session")
def _interrupts_are_heard() -> None:
    """Shells start what runs in the background with SIGINT ignored, and processes inherit that; tests send it."""
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this process's own, so that tests may run in several processes at once.

    Tests that use it are marked ``postgres``.
    """
    from tests.postgres_server import binaries, private_server

    if binaries() is None:
        pytest.skip("there is no PostgreSQL here: `make system` installs it")
    with private_server() as server:
        yield server

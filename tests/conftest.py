"""What holds for all tests."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer

# What an example takes on the wall clock says how busy the machine is, and nothing of the code.
settings.register_profile("rota", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rota")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting makes stays until the end: looking through it for garbage, time and again, took half of the time.

    Once here, and then at each full collection while tests run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest is begun first: at the end of a run no process is to wait for another one."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


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

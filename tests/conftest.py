"""What holds for all tests."""

from __future__ import annotations

import signal
import threading

import pytest


@pytest.fixture(autouse=True, scope="session")
def _interrupts_are_heard() -> None:
    """Shells start what runs in the background with SIGINT ignored, and processes inherit that; tests send it."""
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)

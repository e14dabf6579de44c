"""What tests of the management plane share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mgmt.support import BACKEND


@pytest.fixture
def each_database() -> Iterator[str]:
    """Close at the end what ``tests.mgmt.support.database`` has made."""
    yield "duckdb"
    BACKEND.close()

"""Tests of the management plane that run on every kind of state database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mgmt.support import BACKEND
from tests.postgres_server import PostgresServer


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.postgres)])
def each_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once on DuckDB and once on PostgreSQL; ``tests.mgmt.support.database`` makes what is asked for."""
    kind: str = request.param
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        previous, BACKEND.address = BACKEND.address, lambda: server.url(server.new_namespace())
    else:
        previous = BACKEND.address
    yield kind
    BACKEND.address = previous
    BACKEND.close()

"""The servers that tests of this folder run against."""

from __future__ import annotations

import pytest

from tests.slots.servers import program


@pytest.fixture(params=["valkey", "redis"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each of the two, where it is installed."""
    name: str = request.param
    if program(name) is None:
        pytest.skip(f"there is no {name}-server here: `make system` installs it")
    return name

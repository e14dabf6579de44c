"""`import rota` is what applications write: what there is, and what it says where it is entered wrongly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import datastore_adapter
import membership
import mgmt
import rota


@pytest.mark.parametrize(
    "module",
    [rota, rota.aio, rota.blocking, membership, mgmt, datastore_adapter],
    ids=lambda module: module.__name__,
)
def test_dir_lists_what_there_is_and_nothing_else(module: object) -> None:
    assert {name for name in dir(module) if not name.startswith("__")} == set(module.__all__)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "options"),
    [("join", {}), ("serve_ensemble", {"state": "nowhere"})],
    ids=["join", "serve_ensemble"],
)
def test_outside_trio_the_error_names_what_runs_there(name: str, options: dict[str, str]) -> None:
    def opened() -> Any:
        return getattr(rota, name)("127.0.0.1:0", [], **options)

    async def enter() -> None:
        async with opened():
            pass

    for wrong in (lambda: asyncio.run(enter()), opened().__enter__):
        with pytest.raises(membership.NotInTrioError) as refused:
            wrong()
        assert f"rota.aio.{name}" in str(refused.value)
        assert f"rota.blocking.{name}" in str(refused.value)

"""A block that trio runs: entered elsewhere, it says by which name it is to be had there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import NoReturn, ParamSpec, TypeVar

import trio

from membership.errors import MembershipError

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class NotInTrioError(MembershipError, RuntimeError):
    """`join` or `serve_ensemble` was entered where trio does not run; the text names the one that runs there."""


class TrioBlock(AbstractAsyncContextManager[T_co]):
    """What `async with` enters."""

    def __init__(self, name: str, manager: AbstractAsyncContextManager[T_co]) -> None:
        self._name = name
        self._manager = manager

    async def __aenter__(self) -> T_co:
        if not trio.lowlevel.in_trio_task():
            self._refuse()
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._manager.__aexit__(kind, value, trace)

    def __enter__(self) -> NoReturn:
        self._refuse()

    def __exit__(self, *_: object) -> None:
        """Never reached; `with` wants it before it enters."""

    def _refuse(self) -> NoReturn:
        name = self._name
        raise NotInTrioError(
            f"{name} runs on trio: under asyncio write `async with rota.aio.{name}(...)`, in threads "
            f"`with rota.blocking.{name}(...)`, under trio `async with rota.{name}(...)`"
        )


def trio_block(function: Callable[P, AsyncIterator[T]]) -> Callable[P, TrioBlock[T]]:
    """As `asynccontextmanager`, for trio alone."""
    managed = asynccontextmanager(function)

    @wraps(function)
    def opened(*arguments: P.args, **options: P.kwargs) -> TrioBlock[T]:
        return TrioBlock(function.__name__, managed(*arguments, **options))

    return opened

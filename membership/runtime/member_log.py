"""The library's log, each line of which says whose it is: several members may live in one process."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class MemberLog(_Adapter):
    """Lines of the member of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger("membership"), {"member": name})
        self._name = name

    def log(self, level: int, msg: object, *args: object, stacklevel: int = 1, **kwargs: Any) -> None:
        """The line with the name before it."""
        line = str(msg) if args else str(msg).replace("%", "%%")  # without arguments it is as it is
        super().log(level, f"%s: {line}", self._name, *args, stacklevel=stacklevel + 1, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {"extra": self.extra, **kwargs}

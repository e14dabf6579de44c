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
        self._begin = f"{name.replace('%', '%%')}: "

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The line with the name before it."""
        return f"{self._begin}{msg}", {"extra": self.extra, **kwargs}

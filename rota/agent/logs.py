"""What an agent says of itself: one line a remark on standard error, for people or as JSON for machines.

With JSON a line is an object with ``time`` (UTC, ISO 8601), ``level``, ``logger``, ``message`` and, where there is one,
``traceback``.  The level can be changed while it runs: in the settings file, and then SIGHUP.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def configure(form: str, level: str) -> None:
    """Take over all loggers of this process."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(
            logging.Formatter("%(asctime)s.%(msecs)03d  %(levelname)-7s %(message)s", "%H:%M:%S")
        )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)


def set_level(level: str) -> None:
    """From now on, remarks of this level and above."""
    logging.getLogger().setLevel(level.upper())

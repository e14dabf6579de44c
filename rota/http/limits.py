"""What the HTTP interface takes: for the server, and for a command that refuses it before it asks."""

from __future__ import annotations

import re
from typing import Final

STREAM_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What the interface accepts as the name of a stream or a map."""
LARGEST_RECORD: Final = 1 << 20
"""Bytes of one record appended through this interface."""

"""Which version of rota this is, and what another one is told that does not fit."""

from typing import Final

VERSION: Final = "0.2.0"

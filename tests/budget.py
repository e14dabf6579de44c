"""How many random cases run where: the first of them in ``make test-all``, all the others in ``make test-sweep``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def budgeted(cases: Iterable[Any], in_test_all: int) -> list[Any]:
    """The parameters of a test: as many in ``make test-all`` as said, the others in ``make test-sweep`` only."""
    return [
        pytest.param(case, marks=pytest.mark.slow if number < in_test_all else pytest.mark.sweep)
        for number, case in enumerate(cases)
    ]

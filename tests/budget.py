"""How many random cases run where: some in ``make test``, more in ``make test-all``, the others in the sweep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def budgeted(cases: Iterable[Any], in_test_all: int, *, in_test: int = 0) -> list[Any]:
    """The parameters of a test, in order: the first ``in_test`` are everywhere, and more in ``make test-all``.

    The rest is in ``make test-sweep`` only.
    """
    marks = [()] * in_test + [(pytest.mark.slow("one random case more"),)] * in_test_all
    rest = pytest.mark.sweep("the rest of the random cases")
    return [
        pytest.param(case, marks=marks[number] if number < len(marks) else rest)
        for number, case in enumerate(cases)
    ]

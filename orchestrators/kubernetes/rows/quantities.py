"""Resource quantities, exactly: ``100m``, ``1.5Gi``, ``2e3``.

The grammar is that of ``k8s.io/apimachinery/pkg/api/resource``.  Amounts are whole numbers, rounded up as Kubernetes
does it: cpu in thousandths, everything else in units.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from orchestrators.kubernetes.rows.manifests import UnreadableError

LARGEST: Final = 1 << 50
"""A pebibyte.  Larger amounts are taken for this on nodes and refused in pods: the solver adds up in 63 bits."""

_FORM: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<number>\d+\.?\d*|\.\d+)(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+|)", re.ASCII
)
_DIGITS: Final = 40
"""Longer numbers, or exponents beyond this, are no amounts of anything."""
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def quantity(text: str) -> Fraction:
    """The number that a quantity stands for."""
    found = _FORM.fullmatch(text) if len(text) <= _DIGITS else None
    if found is None:
        raise UnreadableError(f"{text[:_DIGITS]!r} is not a quantity")
    suffix, number = found["suffix"], Fraction(found["number"])
    if suffix in _BINARY:
        factor = Fraction(1 << _BINARY[suffix])
    elif suffix in _DECIMAL:
        factor = Fraction(10) ** _DECIMAL[suffix]
    else:
        exponent = int(suffix[1:])
        if abs(exponent) > _DIGITS:
            raise UnreadableError(f"{text!r} is out of range for a quantity")
        factor = Fraction(10) ** exponent
    return -number * factor if found["sign"] == "-" else number * factor


@lru_cache(maxsize=65_536)
def amount(resource: str, value: str | int | float) -> int:
    """A quantity of a resource as a whole number of its unit, rounded up."""
    exact = quantity(str(value))
    if exact < 0:
        raise UnreadableError(f"{resource}: {value!r} is negative")
    scaled = exact * 1000 if resource == "cpu" else exact
    return -(-scaled.numerator // scaled.denominator)

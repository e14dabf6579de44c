"""Lifting: the structure of an assignment found in the rows of a problem's matrix, whatever text they came from.

Choices are groups of literals of which exactly one holds; a *cell* says of a row that it takes a value.  What depends
on one row alone becomes a sum over its cells, and sums of rows times values stay what they are (``sums``); demands
become clauses of bounds on such sums (``clauses``), these limits and conditions (``demands``, ``pairs``,
``skews``), and objectives costs of rows and loads (``costs``).

What it is not: it knows neither SQL nor engines; what it does not find is left out, and said.
"""

from mgmt.optimization.lifting.choices import ChoiceCells, ChoiceColumn
from mgmt.optimization.lifting.demands import Demands, LeftOut
from mgmt.optimization.lifting.lift import Lifted, assignment_of, demands_of, lift

__all__ = [
    "ChoiceCells",
    "ChoiceColumn",
    "Demands",
    "LeftOut",
    "Lifted",
    "assignment_of",
    "demands_of",
    "lift",
]

"""Engines for assignment structure: rows that choose values under loads, solved without a boolean per cell.

``solve_in_parts`` solves apart what is independent; ``solve`` picks the engine, and ``engine_choice`` says which one is
for what.  All that finds choices and all that proves bounds meets in the ``incumbent``.  From the bottom up:

- ``model``: equivalence classes of rows, cells of classes and values, cost functions;
- ``delta_evaluation``: what a change of a choice changes in loads, limits, conditions and costs;
- ``presolve``: the normal form, candidates, some rows alone, and what is left when some of it is settled;
- ``lower_bounds``: in closed form;
- ``integer_programming``: the program over cell counts, its relaxation, CP-SAT and HiGHS;
- ``construction`` and ``local_search``: choices made row by row, and made better;
- ``flow``: min-cost flow, exact where an assignment is a network;
- ``selection``: two assignments over the same rows, as of replicas and primaries.
"""

from __future__ import annotations

from mgmt.optimization.engines.engine_choice import solve
from mgmt.optimization.engines.independent_parts import solve_in_parts
from mgmt.optimization.engines.model.cost_functions import UnsuitableError

__all__ = ["UnsuitableError", "solve", "solve_in_parts"]

"""Why a problem has no solution, by a minimal core, and the least that its rows must give for it to have one.

``problem_core`` and ``elastic`` work on a problem.  An assignment is too large for that: ``assignment_core`` looks at
few ``constraint_instances`` at a time, as a problem on counts of rows (``count_problem``); ``lifted_constraints`` are
those that were found in a problem's rows, with the rows that each instance is.  ``deletion_filter`` makes a
core minimal, whatever it consists of.
"""

"""Why a problem has no solution, by a minimal core, and the least that its rows must give for it to have one.

``core`` and ``elastic`` work on a problem.  An assignment is too large for that: ``assignments`` looks at few of its
constraints' ``instances`` at a time, as a problem on ``counts``.
"""

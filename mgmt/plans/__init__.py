"""Plans: which copies move to reach a wanted placement, why, and in which waves; every state on the way is safe.

Pure: no engine, no solver.  ``mgmt.control.plan_execution`` carries a plan out.
"""

"""A placement as values: who is there, what is wanted, what stands, and the plan from one to the other.

Pure, and light: an agent that never solves loads no more than this and ``mgmt.control``.
"""

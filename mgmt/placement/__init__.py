"""A placement as values: who is there, what is wanted, what stands, and the plan from one to the other.

Pure, and light: neither the compiler nor a database is loaded for it.
"""

"""Placement as values: who is there, what is wanted, what stands, and the rows a placement is decided from.

Pure, and light: neither the compiler nor a database is loaded for it.
"""

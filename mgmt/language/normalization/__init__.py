"""Rewriting of a SELECT before it is bound: what can be said in several ways is said in one."""

"""Pairs of rows: what depends on both, as relations and prices over the values that they have."""

"""Sums over cells, as they are and as products of rows and values; in normal form, and as loads."""

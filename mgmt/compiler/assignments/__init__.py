"""Policies that are assignment problems: recognised whatever their SQL is, and built in whole columns.

``normalization`` brings a demand to one form, ``recognition`` finds in it rows that choose values (``pairwise`` pairs
of such rows), ``columns`` fetches them and evaluates over them, and ``building`` makes ``mgmt.optimization.assignment``
of it.  What does not fit raises ``NotAnAssignment`` with the reason and is left to the general encoder.
"""

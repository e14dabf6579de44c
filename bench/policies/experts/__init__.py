"""Policies beside what an expert would write: the same problems as SQL and as CP-SAT models by hand.

``problem`` says what a problem is, ``comparison`` runs both sides and judges.  The problems themselves are of clusters
in ``placing`` and ``clusters``, and of other things in ``timetables``, ``schedules``, ``supply``, ``plants`` and
``puzzles``.
"""

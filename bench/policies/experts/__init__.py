"""Policies beside what an expert would write: the same problems as SQL and as CP-SAT models by hand.

``problem`` says what a problem is, ``comparison`` runs both sides and judges; the problems themselves are in
``placing``, ``timetables`` and ``supply``.
"""

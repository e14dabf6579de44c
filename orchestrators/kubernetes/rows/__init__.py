"""Rows of the pack ``kubernetes`` from the objects of a cluster's API.

From the whole down to the values: ``cluster`` puts the tables together, ``wishes`` writes what templates ask for,
``templates`` are the classes of pods; ``pods``, ``nodes``, ``volumes`` and ``budgets`` read one kind of object each,
with ``requests``, ``quantities`` and ``selectors``; ``manifests`` has the fields.
"""

from orchestrators.kubernetes.rows.cluster import ClusterObjects, Rows, rows_of
from orchestrators.kubernetes.rows.pods import Refused

__all__ = ["ClusterObjects", "Refused", "Rows", "rows_of"]

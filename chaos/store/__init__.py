"""Clusters with a store: the log, its control loop and its clients on the same hosts as the members."""

"""Clusters of real agent processes, on loopback or in network namespaces, and how faults reach them."""

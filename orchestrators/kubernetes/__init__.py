"""A scheduler for Kubernetes: the pack ``kubernetes`` on a real API server.

From the whole down to the values: ``service`` runs it on trio, ``scheduling`` decides when to do what (state machines
with explicit time), ``placement`` solves, ``rows`` reads the API's objects, ``api`` talks to the server.
"""

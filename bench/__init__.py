"""Measurements: ``python -m bench NAME``.  Each prints our figure beside the published one, from one run."""

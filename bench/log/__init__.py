"""Benches of the replicated log: rates, the time to the next append after a loss, power cuts."""

"""Benches of the membership: on the simulator, and with real members on real sockets."""

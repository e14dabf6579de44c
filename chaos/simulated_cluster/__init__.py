"""A whole cluster of membership cores on the simulator, and what each fault does to it."""

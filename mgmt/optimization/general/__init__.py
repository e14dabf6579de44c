"""The general problem: minimised tier by tier by a backend, evaluated, and written down for MiniZinc."""

"""What is pushed down: SQL that the solver has no say in, as DuckDB reads it, types it, computes it and refuses it."""

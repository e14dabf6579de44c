"""The state database: the tables of a schema, their rows, and snapshots of them.  It knows no policy and no solver.

``schema`` says what tables are, ``schema_parsing`` reads one; ``sources`` are rows that live elsewhere;
``duckdb_access`` is DuckDB itself.
"""

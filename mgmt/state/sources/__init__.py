"""Where the rows of tables come from when they do not live in the state database itself.

A source is a place outside with rows: Python data, a file (CSV, Parquet, JSON), a DuckDB or SQLite file, a PostgreSQL
server.  It is read in one transaction, in whole columns, and again only where it has changed; what a plan changes is
written back to it by compare-and-set on what was read.

``source`` says what a source is, and each kind has a module; ``loading`` brings rows into a table as its schema
declares it, ``writing`` brings a plan back, ``opening`` finds the source for what a person has named, and
``attached_sources`` holds those of a database together.
"""

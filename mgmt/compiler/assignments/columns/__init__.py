"""The data of a demand: statements fetched in columns, expressions over them, and candidates (a row and a value)."""

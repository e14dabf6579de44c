"""DuckDB as the state database uses it: locked in, limited in time and memory, fed in whole columns."""

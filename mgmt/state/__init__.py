"""The state database: the tables of a schema, their rows, and snapshots of them.  It knows no rule and no solver."""

"""From the text of a schema to ``mgmt.state.schema``: reading, checking what was read, bounds and variable columns."""

"""One solution out of what was decided, and the rows that it leaves without a value."""

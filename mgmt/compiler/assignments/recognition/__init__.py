"""Rows that choose values, recognised in a query block: the statements for rows, for values and for what joins both."""

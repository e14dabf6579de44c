"""From one snapshot and the split queries to the solver-neutral model, in whole columns.

The candidate rows of a query, its joins and its groups are the database's; an expression over them is a column of
constants, of linear expressions, of truths or of choices (``columns``), computed for all rows at once.
"""

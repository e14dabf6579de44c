"""Binding of expressions: columns resolved, operators, subqueries and aggregates typed, grouping checked."""

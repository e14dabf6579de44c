"""The compiler: bound queries and the rows of a snapshot become a solver-neutral model, its optimum becomes a solution.

The oracle is here too: it checks each solution again, in SQL.
"""

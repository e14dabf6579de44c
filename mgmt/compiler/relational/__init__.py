"""What is left to the database, as relational algebra, and what to the solver: queries in two."""

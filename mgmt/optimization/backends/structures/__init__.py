"""What the rows of a problem say together: schedules and tours, found in the matrix, for solvers that know these."""

"""Running a scenario on a backend, and reporting what happened."""

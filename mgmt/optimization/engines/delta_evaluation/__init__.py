"""What a change of a choice changes: loads, limits, conditions and costs, kept up to date row by row."""

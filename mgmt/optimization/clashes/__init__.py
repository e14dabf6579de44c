"""What the constraints of an assignment demand, each of which may have to give, and placements that exceed some."""

"""Random faults and hostile packets, and the search for a small script that fails."""

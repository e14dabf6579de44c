"""Questions about a solution: why, why not, what if, headroom, differences, the log of decisions, and replay."""

"""The agent process: its settings, its node, and what it keeps on disk."""

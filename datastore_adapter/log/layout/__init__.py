"""Layouts: the epoch document, how the next one is agreed, and how the log is brought to it."""

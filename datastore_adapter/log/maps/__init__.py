"""Replicated maps: state machine replication over a stream of the log, with snapshots."""

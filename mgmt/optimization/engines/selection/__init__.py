"""Rows that choose values, and a selection among them: replicas of segments, and which of them is the primary."""

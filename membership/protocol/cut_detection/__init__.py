"""From alerts to one clean cut: what this member reports, what all members report, and when that is enough.

Source: Rapid, section 4.2.
"""

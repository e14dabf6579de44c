"""Edge failure detection: each member probes its subjects on the rings and judges every edge by itself.

Source: Rapid, section 4.1.
"""

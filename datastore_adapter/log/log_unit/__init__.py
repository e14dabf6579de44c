"""The log unit: what a host keeps of the segments, how it is asked for it, and how it comes by what it lacks."""

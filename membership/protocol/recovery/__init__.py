"""Is a majority within reach, and what can be done when it is lost for good."""

"""From one layout to the next: the old epoch is sealed, what is missing is copied, the new one is activated."""

"""What all components of one core share: identity, settings, randomness, the current view, and effects."""

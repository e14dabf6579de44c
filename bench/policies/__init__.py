"""Benches of policies: what the papers measured, experts' models of the same problems, spellings of the same rule."""

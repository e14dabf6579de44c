"""Commands for systems that run what is placed."""

"""An agent as seen by a command: where it is, how it is let in, and what is asked of it over HTTP."""

"""One host of the log: its roles together, and the server that others ask."""

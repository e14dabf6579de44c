"""What servers say of themselves and of their cluster, as values, and what follows from it.  Pure."""

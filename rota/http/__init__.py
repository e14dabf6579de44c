"""The HTTP interface of an agent: its operations, the types of its answers, and the server."""

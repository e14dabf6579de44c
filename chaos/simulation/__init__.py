"""The deterministic simulator: hosts that run sans-I/O processes, a network between them, virtual time."""

"""The log behind the interface that the management plane knows."""

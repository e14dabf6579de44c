"""Commands about what the embedded log keeps: streams, maps, backups."""

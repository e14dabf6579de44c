"""What the roles of a host remember: files, commit logs, records that must not be forgotten, the disk's identity."""

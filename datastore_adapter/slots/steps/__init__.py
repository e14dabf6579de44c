"""The steps of a plan, carried out on the servers: servers join and leave, primaries change, slots move."""

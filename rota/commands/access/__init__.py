"""Commands about who may do what: contexts, tokens, the keys of the hosts."""

"""Systems that run what is placed: they are observed, planned for by policies, and told what to move."""

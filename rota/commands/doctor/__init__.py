"""``rota doctor``: what is wrong with this host, or will be."""

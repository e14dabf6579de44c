"""``rota policy``: writing, checking, testing and explaining policies, without a cluster."""

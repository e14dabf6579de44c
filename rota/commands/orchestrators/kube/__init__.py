"""``rota kube``: a scheduler for Kubernetes, and what it would do."""

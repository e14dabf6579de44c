"""rota beside kube-scheduler, on the same real API server and pods."""

"""The API server as rota sees it: credentials, requests, and watches that do not end."""

"""Servers of Valkey or Redis Cluster beside an agent: run by it, or adopted, and what a demo does with them."""

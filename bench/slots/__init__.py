"""Benches with servers of Valkey or Redis: a primary is lost, slots move under traffic."""

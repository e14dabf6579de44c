"""Clusters with servers of Valkey or Redis: foreign clients that use them, and checks of what came of it."""

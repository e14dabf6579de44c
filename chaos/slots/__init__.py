"""Chaos with servers of Valkey or Redis: foreign clients that use them while things go wrong, and who judges them."""

"""SQL text before anything is meant by it: the dialect, tokens and strict trees with positions, annotating comments."""

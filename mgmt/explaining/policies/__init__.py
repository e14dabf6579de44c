"""Tools of a policy's author: files, lint, tests and their coverage, the compiler's stages, what is slow."""

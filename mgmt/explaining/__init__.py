"""Explanations for people: all of them ask a compiled model.

- ``solutions``: of one placement, why it is so, why not otherwise, what would happen if, how much more would fit;
- ``policies``: the tools of a policy's author: lint, tests, coverage, and what the compiler makes of a text.
"""

"""Explanations: why a placement is as it is, why not otherwise, what would happen if; and the tools of a policy author.

Everything here asks a compiled model and the database; nothing here solves by itself.
"""

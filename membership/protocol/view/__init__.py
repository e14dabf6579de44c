"""The immutable values that members agree on: members, rings, configurations (views), and the cuts between them.

Source: Rapid, sections 3 and 4.1.
"""

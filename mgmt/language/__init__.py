"""The policy language: from the text of a pack to bound, typed queries over a schema.

In: text and a schema.  Out: ``bound.BoundQuery`` and views for the database.  It reads no rows.
"""

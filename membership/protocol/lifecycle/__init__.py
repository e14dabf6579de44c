"""How a process gets in and out: founding, joining and admission, new metadata, leaving, eviction.

Source: Rapid, section 4.1 for joins.
"""

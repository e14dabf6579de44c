"""The fast road from policies to an assignment problem: whole columns instead of a cell at a time.

``inline`` makes one query of a constraint and the views it uses; ``recognise`` finds in it rows that choose values;
``fetch`` gets its columns, ``vectors`` evaluates over them, ``build`` makes ``mgmt.optimization.assignment`` of it.
What does not fit raises ``OtherShape`` with the reason and is left to ``mgmt.compiler.encoder``.
"""

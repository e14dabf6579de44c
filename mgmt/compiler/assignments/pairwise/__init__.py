"""Demands that compare the choices of two rows: never the same, always the same, or at a cost.

    SELECT a.name FROM pod AS a JOIN pod AS b ON a.app = b.app AND a.name < b.name
    CHECK a.controllable__node <> b.controllable__node

What is compared is the choice itself, or one attribute of it (``x.zone <> y.zone``, where x and y are joined to the
two choices).  Which pairs of rows there are is one statement for the database.  How they are compared is read off the
check and its conditions by evaluating both for every pair, as if the two were the same, were not, or were missing:
so the spelling does not matter.  Pairs that must differ are covered by cliques, each a load of which a value takes
one; pairs that must agree are joined to components.  An objective over pairs is a cost of the loads of cliques, of
sets of rows that are paired with the same others, or the square of a load.

A check that needs the attributes themselves (``x.price <= y.price + 2``) is evaluated for every pair of kinds of
values: of rows that are paired, none has a kind where another one has a kind that may not stand beside it.
"""

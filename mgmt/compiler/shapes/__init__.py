"""The fast road from policies to an assignment problem: whole columns instead of a cell at a time.

A constraint is brought to one form, whatever its SQL is: ``hoisting`` takes out subqueries that a whole query stands
for, ``inline`` puts views in place of their names (``regrouping`` groups of groups, ``least`` minima, ``left_join``
outer joins), ``common_gate`` moves conditions from aggregates to rows, ``unnesting`` makes joins, groups and lookups
of subqueries (``own_groups`` of those about the row's own group). ``recognise`` finds in it rows that choose values,
``pairing`` pairs of them; ``fetch`` gets their columns, ``vectors`` evaluates over them; ``choices``, ``limits``,
``conditions``, ``skews`` and ``costs`` say what they demand, and ``build`` makes ``mgmt.optimization.assignment`` of
it. What does not fit raises ``OtherShape`` with the reason and is left to ``mgmt.compiler.encoding.encoder``.
"""

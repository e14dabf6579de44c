"""A demand in normal form: query blocks without views and subqueries over variables, each grouped at most once.

``hoisting`` takes out subqueries that a whole query stands for, ``views`` merges views into the block
(``regrouping`` groups of groups), ``unnesting`` makes joins, groups and lookups of subqueries (``self_correlation`` of
those about the row's own group), ``aggregates`` brings filters and checks of groups to one form.
"""

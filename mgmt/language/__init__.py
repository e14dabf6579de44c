"""The policy language: from the text of a pack to bound, typed queries over a schema.  It reads no rows.

In the order a statement goes through them:

- ``policy_packs``: policies as they are given, texts and packs of files;
- ``parsing``: text to statements, each with a strict SQL tree and the clause that ends it;
- ``statement_binder``, ``select_binder``: bind statements in order, and one SELECT; ``implied_constraints`` come from
  tables and settings instead of a text;
- ``normalization``: rewrites a SELECT to the few forms that are bound;
- ``expression_binding``: names to columns, operators and aggregates to typed nodes;
- ``bound_queries``: the result, queries and typed expressions;
- ``names``: tables, views and scopes, where names are looked up;
- ``pushdown``: SQL that the solver has no say in: DuckDB types and computes it.
"""

"""Constraints that tables and settings imply, bound like those of a policy."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from mgmt.errors import PolicyError
from mgmt.language.parsing.set_statements import MOVE_BUDGET, Settings, move_budget_sql
from mgmt.language.parsing.statements import Statement, parse_statements
from mgmt.language.parsing.trailing_clauses import Tail, TailKind
from mgmt.language.statement_binder import QueryBinder
from mgmt.source_text import SourceText
from mgmt.sql.tokens import parse_tokens, tokenize
from mgmt.sql.trees import named_table
from mgmt.state.schema import Schema


def bind_table_rules(binder: QueryBinder, schema: Schema) -> None:
    """What the tables demand of their variable columns beyond domains and keys, as constraints."""
    for table in schema.tables:
        for rule in table.rules:
            text = SourceText(rule.position.source, rule.condition)
            check = parse_tokens(tokenize(text), text)
            tail = Tail(TailKind.CHECK, check, rule.position)
            select = exp.select("*").from_(named_table(table.name))
            try:
                binder.bind(Statement(rule.name, select, tail, rule.position, text))
            except PolicyError as error:
                error.move(rule.position)
                raise


def bind_settings(settings: Settings, binder: QueryBinder, schema: Schema) -> None:
    """What is SET for the whole database, as constraints of the same language."""
    budget = settings.move_budget
    sql = None if budget is None else move_budget_sql(schema, budget.value)
    if budget is not None and sql is not None:
        text = SourceText(budget.position.source, f"CREATE CONSTRAINT {MOVE_BUDGET} AS {sql}")
        (statement,) = parse_statements(text)
        binder.bind(replace(statement, position=budget.position))

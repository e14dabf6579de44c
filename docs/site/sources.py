"""What the code says in places that are no table: calls with literal arguments, found in its syntax trees."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVENT_CALLS = frozenset({"add", "record", "_record", "_on_event", "complain"})
SHOWN = 2
"""Sentences of one event or error: more say nothing new."""


def events() -> Mapping[str, list[str]]:
    """The kinds of events with what they say."""
    found: dict[str, list[str]] = defaultdict(list)
    for function, call in _calls("rota", "mgmt/control"):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        arguments = call.args[name == "complain" :]  # its first one is a phase
        if name in EVENT_CALLS and len(arguments) >= 2 and (kind := _literal(arguments[0])):
            found[kind] += [text for text in _texts(arguments[1], function) if text not in found[kind]]
    return {kind: texts[:SHOWN] for kind, texts in sorted(found.items())}


def refusals() -> Mapping[tuple[str, str], list[str]]:
    """What the HTTP interface refuses, by code and status."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for function, call in _calls("rota"):
        if not (isinstance(call.func, ast.Name) and call.func.id == "ApiError" and call.args):
            continue
        given = {word.arg: word.value for word in call.keywords}
        code, status = _literal(given.get("code")), given.get("status")
        if code and (status is None or isinstance(status, ast.Constant)):
            texts = found[code, "503" if status is None else str(status.value)]
            texts += [text for text in _texts(call.args[0], function) if text not in texts]
    return {key: texts[:SHOWN] for key, texts in sorted(found.items())}


def counters() -> Mapping[str, list[str]]:
    """The names under which something is counted, by the first line of the module that counts."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in _files("membership", "rota", "mgmt/control"):
        tree = ast.parse(path.read_text())
        prefix, table = ("control.", "counts") if "control" in path.parts else ("", "counters")
        names = {prefix + name for node in ast.walk(tree) if (name := _counted(node, table))}
        if names:
            found[(ast.get_docstring(tree) or path.stem).splitlines()[0]] += sorted(names)
    return found


def _counted(node: ast.AST, table: str) -> str:
    """``counters["name"] += 1`` and ``context.count("name")``."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        into = node.target.value
        name = getattr(into, "attr", getattr(into, "id", ""))
        return _template(node.target.slice) if name.strip("_") == table else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "count":
        name = _literal(node.args[0]) if len(node.args) == 1 else ""
        return name if re.search("[a-z]", name) else ""
    return ""


def _files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _calls(*folders: str) -> Iterator[tuple[ast.AST, ast.Call]]:
    """Each call in a function, and the function."""
    for path in _files(*folders):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from ((function, node) for node in ast.walk(function) if isinstance(node, ast.Call))


def _texts(node: ast.expr, function: ast.AST) -> list[str]:
    """What a sentence may be: written here, or in an assignment of the function to the name that is here."""
    values: list[ast.expr] = [node]
    if isinstance(node, ast.Name):
        values = [
            each.value
            for each in ast.walk(function)
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == node.id
        ]
    return [text for value in values if (text := _template(value))] or [f"{{{_short(node)}}}"]


def _template(node: ast.AST | None) -> str:
    """A text with the names of what is filled in."""
    match node:
        case ast.Constant(str() as text):
            return text
        case ast.JoinedStr(parts):
            return "".join(map(_part, parts))
    return ""


def _part(part: ast.expr) -> str:
    return f"{{{_short(part.value)}}}" if isinstance(part, ast.FormattedValue) else _literal(part)


def _short(value: ast.expr) -> str:
    """A name for what is filled in: the last one of the expression."""
    names = [getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(value)]
    return next(filter(None, names), "…").strip("_")


def _literal(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

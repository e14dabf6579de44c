"""The reference, written down from the code: its tables, its settings, its commands."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast, get_args, get_origin

import click

import datastore_adapter
import membership
import mgmt
import rota
from docs.site import sources
from membership.protocol.context.refusals import Refusal
from mgmt.control.settings import ControlSettings
from rota import errors
from rota.agent.settings import CONTROL_KEYS, AgentSettings
from rota.commands.command_line import rota as command_line
from rota.commands.starting import agent
from rota.http import metrics
from rota.http.api import build_application
from rota.http.backend import Backend
from rota.http.openapi import Operation, document


def commands() -> str:
    """Every command with its options, in the order of their names."""
    context = click.Context(command_line, info_name="rota")
    shared: set[str | None] = {option.name for option in command_line.params}
    head = """
# Commands

Every command that reports takes `--json`: one JSON document on standard output. The exit status is 0 when it is done,
1 when what was asked for failed, and 2 when the command line makes no sense. The options below say which agent to ask;
every command that asks one takes them as well.
"""
    return f"{head}\n{_options(command_line.params)}\n" + "\n".join(_command(context, command_line, shared))


def _command(parent: click.Context, group: click.Group, shared: set[str | None]) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        context = click.Context(command, info_name=name, parent=parent)
        own = [option for option in command.params if option.name not in shared]
        depth = "#" * (context.command_path.count(" ") + 1)
        usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
        yield f"\n{depth} {context.command_path}\n\n```text\n{usage}\n```\n\n{_prose(command.help or '')}\n"
        if options := _options(own):
            yield f"\n{options}\n"
        if isinstance(command, click.Group):
            yield from _command(context, command, shared)


def _prose(text: str) -> str:
    """Help as markdown: what ``\\b`` keeps as it is becomes a block of text."""
    parts = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        f"```text\n{part[2:]}\n```" if part.startswith("\b\n") else _in_words(part) for part in parts
    )


def _options(params: Iterable[click.Parameter]) -> str:
    options = [option for option in params if isinstance(option, click.Option) and not option.hidden]
    rows = []
    for option in options:
        names = ", ".join((*option.opts, *option.secondary_opts))
        what = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
        choice = (
            f" One of {', '.join(map(str, option.type.choices))}."
            if isinstance(option.type, click.Choice)
            else ""
        )
        rows.append((f"`{names}{what}`", _in_words(option.help or "") + choice, _default_of(option)))
    return _table(("option", "what it does", "default"), rows) if rows else ""


def _default_of(option: click.Option) -> str:
    default = option.default
    known = option.show_default and isinstance(default, str | int | float) and not option.is_flag
    return f"`{default}`" if known and str(default) else ""


def http() -> str:
    """Every operation: who may ask, what is sent, what is answered; and the documents by name."""
    operations: list[Operation] = build_application(cast(Backend, None)).state.operations
    described = document(operations)
    rows = [
        (f"`{each.method} {each.path}`", each.summary, f"`{each.role}`", _kind(each.body), _kind(each.answer))
        for each in operations
    ]
    head = """
# HTTP

For programs, the same is at `/v1/openapi.json` of every agent. What has the role `public` needs no token. A refusal is
a [Problem](#problem); its codes are among the [errors](errors.md).
"""
    parts = [
        head,
        "\n",
        _table(("request", "what it is for", "role", "sent", "answered"), rows),
        "\n\n## Documents\n",
    ]
    for name, schema in sorted(described["components"]["schemas"].items()):
        fields = [
            (f"`{field}`", _schema(kind), "" if field in schema.get("required", ()) else "may be left out")
            for field, kind in schema.get("properties", {}).items()
        ]
        parts.append(f"\n### {name}\n\n{_in_words(schema.get('description', ''))}\n")
        parts.append(f"\n{_table(('key', 'type', ''), fields)}\n" if fields else "")
    return "".join(parts)


def _kind(kind: Any) -> str:
    if kind is None or isinstance(kind, str):
        return f"`{kind}`" if kind else ""
    if get_origin(kind) is list:
        return f"list of {_kind(get_args(kind)[0])}"
    name = getattr(kind, "__name__", "")
    return f"[{name}](#{name.lower()})" if name not in ("", "dict") else "an object"


def _schema(schema: Mapping[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_schema, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_schema(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_schema(schema['additionalProperties'])}"
    return str(kind)


def configuration() -> str:
    """The keys of the settings file, with the options that are the same."""
    options = {param.name: param for param in agent.params if isinstance(param, click.Option)}
    rows = []
    for key, (default, text) in _fields(AgentSettings).items():
        option = options.get(key) or options.get(key.removesuffix("s"))
        rows.append((f"`{key}`", text, default, f"`{option.opts[0]}`" if option else ""))
    control = []
    for key, place in CONTROL_KEYS.items():
        part = type(getattr(ControlSettings(), place.part))
        default, text = _fields(part)[place.field]
        control.append((f"`{key}`", text, default))
    return f"""
# Configuration

Of an agent: the defaults, then the file (`rota agent --config agent.toml`, TOML), then the command line. An unknown key
is refused, with the nearest one that is known. On SIGHUP an agent reads its keys, tags, tokens, certificates and
the level of its log again.

{_table(("key", "what it says", "default", "option"), rows)}

## The table `[control]`

What these mean for a cluster at work: [Limits](../operations/limits.md).

{_table(("key", "what it says", "default"), control)}

The timing of a member in your own program: [Settings](python.md#membership.Settings).
"""


def _fields(settings: type[Any]) -> dict[str, tuple[str, str]]:
    """Of a dataclass: each field's default and the docstring below it."""
    body = cast(ast.ClassDef, ast.parse(inspect.cleandoc(inspect.getsource(settings))).body[0]).body
    texts = {
        entry.target.id: _in_words(str(below.value.value))
        for entry, below in pairwise(body)
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name)
        and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }  # fmt: skip
    defaults = {field.name: _shown(field) for field in dataclasses.fields(settings)}
    return {name: (defaults[name], texts.get(name, "")) for name in defaults}


def _shown(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value is dataclasses.MISSING or value in (None, "", ()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def measured() -> str:
    """The gauges, and the counters by what counts them."""
    gauges = [(f"`rota_{name}`", text) for name, text in metrics.GAUGES.items()]
    shards = [(f"`rota_{name}`", text) for name, text in metrics.OF_SHARDS.values()]
    counted = [
        (_in_words(where), ", ".join(f"`{_counter(name)}`" for name in names))
        for where, names in sources.counters().items()
    ]
    refused = [(f"`{_counter(f'messages_dropped_{refusal.name}')}`", refusal.value) for refusal in Refusal]
    return f"""
# Metrics

At `/metrics`, in the text format of Prometheus; [alerts and a dashboard](../monitoring.md) use them. What an agent does
not know at present is left out.

## Gauges

{_table(("name", "what it says"), gauges)}

## Of each shard

With Valkey or Redis, by the label `shard`, at the controller.

{_table(("name", "what it says"), shards)}

## Counters

All count since the agent's start. One that has counted nothing yet may be missing; `{{...}}` stands for a reason. The
log's servers count requests by their types, as `rota_server_…`.

{_table(("of", "names"), counted)}

## Refused messages

What members refuse of each other: in a healthy cluster nothing but what comes late.

{_table(("name", "counts"), refused)}
"""


def _counter(name: str) -> str:
    return f"rota_{re.sub('[^a-z0-9_{}]', '_', name.lower())}_total"


def happenings() -> str:
    """The kinds of events."""
    rows = [(f"`{kind}`", "; ".join(map(_code, texts))) for kind, texts in sources.events().items()]
    return f"""
# Events

`rota events`, `/v1/events`, and the log of the agent where it happened. An event has a number, a time, a kind, a text
and data ([Event](http.md#event)). Kinds are for programs. Texts are for people and may change; here they have the names
of what is filled in.

{_table(("kind", "what it says, for example"), rows)}
"""


def failures() -> str:
    """Errors of the commands, of HTTP and of `import rota`."""
    ends = [
        (f"`{kind.code}`", str(kind.exit_status), _in_words(inspect.getdoc(kind) or ""))
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.AgentError) and kind is not errors.AgentError
    ]
    refused = [
        (f"`{code}`", status if status != "0" else "", "; ".join(map(_code, texts)))
        for (code, status), texts in sources.refusals().items()
    ]
    raised = "\n".join(
        f"\n::: {_home(name)}\n    options: {{heading_level: 3}}\n" for name in _public() if _is_error(name)
    )
    return f"""
# Errors

An error is one line: what, where, what to do. With `--json` it is `{{"error": …, "code": …}}` on standard output as
well; the code is for programs.

## How a command ends

{_table(("code", "exit status", "when"), ends)}

## Refused by an agent

The codes of the HTTP interface; commands pass them on.

{_table(("code", "HTTP status", "what it says, for example"), refused)}

## Of `import rota`
{raised}
"""


def python() -> str:
    """What applications import."""
    names = "".join(
        f"\n::: {_home(name)}\n    options: {{heading_level: 2}}\n"
        for name in _public()
        if not _is_error(name)
    )
    return f"""
# Python

Each of these is `rota.NAME`, loaded on first use. The packages have more: `membership`, `datastore_adapter`, `mgmt`.
Exceptions are among the [errors](errors.md).
{names}
"""


def _public() -> Sequence[str]:
    return rota.__all__


def _home(name: str) -> str:
    """With the package that it is from."""
    home = next(package for package in (membership, datastore_adapter, mgmt) if name in package.__all__)
    return f"{home.__name__}.{name}"


def _is_error(name: str) -> bool:
    value = getattr(rota, name)
    return inspect.isclass(value) and issubclass(value, Exception)


def _in_words(text: str) -> str:
    """A docstring as one paragraph of markdown."""
    text = re.sub(r":class:`~?([\w.]+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`").replace("|", "\\|")


def _code(text: str) -> str:
    text = text.replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(' '.join(cell.split()) for cell in line)} |" for line in lines)


PAGES: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "http": http,
    "configuration": configuration,
    "metrics": measured,
    "events": happenings,
    "errors": failures,
    "python": python,
}
"""By the name of the page under ``reference/``."""


def packs(root: Path) -> Mapping[str, Path]:
    """The policy packs by name, with the page that each has of its own."""
    return {page.parent.name: page for page in sorted(root.glob("policies/*/README.md"))}

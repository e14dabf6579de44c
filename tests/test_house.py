"""The rules of the house that a linter does not know: pure cores, frozen public names."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import membership

ROOT = Path(__file__).parents[1]
PACKAGES = ("consensus", "membership", "datastore_adapter", "mgmt", "chaos", "rota")

# Sans-I/O as a whole, with all their folders: replayable from a seed.
SANS_IO = ("consensus", "membership/protocol", "membership/ensemble")
# Elsewhere: what performs input and output, or waits. Everything beside it must be replayable, too.
SHELLS: dict[str, set[str]] = {
    "membership": {"aio", "blocking", "cluster", "ensemble_service", "surface"},
    "membership/files": {"simulated", "system_calls"},
    "membership/wire": {"key_ring", "sealing"},
    "datastore_adapter/slots": {"cluster_client", "servers", "slots_adapter"},
    "datastore_adapter/slots/state": set(),
    "datastore_adapter/log/adapter": set(),
    "datastore_adapter/log/client": set(),
    "datastore_adapter/log/host": {"log_thread", "server"},
    "datastore_adapter/log/layout": set(),
    "datastore_adapter/log/log_unit": set(),
    "datastore_adapter/log/maps": set(),
    "datastore_adapter/log/messages": set(),
    "datastore_adapter/log/reconfiguration": set(),
    "datastore_adapter/log/runtime": {"trio_runtime"},
    "datastore_adapter/log/sequencer": set(),
    "orchestrators/kubernetes/scheduling": set(),
    "datastore_adapter/log/storage": {"commit_log", "commits", "file_storage"},
    "orchestrators/vsphere": {"connection", "execution", "property_collection"},
}
IMPURE = {"trio", "asyncio", "socket", "time", "threading", "os", "secrets", "uuid", "subprocess", "select"}


def core_modules() -> list[Path]:
    found = [path for folder in SANS_IO for path in sorted((ROOT / folder).rglob("*.py"))]
    for folder, shells in SHELLS.items():
        found += [path for path in sorted((ROOT / folder).glob("*.py")) if path.stem not in shells]
    return found


@pytest.mark.parametrize("path", core_modules(), ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_a_core_has_no_clock_no_socket_and_no_randomness_of_its_own(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
            and node.attr != "Random"
        ):
            pytest.fail(f"{path}:{node.lineno}: random.{node.attr} draws from a generator nobody can seed")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hash":
            pytest.fail(f"{path}:{node.lineno}: hash() differs between processes")
        else:
            continue
        impure = {name.partition(".")[0] for name in names} & IMPURE
        assert not impure, f"{path}:{node.lineno} imports {impure}"


def test_a_slow_test_says_why() -> None:
    silent = re.compile(r"mark\.(slow|sweep)\b(?!\(\s*\")")
    files = (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    assert [str(path.relative_to(ROOT)) for path in files if silent.search(path.read_text())] == []


SORTED = (
    "consensus",
    "membership",
    "datastore_adapter",
    "mgmt",
    "orchestrators",
    "policies",
    "chaos",
    "rota",
    "bench",
)
ROOMS = sorted({path.parent for package in SORTED for path in (ROOT / package).rglob("*.py")})


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_a_folder_shows_at_a_glance_what_it_is_made_of(room: Path) -> None:
    # A folder that is no more may still hold what Python has compiled there.
    files = [path for path in room.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    entries = {path.relative_to(room).parts[0] for path in files} - {"py.typed"}  # a mark for type checkers
    assert len(entries) <= 15 or room.name == "messages"
    assert ast.get_docstring(ast.parse((room / "__init__.py").read_text()))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_public_names_are_the_frozen_ones(package: str) -> None:
    """A name added or removed is a decision: change ``tests/surface.txt`` with it, and the CHANGELOG."""
    frozen = [line.split() for line in (ROOT / "tests/surface.txt").read_text().splitlines() if line.strip()]
    expected = [words[1:] for words in frozen if words[0] == f"{package}:"]
    module = importlib.import_module(package)
    assert [sorted(module.__all__)] == expected
    for name in module.__all__:
        assert hasattr(module, name), f"{package}.{name} is announced but not there"


# The facades of membership


def public(kind: type[Any]) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(function)
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


@pytest.mark.parametrize("facade", [membership.aio, membership.blocking], ids=["asyncio", "threads"])
@pytest.mark.parametrize("kind", ["Cluster", "Ensemble"])
def test_every_name_of_the_trio_surfaces_is_on_the_other_facades_with_its_arguments(
    facade: Any, kind: str
) -> None:
    """Missing? Forward it by one line in ``membership/aio.py`` and one in ``membership/blocking.py``."""
    reference, forwarded = public(getattr(membership, kind)), public(getattr(facade, kind))
    assert set(reference) - {"transport"} == set(forwarded)  # a service's handler is a trio function
    for name, member in forwarded.items():
        if inspect.isfunction(member):
            assert parameters(member) == parameters(reference[name]), name
            waits = inspect.iscoroutinefunction(reference[name]) and facade is membership.aio
            assert inspect.iscoroutinefunction(member) == waits, name
        assert member.__doc__, name
    assert parameters(facade.join) == parameters(membership.join)
    assert parameters(facade.serve_ensemble) == parameters(membership.serve_ensemble)


def test_the_page_on_embedding_names_the_whole_surface() -> None:
    page = (ROOT / "docs/embedding.md").read_text()
    section = page.partition("## The surface")[2].partition("\n## ")[0]
    assert set(re.findall(r"cluster\.(\w+)", section)) == set(public(membership.Cluster))


def test_every_error_of_a_policy_says_what_to_do() -> None:
    """Errors of the policy language are raised with a hint, or are of a class that has its own."""
    errors = importlib.import_module("mgmt.errors")
    takes_a_hint = {
        name
        for name, error in vars(errors).items()
        if isinstance(error, type)
        and issubclass(error, errors.PolicyError)
        and (hint := inspect.signature(error).parameters.get("hint")) is not None
        and hint.default == ""
    }
    assert {"DataError", "PolicySyntaxError", "UnsupportedConstructError"} <= takes_a_hint
    silent = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in sorted((ROOT / "mgmt").rglob("*.py"))
        if any(f"{name}(" in (text := path.read_text()) for name in takes_a_hint)
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in takes_a_hint
        if not any(keyword.arg in {"hint", None} for keyword in call.keywords)
    ]
    assert not silent


PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "policies/*/README.md",
    "deploy/README.md",
)
PROSE_WIDTH = 100
FENCED = re.compile(r"^( *)(```+)[^\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
UNBROKEN = re.compile(r"`[^`]*`|\]\([^)]*\)")
NO_PROSE = ("|", "#", "<!--", "![", "    ")
"""How lines of tables, headings, remarks, pictures and code begin."""


def test_lines_of_prose_in_the_documentation_are_short() -> None:
    """Lines that have no blank to break at, and those without prose, are as wide as they must be."""
    too_long = []
    for path in (path for pattern in PAGES for path in sorted(ROOT.glob(pattern))):
        for line in FENCED.sub("", path.read_text()).splitlines():
            words = UNBROKEN.sub(lambda part: "x" * len(part[0]), line).lstrip("-*0123456789. ")
            if len(line) > PROSE_WIDTH and " " in words and not line.startswith(NO_PROSE):
                too_long.append(f"{path.relative_to(ROOT)}: {line}")
    assert not too_long

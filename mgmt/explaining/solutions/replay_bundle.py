"""Replay bundles: schema, rows, policies and seed of one solve in a file, to be solved again to the same answer.

A bundle is a ZIP file: ``schema/*.sql`` and ``policies/*.sql`` as they were read, ``state.json`` with the rows, and
``bundle.json`` with the rest.  What a verification error keeps is a bundle too.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any

from mgmt.compiler.decisions import Assignments, delta_of, no_assignments
from mgmt.compiler.model import Model
from mgmt.compiler.results.solution import proposed_solution
from mgmt.errors import CoreMember, DataError, InfeasibleError, PolicyError, VerificationError
from mgmt.solution import Delta, Solution, SolveStatus
from mgmt.source_text import SourceText
from mgmt.state.database import Database, Snapshot
from mgmt.state.date_texts import moment_of
from mgmt.state.schema import quote

FORMAT = 1
LARGEST = 1 << 30
"""Bytes of a bundle's parts together, so that a hostile file cannot fill the memory."""
_STATE = "state.json"
_DOCUMENT = "bundle.json"


@dataclass(frozen=True, slots=True)
class Bundle:
    """One solve, before and (where known) after.  ``budget`` in seconds."""

    schema: tuple[SourceText, ...]
    policies: tuple[SourceText, ...]
    state: bytes
    seed: int = 0
    budget: float = 2.0
    workers: int = 1
    now: float = 0.0
    """When it was solved, in Unix seconds."""
    answer: Mapping[str, Any] | None = None
    """As :func:`answer_of` gives it."""

    def save(self) -> bytes:
        """The contents of the file."""
        buffer = BytesIO()
        names: dict[str, list[str]] = {"schema": [], "policies": []}
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for folder, texts in (("schema", self.schema), ("policies", self.policies)):
                for number, text in enumerate(texts):
                    archive.writestr(f"{folder}/{number:03}.sql", text.text)
                    names[folder].append(text.name)
            archive.writestr(_STATE, self.state)
            document = {
                "format": FORMAT,
                "seed": self.seed,
                "budget": self.budget,
                "workers": self.workers,
                "now": self.now,
                "names": names,
                "answer": self.answer,
            }
            archive.writestr(_DOCUMENT, json.dumps(document, indent=2))
        return buffer.getvalue()

    @classmethod
    def load(cls, contents: bytes) -> Bundle:
        """Read a file's contents.  DataError when they are no bundle."""
        try:
            with zipfile.ZipFile(BytesIO(contents)) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
                    raise DataError(
                        "the bundle is too large to be read",
                        hint=f"at most {LARGEST >> 20} MiB are read, so that a small file cannot fill the memory",
                    )
                document = json.loads(archive.read(_DOCUMENT))
                if document["format"] != FORMAT:
                    raise DataError(
                        f"a bundle of format {document['format']}; this program reads format {FORMAT}",
                        hint="replay it with the version that saved it",
                    )
                texts = {
                    folder: tuple(
                        SourceText(str(name), archive.read(f"{folder}/{number:03}.sql").decode())
                        for number, name in enumerate(document["names"][folder])
                    )
                    for folder in ("schema", "policies")
                }
                state = archive.read(_STATE)
            return cls(
                texts["schema"],
                texts["policies"],
                state,
                int(document["seed"]),
                float(document["budget"]),
                int(document["workers"]),
                float(document.get("now", 0.0)),
                document["answer"],
            )
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            LookupError,
            ValueError,
            TypeError,
            OSError,
            RuntimeError,
        ) as error:
            raise DataError(
                f"this is no bundle: {error}", hint="give a file that --bundle has written"
            ) from error

    def solution(self) -> Solution:
        """The plan that is kept, by its objectives' values today; nothing is solved.

        Raises InfeasibleError when it is kept that there is none (with the names of what clashes), DataError when no
        answer is kept, or one that is not of these rows and policies.
        """
        if self.answer is None:
            raise DataError("the bundle keeps no answer", hint="solve it: rota policy solve --replay FILE")
        try:
            return _kept_solution(self.model(), self.answer)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise DataError(
                f"the answer of the bundle cannot be read: {error}",
                hint="solve it again: rota policy solve --replay FILE",
            ) from error

    def model(self) -> Model:
        """The policies compiled over the rows.  DataError when the rows cannot be read."""
        database = Database()
        for text in self.schema:
            database.load_schema(text.text, text.name)
        try:
            state = database.clone(self.state, moment_of(self.now))
        except PolicyError as error:
            raise DataError(
                f"the rows of the bundle cannot be read: {error.message}",
                hint="the file is damaged or was changed: save the bundle again",
            ) from error
        return Model.build(state, self.policies)


def bundle_of(
    model: Model,
    *,
    seed: int = 0,
    budget: float = 2.0,
    workers: int = 1,
    now: float | datetime | None = None,
) -> Bundle:
    """What is to be solved, as it stands; ``now`` as for ``Model.solve``."""
    with model.database.snapshot(moment_of(now)) as snapshot:
        state = snapshot.dump()
    return Bundle(
        model.database.schema_texts,
        model.texts,
        state,
        seed,
        budget,
        workers,
        snapshot.moment.timestamp(),
    )


def bundle_of_error(error: VerificationError) -> Bundle:
    """What a verification error keeps."""
    kept = error.bundle
    return Bundle(
        tuple(SourceText(*pair) for pair in kept["schema"]),
        tuple(SourceText(*pair) for pair in kept["policies"]),
        bytes(kept["database"]),
        int(kept["seed"]),
        now=float(kept["now"]),
    )


def _kept_solution(model: Model, answer: Mapping[str, Any]) -> Solution:
    if answer["status"] == "infeasible":
        raise InfeasibleError([_named(model, str(name)) for name in answer["core"]])
    status = SolveStatus(answer["status"])
    assignments = no_assignments(model.database.schema)
    for place in assignments:
        assignments[place] = {tuple(key): value for key, value in answer["decisions"][".".join(place)]}
    with model.database.snapshot() as snapshot:
        verdict = model.oracle.examine(snapshot, assignments)
        if verdict.violations:
            said = "; ".join(verdict.violations)
            raise DataError(
                f"the answer of the bundle is none to its rows and policies: {said}",
                hint="the file was changed after it was written: solve it again with rota policy solve --replay FILE",
            )
        deltas = tuple(_deltas(snapshot, assignments))
        return proposed_solution(snapshot.version, model.program, status, deltas, assignments, verdict)


def _named(model: Model, constraint: str) -> CoreMember:
    query = next((query for query in model.queries if query.name == constraint), None)
    return CoreMember(constraint, query.position if query is not None else None)


def _deltas(snapshot: Snapshot, assignments: Assignments) -> Iterator[Delta]:
    """What changes against the rows."""
    for (name, variable), values in assignments.items():
        table = snapshot.schema.table(name)
        column = table.column(variable)
        keys = ", ".join(quote(part) for part in table.primary_key)
        rows = snapshot.rows(f"SELECT {quote(column.current or variable)}, {keys} FROM {quote(name)}")
        for old, *key in rows:
            new = values[tuple(key)]
            if new != old:
                yield delta_of(table, column, tuple(key), old, new)


def answer_of(outcome: Solution | InfeasibleError) -> dict[str, Any]:
    """What two solves must agree in: status, objectives and decisions, or the constraints that clash."""
    if isinstance(outcome, InfeasibleError):
        return {"status": "infeasible", "core": list(outcome.constraints)}
    return {
        "status": str(outcome.status),
        "objectives": {objective.name: objective.after for objective in outcome.objectives},
        "decisions": {
            f"{table}.{variable}": [[list(key), value] for key, value in values.items()]
            for (table, variable), values in outcome.assignments.items()
        },
    }

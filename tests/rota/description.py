"""The OpenAPI document of the interface, and a check of answers against it; see conftest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rota.http.openapi import Operation, document


class Description:
    """The OpenAPI document of the interface, and whether an answer is as it says."""

    def __init__(self, operations: list[Operation]) -> None:
        self.document = document(operations)

    def operation(self, method: str, path: str) -> dict[str, Any] | None:
        """What the document says of a request to this path."""
        for template, methods in self.document["paths"].items():
            parts, given = template.split("/"), path.split("/")
            alike = len(parts) == len(given) and all(
                part == other or part.startswith("{") for part, other in zip(parts, given, strict=True)
            )
            if alike:
                return cast("dict[str, Any] | None", methods.get(method.lower()))
        return None

    def check_answer(self, method: str, path: str, answer: Any) -> None:
        """Fail, unless this is the answer that the document describes."""
        operation = self.operation(method, path)
        assert operation is not None, f"{method} {path} is not in the OpenAPI document"
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        self.check(answer, schema, f"{method} {path}")

    def check(self, value: Any, schema: Mapping[str, Any], where: str) -> None:
        """Fail, unless the value is valid and has no more than the schema names. Only for what msgspec writes."""
        if not schema:
            return
        if "$ref" in schema:
            self.check(value, self.document["components"]["schemas"][schema["$ref"].split("/")[-1]], where)
        elif "anyOf" in schema:
            fitting = [each for each in schema["anyOf"] if _is_of(value, self._type(each))]
            assert fitting, f"{where}: {value!r} is none of {schema['anyOf']}"
            self.check(value, fitting[0], where)
        else:
            assert _is_of(value, schema["type"]), f"{where}: {value!r} is not of type {schema['type']}"
            self._check_parts(value, schema, where)

    def _type(self, schema: Mapping[str, Any]) -> str:
        while "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].split("/")[-1]]
        return str(schema["type"])

    def _check_parts(self, value: Any, schema: Mapping[str, Any], where: str) -> None:
        if schema["type"] == "array":
            for number, item in enumerate(value):
                self.check(item, schema["items"], f"{where}[{number}]")
        elif schema["type"] == "object" and "properties" in schema:
            missing = set(schema["required"]) - value.keys()
            unknown = value.keys() - schema["properties"].keys()
            assert not missing, f"{where}: {sorted(missing)} missing"
            assert not unknown, f"{where}: {sorted(unknown)} not in the OpenAPI document"
            for name, part in value.items():
                self.check(part, schema["properties"][name], f"{where}.{name}")
        elif schema["type"] == "object":
            others = schema.get("additionalProperties", {})
            for name, part in value.items():
                self.check(part, others if isinstance(others, dict) else {}, f"{where}.{name}")


def _is_of(value: Any, kind: str) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "null": (type(None),), "boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,),
        "array": (list,), "object": (dict,),
    }  # fmt: skip
    return isinstance(value, kinds[kind]) and (kind == "boolean" or not isinstance(value, bool))

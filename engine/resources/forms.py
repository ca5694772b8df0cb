"""Forms: the request bodies of the operations whose shape is a plain object.

A form is a JSON Schema, written once: bodies are checked against it and the OpenAPI documents
show it. A `View` is the same for answers. Messages name the place and the rule and never quote a
value.

Faults are found one by one, and the search stops at the number that an answer names: a body may
have half a million. The elements of an array that is too long are not checked. A library for JSON
Schema names all missing or unknown members in one fault and takes 0.1 s to import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Final, TypeAlias

from engine.messages import Json, Problem
from engine.tokens.stored import timestamp
from engine.tokens.strict_json import BodyErrors, escaped

Schema: TypeAlias = Mapping[str, Any]

NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 200}
"""The name of a document."""


UUID: Final[Schema] = {"type": "string", "format": "uuid"}
INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
TEXT: Final[Schema] = {"type": "string"}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
OWNED: Final[Mapping[str, Schema]] = {"id": UUID, "tenant_id": UUID}
MADE: Final[Mapping[str, Schema]] = {"created_by": UUID, "created_at": INSTANT}


def object_schema(
    properties: Mapping[str, Any],
    required: tuple[str, ...] = (),
    **more: Any,  # noqa: ANN401 # reason: further keywords
) -> dict[str, Any]:
    """Return the schema of an object that holds nothing else; `more` are further keywords."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
        **more,
    }
    return schema | ({"required": list(required)} if required else {})


class View:
    """What answers show of a record: its fields, each with its schema for the OpenAPI documents."""

    def __init__(self, fields: Mapping[str, Schema]) -> None:
        self.fields = fields

    def of(self, record: object, **values: Any) -> dict[str, Any]:  # noqa: ANN401 # reason: any JSON
        """Return the fields of a record; values: those that it does not hold as they are shown."""
        document = {}
        for name, schema in self.fields.items():
            if name in values:
                document[name] = values[name]
            elif schema is INSTANT:
                document[name] = timestamp(getattr(record, f"{name}_ns"))
            else:
                document[name] = getattr(record, name)
        return document

    def schema(self, **more: Schema) -> dict[str, Any]:
        """Return the schema of an answer; more: what it shows besides."""
        fields = {**self.fields, **more}
        return object_schema(fields, tuple(fields))


def pointer(*parts: str | int) -> str:
    """Return the JSON Pointer of a place.

    >>> pointer("a/b", 0)
    '/a~1b/0'
    """
    return "".join(escaped(str(part)) for part in parts)


class BodySchema:
    """A request body's schema, ready to check bodies.

    clause: the clause that a body of another form breaks; field_clauses: the clauses for faults in
    certain fields, instead of it.
    """

    def __init__(
        self, schema: Schema, clause: str, field_clauses: Mapping[str, str] | None = None
    ) -> None:
        self.schema = schema
        self.clause = clause
        self._field_clauses = field_clauses or {}

    def check(self, body: Json) -> dict[str, Any]:
        """Return the body; raises `Problem` 400 with its faults by JSON Pointer, 1,000 at most."""
        faults = BodyErrors()
        detail = "The body is not of the form that is asked for."
        for place, message in _faults(self.schema, body):
            if faults.is_full:
                detail += f" The first {len(faults)} faults are named."
                break
            field = str(place[0]) if place else ""
            faults.add(pointer(*place), message, self._field_clauses.get(field, self.clause))
        if faults:
            raise Problem(400, detail, errors=faults, clause=faults.clause)
        assert isinstance(body, dict), "every form is an object"
        return body


Place: TypeAlias = tuple[str | int, ...]

_TYPES: Final[Mapping[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "null": type(None),
}
_BOUNDS: Final[Mapping[str, tuple[type | UnionType, str]]] = {
    "minLength": (str, "must hold at least {0} characters"),
    "maxLength": (str, "must hold at most {0} characters"),
    "maxItems": (list, "must hold at most {0} items"),
    "minimum": (int | float, "must be at least {0}"),
    "maximum": (int | float, "must be at most {0}"),
}


def _faults(schema: Schema, value: Json, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the place and the rule of each fault of a value, by the keywords that forms use."""
    for keyword, rule in schema.items():
        broken = _broken_rule(keyword, rule, value)
        if broken is not None:
            yield place, broken
        elif isinstance(value, dict):
            yield from _member_faults(schema, keyword, value, place)
        elif keyword == "items" and isinstance(value, list):
            is_short = len(value) <= schema.get("maxItems", len(value))
            for index, item in enumerate(value if is_short else ()):
                yield from _faults(rule, item, (*place, index))


def _member_faults(
    schema: Schema, keyword: str, value: dict[str, Json], place: Place
) -> Iterator[tuple[Place, str]]:
    known: Any = schema.get("properties", {})
    others: Any = schema.get("additionalProperties")
    if keyword == "required":
        yield from (((*place, n), "is required") for n in schema["required"] if n not in value)
    elif keyword == "properties":
        for name, rule in known.items():
            if name in value:
                yield from _faults(rule, value[name], (*place, name))
    elif keyword == "additionalProperties":
        for name, member in value.items():
            if name not in known and others is False:
                yield (*place, name), "is an unknown field"
            elif name not in known:
                yield from _faults(others, member, (*place, name))


def _broken_rule(keyword: str, rule: Any, value: Json) -> str | None:  # noqa: ANN401 # reason: any JSON
    """Return the rule that a value breaks by itself, in words; None for none."""
    if keyword == "type":
        names = [rule] if isinstance(rule, str) else rule
        if isinstance(value, float) and value.is_integer():  # JSON has one kind of number
            value = int(value)
        fine = isinstance(value, tuple(_TYPES[name] for name in names))
        fine &= not isinstance(value, bool) or "boolean" in names  # Python's are integers too
        return None if fine else f"must be {', '.join(names)}"
    if keyword == "enum":
        return None if value in rule else f"must be one of {', '.join(rule)}"
    if keyword == "pattern":
        fine = not isinstance(value, str) or re.search(rule, value) is not None
        return None if fine else f"must match {rule}"
    kind, words = _BOUNDS.get(keyword, (str, ""))
    if not words or not isinstance(value, kind) or isinstance(value, bool):
        return None
    size: Any = len(value) if isinstance(value, str | list) else value
    fine = size >= rule if keyword.startswith("min") else size <= rule
    return None if fine else words.format(rule)

"""Forms: the request bodies of the operations whose shape is a plain object.

A form is a JSON Schema, written once: bodies are checked against it and the OpenAPI documents
show it. A `View` is the same for answers. Messages name the place and the rule and never quote a
value.

Faults are found one by one, and the search stops at the number that an answer names. So the
elements of an array that is too long are not checked, and each missing or unknown field is one
fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

from engine.messages import Json, Problem
from engine.tokens import timestamp
from engine.tokens.rules import BodyErrors, escaped

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

    @cached_property
    def _validator(self) -> Draft202012Validator:
        from engine.resources.form_keywords import (  # noqa: PLC0415 # reason: takes half a second
            validator_of,
        )

        return validator_of(self.schema)

    def check(self, body: Json) -> dict[str, Any]:
        """Return the body; raises `Problem` 400 with its faults by JSON Pointer, 1 000 at most."""
        faults = BodyErrors()
        detail = "The body is not of the form that is asked for."
        try:
            for fault in self._validator.iter_errors(body):
                if faults.is_full:
                    detail += f" The first {len(faults)} faults are named."
                    break
                faults.add(pointer(*fault.absolute_path), _message(fault), self._clause_of(fault))
        except RecursionError:  # the library's message shows the whole nested value
            faults.add("", "must not be nested so deep", "D-DEPTH")
        if faults:
            raise Problem(400, detail, errors=faults, clause=faults.clause)
        assert isinstance(body, dict), "every form is an object"
        return body

    def _clause_of(self, fault: ValidationError) -> str:
        path = fault.absolute_path
        return self._field_clauses.get(str(path[0]), self.clause) if path else self.clause


_RULES: Final[Mapping[str, str]] = {
    "type": "must be {0}",
    "enum": "must be one of {0}",
    "minLength": "must hold at least {0} characters",
    "maxLength": "must hold at most {0} characters",
    "minProperties": "must hold at least {0} of its fields",
    "minItems": "must hold at least {0} items",
    "maxItems": "must hold at most {0} items",
    "minimum": "must be at least {0}",
    "maximum": "must be at most {0}",
    "pattern": "must match {0}",
    "required": "is required",
    "additionalProperties": "is an unknown field",
}


def _message(fault: ValidationError) -> str:
    rule: Any = fault.validator_value
    if isinstance(rule, list):
        rule = ", ".join(str(item) for item in rule)
    text = _RULES.get(str(fault.validator), "breaks the rule {1}")
    return text.format(rule, fault.validator)

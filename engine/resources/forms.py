"""Forms: the request bodies of the operations whose shape is a plain object.

A form is a JSON Schema, written once: bodies are checked against it and the OpenAPI documents
show it. Messages name the place and the rule and never quote a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

from engine.messages import Json, Problem

__all__ = ["Form", "Schema", "object_schema", "pointer"]

Schema: TypeAlias = Mapping[str, Any]


def object_schema(
    properties: Mapping[str, Schema], *, required: tuple[str, ...] = (), least: int = 0
) -> Schema:
    """Return the schema of a closed object."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
    }
    if required:
        schema["required"] = list(required)
    if least:
        schema["minProperties"] = least
    return schema


def pointer(*parts: str | int) -> str:
    """Return the JSON Pointer of a place.

    >>> pointer("a/b", 0)
    '/a~1b/0'
    """
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in parts)


class Form:
    """A request body's schema, ready to check bodies."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @cached_property
    def _validator(self) -> Draft202012Validator:
        from jsonschema import Draft202012Validator  # noqa: PLC0415 # reason: takes half a second

        return Draft202012Validator(self.schema)

    def check(self, body: Json) -> dict[str, Any]:
        """Return the body; raises `Problem` 400 with every fault by JSON Pointer."""
        errors: dict[str, list[str]] = {}
        try:
            for fault in self._validator.iter_errors(body):
                for place, message in _messages(fault):
                    errors.setdefault(place, []).append(message)
        except RecursionError:  # the library shows what is wrong, with all that it holds
            errors[""] = ["must not be nested so deep"]
        if errors:
            raise Problem(400, "The body is not of the form that is asked for.", errors=errors)
        assert isinstance(body, dict), "every form is an object"
        return body


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
}


def _messages(fault: ValidationError) -> list[tuple[str, str]]:
    place = tuple(fault.absolute_path)
    rule: Any = fault.validator_value
    instance: Any = fault.instance
    schema: Any = fault.schema
    if fault.validator == "required":
        missing = [name for name in rule if name not in instance]
        return [(pointer(*place, missing[0]), "is required")] if missing else []
    if fault.validator == "additionalProperties":
        known = schema.get("properties", {})
        return [
            (pointer(*place, name), "is no field of this object")
            for name in instance
            if name not in known
        ]
    if isinstance(rule, list):
        rule = ", ".join(str(item) for item in rule)
    text = _RULES.get(str(fault.validator), "breaks the rule {1}")
    return [(pointer(*place), text.format(rule, fault.validator))]

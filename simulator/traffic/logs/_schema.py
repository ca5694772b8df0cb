"""The JSON Schema of the map file, so that an editor completes and checks it."""

from __future__ import annotations

from typing import Any, Final

from simulator.traffic.logs._mapping import CHOICES, FORMATS, TARGETS, UNITS

__all__ = ["map_schema"]

_MEANINGS: Final = {
    "time": "when the request arrived",
    "address": "the client's address",
    "key": "the API key; it is replaced by a label before anything is written",
    "request": "a request line such as GET /x HTTP/1.1, for method and path at once",
    "method": "the HTTP method",
    "path": "the path, kept as logged",
    "tenant": "the tenant's name",
    "tenant_kind": "production or test",
    "application": "the application's name",
    "application_kind": "the class of the key; legacy is a legacy key of a private application",
    "legacy": "whether the key is a legacy one",
}


def map_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the file of `--map`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tollgate log map",
        "description": "Which field of an access log says what.",
        "type": "object",
        "additionalProperties": False,
        "required": ["time"],
        "not": {"required": ["format", "line"]},
        "properties": {
            "format": {"enum": list(FORMATS), "description": "how the log is written"},
            "line": {
                "type": "string",
                "format": "regex",
                "description": "splits each line; its named groups are the fields",
            },
            **{target: _target(target) for target in TARGETS},
        },
    }


def _target(target: str) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "string", "minLength": 1}
    if target in CHOICES:
        value = {"enum": list(CHOICES[target])}
    if target == "legacy":
        value = {"enum": [*CHOICES[target], False, True]}
    properties: dict[str, Any] = {
        "field": {"type": "string", "minLength": 1, "description": "the log's name of it"},
        "pattern": {
            "type": "string",
            "format": "regex",
            "description": f"cuts a part: the group called {target}, else the only one",
        },
        "lookup": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": value,
            "description": "translates values",
        },
        "default": {**value, "description": "where the field is absent or not in the lookup"},
    }
    if target == "time":
        properties["unit"] = {"enum": list(UNITS), "description": "how times are written"}
    of_field = {
        "type": "object",
        "additionalProperties": False,
        "required": ["field"],
        "properties": properties,
    }
    of_value = {
        "type": "object",
        "additionalProperties": False,
        "required": ["value"],
        "properties": {"value": {**value, "description": "the same for every request"}},
    }
    forms = [{"type": "string", "minLength": 1}, of_field]
    if target != "time":
        forms.append(of_value)
    return {"description": _MEANINGS[target], "anyOf": forms}

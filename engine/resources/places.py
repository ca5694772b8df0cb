"""Places of faults in a body, without the names that its sender chose (D-PROBLEM).

A member's name may be a card number or a person's name, so no error quotes one: in `errors`, a step
that is no field of the service's own becomes the place of that member in its object, from 0 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from engine.resources.operation import Operation
from engine.tokens.rules import Rules
from engine.tokens.structures import STRUCTURED_TYPES

_UNKNOWN_PLACE: Final = "-"
"""A step into what the body does not hold, such as what code has returned."""


def field_names(operations: Iterable[Operation], rules: Rules) -> frozenset[str]:
    """Return the names of all fields that requests of the service may hold."""
    names = {"start", "size", *rules.fields, *rules.patch_fields}
    for structured_type in STRUCTURED_TYPES.values():
        names.update(_properties(structured_type.schema("full", rules.tokens)))
    for operation in operations:
        names.update(operation.query)
        if operation.form is not None:
            names.update(_properties(operation.form.schema))
    return frozenset(names)


def _properties(schema: Any) -> Iterable[str]:  # noqa: ANN401 # reason: any part of a JSON Schema
    if isinstance(schema, Mapping):
        if isinstance(schema.get("properties"), Mapping):
            yield from schema["properties"]
        for part in schema.values():
            yield from _properties(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _properties(part)


def without_names(
    errors: Mapping[str, Sequence[str]], body: object, known: frozenset[str]
) -> dict[str, list[str]]:
    """Return faults by JSON Pointer, each unknown member by its place in its object.

    >>> without_names({"/Ada/data": ["is required"]}, {"x": 1, "Ada": {}}, frozenset({"data"}))
    {'/1/data': ['is required']}
    """
    indexes: dict[int, dict[str, int]] = {}  # by the identity of an object of the body
    faults: dict[str, list[str]] = {}
    for pointer, messages in errors.items():
        holder: Any = body
        steps = []
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(holder, Mapping):
                if name in known:
                    steps.append(step)
                else:
                    if id(holder) not in indexes:
                        indexes[id(holder)] = {key: at for at, key in enumerate(holder)}
                    place = indexes[id(holder)].get(name)
                    steps.append(_UNKNOWN_PLACE if place is None else str(place))
                holder = holder.get(name)
            elif isinstance(holder, list) and name.isdecimal() and int(name) < len(holder):
                steps.append(step)
                holder = holder[int(name)]
            else:
                steps.append(step if name in known else _UNKNOWN_PLACE)
                holder = None
        faults.setdefault("".join(f"/{step}" for step in steps), []).extend(messages)
    return faults

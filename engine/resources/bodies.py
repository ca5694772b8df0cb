"""Reading a body: size, coding, media type, JSON, in this order (TOK-JSON, D-SIZE, D-STRICT-JSON).

No content coding is accepted: a small body could decompress to a huge one, and no clause requires
it. A coded body gets 415 with `Accept-Encoding: identity` (RFC 9110, 12.5.3).

A body may be JSON as Python holds it, bytes, or a stream that is read only now, after the limits
and the key, and never further than its bound.

`without_names` gives the places of faults without the names that a sender chose (D-PROBLEM). A
member's name may be a card number or a person's name, so no error quotes one: in `errors`, a step
that is no field of the service's own becomes the place of that member in its object, from 0 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard, cast

from engine.identity import Caller
from engine.messages import BodyStream, Json, Problem, Request, find_header
from engine.profile import Profile
from engine.resources.operation import Context, Operation
from engine.tokens.rules import STRUCTURED_TYPES, Rules
from engine.tokens.strict_json import check_value, check_values, dumps, parse, too_large

MEDIA_TYPES: Final = {"json": "application/json", "merge-patch": "application/merge-patch+json"}
"""Media type of each JSON body form."""

_ACCEPT_FIELDS: Final = {"merge-patch": {"Accept-Patch": MEDIA_TYPES["merge-patch"]}}
"""Header fields of a 415, by the form that the body should have (RFC 5789, 2.2)."""

_WORD: Final = r"[!#$%&'*+.^_`|~0-9a-z-]++"
_PARAMETER: Final = re.compile(rf';[ \t]*+(?:({_WORD})=({_WORD}|"(?:[^"\\]|\\.)*+"))?+[ \t]*+')
_MEDIA_TYPE: Final = re.compile(rf"(?P<type>{_WORD}/{_WORD})[ \t]*+(?:{_PARAMETER.pattern})*+")
"""A Content-Type in small letters (RFC 9110, 8.3.1); an empty parameter is none (5.6.6)."""

_VALUES_AN_ELEMENT: Final = 80
"""JSON values per element: a card with every optional field has about seventy."""

_UNREAD_FORMS: Final = frozenset({"none", "raw"})
"""Forms of bodies that are not read before the operation runs."""

PARSED: Final = frozenset({dict, list})
BUFFERED_TYPES: Final = PARSED | {bytes}
"""Types of bodies that need no `receive`: a coroutine would cost such a request too much."""


def _is_buffered(body: Json | bytes | BodyStream) -> TypeGuard[Json | bytes]:
    return not hasattr(body, "read")


async def receive(operation: Operation, request: Request, profile: Profile) -> Json | bytes:
    """Return the body as it was sent, once all of it is here, for `read_body`.

    Raises `Problem` 413 over the operation's bound. A body that the operation reads itself is left
    unread.
    """
    body = request.body
    if _is_buffered(body):
        return body
    if operation.body in _UNREAD_FORMS:
        return None
    return await read_raw(request, operation.body_limit_bytes(profile))


def read_body(operation: Operation, context: Context, body: Json | bytes) -> Json | bytes:
    """Return the body, all of which is here, in the operation's form.

    Raises `Problem` 413 over the operation's bound, 415 for another media type, 400 for what is
    not strict JSON or holds more values than D-BODY-COST allows.
    """
    form = operation.body
    if form in _UNREAD_FORMS:
        return None
    limit_bytes = operation.body_limit_bytes(context.services.profile)
    if form == "json" and type(body) in PARSED:
        return check_value(body, limit_bytes, _values_limit(context))
    request = context.request
    if isinstance(body, bytes):
        if len(body) > limit_bytes:
            raise too_large(limit_bytes)
        if not body and operation.body_optional:
            return body
        check_coding(request, form)
        _check_media_type(request, form)
        context.raw = body
        return parsed(body, context)
    if form == "merge-patch" and request.headers is not None:
        _check_media_type(request, form)
    return check_value(body, limit_bytes, _values_limit(context))


def parsed(body: bytes, context: Context) -> Json:
    """Return the value of a body that an operation has read itself.

    Raises `Problem` 400 for what is not strict JSON or holds more values than D-BODY-COST allows.
    """
    check_values(body, _values_limit(context))
    return parse(body)  # obeys TOK-JSON


def _values_limit(context: Context) -> int:
    """Return how many JSON values a body may hold; what a tenant may tokenize fits."""
    limit_values = context.services.profile.tokens.values_limit
    caller: Caller | None = context.caller
    if caller is not None:
        quota: int = caller.tenant.quotas["Tokenize Limit"]
        if quota * _VALUES_AN_ELEMENT > limit_values:
            return quota * _VALUES_AN_ELEMENT
    return limit_values


async def read_raw(request: Request, limit_bytes: int, clause: str = "D-SIZE") -> bytes:
    """Return the body as bytes: no body is an empty one, a Python value its JSON.

    Raises `Problem` 413 naming `clause` over `limit_bytes`; a stream is read no further.
    """
    body = request.body
    if not _is_buffered(body):
        raw = await cast("BodyStream", body).read(limit_bytes)
    elif isinstance(body, bytes):
        raw = body
    else:
        raw = b"" if body is None else dumps(check_value(body))
    if raw is None or len(raw) > limit_bytes:
        raise too_large(limit_bytes, clause)
    return raw


def check_coding(request: Request, form: str = "raw") -> None:
    """Raise `Problem` 415 for a body in a content coding; `form` is the body's."""
    coding = find_header(request.headers, "Content-Encoding")
    if coding is not None and coding.strip().lower() not in {"", "identity"}:
        raise Problem(
            415,
            "The body must come as it is, without a Content-Encoding.",
            clause="D-STATUSES",
            headers={"Accept-Encoding": "identity", **_ACCEPT_FIELDS.get(form, {})},
        )


def _is_media_type(given: str, wanted: str) -> bool:
    """Return whether a Content-Type is the media type; parameters are ignored.

    A `charset` is the exception: with one other than UTF-8, the body is not JSON.
    """
    given = given.strip(" \t").lower()
    match = _MEDIA_TYPE.fullmatch(given)
    if match is None or match["type"] != wanted:
        return False
    values = (value for name, value in _PARAMETER.findall(given) if name == "charset")
    return all(value.strip('"') == "utf-8" for value in values)


def _check_media_type(request: Request, form: str) -> None:
    wanted = MEDIA_TYPES[form]
    given = find_header(request.headers, "Content-Type")
    if given != wanted and (given is None or not _is_media_type(given, wanted)):
        raise Problem(
            415,
            f"The body must be {wanted}.",
            clause="D-PATCH" if form == "merge-patch" else "TOK-JSON",
            headers=_ACCEPT_FIELDS.get(form),
        )


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

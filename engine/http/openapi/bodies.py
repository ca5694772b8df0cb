"""The request bodies of each operation, for a profile and a kind of document.

Plain forms come from the registry itself (`Operation.form`); what a form leaves to the code behind
it (paths, rights by kind, addresses, queries) is added here, so that a document says it too.
"""

from __future__ import annotations

import copy
from typing import Any, Final, get_args

from engine.http.openapi.schemas import Kind, Schema, closed, container_schema, ref
from engine.identity.permissions import ASKABLE
from engine.model import ApplicationKind
from engine.profile import Profile
from engine.resources import Operation
from engine.resources.proxies import ADDRESS_PATTERN

__all__ = ["request_schema"]

_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
_HOST: Final = rf"^{_LABEL}(?:\.{_LABEL}){{0,4}}$"
_PLAIN_URL: Final = (
    r"^https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[1-9][0-9]{0,3})?"
    r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?$"
)
_QUERY: Final = (
    r"^data(?:\.[A-Za-z0-9_-]+)*:(?:[!#-~]+|"
    r'"(?:[ !#-\[\]-~]|\\["\\])*")(?: AND container:/(?:[A-Za-z0-9_-]+/)*)?$'
)
CURSOR: Final = "^[0-9]{1,19}:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


def request_schema(operation: Operation, kind: Kind, profile: Profile) -> Schema:
    """Return the schema of an operation's JSON body."""
    if operation.name == "tokenize":
        return ref("TokenizeBody")
    if kind == "ceiling":
        return ref("TokenRequest") if operation.name == "create_token" else _open(operation)
    if operation.name == "create_token":
        return ref("TokenRequest")
    if operation.name == "create_token_intent":
        return _intent(kind, profile)
    if operation.name == "patch_token":
        return _patch_token(kind, profile)
    if operation.form is None:
        return {}
    schema: Schema = copy.deepcopy(dict(operation.form.schema))
    refined = _REFINED.get(operation.name)
    if refined is not None:
        schema = refined(schema, profile)
    if kind == "floor" and "destination_url" in schema.get("properties", {}):
        schema["properties"]["destination_url"]["pattern"] = _PLAIN_URL
    return schema


def _open(operation: Operation) -> Schema:
    """An assumed body may have any form; where ours is an object, it is some object."""
    return {} if operation.name == "detokenize" else {"type": "object"}


def _intent(kind: Kind, profile: Profile) -> Schema:
    token: Schema = {"type": "string"}
    if kind == "floor":
        token["minLength"] = 1
    forms = [
        closed({"type": {"const": "token"}, "data": token}, ("type", "data")),
        closed({"type": {"const": "card"}, "data": ref("CardData")}, ("type", "data")),
    ]
    if kind == "full":
        types = {"enum": ["token", "card", *profile.tokens.extra_types]}
        sealed = {"type": "string", "format": "jwe-compact"}
        forms.append(closed({"type": types, "encrypted": sealed}, ("type", "encrypted")))
    return {"anyOf": forms}


def _patch_token(kind: Kind, profile: Profile) -> Schema:
    tokens = profile.tokens
    metadata: Schema = {
        "type": ["object", "null"],
        "maxProperties": tokens.metadata_entries_limit,
        "propertyNames": {"maxLength": tokens.metadata_key_limit},
        "additionalProperties": {
            "type": ["string", "null"],
            "maxLength": tokens.metadata_value_limit,
        },
    }
    if kind == "floor":
        value = {"type": "string", "maxLength": 40}
        names = {"pattern": "^[a-z]{1,10}$"}
        metadata = {
            "type": "object",
            "maxProperties": 3,
            "propertyNames": names,
            "additionalProperties": value,
        }
        return closed({"metadata": metadata})
    container = container_schema(tokens)
    if tokens.container_form == "array":
        container = {"type": "array", "items": container, "maxItems": 1}
    expression = {"type": "string", "format": "data-expression"}
    indexes = {"type": "array", "items": expression, "maxItems": tokens.indexes_limit}
    fields: dict[str, Any] = {
        "metadata": metadata,
        tokens.container_field: {"anyOf": [container, {"type": "null"}]},
        "search_indexes": {"anyOf": [indexes, {"type": "null"}]},
        "fingerprint_expression": {"anyOf": [expression, {"type": "null"}]},
        "data": {"description": "as the token's type has it; of a card some of its fields"},
        "encrypted": {"type": "string", "format": "jwe-compact"},
        "type": {"type": "string", "description": "the token's own; it never changes"},
    }
    found = closed(fields)
    if tokens.unknown_field == "ignore":
        found["additionalProperties"] = True
    return found


def _with_grants(schema: Schema, profile: Profile) -> Schema:
    grants = schema["properties"]["grants"]["items"]["properties"]
    grants["container"] = container_schema(profile.tokens)
    return schema


def _by_kind(schema: Schema, profile: Profile) -> Schema:
    """Return the form of a new application, one a kind: each may hold its own rights only."""
    forms = []
    for kind in get_args(ApplicationKind):
        form = _with_grants(copy.deepcopy(schema), profile)
        form["properties"]["kind"] = {"const": kind}
        permissions = form["properties"]["grants"]["items"]["properties"]["permissions"]
        permissions["items"] = {"enum": sorted(ASKABLE[kind])}
        forms.append(form)
    return {"anyOf": forms}


def _proxy(schema: Schema, _: Profile) -> Schema:
    schema["properties"]["destination_url"]["pattern"] = ADDRESS_PATTERN
    schema["properties"]["host"] = {
        "anyOf": [{"type": "string", "pattern": _HOST, "maxLength": 253}, {"type": "null"}],
        "description": "A hostname under a suffix that the operator lists for the tenant, or null.",
    }
    return schema


def _search(schema: Schema, _: Profile) -> Schema:
    schema["properties"]["query"]["pattern"] = _QUERY
    schema["properties"]["start"] = {
        "anyOf": [{"type": "string", "pattern": CURSOR}, {"type": "null"}]
    }
    return schema


_REFINED: Final = {
    "create_application": _by_kind,
    "patch_application": _with_grants,
    "create_proxy": _proxy,
    "patch_proxy": _proxy,
    "search_tokens": _search,
}

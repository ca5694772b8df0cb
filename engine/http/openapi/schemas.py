"""The schemas of the bodies that tokens are made of, for a profile (seed 2.2, 4.1).

They come in three strictnesses (`Kind`): `full` is what this engine does, `floor` what
any conforming service must accept, `ceiling` what one may accept at most. What JSON Schema cannot
say (a check digit, an expression that selects something, a sum over a whole body) is said in words
and, for strings, by a `format` of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from engine.model import DEFAULT_QUOTAS
from engine.profile import Profile, TokensProfile

__all__ = ["Kind", "Schema", "back", "closed", "container_schema", "ref", "requests"]

Kind: TypeAlias = Literal["full", "floor", "ceiling"]
Schema: TypeAlias = dict[str, Any]

_UUID: Final[Schema] = {"type": "string", "format": "uuid"}
_CONTAINER: Final = "^/(?:[A-Za-z0-9_-]+/)*$"
_EXPRESSION: Final = r"^\{\{ data(?:\.[A-Za-z0-9_-]+)* \}\}$"
_CARD_NUMBERS: Final = ("4242424242424242", "5555555555554444", "378282246310005")


def ref(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def back(name: str) -> Schema:
    """Return a reference to a schema from inside itself.

    It says `if true then`, which means the same as the reference alone: generators of clients stop
    at arrays and unions that hold themselves, and take this for any value.
    """
    return {"if": True, "then": ref(name)}


def closed(
    properties: Mapping[str, Any],
    required: tuple[str, ...] = (),
    **more: Any,  # noqa: ANN401 # reason: further keywords
) -> Schema:
    """Return the schema of an object that holds nothing else; `more` are further keywords."""
    found: Schema = {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
        **more,
    }
    return found | ({"required": list(required)} if required else {})


def requests(kind: Kind, profile: Profile) -> dict[str, Schema]:
    """Return the schemas of the request bodies that tokens are made of."""
    if kind == "floor":
        return _floor()
    if kind == "ceiling":
        return _ceiling()
    return _full(profile)


def _full(profile: Profile) -> dict[str, Schema]:
    tokens = profile.tokens
    leaf_types = ["string"]
    if tokens.non_string_leaf != "reject":
        leaf_types += ["number", "boolean", "null"]
    leaf: Schema = {"type": "string" if len(leaf_types) == 1 else leaf_types}
    body = [ref("TokenRequest"), ref("PlainObject"), ref("Array")]
    if tokens.scalar_body == "accept":
        body.append(leaf)
    least = 1 if tokens.empty_body == "reject" else 0
    found: dict[str, Schema] = {
        "TokenizeBody": {
            "anyOf": body,
            "description": (
                f"One of the four shapes, nested at most {tokens.depth_limit} deep; it creates no "
                f"more tokens than the tenant's Tokenize Limit."
            ),
        },
        "Node": {"anyOf": [leaf, ref("TokenRequest"), ref("PlainObject"), ref("Array")]},
        "PlainObject": {
            "type": "object",
            "description": "An object without `type`: the same keys come back.",
            "propertyNames": {"not": {"const": "type"}},
            "additionalProperties": back("Node"),
        },
        "Array": {"type": "array", "items": back("Node")},
        **_token_requests(profile),
        "CardData": _card_data(profile),
        "Metadata": {
            "type": "object",
            "maxProperties": tokens.metadata_entries_limit,
            "propertyNames": {"maxLength": tokens.metadata_key_limit},
            "additionalProperties": {"type": "string", "maxLength": tokens.metadata_value_limit},
        },
    }
    if least:
        found["PlainObject"]["minProperties"] = found["Array"]["minItems"] = least
    return found


def container_schema(tokens: TokensProfile) -> Schema:
    """Return the schema of a container path (D-CONTAINER)."""
    return {"type": "string", "pattern": _CONTAINER, "maxLength": tokens.container_limit}


def _token_requests(profile: Profile) -> dict[str, Schema]:
    """Return the token request object, and its forms by name: one a type and a source of data."""
    tokens = profile.tokens
    container = container_schema(tokens)
    if tokens.container_form == "array":
        container = {"type": "array", "items": container, "maxItems": 1}
    common: dict[str, Schema] = {
        "metadata": ref("Metadata"),
        tokens.container_field: container,
        profile.dedup.flag_name: {"type": "boolean"},
    }

    def derived(expressions: Schema) -> dict[str, Schema]:
        indexes = {"type": "array", "items": expressions, "maxItems": tokens.indexes_limit}
        return {"fingerprint_expression": expressions, "search_indexes": indexes}

    data: Schema = {"type": "string"} if tokens.token_data == "string" else {}  # noqa: S105 # reason: a choice's name
    whole: Schema = {"const": "{{ data }}"}
    sealed = {"encrypted": {"type": "string", "format": "jwe-compact"}}
    intent = {"token_intent_id": _UUID}
    card_paths: Schema = {"enum": ["{{ data }}", "{{ data.number }}"]}
    any_path: Schema = {"type": "string", "pattern": _EXPRESSION}
    types: Schema = {"enum": ["token", "card", *tokens.extra_types]}
    forms: dict[str, Schema] = {
        "GenericTokenRequest": _form(
            {
                "type": {"const": "token"},
                "data": data,
                **common,
                "fingerprint_expression": whole,
                "search_indexes": {"type": "array", "items": whole, "maxItems": 0},
            },
            "data",
        ),
        "IndexedTokenRequest": _form(
            {
                "type": {"const": "token"},
                "data": {"type": "string", "minLength": 1},
                **common,
                **derived(whole),
            },
            "data",
        ),
        "CardTokenRequest": _form(
            {"type": {"const": "card"}, "data": ref("CardData"), **common, **derived(card_paths)},
            "data",
        ),
        "EncryptedTokenRequest": _form(
            {"type": types, **sealed, **common, **derived(any_path)}, "encrypted"
        ),
        "IntentTokenRequest": _form(
            {"type": types, **intent, **common, **derived(any_path)}, "token_intent_id"
        ),
    }
    if tokens.extra_types:
        more: Schema = {"enum": list(tokens.extra_types)}
        forms["OtherTokenRequest"] = _form({"type": more, "data": {}, **common}, "data")
    if tokens.unknown_field == "ignore":
        for form in forms.values():
            form["additionalProperties"] = True
    return {"TokenRequest": {"anyOf": [ref(name) for name in forms]}, **forms}


def _form(properties: dict[str, Schema], source: str) -> Schema:
    return closed(properties, ("type", source))


def _card_data(profile: Profile) -> Schema:
    tokens = profile.tokens
    number: Schema = {"type": "string", "pattern": "^[0-9]{12,19}$"}
    if tokens.card_luhn:
        number = {"type": "string", "format": "card-number", "minLength": 12, "maxLength": 19}
    fields: dict[str, Schema] = {
        "number": number,
        "expiration_month": {"type": "integer", "minimum": 1, "maximum": 12},
        "expiration_year": {"type": "integer", "minimum": 1000, "maximum": 9999},
        "cvc": {"type": "string", "pattern": "^[0-9]{3,4}$"},
    }
    required = tuple(fields) if tokens.card_all_required else ("number",)
    return closed(fields, required)


def _floor() -> dict[str, Schema]:
    """A closed schema: four tokens at most, plain values, nothing that a choice may refuse."""
    text: Schema = {"type": "string", "minLength": 1, "maxLength": 40}
    metadata: Schema = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 3,
        "propertyNames": {"pattern": "^[a-z]{1,10}$"},
        "additionalProperties": text,
    }
    card = closed(
        {
            "number": {"enum": list(_CARD_NUMBERS)},
            "expiration_month": {"type": "integer", "minimum": 1, "maximum": 12},
            "expiration_year": {"type": "integer", "minimum": 2030, "maximum": 2060},
            "cvc": {"type": "string", "pattern": "^[0-9]{3}$"},
        },
        ("number", "expiration_month", "expiration_year", "cvc"),
    )
    token = closed(
        {
            "type": {"const": "token"},
            "data": text,
            "metadata": metadata,
            "search_indexes": {"type": "array", "items": {"const": "{{ data }}"}, "maxItems": 1},
            "fingerprint_expression": {"const": "{{ data }}"},
        },
        ("type", "data"),
    )
    card_request = closed(
        {"type": {"const": "card"}, "data": ref("CardData"), "metadata": metadata}, ("type", "data")
    )
    names = {"pattern": "^[a-su-z][a-z0-9_]{0,11}$"}

    def pair(inner: Schema) -> list[Schema]:
        return [
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 2,
                "propertyNames": names,
                "additionalProperties": inner,
            },
            {"type": "array", "minItems": 1, "maxItems": 2, "items": inner},
        ]

    leaf = {"anyOf": [text, ref("TokenRequest")]}
    return {
        "TokenizeBody": {
            "anyOf": [ref("TokenRequest"), *pair({"anyOf": [leaf, ref("Pair")]})],
            "description": f"At most four tokens; the default quota is {_tokenize_limit()}.",
        },
        "Pair": {"anyOf": pair(leaf)},
        "TokenRequest": {"anyOf": [token, card_request]},
        "CardData": card,
    }


def _tokenize_limit() -> int:
    limit = DEFAULT_QUOTAS["Tokenize Limit"]
    assert isinstance(limit, int)
    return limit


def _ceiling() -> dict[str, Schema]:
    """An open schema: whatever breaks it is refused by every conforming service.

    It holds the rules of TOK-ONE-OF, TOK-METADATA, TOK-INDEXES, TOK-FPEXPR, TOK-CARD-DATA and
    TOK-TYPES, and allows whatever some choice of the profile allows.
    """
    strings = {"type": "object", "additionalProperties": {"type": "string"}}
    known: dict[str, Schema] = {
        "type": {"type": "string", "minLength": 1},
        "encrypted": {"type": "string", "minLength": 1},
        "metadata": strings,
        "search_indexes": {"type": "array", "items": {"type": "string", "minLength": 1}},
        "fingerprint_expression": {"type": "string", "minLength": 1},
    }
    card = {
        "type": "object",
        "properties": {
            "number": {"type": "string", "pattern": "^[0-9]+$"},
            "expiration_month": {"type": "integer", "minimum": 1, "maximum": 12},
            "expiration_year": {"type": "integer"},
            "cvc": {"type": "string", "pattern": "^[0-9]+$"},
        },
        "required": ["number"],
    }
    sources: Schema = {"anyOf": [{"required": [name]} for name in ("data", "encrypted")]}
    intent: Schema = {"required": ["token_intent_id"]}
    return {
        "TokenizeBody": ref("Node"),
        "Node": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": ref("Node")},
                {
                    "type": "object",
                    "propertyNames": {"not": {"const": "type"}},
                    "additionalProperties": ref("Node"),
                },
                ref("TokenRequest"),
            ]
        },
        "TokenRequest": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {**known, "type": {"const": "card"}, "data": ref("CardData")},
                    "required": ["type"],
                    "anyOf": [*sources["anyOf"], intent],
                },
                {
                    "type": "object",
                    "properties": {
                        **known,
                        "type": {"type": "string", "minLength": 1, "not": {"const": "card"}},
                    },
                    "required": ["type"],
                    "anyOf": [*sources["anyOf"], intent],
                },
            ]
        },
        "CardData": card,
    }

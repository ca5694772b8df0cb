"""The schemas of the bodies that tokens are made of, for a profile (section 2.2, 4.1).

They come in three strictnesses (`SchemaKind`): `full` is what this engine does, `floor` what
any conforming service must accept, `ceiling` what one may accept at most. What JSON Schema cannot
say (a check digit, an expression that selects something, a sum over a whole body) is said in words
and, for strings, by a `format` of our own.

The table `SHAPES` lists what each operation answers (schemas, headers, examples, links, further
statuses). If the registry has an operation that this table lacks, building the document fails.

`request_schema` gives the request body of each operation, for a profile and a kind of document.

Plain forms come from the registry (`Operation.form`). Rules that the code checks beyond the form
(paths, rights by kind, addresses, queries) are added here.

Request bodies have examples in `SHAPES`. An example of a response is made from its schema, so that
mock servers and contract testers have values: the first of its alternatives, with every required
field.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, get_args

from engine.identity import ASKABLE
from engine.messages import Problem
from engine.model import DEFAULT_QUOTAS, ApplicationKind
from engine.profile import Profile, TokensProfile
from engine.resources import Operation
from engine.resources.operation import UUID, object_schema
from engine.resources.proxies import ADDRESS_PATTERN
from engine.tokens.expressions import DATA
from engine.tokens.rules import STRUCTURED_TYPES, SchemaKind

Schema: TypeAlias = dict[str, Any]

_CONTAINER: Final = "^/(?:[A-Za-z0-9_-]+/)*$"
_EXPRESSION: Final = r"^\{\{ data(?:\.[A-Za-z0-9_-]+)* \}\}$"


def ref(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def back(name: str) -> Schema:
    """Return a reference to a schema from inside itself.

    It uses `if {} then`, which is equivalent to the plain reference: client generators fail on
    recursive arrays and unions, and read this as any value.
    """
    return {"if": {}, "then": ref(name)}


def requests(kind: SchemaKind, profile: Profile) -> dict[str, Schema]:
    """Return the schemas of the request bodies that tokens are made of."""
    if kind == "floor":
        return _floor(profile)
    if kind == "ceiling":
        return _ceiling(profile)
    return _full(profile)


def _full(profile: Profile) -> dict[str, Schema]:
    tokens = profile.tokens
    leaf_types = ["string"]
    if tokens.non_string_leaf != "reject":
        leaf_types += ["number", "boolean", "null"]
    leaf: Schema = {"type": "string" if len(leaf_types) == 1 else leaf_types}
    body = [ref("TokenRequest"), ref("PlainObject"), ref("PlainArray")]
    if tokens.scalar_body == "accept":
        body.append(leaf)
    least = 1 if tokens.empty_body == "reject" else 0
    schemas: dict[str, Schema] = {
        "TokenizeBody": {
            "anyOf": body,
            "description": (
                f"One of the four shapes, nested at most {tokens.depth_limit} deep; it creates no "
                f"more tokens than the tenant's Tokenize Limit."
            ),
        },
        "Node": {"anyOf": [leaf, ref("TokenRequest"), ref("PlainObject"), ref("PlainArray")]},
        "PlainObject": {
            "type": "object",
            "description": "An object without `type`: the same keys come back.",
            "propertyNames": {"not": {"const": "type"}},
            "additionalProperties": back("Node"),
        },
        "PlainArray": {"type": "array", "items": back("Node")},
        **_token_requests(profile),
        **_structured_data("full", profile),
        "Metadata": _metadata(tokens, "object", "string"),
    }
    if least:
        schemas["PlainObject"]["minProperties"] = schemas["PlainArray"]["minItems"] = least
    return schemas


def _metadata(tokens: TokensProfile, of_all: Any, of_value: Any) -> Schema:  # noqa: ANN401 # reason: JSON Schema's types
    """Return the schema of metadata, by the types that it and a value of it may have."""
    return {
        "type": of_all,
        "maxProperties": tokens.metadata_entries_limit,
        "propertyNames": {"maxLength": tokens.metadata_key_limit},
        "additionalProperties": {"type": of_value, "maxLength": tokens.metadata_value_limit},
    }


def container_schema(tokens: TokensProfile) -> Schema:
    """Return the schema of a container path (D-CONTAINER)."""
    return {"type": "string", "pattern": _CONTAINER, "maxLength": tokens.container_limit}


def _container_field(tokens: TokensProfile) -> Schema:
    """Return the schema of the field that selects a container (D-CONTAINER)."""
    container = container_schema(tokens)
    if tokens.container_form == "array":
        return {"type": "array", "items": container, "maxItems": 1}
    return container


def _token_requests(profile: Profile) -> dict[str, Schema]:
    """Return the token request object and its forms by name: one per type and source of data."""
    tokens = profile.tokens
    common: dict[str, Schema] = {
        "metadata": ref("Metadata"),
        tokens.container_field: _container_field(tokens),
        profile.dedup.flag_name: {"type": "boolean"},
    }

    def derived(expressions: Schema) -> dict[str, Schema]:
        indexes = {"type": "array", "items": expressions, "maxItems": tokens.indexes_limit}
        return {"fingerprint_expression": expressions, "search_indexes": indexes}

    data: Schema = {"type": "string"} if tokens.token_data == "string" else {}  # noqa: S105 # reason: a choice's name
    whole: Schema = {"const": "{{ data }}"}
    sealed = {"encrypted": {"type": "string", "format": "jwe-compact"}}
    intent = {"token_intent_id": {**UUID}}
    any_path: Schema = {"type": "string", "pattern": _EXPRESSION}
    types: Schema = {"enum": ["token", *STRUCTURED_TYPES, *tokens.extra_types]}
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
        **{
            f"{name.title()}TokenRequest": _form(
                {
                    **structured_request(name),
                    **common,
                    **derived({"enum": [DATA, structured_type.expression]}),
                },
                "data",
            )
            for name, structured_type in STRUCTURED_TYPES.items()
        },
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
    return object_schema(properties, ("type", source))


def structured_request(name: str) -> dict[str, Schema]:
    """Return type and data of a token request object of a structured type."""
    return {"type": {"const": name}, "data": ref(f"{name.title()}Data")}


def _structured_data(kind: SchemaKind, profile: Profile) -> dict[str, Schema]:
    """Return the data of each structured type, by the name of its schema."""
    return {
        f"{name.title()}Data": structured_type.schema(kind, profile.tokens)
        for name, structured_type in STRUCTURED_TYPES.items()
    }


def _one_of(names: Collection[str]) -> Schema:
    """Return the schema of one of some texts."""
    return {"const": next(iter(names))} if len(names) == 1 else {"enum": list(names)}


def _floor(profile: Profile) -> dict[str, Schema]:
    """A closed schema: four tokens at most, plain values, nothing that a choice may refuse."""
    text: Schema = {"type": "string", "minLength": 1, "maxLength": 40}
    metadata: Schema = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 3,
        "propertyNames": {"pattern": "^[a-z]{1,10}$"},
        "additionalProperties": text,
    }
    token = object_schema(
        {
            "type": {"const": "token"},
            "data": text,
            "metadata": metadata,
            "search_indexes": {"type": "array", "items": {"const": "{{ data }}"}, "maxItems": 1},
            "fingerprint_expression": {"const": "{{ data }}"},
        },
        ("type", "data"),
    )
    structured = [
        object_schema({**structured_request(name), "metadata": metadata}, ("type", "data"))
        for name in STRUCTURED_TYPES
    ]
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
            "description": (
                f"At most four tokens; the default quota is {DEFAULT_QUOTAS['Tokenize Limit']}."
            ),
        },
        "Pair": {"anyOf": pair(leaf)},
        "TokenRequest": {"anyOf": [token, *structured]},
        **_structured_data("floor", profile),
    }


def _ceiling(profile: Profile) -> dict[str, Schema]:
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
    others: Schema = {"type": "string", "minLength": 1, "not": _one_of(STRUCTURED_TYPES)}
    sources = [{"required": [name]} for name in ("data", "encrypted", "token_intent_id")]
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
                    "properties": {**known, **own},
                    "required": ["type"],
                    "anyOf": sources,
                }
                for own in (*map(structured_request, STRUCTURED_TYPES), {"type": others})
            ]
        },
        **_structured_data("ceiling", profile),
    }


_EXAMPLES: Final = {
    name: {"type": name, "data": {**structured_type.example}}
    for name, structured_type in STRUCTURED_TYPES.items()
}
"""A token request object of each structured type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an operation answers.

    answer: name of the schema of its success, "" for no body, "csv" for a file, "any" for JSON.
    statuses: those beyond the ones that follow from the registry. links: link objects, by the
    operation of the next request.
    """

    answer: str = ""
    statuses: tuple[int, ...] = ()
    examples: dict[str, Any] = field(default_factory=dict)
    links: dict[str, dict[str, Any]] = field(default_factory=dict)


def _links(*names: str, **parameters: str) -> dict[str, dict[str, Any]]:
    """Return links to operations on what was created, unless they have other parameters."""
    parameters = parameters or {"id": "$response.body#/id"}
    return {name: {"operationId": name, "parameters": {**parameters}} for name in names}


SHAPES: Final[dict[str, Shape]] = {
    "tokenize": Shape(
        answer="TokenizeAnswer",
        examples={
            "plain": {"name": "Ada", "email": "ada@example.com"},
            "record": {"type": "token", "data": "Ada", "search_indexes": ["{{ data }}"]},
            **_EXAMPLES,
            "array": ["Ada", {"type": "token", "data": "Grace", "metadata": {"order": "7"}}],
            "composite": {
                "names": ["Ada", "Grace"],
                "payment": [*_EXAMPLES.values()],
            },
        },
        links={
            "tokenize": {
                "operationId": "tokenize",
                "requestBody": "$request.body",
                "x-schemathesis": {"merge_body": False},
            }
        },
    ),
    "create_token": Shape(
        answer="TokenRecord",
        examples={"token": {"type": "token", "data": "Ada"}, **_EXAMPLES},
        links=_links("get_token", "patch_token", "delete_token"),
    ),
    "list_tokens": Shape(answer="TokenRecordPage"),
    "search_tokens": Shape(
        answer="TokenRecordPage",
        examples={
            "whole": {"query": "data:Ada"},
            "number": {"query": "data.number:4242424242424242 AND container:/pci/", "size": 10},
        },
    ),
    "get_token": Shape(answer="TokenRecord"),
    "patch_token": Shape(
        answer="TokenRecord",
        examples={"metadata": {"metadata": {"order": "8"}}, "nothing": {}},
        links=_links("get_token"),
    ),
    "delete_token": Shape(links=_links("get_token", id="$request.path.id")),
    "detokenize": Shape(answer="any", examples={"plain": {"note": "nothing to replace"}}),
    "create_token_intent": Shape(
        answer="TokenIntent",
        examples={"token": {"type": "token", "data": "Ada"}, **_EXAMPLES},
        links=_links("get_token_intent", "delete_token_intent"),
    ),
    "get_token_intent": Shape(answer="TokenIntent"),
    "delete_token_intent": Shape(),
    "list_logs": Shape(answer="LogEntryPage"),
    "get_tenant": Shape(answer="Tenant"),
    "create_application": Shape(
        answer="Application",
        statuses=(409,),
        examples={
            "private": {
                "name": "shop",
                "kind": "private",
                "grants": [{"container": "/pci/", "permissions": ["token:create"]}],
            }
        },
        links=_links(
            "get_application",
            "patch_application",
            "create_application_key",
            "list_application_keys",
            "delete_application",
        ),
    ),
    "list_applications": Shape(answer="ApplicationPage"),
    "get_application": Shape(answer="Application"),
    "patch_application": Shape(
        answer="Application", statuses=(409,), examples={"name": {"name": "another name"}}
    ),
    "delete_application": Shape(),
    "create_application_key": Shape(
        answer="ApplicationKeyCreated",
        examples={"usual": {}, "legacy": {"legacy": True}},
        links=_links("delete_application_key", id="$request.path.id", key_id="$response.body#/id"),
    ),
    "list_application_keys": Shape(answer="ApplicationKeyPage"),
    "delete_application_key": Shape(),
    "create_encryption_key": Shape(
        answer="EncryptionKeyCreated",
        examples={"usual": {"algorithm": "ECDH-ES"}},
        links=_links("get_encryption_key", "delete_encryption_key"),
    ),
    "list_encryption_keys": Shape(answer="EncryptionKeyPage"),
    "get_encryption_key": Shape(answer="EncryptionKey"),
    "delete_encryption_key": Shape(),
    "create_reactor": Shape(
        answer="Reactor",
        examples={"usual": {"name": "echo", "code": "return args", "configuration": {"a": "b"}}},
        links=_links("get_reactor", "patch_reactor", "invoke_reactor", "delete_reactor"),
    ),
    "list_reactors": Shape(answer="ReactorPage"),
    "get_reactor": Shape(answer="Reactor"),
    "patch_reactor": Shape(answer="Reactor", examples={"name": {"name": "another name"}}),
    "delete_reactor": Shape(),
    "invoke_reactor": Shape(
        answer="ReactorAnswer", statuses=(502,), examples={"usual": {"args": {"amount": 5}}}
    ),
    "create_proxy": Shape(
        answer="ProxyCreated",
        statuses=(409,),
        examples={"usual": {"name": "api", "destination_url": "https://api.example.com/v1"}},
        links=_links("get_proxy", "patch_proxy", "delete_proxy"),
    ),
    "list_proxies": Shape(answer="ProxyPage"),
    "get_proxy": Shape(answer="Proxy"),
    "patch_proxy": Shape(
        answer="Proxy", statuses=(409,), examples={"name": {"name": "another name"}}
    ),
    "delete_proxy": Shape(),
    "invoke_proxy": Shape(answer="destination", statuses=(403, 408, 413, 415, 502, 504)),
    "create_account_updater_job": Shape(
        answer="JobCreated", links=_links("get_account_updater_job")
    ),
    "list_account_updater_jobs": Shape(answer="JobPage"),
    "get_account_updater_job": Shape(answer="Job"),
    "get_account_updater_result": Shape(answer="csv", statuses=(409,)),
    "upload_batch_file": Shape(statuses=(403, 404, 409)),
}
"""By operation name."""


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


def request_schema(operation: Operation, kind: SchemaKind, profile: Profile) -> Schema:
    """Return the schema of an operation's JSON body."""
    if operation.name == "tokenize":
        return ref("TokenizeBody")
    if operation.name == "create_token":
        return ref("TokenRequest")
    if kind == "ceiling":  # any object where ours is an object
        return {} if operation.name == "detokenize" else {"type": "object"}
    if operation.name == "create_token_intent":
        return _intent(kind, profile)
    if operation.name == "patch_token":
        return _patch_token(kind, profile)
    if operation.form is None:
        return {}
    schema: Schema = copy.deepcopy(dict(operation.form.schema))
    refined = _REFINED_REQUESTS.get(operation.name)
    if refined is not None:
        schema = refined(schema, profile)
    if kind == "floor" and "destination_url" in schema.get("properties", {}):
        schema["properties"]["destination_url"]["pattern"] = _PLAIN_URL
    return schema


def _intent(kind: SchemaKind, profile: Profile) -> Schema:
    token: Schema = {"type": "string"}
    if kind == "floor":
        token["minLength"] = 1
    forms = [
        object_schema({"type": {"const": "token"}, "data": token}, ("type", "data")),
        *(object_schema(structured_request(name), ("type", "data")) for name in STRUCTURED_TYPES),
    ]
    if kind == "full":
        types = {"enum": ["token", *STRUCTURED_TYPES, *profile.tokens.extra_types]}
        sealed = {"type": "string", "format": "jwe-compact"}
        forms.append(object_schema({"type": types, "encrypted": sealed}, ("type", "encrypted")))
    return {"anyOf": forms}


def _patch_token(kind: SchemaKind, profile: Profile) -> Schema:
    tokens = profile.tokens
    metadata = _metadata(tokens, ["object", "null"], ["string", "null"])
    if kind == "floor":
        value = {"type": "string", "maxLength": 40}
        names = {"pattern": "^[a-z]{1,10}$"}
        metadata = {
            "type": "object",
            "maxProperties": 3,
            "propertyNames": names,
            "additionalProperties": value,
        }
        return object_schema({"metadata": metadata})
    expression = {"type": "string", "format": "data-expression"}
    indexes = {"type": "array", "items": expression, "maxItems": tokens.indexes_limit}
    fields: dict[str, Any] = {
        "metadata": metadata,
        tokens.container_field: {"anyOf": [_container_field(tokens), {"type": "null"}]},
        "search_indexes": {"anyOf": [indexes, {"type": "null"}]},
        "fingerprint_expression": {"anyOf": [expression, {"type": "null"}]},
        "data": {"description": "as the token's type has it; of a card some of its fields"},
        "encrypted": {"type": "string", "format": "jwe-compact"},
        "type": {"type": "string", "description": "the token's own; it never changes"},
    }
    schema = object_schema(fields)
    if tokens.unknown_field == "ignore":
        schema["additionalProperties"] = True
    return schema


def _with_grants(schema: Schema, profile: Profile) -> Schema:
    grants = schema["properties"]["grants"]["items"]["properties"]
    grants["container"] = container_schema(profile.tokens)
    return schema


def _by_kind(schema: Schema, profile: Profile) -> Schema:
    """Return the form of a new application, one per kind: each kind has rights of its own."""
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


_REFINED_REQUESTS: Final = {
    "create_application": _by_kind,
    "patch_application": _with_grants,
    "create_proxy": _proxy,
    "patch_proxy": _proxy,
    "search_tokens": _search,
}


_ID: Final = "7b0f1f64-3c1d-4a7e-9d0c-0d4f7a0e5c11"

_FINGERPRINT: Final = "CC2XvyoohnqecEq4r3FtXv6MdCx4TbaW1UUTdCCN5MNL"

PARAMETERS: Final[Mapping[str, Any]] = {
    "id": _ID,
    "key_id": "52f3c4b8-6f0e-4c55-8a53-1f0a2f3f7a90",
    "path": "v1/payments",
    "size": 20,
    "start": f"1767225600000000000:{_ID}",
    "container": "/pci/",
    "type": "token",
    "fingerprint": _FINGERPRINT,
    "entity_type": "token",
    "entity_id": _ID,
    "start_date": "2026-01-01T00:00:00Z",
    "end_date": "2026-02-01T00:00:00Z",
    "Idempotency-Key": "order-4711",
    "secret": "mK0s3Zr9Yt1Vb6Qe",
    "metadata": {"metadata.order": "7"},
}
"""Values by the parameter's name."""

HEADERS: Final[Mapping[str, Any]] = {
    "X-Request-Id": "order-4711",
    "Access-Control-Allow-Origin": "https://shop.example",
    "Access-Control-Expose-Headers": "Retry-After, X-Request-Id",
    "RateLimit": '"LIM-CREATE";r=199;t=10',
    "RateLimit-Policy": '"LIM-CREATE";q=200;w=10',
    "Retry-After": 7,
    "Accept-Encoding": "identity",
    "Accept-Patch": "application/merge-patch+json",
    "WWW-Authenticate": 'ApiKey header="SVC-API-KEY"',
    "Location": f"/tokens/{_ID}",
}
"""Values by the header's name."""

REFUSAL: Final = Problem(
    429,
    "More than 50 requests in 60 s with this key from this address. Blocked for 10 s; the next "
    "request can succeed in 56 s.",
    clause="LIM-PUBLIC",
    headers={
        "Retry-After": "56",
        "RateLimit-Policy": '"LIM-PUBLIC";q=50;w=60',
        "RateLimit": '"LIM-PUBLIC";r=0;t=60',
    },
).response()
"""One complete 429: fifty requests at once, and another one four seconds later."""

_TEXTS: Final[Mapping[str, str]] = {
    "name": "shop",
    "type": "token",
    "fingerprint": _FINGERPRINT,
    "fingerprint_expression": "{{ data }}",
    "detail": "The body must be a JSON object or array.",
    "title": "Bad Request",
    "clause": "TOK-JSON",
    "next": f"1767225600000000000:{_ID}",
    "upload_url": f"/batch-files/{_ID}",
    "download_url": f"/account-updater/jobs/{_ID}/result",
    "destination_url": "https://api.example.com/v1",
    "code": "return args",
    "number": "XXXXXXXXXXXX4242",
}
_FORMATS: Final[Mapping[str, str]] = {"uuid": _ID, "date-time": "2026-01-31T09:30:00Z"}
_NUMBERS: Final[Mapping[str, int]] = {
    "status": 400,
    "expiration_month": 12,
    "expiration_year": 2030,
    "page_size": 20,
}


def example_of(
    schema: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]], name: str = ""
) -> Any:  # noqa: ANN401 # reason: any JSON
    """Return a value that a schema describes. schemas: the document's. name: of the field."""
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], schemas, name)
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        kind = kind[0]
    match kind:
        case "object":
            fields = schema.get("properties", {})
            required = schema.get("required", ())
            return {key: example_of(fields[key], schemas, key) for key in required}
        case "array":
            return [example_of(schema["items"], schemas, name)] if schema.get("items") else []
        case "integer" | "number":
            return _NUMBERS.get(name, schema.get("minimum", 1))
        case "boolean":
            return False
        case _:
            by_format = _FORMATS.get(schema.get("format", ""))
            return by_format or _TEXTS.get(name, "text")

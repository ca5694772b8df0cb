"""Examples of parameters and responses, so that mock servers and contract testers have values.

Request bodies have examples of their own in `SHAPES`. An example of a response is made from its
schema: the first of its alternatives, with every required field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.messages import Problem

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

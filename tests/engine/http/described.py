"""Holds answers against the OpenAPI document: status, media type, body, header fields."""

from __future__ import annotations

from typing import Any

import httpx
from jsonschema import Draft202012Validator

__all__ = ["check_answer", "operation_of"]


def operation_of(document: dict[str, Any], operation_id: str) -> dict[str, Any]:
    """Return the operation object of an id."""
    for item in document["paths"].values():
        for operation in item.values():
            if operation["operationId"] == operation_id:
                found: dict[str, Any] = operation
                return found
    raise KeyError(operation_id)


def check_answer(document: dict[str, Any], operation_id: str, answer: httpx.Response) -> None:
    """Fail unless the answer is one that the document describes for the operation."""
    responses = operation_of(document, operation_id)["responses"]
    status = str(answer.status_code)
    assert status in responses, f"{operation_id} answers {status}, which is not described"
    described = responses[status]
    if "$ref" in described:
        described = document["components"]["responses"][described["$ref"].rpartition("/")[2]]
    content = described.get("content", {})
    media_type = answer.headers.get("content-type", "").partition(";")[0]
    assert bool(content) == bool(media_type), answer.headers
    if content:
        schema = {**content[media_type]["schema"], "components": document["components"]}
        if media_type.endswith("json"):
            Draft202012Validator(schema).validate(answer.json())
    _check_headers(document, described, answer)


def _check_headers(
    document: dict[str, Any], described: dict[str, Any], answer: httpx.Response
) -> None:
    for name in described.get("headers", {}):
        sometimes = name == "Accept-Encoding" or name.startswith("Access-Control-")
        if sometimes and name not in answer.headers:
            continue  # there where the coding is at fault, not where the media type is
        assert name in answer.headers, f"{name} is described and not there"
        schema = document["components"]["headers"][name]["schema"]
        value: Any = answer.headers[name]
        Draft202012Validator(schema).validate(int(value) if schema["type"] == "integer" else value)

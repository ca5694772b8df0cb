"""The schemas of answers, for a profile: records, pages, problems (seed 2.1, D-PROBLEM)."""

from __future__ import annotations

from typing import Final

from engine.http.openapi.schemas import Schema, back, closed, ref
from engine.model import DEFAULT_QUOTAS
from engine.profile import Profile

__all__ = ["answers", "token_record"]

_UUID: Final[Schema] = {"type": "string", "format": "uuid"}
_INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
_TEXT: Final[Schema] = {"type": "string"}
_MADE: Final[dict[str, Schema]] = {"created_by": _UUID, "created_at": _INSTANT}
_OWNED: Final[dict[str, Schema]] = {"id": _UUID, "tenant_id": _UUID}


def answers(profile: Profile) -> dict[str, Schema]:
    """Return the schemas of the answers of this engine."""
    return {
        "Problem": _problem(),
        "TokenizeAnswer": {
            "anyOf": [
                _UUID,
                ref("TokenRecord"),
                ref("MirroredObject"),
                {"type": "array", "items": back("TokenizeAnswer")},
                *([{"type": ["number", "boolean", "null"]}] * _passes(profile)),
            ],
            "description": "The structure of the body: identifiers and records in their places.",
        },
        "MirroredObject": {"type": "object", "additionalProperties": back("TokenizeAnswer")},
        "TokenRecord": token_record(profile),
        "CardMask": closed(
            {
                "number": {"type": "string", "pattern": "^X{8,15}[0-9]{4}$"},
                "expiration_month": {"type": "integer", "minimum": 1, "maximum": 12},
                "expiration_year": {"type": "integer", "minimum": 1000, "maximum": 9999},
            },
            ("number",),
        ),
        **_records(),
        **_things(),
        **_pages(),
    }


def _passes(profile: Profile) -> bool:
    return profile.tokens.non_string_leaf == "pass"


def _problem() -> Schema:
    return closed(
        {
            "type": {"const": "about:blank"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "clause": {"type": "string", "description": "The clause that is broken, where one is."},
            "errors": {
                "type": "object",
                "description": "JSON Pointers into the body → what is wrong there.",
                "additionalProperties": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                },
            },
        },
        ("type", "title", "status", "detail"),
        description="RFC 9457. No message quotes a sensitive value.",
    )


def token_record(profile: Profile, *, is_open: bool = False) -> Schema:
    """Return the schema of a token record (seed 2.1); open where a deployment may add fields."""
    strings = {"type": "object", "additionalProperties": {"type": "string"}}
    data: Schema = ref("CardMask")
    if profile.tokens.plaintext_reads or is_open:
        data = {}
    record = closed(
        {
            "id": _UUID,
            "tenant_id": _UUID,
            "type": {"type": "string"},
            "data": data,
            "mask": {"type": "object"} if is_open else ref("CardMask"),
            "metadata": strings,
            "search_indexes": {"type": "array", "items": {"type": "string"}},
            "fingerprint": {"type": "string", "minLength": 1},
            "fingerprint_expression": {"type": "string"},
            "containers": {"type": "array", "items": {"type": "string"}},
            "created_by": _UUID,
            "created_at": _INSTANT,
            "_extras": {
                "type": "object",
                "properties": {"deduplicated": {"type": "boolean"}},
                "required": ["deduplicated"],
            },
        },
        ("id", "tenant_id", "type", "_extras"),
    )
    if is_open:
        del record["additionalProperties"]
    return record


def _records() -> dict[str, Schema]:
    """Return the records that the operator's side and its log show."""
    grant = closed({"container": _TEXT, "permissions": {"type": "array", "items": _TEXT}})
    application = {
        **_OWNED,
        "name": _TEXT,
        "kind": {"enum": ["private", "public", "management"]},
        "grants": {"type": "array", "items": grant},
        "origins": {"type": "array", "items": _TEXT},
        "created_at": _INSTANT,
    }
    key = {
        "id": _UUID,
        "application_id": _UUID,
        "legacy": {"type": "boolean"},
        "created_at": _INSTANT,
    }
    encryption = {**_OWNED, "algorithm": _TEXT, "created_at": _INSTANT}
    entry = {
        **_OWNED,
        "created_at": _INSTANT,
        "operation": _TEXT,
        "entity_type": _TEXT,
        "entity_id": _TEXT,
        "actor_id": {"type": ["string", "null"]},
        "status": {"type": "integer"},
    }
    quotas = {name: {"type": ["string", "number"]} for name in DEFAULT_QUOTAS}
    tenant = {
        "id": _UUID,
        "name": _TEXT,
        "kind": {"enum": ["test", "production"]},
        "quotas": closed(quotas, tuple(quotas)),
        "settings": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "created_at": _INSTANT,
    }
    return {
        "Application": closed(application, tuple(application)),
        "ApplicationKey": closed(key, tuple(key)),
        "ApplicationKeyCreated": closed({**key, "key": _TEXT}, (*key, "key")),
        "EncryptionKey": closed(encryption, tuple(encryption)),
        "EncryptionKeyCreated": closed(
            {**encryption, "public_key": {"type": "object"}}, (*encryption, "public_key")
        ),
        "LogEntry": closed(entry, tuple(entry)),
        "Tenant": closed(tenant, tuple(tenant)),
    }


def _things() -> dict[str, Schema]:
    """Return the records of intents, reactors, proxies and jobs."""
    transform = {"anyOf": [closed({"code": _TEXT}, ("code",)), {"type": "null"}]}
    intent = {**_OWNED, "type": _TEXT, "mask": ref("CardMask"), **_MADE, "expires_at": _INSTANT}
    names = {"type": "array", "items": _TEXT}
    reactor = {**_OWNED, "name": _TEXT, "code": _TEXT, "configuration_names": names, **_MADE}
    proxy = {
        **_OWNED,
        "name": _TEXT,
        "destination_url": _TEXT,
        "request_transform": transform,
        "response_transform": transform,
        "require_auth": {"type": "boolean"},
        "host": {"type": ["string", "null"]},
        **_MADE,
    }
    job = {
        **_OWNED,
        "status": {"enum": ["pending", "processing", "completed", "failed"]},
        **_MADE,
        "upload_expires_at": _INSTANT,
    }
    return {
        "TokenIntent": closed(intent, tuple(name for name in intent if name != "mask")),
        "Reactor": closed(reactor, tuple(reactor)),
        "ReactorAnswer": closed({"tokens": {}, "raw": {}}, ("tokens", "raw")),
        "Proxy": closed(proxy, tuple(proxy)),
        "ProxyCreated": closed({**proxy, "key": _TEXT}, (*proxy, "key")),
        "Job": closed({**job, "download_url": _TEXT, "error": _TEXT}, tuple(job)),
        "JobCreated": closed({**job, "upload_url": _TEXT}, (*job, "upload_url")),
    }


def _pages() -> dict[str, Schema]:
    """Return the pages of the lists (D-LIST)."""
    pagination = closed(
        {"next": {"type": ["string", "null"]}, "page_size": {"type": "integer", "minimum": 1}},
        ("next", "page_size"),
    )
    shown = (
        "TokenRecord",
        "Application",
        "ApplicationKey",
        "EncryptionKey",
        "Reactor",
        "Proxy",
        "Job",
        "LogEntry",
    )
    return {
        f"{name}Page": closed(
            {"pagination": pagination, "data": {"type": "array", "items": ref(name)}},
            ("pagination", "data"),
        )
        for name in shown
    }

"""Records for the tests of the store: whole ones, told apart by a number."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from engine.model import (
    Application,
    EncryptionKey,
    Grant,
    Intent,
    Job,
    JobResult,
    KeptAnswer,
    Key,
    LogEntry,
    Proxy,
    Reactor,
    Tenant,
    Token,
)

TENANT = str(UUID(int=1))
OTHER_TENANT = str(UUID(int=2))


def uuid(number: int) -> str:
    return str(UUID(int=0xA0000000000000000000000000000000 + number))


def sealed(number: int, what: str = "data") -> bytes:
    """Bytes that are found nowhere by chance."""
    return f"<sealed {what} {number:08d}>".encode()


def token(number: int, **changes: Any) -> Token:
    values: dict[str, Any] = {
        "id": uuid(number),
        "tenant_id": TENANT,
        "type": "token",
        "container": "/general/high/",
        "created_by": "app",
        "created_at_ns": 1_000,
        "sealed_data": sealed(number),
        "dedup_hash": b"hash %d" % number,
    }
    return Token(**values | changes)


def card(number: int, until_ns: int, **changes: Any) -> Token:
    whole: dict[str, Any] = {
        "type": "card",
        "container": "/pci/high/",
        "mask": {"number": "XXXXXXXXXXXX4242", "expiration_month": 12},
        "metadata": {"order": "é\u0000", "": "empty name"},
        "search_indexes": ("{{ data.number }}",),
        "index_hashes": (b"\x00first", b"second"),
        "fingerprint": "print",
        "fingerprint_expression": "{{ data.number }}",
        "sealed_cvc": sealed(number, "cvc"),
        "cvc_until_ns": until_ns,
    }
    return token(number, **whole | changes)


def intent(number: int, until_ns: int, **changes: Any) -> Intent:
    values: dict[str, Any] = {
        "id": uuid(number),
        "tenant_id": TENANT,
        "type": "card",
        "created_by": "app",
        "created_at_ns": 1_000,
        "until_ns": until_ns,
        "sealed_data": sealed(number, "intent"),
    }
    return Intent(**values | changes)


def kept_answer(number: int, until_ns: int, **changes: Any) -> KeptAnswer:
    values: dict[str, Any] = {
        "id": f"answer {number}",
        "tenant_id": TENANT,
        "body_hash": b"body %d" % number,
        "status": 201,
        "sealed_answer": sealed(number, "answer"),
        "created_at_ns": 1_000,
        "until_ns": until_ns,
    }
    return KeptAnswer(**values | changes)


def log(number: int, at_ns: int, **changes: Any) -> LogEntry:
    values: dict[str, Any] = {
        "id": uuid(number),
        "tenant_id": TENANT,
        "at_ns": at_ns,
        "operation": "token:create",
        "entity_type": "token",
        "entity_id": "entity",
        "actor_id": "app",
        "status": 200,
    }
    return LogEntry(**values | changes)


def key(number: int, **changes: Any) -> Key:
    values: dict[str, Any] = {
        "id": uuid(number),
        "tenant_id": TENANT,
        "application_id": "app",
        "legacy": True,
        "text_hash": b"key %d" % number,
        "created_at_ns": number,
    }
    return Key(**values | changes)


def proxy(number: int, **changes: Any) -> Proxy:
    values: dict[str, Any] = {
        "id": uuid(number),
        "tenant_id": TENANT,
        "name": "proxy",
        "destination_url": "https://destination.example/",
        "require_auth": False,
        "key_hash": b"proxy %d" % number,
    }
    return Proxy(**values | changes)


def job(number: int, **changes: Any) -> Job:
    values: dict[str, Any] = {
        "id": uuid(number),
        "tenant_id": TENANT,
        "status": "pending",
        "created_by": "app",
        "created_at_ns": number,
        "upload_until_ns": 9,
        "upload_hash": b"upload",
    }
    return Job(**values | changes)


def job_result(number: int, **changes: Any) -> JobResult:
    values: dict[str, Any] = {
        "id": uuid(number),
        "tenant_id": TENANT,
        "sealed_content": sealed(number, "result"),
        "created_at_ns": number,
    }
    return JobResult(**values | changes)


def tenant(number: int, **changes: Any) -> Tenant:
    values: dict[str, Any] = {
        "id": uuid(number),
        "name": "Acme",
        "kind": "test",
        "quotas": {"Rate Limit": "Default", "Tokenize Limit": 5},
        "settings": {"deduplicate_tokens": True},
        "created_at_ns": number,
    }
    return Tenant(**values | changes)


def one_of_each() -> list[Any]:
    """A document of every class, every field set, and once more with the optional ones left out."""
    grants = (Grant("/", frozenset({"token:create", "token:read"})), Grant("/pci/", frozenset()))
    transform = b"\x01" + b"transform" * 9
    return [
        tenant(1),
        Application(uuid(2), TENANT, "checkout", "private", grants, 5),
        Application(uuid(3), TENANT, "bare", "public", (), 5),
        key(4),
        key(5, legacy=False),
        EncryptionKey(uuid(6), TENANT, "ECDH-ES", {"kty": "OKP"}, sealed(6, "private"), 7),
        Reactor(uuid(7), TENANT, "reactor", sealed(7, "code"), sealed(7, "names"), "app", 8),
        proxy(8),
        proxy(
            9,
            host="pay.example",
            sealed_request_transform=transform,
            sealed_response_transform=transform,
            require_auth=True,
            created_by="app",
            created_at_ns=9,
        ),
        job(10),
        job(
            11,
            status="completed",
            ends_at_ns=12,
        ),
        job_result(11, sealed_content=sealed(11, "file") * 5_000),
        intent(12, 99),
        intent(13, 99, mask={"number": "XXXX"}),
        kept_answer(20, 70),
    ]

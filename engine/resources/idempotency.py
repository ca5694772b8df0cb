"""`Idempotency-Key` on POSTs that create: a repeated request creates only once (D-IDEMPOTENCY).

The first answer is kept for 24 h, by API key, path and `Idempotency-Key`, in the transaction that
created: a kill leaves both or neither, and the second of two concurrent requests finds the first
one's answer. The same body gets that answer again, another body 422 (IETF draft
httpapi-idempotency-key-header). Only what created something is kept: a refusal changed nothing, so
its request is simply answered anew.

An answer may show a key's text, so it is sealed as token data is; of the body and of the
`Idempotency-Key` the store holds keyed hashes.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from engine.messages import Problem, Response, find_header
from engine.model import KeptAnswer
from engine.resources.context import Context
from engine.resources.operation import Operation
from engine.tokens.strict_json import dumps

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
"""The request header's name."""

IDEMPOTENCY_FORM: Final = r"[!-~]{1,255}"
"""Visible ASCII; the quotes of a structured field's string are part of the text."""

_CLAUSE: Final = "D-IDEMPOTENCY"
_CONTAINER: Final = "/idempotency/"


def once(operation: Operation, context: Context) -> Response:
    """Answer a request that has an `Idempotency-Key`, inside the caller's transaction.

    Raises `Problem` as `first_answer` does.
    """
    assert operation.run is not None, "what creates is one transaction"
    kept_answer = first_answer(context)
    if kept_answer is not None:
        return kept_answer
    assert context.rights is not None, "noted since the body was read"
    assert context.entity_ids is not None, "likewise"
    response = operation.run(context)
    if response.ok:
        services, tenant_id = context.services, context.tenant.id
        record_id, body_hash = _hashes(context)
        answer = dumps({"body": response.body, "headers": response.headers})
        keys = services.vault.of(tenant_id)
        services.store.put(
            KeptAnswer(
                record_id,
                tenant_id,
                body_hash,
                response.status,
                keys.seal(_CONTAINER, record_id, answer, "answer"),
                context.wall_ns,
                context.steady_ns + _kept_for_ns(operation, context),
                tuple(sorted(context.rights)),
                tuple(context.entity_ids),
            )
        )
    return response


def first_answer(context: Context) -> Response | None:
    """Return the answer that was kept, None where there is none; inside a transaction.

    Raises `Problem` 400 for a header of another form, 403 for a caller that lacks a right which
    the first answer needed (D-RIGHTS), 422 for another body than the first one's.
    """
    record_id, body_hash = _hashes(context)
    services = context.services
    kept_answer = services.store.get(KeptAnswer, record_id)
    if kept_answer is None or kept_answer.until_ns <= context.steady_ns:
        return None
    for right in kept_answer.rights:
        permission, _, container = right.partition(" ")
        context.require(permission, container or None)
    if kept_answer.body_hash != body_hash:
        raise Problem(
            422,
            "This Idempotency-Key came with another body before; take a new one.",
            clause=_CLAUSE,
        )
    keys = services.vault.of(context.tenant.id)
    opened = orjson.loads(keys.open(_CONTAINER, record_id, kept_answer.sealed_answer, "answer"))
    return Response(kept_answer.status, opened["body"], opened["headers"])


def _hashes(context: Context) -> tuple[str, bytes]:
    """Return the id of the request's record and the hash of its body, both under tenant keys."""
    text = find_header(context.request.headers, IDEMPOTENCY_KEY) or ""
    if re.fullmatch(IDEMPOTENCY_FORM, text) is None:
        raise Problem(
            400, f"{IDEMPOTENCY_KEY} must hold 1 to 255 visible ASCII characters.", clause=_CLAUSE
        )
    keyed_hash = context.services.vault.of(context.tenant.id).index
    path = context.request.path.partition("?")[0]
    name = f"\0idempotency\0{context.caller.key.id}\0{path}\0{text}"
    body = context.body if isinstance(context.body, bytes) else dumps(context.body)
    return keyed_hash(name.encode("latin-1")).hex(), keyed_hash(b"\0body\0" + body)


def _kept_for_ns(operation: Operation, context: Context) -> int:
    """Return how long to keep the answer: no longer than any cvc that it may show (D-CVC)."""
    profile = context.services.profile
    retention_ns: int = context.tenant.quotas["CVC Retention"]
    kept_ns = profile.http.idempotency_kept_ns
    shows_cvc = profile.tokens.plaintext_reads and operation.name == "create_token"
    return min(kept_ns, retention_ns) if shows_cvc else kept_ns

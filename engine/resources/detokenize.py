"""POST /detokenize: any JSON with token expressions, and the plaintext in their place.

D-DETOKENIZE; QUO-DETOKENIZE bounds how many a request may name; the cvc of a card is part of its
data until CVC Retention is over (QUO-CVC).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.messages import Json, Response
from engine.model import Token
from engine.resources.context import Context
from engine.resources.operation import Operation
from engine.tokens import cvc_purpose, parse, read_expressions, splice

_TOKENS_A_TRANSACTION: Final = 100
_JSON: Final = {"Content-Type": "application/json", "Cache-Control": "no-store"}


def opened(token: Token, context: Context) -> tuple[Json, str | None]:
    """Return a token's data in the clear and its cvc until the deadline (QUO-CVC), apart."""
    keys = context.services.vault.of(token.tenant_id)
    data: Json = parse(keys.open(token.container, token.id, token.sealed_data, "data"))
    if token.sealed_cvc is None or token.cvc_until_ns is None:
        return data, None
    if token.cvc_until_ns <= context.steady_ns:  # obeys QUO-CVC
        return data, None
    purpose = cvc_purpose(token.cvc_until_ns)
    return data, keys.open(token.container, token.id, token.sealed_cvc, purpose).decode()


def plaintext_of(token: Token, context: Context) -> Json:
    """Return a token's data in the clear, a card's with its cvc while there is one."""
    data, cvc = opened(token, context)
    if cvc is not None and isinstance(data, dict):
        return {**data, "cvc": cvc}
    return data


def reveal(
    body: Json, context: Context, permission: str, raw: bytes | None = None
) -> tuple[Json | bytes, list[str]]:
    """Return the body with its expressions replaced, and the ids of the tokens that were read.

    raw: the body as bytes; the answer is bytes then, with everything but expressions exactly as
    sent (D-PASS-THROUGH). No transaction is open: other requests are served while a large body is
    walked, and tokens are looked up in batches.

    Raises `Problem`: the profile's status over the Detokenize Limit, 400 for unknown ids, 403
    without `permission` in the container of a token that is named.
    """
    services, tenant = context.services, context.tenant
    found = read_expressions(body, services.rules)
    limit = tenant.quotas["Detokenize Limit"]
    found.check_cost(limit, services.rules)
    named = list(dict.fromkeys(found.token_ids))
    tokens = _looked_up(named, context)
    for token in tokens.values():
        context.require(permission, token.container)
    missing = [token_id for token_id in named if token_id not in tokens]
    if missing:
        raise found.unknown(missing)
    found.check_limit(limit, services.rules)
    values: dict[str, Json] = {}
    for piece in _pieces(named):
        with services.store.transaction(write=False):
            values.update((token_id, plaintext_of(tokens[token_id], context)) for token_id in piece)
    if raw is not None:
        return (splice(raw, values.__getitem__) if named else raw), named
    return found.rebuild(values.__getitem__), named


def _looked_up(token_ids: list[str], context: Context) -> dict[str, Token]:
    """Return the tenant's tokens of these ids, without those that do not exist."""
    store, tenant_id = context.services.store, context.tenant.id
    tokens: dict[str, Token] = {}
    for piece in _pieces(token_ids):
        with store.transaction(write=False):
            for token_id in piece:
                token = store.token(tenant_id, token_id)
                if token is not None:
                    tokens[token_id] = token
    return tokens


def _pieces(token_ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(token_ids), _TOKENS_A_TRANSACTION):
        yield token_ids[start : start + _TOKENS_A_TRANSACTION]


def _revealed(context: Context) -> tuple[Json | bytes, list[str]]:
    context.require("token:read")
    return reveal(context.json, context, "token:read", context.raw)


def _detokenize(context: Context) -> Response:
    answer, read = context.prepared
    if read:
        context.log("token:read", "token", read[0], 200)
    return Response(200, answer, {} if context.raw is None else dict(_JSON))


OPERATIONS = (
    Operation(
        name="detokenize",
        method="POST",
        path="/detokenize",
        summary="Replace token expressions by the plaintext of their tokens.",
        prepare=_revealed,
        run=_detokenize,
        clauses=("QUO-DETOKENIZE", "QUO-CVC", "AUTH-READ"),
        permission="token:read",
        body="json",
        is_costly=True,  # tokens may hold megabytes
    ),
)

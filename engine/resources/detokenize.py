"""POST /detokenize: any JSON with token expressions, and the plaintext in their place.

D-DETOKENIZE; QUO-DETOKENIZE bounds how many a request may name; the cvc of a card is part of its
data until CVC Retention is over (QUO-CVC).
"""

from __future__ import annotations

import sys
from typing import Final

from msgspec.structs import replace

from engine.messages import Json, Response
from engine.model import Token
from engine.resources.context import Context
from engine.resources.operation import Operation
from engine.tokens.creation import cvc_purpose
from engine.tokens.detokenize import read_expressions, splice
from engine.tokens.strict_json import parse
from engine.vault import TenantKeys

_TOKENS_A_TRANSACTION: Final = 10
"""Others wait for a transaction; a token may hold megabytes."""

_JSON_FIELDS: Final = {"Content-Type": "application/json", "Cache-Control": "no-store"}


def opened(token: Token, keys: TenantKeys, steady_ns: int) -> tuple[Json, str | None]:
    """Return a token's data in the clear and its cvc until the deadline (QUO-CVC), apart."""
    data: Json = parse(keys.open(token.container, token.id, token.sealed_data, "data"))
    if token.sealed_cvc is None or token.cvc_until_ns is None:
        return data, None
    if token.cvc_until_ns <= steady_ns:  # obeys QUO-CVC
        return data, None
    purpose = cvc_purpose(token.cvc_until_ns)
    return data, keys.open(token.container, token.id, token.sealed_cvc, purpose).decode()


def plaintext_of(token: Token, keys: TenantKeys, steady_ns: int) -> Json:
    """Return a token's data in the clear, a card's with its cvc while there is one."""
    data, cvc = opened(token, keys, steady_ns)
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
    expressions = read_expressions(body, services.rules)
    limit = tenant.quotas["Detokenize Limit"]
    expressions.check_cost(limit, services.rules)
    named = list(dict.fromkeys(expressions.token_ids))
    tokens = _looked_up(named, context, has_data=expressions.count(services.rules) <= limit)
    for token in tokens.values():
        context.require(permission, token.container)
    missing = [token_id for token_id in named if token_id not in tokens]
    if missing:
        raise expressions.unknown(missing)
    expressions.check_limit(limit, services.rules)
    sizes = {token_id: len(token.sealed_data) for token_id, token in tokens.items()}
    repeated_bytes = sum(sizes[token_id] for token_id in expressions.token_ids) - sum(
        sizes.values()
    )
    services.world.reserve(repeated_bytes)
    with services.store.transaction(write=False):
        keys = services.vault.of(tenant.id)
    values = {i: plaintext_of(token, keys, context.steady_ns) for i, token in tokens.items()}
    if raw is not None:
        return (splice(raw, values.__getitem__) if named else raw), named
    # A text with a character beyond ASCII takes up to four times its bytes.
    wide_bytes = sum(sys.getsizeof(values[i]) - sizes[i] for i in expressions.token_ids)
    services.world.reserve(max(0, wide_bytes))
    return expressions.rebuild(values.__getitem__), named


def _looked_up(token_ids: list[str], context: Context, *, has_data: bool) -> dict[str, Token]:
    """Return the tenant's tokens of these ids, without those that do not exist.

    has_data: whether their data will be read; of too many tokens, only their containers are.
    """
    store, tenant_id = context.services.store, context.tenant.id
    tokens: dict[str, Token] = {}
    for start in range(0, len(token_ids), _TOKENS_A_TRANSACTION):
        read_bytes = 0
        with store.transaction(write=False):
            for token_id in token_ids[start : start + _TOKENS_A_TRANSACTION]:
                token = store.token(tenant_id, token_id)
                if token is not None:
                    tokens[token_id] = token if has_data else replace(token, sealed_data=b"")
                    read_bytes += len(tokens[token_id].sealed_data)
        context.services.world.reserve(read_bytes)
    return tokens


def _revealed(context: Context) -> tuple[Json | bytes, list[str]]:
    context.require("token:read")
    return reveal(context.json, context, "token:read", context.raw)


def _detokenize(context: Context) -> Response:
    answer, read = context.prepared
    if read:
        context.log("token:read", "token", read[0], 200)
    return Response(200, answer, {} if context.raw is None else dict(_JSON_FIELDS))


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

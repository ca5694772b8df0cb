"""POST /detokenize: any JSON with token expressions, and the plaintext in their place.

D-DETOKENIZE; QUO-DETOKENIZE bounds how many a request may name; the cvc of a card is part of its
data until CVC Retention is over (QUO-CVC).
"""

from __future__ import annotations

from typing import Final

from engine.messages import Json, Response
from engine.model import Token
from engine.resources.context import Context
from engine.resources.operation import Operation
from engine.tokens import cvc_purpose, parse, read_expressions, splice

__all__ = ["OPERATIONS", "opened", "plaintext_of", "reveal"]

_JSON: Final = {"Content-Type": "application/json", "Cache-Control": "no-store"}


def opened(token: Token, context: Context) -> tuple[Json, str | None]:
    """Return a token's data in the clear and its cvc until the deadline (QUO-CVC), apart."""
    keys = context.services.vault.of(token.tenant_id)
    data: Json = parse(keys.open(token.container, token.id, token.sealed_data, "data"))
    if token.sealed_cvc is None or token.cvc_until_ns is None:
        return data, None
    if token.cvc_until_ns <= context.steady_ns:
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

    raw: the bytes that the body came as; the answer is bytes then, and what is no expression is
    among them as it was sent (D-PASS-THROUGH).

    Raises `Problem`: the profile's status over the Detokenize Limit, 400 for unknown ids, 403
    without `permission` in the container of a token that is named.
    """
    services, tenant = context.services, context.tenant
    found = read_expressions(body, services.rules)
    limit = tenant.quotas["Detokenize Limit"]
    assert isinstance(limit, int)
    found.check_cost(limit, services.rules)
    tokens: dict[str, Token] = {}
    missing: list[str] = []
    named = dict.fromkeys(found.token_ids)
    for token_id in named:
        token = services.store.token(tenant.id, token_id)
        if token is None:
            missing.append(token_id)
        else:
            tokens[token_id] = token
    for token in tokens.values():
        context.require(permission, token.container)
    if missing:
        raise found.unknown(missing)
    found.check_limit(limit, services.rules)
    values = {token_id: plaintext_of(token, context) for token_id, token in tokens.items()}
    if raw is not None:
        return (splice(raw, values.__getitem__) if named else raw), list(named)
    return found.rebuild(values.__getitem__), list(named)


def _detokenize(context: Context) -> Response:
    context.require("token:read")
    answer, read = reveal(context.json, context, "token:read", context.raw)
    if read:
        context.log("token:read", "token", read[0], 200)
    return Response(200, answer, {} if context.raw is None else dict(_JSON))


OPERATIONS = (
    Operation(
        name="detokenize",
        method="POST",
        path="/detokenize",
        summary="Replace token expressions by the plaintext of their tokens.",
        run=_detokenize,
        clauses=("QUO-DETOKENIZE", "QUO-CVC", "AUTH-READ"),
        permission="token:read",
        body="json",
    ),
)

"""POST /detokenize: any JSON with token expressions, and the plaintext in their place.

D-DETOKENIZE; QUO-DETOKENIZE bounds how many a request may name; the cvc of a card is part of its
data until CVC Retention is over (QUO-CVC).
"""

from __future__ import annotations

from engine.messages import Json, Problem, Response
from engine.model import Token
from engine.resources.context import Context
from engine.resources.operation import Operation
from engine.tokens import cvc_purpose, parse, read_expressions

__all__ = ["OPERATIONS", "opened", "plaintext_of", "reveal"]


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


def reveal(body: Json, context: Context, permission: str) -> tuple[Json, list[str]]:
    """Return the body with its expressions replaced, and the ids of the tokens that were read.

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
    return found.rebuild(values.__getitem__), list(named)


def _detokenize(context: Context) -> Response:
    if not context.caller.may("token:read"):
        raise Problem(403, "The key lacks token:read.", clause="AUTH-READ")
    answer, read = reveal(context.json, context, "token:read")
    if read:
        context.log("token:read", "token", read[0], 200)
    return Response(200, answer)


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

"""POST /tokenize: one or many tokens from a body in the caller's own shape (seed 4.1).

`engine.tokens` implements the walk (TOK-OBJECT, TOK-PLAIN, TOK-ARRAY, TOK-COMPOSITE, TOK-LEAF);
this module is the operation: walk → validate → create → mirror.
"""

from __future__ import annotations

from engine.messages import Response
from engine.resources.context import Context
from engine.resources.creating import answer_of, create_all, log_made, validated
from engine.resources.operation import Operation
from engine.tokens import Plan, walk

__all__ = ["OPERATIONS"]


def _prepare(context: Context) -> Plan:
    services = context.services
    limit = context.caller.tenant.quotas["Tokenize Limit"]
    assert isinstance(limit, int)
    plan = walk(context.json, services.rules, limit)
    if not plan.elements:
        context.require("token:create")  # D-EMPTY: on some container
    return validated(plan, context, services.store.transaction(write=False))


def _tokenize(context: Context) -> Response:
    plan: Plan = context.prepared
    made = create_all(plan, context)
    answer = answer_of(plan, made, context)
    status = context.services.profile.http.tokenize_status
    log_made(made, context, status)
    return Response(status, answer)


OPERATIONS = (
    Operation(
        name="tokenize",
        method="POST",
        path="/tokenize",
        summary="Create one or many tokens, in a body of the caller's own shape.",
        prepare=_prepare,
        run=_tokenize,
        clauses=(
            "TOK-OBJECT",
            "TOK-PLAIN",
            "TOK-ARRAY",
            "TOK-COMPOSITE",
            "TOK-LEAF",
            "TOK-ATOMIC",
            "TOK-LIMIT",
        ),
        tier="specified",
        permission="token:create",
        body="json",
    ),
)

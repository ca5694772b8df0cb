"""POST /tokenize: one or many tokens from a body in the caller's own shape (seed 4.1).

TOK-OBJECT, TOK-PLAIN, TOK-ARRAY, TOK-COMPOSITE and TOK-LEAF are the walk's (`engine.tokens`);
here stands the operation: walk → create → mirror.
"""

from __future__ import annotations

from engine.messages import Response
from engine.resources.context import Context
from engine.resources.creating import answer_of, create_all, log_made
from engine.resources.operation import Operation
from engine.tokens import walk

__all__ = ["OPERATIONS"]


def _tokenize(context: Context) -> Response:
    plan = walk(context.json, context.services.rules)
    if not plan.elements:
        context.require("token:create")  # D-EMPTY: on some container
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

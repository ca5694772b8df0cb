"""Hooks of schemathesis for the documents: what a schema cannot say.

    SCHEMATHESIS_HOOKS=engine.http.openapi.hooks st run $url/openapi.json -H "SVC-API-KEY: $key"

They generate valid card numbers and expressions. They leave out well-formed requests that depend on
state which no generator has, and so may be refused: a payload encrypted under a key of the tenant,
an `Idempotency-Key` that was not used with another body, a token intent that has not expired, the
type of the stored token that is patched, a hostname under the suffixes that the operator lists for
the tenant, and more tokens than the default Tokenize Limit of a tenant.

The hooks check no answers; schemathesis has checks of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import schemathesis
from hypothesis import strategies as st

from engine.model import DEFAULT_QUOTAS
from engine.resources.operation import IDEMPOTENCY_KEY
from engine.tokens.rules import is_luhn_valid

_SEALED_FIELDS: Final = frozenset({"encrypted", "token_intent_id"})
_OF_THE_STORED: Final = frozenset({"data", "encrypted", "type"})
_DERIVED_FIELDS: Final = ("search_indexes", "fingerprint_expression")


@st.composite
def _card_numbers(draw: st.DrawFn) -> str:
    start = draw(st.text("0123456789", min_size=11, max_size=18))
    return next(start + digit for digit in "0123456789" if is_luhn_valid(start + digit))


def _without_idempotency_keys(_context: object, document: dict[str, Any]) -> None:
    """Remove the header from a document: a key reused with another body is refused (422)."""
    for operations in document["paths"].values():
        for operation in operations.values():
            parameters = operation.get("parameters", [])
            parameters[:] = [
                parameter for parameter in parameters if parameter["name"] != IDEMPOTENCY_KEY
            ]


def _tokens(body: object) -> Iterator[object]:
    """Yield what a body asks to tokenize: leaves and token request objects."""
    if isinstance(body, list) or (isinstance(body, dict) and "type" not in body):
        for part in body.values() if isinstance(body, dict) else body:
            yield from _tokens(part)
    else:
        yield body


def _can_be_judged(_context: object, case: Any) -> bool:  # noqa: ANN401 # reason: the library's own class
    """Return whether a case that is valid by its schema must be accepted."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return True
    body = case.body
    name = case.operation.definition.raw["operationId"]
    if name == "patch_token":
        if not isinstance(body, dict):
            return True
        return not (
            _OF_THE_STORED & body.keys() or any(body.get(derived) for derived in _DERIVED_FIELDS)
        )
    if name in {"create_proxy", "patch_proxy"}:
        return not (isinstance(body, dict) and body.get("host"))
    tokens = list(_tokens(body))
    if name == "tokenize" and len(tokens) > int(DEFAULT_QUOTAS["Tokenize Limit"]):
        return False
    return not any(isinstance(token, dict) and token.keys() & _SEALED_FIELDS for token in tokens)


def load() -> None:
    """Register the hooks; importing the module under `SCHEMATHESIS_HOOKS` does so too."""
    schemathesis.openapi.format("card-number", _card_numbers())
    schemathesis.openapi.format("jwe-compact", st.just("a.b.c.d.e"))
    schemathesis.openapi.format("data-expression", st.just("{{ data }}"))
    schemathesis.hook("before_load_schema")(_without_idempotency_keys)
    schemathesis.hook("filter_case")(_can_be_judged)


if __name__ in os.environ.get("SCHEMATHESIS_HOOKS", ""):
    load()

"""The clause of a difference: a code, from the element or the rule of the engine that decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from conformance.context.answers import elements_in, is_request, parts, records_in
from engine.clauses import CLAUSES
from engine.messages import Json

_DEEP: Final = 3
"""Nesting that a shrunk body keeps because the difference needs it."""
CLAUSE_IDS: Final = frozenset(clause.id for clause in CLAUSES)
_DECISION_CLAUSES: Final[Mapping[str, str]] = {
    "D-BODY-COST": "TOK-LIMIT",
    "D-CARD": "TOK-CARD-DATA",
    "D-CARD-FPEXPR": "TOK-FPEXPR",
    "D-CONTAINER": "TOK-CONTAINER",
    "D-CVC-DERIVE": "TOK-FPEXPR",
    "D-DEDUP": "TOK-DEDUP",
    "D-DEPTH": "TOK-COMPOSITE",
    "D-EMPTY": "TOK-COMPOSITE",
    "D-ENCRYPTED": "TOK-ENCRYPTED",
    "D-EXPR": "TOK-FPEXPR",
    "D-GRANT": "AUTH-CREATE",
    "D-INDEXES": "TOK-INDEXES",
    "D-INTENT": "QUO-INTENT",
    "D-LEAF": "TOK-LEAF",
    "D-METADATA": "TOK-METADATA",
    "D-ONE-OF": "TOK-ONE-OF",
    "D-PERMISSIONS": "AUTH-CREATE",
    "D-SCALAR": "TOK-COMPOSITE",
    "D-STRICT-JSON": "TOK-JSON",
    "D-TOKEN-DATA": "TOK-TOKEN-DATA",
    "D-TYPE-VALUE": "TOK-TYPES",
    "D-UNKNOWN": "TOK-OBJECT",
}
"""The clause that an open decision details."""
FIELD_CLAUSES: Final[Mapping[str, str]] = {
    "id": "REC-ID",
    "tenant_id": "REC-TENANT",
    "type": "REC-TYPE",
    "mask": "REC-CARD-MASK",
    "data": "REC-CARD-MASK",
    "metadata": "REC-METADATA",
    "search_indexes": "REC-INDEXES",
    "fingerprint": "REC-FINGERPRINT",
    "fingerprint_expression": "REC-FPEXPR",
    "created_by": "REC-CREATED",
    "created_at": "REC-CREATED",
    "_extras": "REC-EXTRAS",
}
_FEATURES: Final[tuple[tuple[str, str], ...]] = (
    ("token_intent_id", "QUO-INTENT"),
    ("encrypted", "TOK-ENCRYPTED"),
    ("metadata", "TOK-METADATA"),
    ("search_indexes", "TOK-INDEXES"),
    ("fingerprint_expression", "TOK-FPEXPR"),
)
"""Fields that explain why a request object is refused, in order of precedence."""


def refusal_clause(clause: str | None, status: int, default: str) -> str:
    """Return the clause of a request that the reference refuses; clause: of its answer.

    >>> refusal_clause("D-LEAF", 400, "TOK-OBJECT"), refusal_clause(None, 403, "TOK-OBJECT")
    ('TOK-LEAF', 'AUTH-CREATE')
    """
    if status in {401, 403}:
        return "AUTH-HEADER" if status == 401 else "AUTH-CREATE"  # reason: unauthorised
    detailed = _DECISION_CLAUSES.get(clause or "", clause or default)
    return detailed if detailed in CLAUSE_IDS else default


def shape_clause(body: Json) -> str:
    """Return the clause of the shape of a part of a body.

    >>> shape_clause(["x", {"type": "token", "data": "y"}]), shape_clause({"a": {"b": "x"}})
    ('TOK-ARRAY', 'TOK-COMPOSITE')
    """
    if isinstance(body, str):
        return "TOK-LEAF"
    if is_request(body):
        return "TOK-OBJECT"
    if isinstance(body, dict):
        is_plain = all(isinstance(part, str) for part in body.values())
        return "TOK-PLAIN" if is_plain else "TOK-COMPOSITE"
    if isinstance(body, list):
        is_flat = all(isinstance(part, str) or is_request(part) for part in body)
        return "TOK-ARRAY" if is_flat else "TOK-COMPOSITE"
    return "TOK-COMPOSITE"


def shapes_in(body: Json) -> Iterator[str]:
    """Yield the clause of the shape of each part of a body."""
    yield shape_clause(body)
    if not is_request(body):
        for part in parts(body):
            yield from shapes_in(part)


def _depth_of(body: Json) -> int:
    if is_request(body) or not isinstance(body, dict | list):
        return 0
    inner = body.values() if isinstance(body, dict) else body
    return 1 + max(map(_depth_of, inner), default=0)


def acceptance_clause(
    body: Json, status: int | None, *, quota: int, container_field: str, is_odd: bool
) -> str:
    """Return the clause of a tokenize body that is refused although it is valid.

    It is the rarest feature that a shrunk body still has. is_odd: whether a value is not plain.

    >>> told = {"quota": 5, "container_field": "containers", "is_odd": False}
    >>> acceptance_clause([{"type": "token", "data": "x", "metadata": {}}], 400, **told)
    'TOK-METADATA'
    >>> [acceptance_clause("x", 403, **{**told, "is_odd": odd}) for odd in (False, True)]
    ['AUTH-CREATE', 'TOK-LEAF']
    """
    if status in {401, 403} and not is_odd:  # reason: unauthorised; the key may send plain values
        return "AUTH-CREATE"
    elements = list(elements_in(body))
    if len(elements) >= quota:
        return "TOK-LIMIT"
    if _depth_of(body) >= _DEEP:
        return "TOK-COMPOSITE"
    objects = [element for element in elements if isinstance(element, dict)]
    if any(next(iter(element)) != "type" for element in objects):
        return "TOK-OBJECT"  # shrinking puts `type` first where that changes nothing
    features = (*_FEATURES, (container_field, "TOK-CONTAINER"))
    rare = (clause for field, clause in features if any(field in element for element in objects))
    return next(rare, None) or _type_clause(objects, is_odd=is_odd) or _plain_clause(body, is_odd)


def _type_clause(objects: Sequence[Mapping[str, Any]], *, is_odd: bool) -> str | None:
    types = {str(element["type"]) for element in objects}
    if len(types) > 1:
        return "TOK-TYPES"
    if "card" in types:
        return "TOK-CARD-DATA"
    return "TOK-TOKEN-DATA" if objects and is_odd else None


def _plain_clause(body: Json, is_odd: bool) -> str:  # noqa: FBT001 # reason: as above
    """Return the clause of the shape; of the strings in it, where one of them is odd."""
    shapes = set(shapes_in(body))
    order = ("TOK-COMPOSITE", "TOK-ARRAY", "TOK-PLAIN", "TOK-OBJECT", "TOK-LEAF")
    clause = next(clause for clause in order if clause in shapes)
    return "TOK-LEAF" if is_odd and clause != "TOK-COMPOSITE" else clause


_OPERATION_CLAUSES: Final[Mapping[str, str]] = {
    "detokenize": "QUO-DETOKENIZE",
    "search": "TOK-INDEXES",
    "create_token_intent": "QUO-INTENT",
}


def covered(operation: str, body: Any, status: int, answer: Json, clause: str | None) -> set[str]:  # noqa: ANN401 # reason: JSON or bytes
    """Return the clauses that an answer bears out when it is the reference's.

    body: what was sent; clause: that of a refusal.
    """
    if operation not in {"tokenize", "create"}:
        own = _OPERATION_CLAUSES.get(operation)
        return set() if own is None else {own}
    if isinstance(body, bytes):
        return {"TOK-JSON", "REC-SECRET", "AUTH-HEADER"}
    elements = list(elements_in(body))
    if status >= 400:
        refused = {refusal_clause(clause, status, shape_clause(body)), "REC-SECRET"}
        refused |= {"TOK-ATOMIC"} if len(elements) > 1 else set()
        return refused | ({"QUO-TOKENIZE"} if clause == "TOK-LIMIT" else set())
    clauses = {*shapes_in(body), "REC-SECRET", "AUTH-CREATE", "AUTH-HEADER"}
    for element in elements:
        if isinstance(element, dict):
            clauses |= {clause for field, clause in _FEATURES if field in element}
            clauses.add(value_clause(element))
    for record in records_in(answer):
        clauses |= _record_clauses(record)
    return clauses & CLAUSE_IDS


def _record_clauses(record: Mapping[str, Any]) -> set[str]:
    clauses = {clause for field, clause in FIELD_CLAUSES.items() if field in record}
    if record.get("type") == "token":
        clauses.add("REC-TOKEN-DATA")
    if record.get("_extras") == {"deduplicated": True}:
        clauses |= {"TOK-DEDUP", "REC-DEDUP-REDACT", "AUTH-READ"}
    return clauses


def value_of(element: Json) -> Json:
    """Return what an element stores."""
    return element.get("data") if isinstance(element, dict) else element


def value_clause(element: Json) -> str:
    """Return the clause of an element whose stored value is not the one that was sent."""
    if not isinstance(element, dict):
        return "TOK-LEAF"
    if "token_intent_id" in element:
        return "QUO-INTENT"
    if "encrypted" in element:
        return "TOK-ENCRYPTED"
    return "TOK-CARD-DATA" if element.get("type") == "card" else "TOK-TOKEN-DATA"

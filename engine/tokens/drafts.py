"""Drafts: tokens that are valid but not yet created, and what is derived from their data.

A draft holds sensitive values on their way from the body to the vault; its repr shows none.
`creation` makes a stored token (`engine.model.Token`) of a draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import orjson
from msgspec import Struct

from engine.tokens import expressions
from engine.tokens.expressions import DATA, MISSING, Path
from engine.tokens.rules import Faults, Located, Rules, escaped
from engine.tokens.strict_json import dumps
from engine.tokens.structures import STRUCTURES

__all__ = [
    "Draft",
    "Frame",
    "derive",
    "expression_in_force",
    "pointer_to",
    "unplaced",
]

_CVC_FAULT: Final = "must not be derived from the cvc"
_SELECTS_NOTHING: Final = "must select a value of `data`"
_SELECTS_EMPTY: Final = "must select a value of `data` that is not empty"


Frame: TypeAlias = tuple[Any, Any] | None
"""The way to a container of the body: (way to its container, its key or index); None = outside."""


def pointer_to(frame: Frame, key: str | int) -> str:
    """Return the JSON Pointer (RFC 6901) of what stands at `key` of the container at `frame`."""
    parts: list[str] = []
    while frame is not None:
        parts.append(escaped(str(key)))
        frame, key = frame
    return "".join(reversed(parts))


class Draft(Struct, gc=False, eq=False):
    """A future token: the walk sets its place, the reading of its type the content.

    frame, key: the way to its container in the body, and its place there. hole: the list or dict
    of the mirror where its result belongs. value: what stands there, a leaf or a token request
    object. type, container: known and in order. is_leaf: answered with an identifier instead of
    a record (TOK-LEAF).

    The rest is set by `engine.tokens.validate` and `derive`, once nothing is wrong with it:
    plaintext: JSON of `data` without the cvc, to be sealed.
    selected: canonical JSON of the value that fingerprint and deduplication compare.
    cvc: to be sealed apart (D-CVC), None without one. mask: of a card. metadata,
    search_indexes, fingerprint_expression: as the record shows them, None for absent.
    index_messages: what the index key hashes, one an index. deduplicate: the flag, or the
    tenant's setting (D-DEDUP). intent_id: the token intent that is consumed (D-INTENT).

    It refers to the body and its mirror, which never refer back, so it cannot be part of a cycle
    and needs no tracking by the garbage collector.
    """

    frame: Frame
    key: str | int
    hole: Any
    value: Any
    type: str
    container: str
    is_leaf: bool = False
    plaintext: bytes = b""
    selected: bytes = b""
    cvc: str | None = None
    mask: Mapping[str, Any] | None = None
    metadata: Mapping[str, str] | None = None
    search_indexes: tuple[str, ...] | None = None
    index_messages: tuple[bytes, ...] = ()
    fingerprint_expression: str | None = None
    deduplicate: bool = False
    intent_id: str | None = None

    def __repr__(self) -> str:
        return f"<Draft of a {self.type} in {self.container}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        return [("type", self.type), ("container", self.container)]

    @property
    def pointer(self) -> str:
        """The JSON Pointer of this part of the body."""
        return pointer_to(self.frame, self.key)


def unplaced(type_: str, container: str) -> Draft:
    """Return a draft without a body, to check a stored token."""
    return Draft(None, 0, None, None, type_, container)


def expression_in_force(type_: str, supplied: str | None, rules: Rules) -> str | None:
    """Return the expression that a record shows (REC-FPEXPR), None for none.

    A card without one, or under `card_fpexpr = number` with any, has `{{ data.number }}`
    (D-CARD-FPEXPR); another token without one has none or `{{ data }}` (D-FPEXPR-DEFAULT).
    """
    structure = STRUCTURES.get(type_)
    if structure is not None:
        if supplied is None or rules.tokens.card_fpexpr == "number":
            return structure.expression
        return supplied
    return rules.leaf_expression if supplied is None else supplied


def derive(
    draft: Draft,
    data: Any,  # noqa: ANN401 # reason: any JSON
    supplied: str | None,
    rules: Rules,
    faults: Faults,
    at: Located,
) -> None:
    """Set what is derived from `data`: plaintext, mask, fingerprint expression, index messages.

    data: valid, without the cvc, which stands in `draft.cvc`. `supplied`, and what stands in
    `draft.search_indexes`, are expressions whose grammar is known to be right. Adds a fault where
    one selects nothing (D-INDEXES) or the cvc (D-CVC-DERIVE).
    """
    is_text = type(data) is str
    if is_text:  # nothing but the whole can be selected
        draft.plaintext = draft.selected = orjson.dumps(data)
    else:
        draft.plaintext = dumps(data)
    structure = STRUCTURES.get(draft.type)
    if structure is not None:
        draft.mask = structure.mask(data)
    draft.fingerprint_expression = shown = expression_in_force(draft.type, supplied, rules)
    if supplied is not None:
        path = _path(supplied)
        fault = _fault_of(draft, path, _select(draft, data, path), rules)
        if fault is not None:
            clause = "D-CVC-DERIVE" if fault is _CVC_FAULT else "REC-FINGERPRINT"
            faults.add(f"{faults.where(at)}/fingerprint_expression", fault, clause)
            return
    if structure is not None and shown == structure.expression:  # as nearly every card
        draft.selected = orjson.dumps(data[structure.identity])
    elif not is_text:
        draft.selected = expressions.canonical(_select(draft, data, _path(shown or DATA)))
    if draft.search_indexes is not None:
        draft.index_messages = _index_messages(draft, data, draft.search_indexes, rules, faults, at)


def _index_messages(
    draft: Draft,
    data: Any,  # noqa: ANN401 # reason: any JSON
    indexes: tuple[str, ...],
    rules: Rules,
    faults: Faults,
    at: Located,
) -> tuple[bytes, ...]:
    """Return what is hashed, one an index; adds a fault where there is nothing to hash."""
    messages = []
    for place, index in enumerate(indexes):
        if index == DATA and type(data) is str and data:  # as nearly every index of a text
            messages.append(expressions.index_message((), data))
            continue
        path = _path(index)
        value = _select(draft, data, path)
        fault = _fault_of(draft, path, value, rules)
        if fault is None and expressions.is_empty(value):
            fault = _SELECTS_EMPTY
        if fault is None:
            messages.append(expressions.index_message(path, value))
        else:
            clause = "D-CVC-DERIVE" if fault is _CVC_FAULT else "D-INDEXES"
            faults.add(f"{faults.where(at)}/search_indexes/{place}", fault, clause)
    return tuple(messages)


def _fault_of(
    draft: Draft,
    path: Path,
    value: Any,  # noqa: ANN401 # reason: any JSON, or MISSING
    rules: Rules,
) -> str | None:
    """Say what is wrong with an expression that selects this value, None for nothing."""
    if path[:1] == ("cvc",) and _has_cvc(draft) and rules.tokens.cvc_derive == "reject":
        return _CVC_FAULT
    return _SELECTS_NOTHING if value is MISSING else None


def _has_cvc(draft: Draft) -> bool:
    structure = STRUCTURES.get(draft.type)
    return structure is not None and structure.has_cvc


def _path(text: str) -> Path:
    path = expressions.parse(text)
    assert path is not None, "its grammar was checked before"
    return path


def _select(draft: Draft, data: Any, path: Path) -> Any:  # noqa: ANN401 # reason: any JSON, or MISSING
    """Select from `data`; the cvc, which is kept apart, only when the path names it."""
    if path == ("cvc",) and _has_cvc(draft):
        return MISSING if draft.cvc is None else draft.cvc
    return expressions.select(data, path)

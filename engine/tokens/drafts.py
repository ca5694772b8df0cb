"""Drafts: tokens that are valid and not yet there, and what is derived from their data.

A draft holds sensitive values on their way from the body to the vault; its repr shows none.

What it is not: a stored token (`engine.model.Token`), which `creation` makes of a draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias

from engine.tokens import expressions
from engine.tokens.expressions import DATA, MISSING, NUMBER, Path
from engine.tokens.masks import card_mask
from engine.tokens.rules import CARD, TOKEN, Faults, Rules
from engine.tokens.strict_json import dumps

__all__ = [
    "Draft",
    "Frame",
    "LeafDraft",
    "Located",
    "derive",
    "escaped",
    "expression_in_force",
    "pointer_to",
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


def escaped(key: str) -> str:
    """Return a key as one step of a JSON Pointer.

    >>> escaped("a/b~c")
    '/a~1b~0c'
    """
    return "/" + key.replace("~", "~0").replace("/", "~1")


class Draft:
    """One valid token to be.

    type, container: as walked. plaintext: JSON of `data` without the cvc, to be sealed.
    selected: canonical JSON of the value that fingerprint and deduplication compare.
    cvc: to be sealed apart (D-CVC), None without one. mask: of a card. metadata,
    search_indexes, fingerprint_expression: as the record shows them, None for absent.
    index_messages: what the index key hashes, one an index. deduplicate: the flag, or the
    tenant's setting (D-DEDUP). intent_id: the token intent that is consumed (D-INTENT).
    is_leaf: answered with an identifier instead of a record (TOK-LEAF).
    """

    __slots__ = (
        "container",
        "cvc",
        "deduplicate",
        "fingerprint_expression",
        "index_messages",
        "intent_id",
        "is_leaf",
        "mask",
        "metadata",
        "plaintext",
        "search_indexes",
        "selected",
        "type",
    )

    type: str
    container: str
    plaintext: bytes
    selected: bytes
    cvc: str | None
    mask: Mapping[str, Any] | None
    metadata: Mapping[str, str] | None
    search_indexes: tuple[str, ...] | None
    index_messages: tuple[bytes, ...]
    fingerprint_expression: str | None
    deduplicate: bool
    intent_id: str | None
    is_leaf: bool

    def __init__(self, type_: str, container: str) -> None:
        self.type = type_
        self.container = container
        self.cvc = None
        self.mask = None
        self.metadata = None
        self.search_indexes = None
        self.index_messages = ()
        self.fingerprint_expression = None
        self.deduplicate = False
        self.intent_id = None
        self.is_leaf = False

    def __repr__(self) -> str:
        return f"<Draft of a {self.type} in {self.container}>"


class LeafDraft(Draft):
    """A plain leaf of a body, which is its own draft, since nothing about it can be wrong.

    What a leaf never has stands in the class, not in each draft. The walk knows its place and its
    value; `engine.tokens.validate` sets the rest.
    """

    __slots__ = ("_frame", "_hole", "_key", "value")

    type = TOKEN
    cvc = None
    mask = None
    metadata = None
    search_indexes = None
    index_messages = ()
    intent_id = None
    is_leaf = True

    def __init__(
        self,
        frame: Frame,
        key: str | int,
        hole: Any,  # noqa: ANN401 # reason: the list or dict of the mirror that has the hole
        value: Any,  # noqa: ANN401 # reason: any JSON
        container: str,
    ) -> None:
        self._frame = frame
        self._key = key
        self._hole = hole
        self.value = value
        self.container = container

    @property
    def pointer(self) -> str:
        """The JSON Pointer of this leaf of the body."""
        return pointer_to(self._frame, self._key)


class Located(Protocol):
    """Whatever knows its place in the body; asked only when something is wrong."""

    @property
    def pointer(self) -> str:
        """The JSON Pointer of the token request object."""
        ...


def expression_in_force(type_: str, supplied: str | None, rules: Rules) -> str | None:
    """Return the expression that a record shows (REC-FPEXPR), None for none.

    A card without one, or under `card_fpexpr = number` with any, has `{{ data.number }}`
    (D-CARD-FPEXPR); another token without one has none or `{{ data }}` (D-FPEXPR-DEFAULT).
    """
    if type_ == CARD:
        if supplied is None or rules.tokens.card_fpexpr == "number":
            return NUMBER
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
    """Set all that follows from `data`: plaintext, mask, fingerprint expression, index messages.

    data: valid, without the cvc, which stands in `draft.cvc`. `supplied`, and what stands in
    `draft.search_indexes`, are expressions whose grammar is known to be right. Adds a fault where
    one selects nothing (D-INDEXES) or the cvc (D-CVC-DERIVE).
    """
    draft.plaintext = dumps(data)
    draft.mask = card_mask(data) if draft.type == CARD else None
    draft.fingerprint_expression = shown = expression_in_force(draft.type, supplied, rules)
    if supplied is not None:
        path = _path(supplied)
        fault = _fault_of(draft, path, _select(draft, data, path), rules)
        if fault is not None:
            faults.add(f"{at.pointer}/fingerprint_expression", fault)
            return
    if type(data) is str:  # of which nothing but the whole can be selected
        draft.selected = draft.plaintext
    else:
        draft.selected = expressions.canonical(_select(draft, data, _path(shown or DATA)))
    if draft.search_indexes is None:
        return
    messages = []
    for place, index in enumerate(draft.search_indexes):
        path = _path(index)
        value = _select(draft, data, path)
        fault = _fault_of(draft, path, value, rules)
        if fault is None and expressions.is_empty(value):
            fault = _SELECTS_EMPTY
        if fault is None:
            messages.append(expressions.index_message(path, value))
        else:
            faults.add(f"{at.pointer}/search_indexes/{place}", fault)
    draft.index_messages = tuple(messages)


def _fault_of(
    draft: Draft,
    path: Path,
    value: Any,  # noqa: ANN401 # reason: any JSON, or MISSING
    rules: Rules,
) -> str | None:
    """Say what is wrong with an expression that selects this value, None for nothing."""
    if draft.type == CARD and path and path[0] == "cvc" and rules.tokens.cvc_derive == "reject":
        return _CVC_FAULT
    return _SELECTS_NOTHING if value is MISSING else None


def _path(text: str) -> Path:
    path = expressions.parse(text)
    assert path is not None, "its grammar was checked before"
    return path


def _select(draft: Draft, data: Any, path: Path) -> Any:  # noqa: ANN401 # reason: any JSON, or MISSING
    """Select from `data`; the cvc, which is kept apart, only when the path names it."""
    if path == ("cvc",) and draft.type == CARD:
        return MISSING if draft.cvc is None else draft.cvc
    return expressions.select(data, path)

"""Structured token types: those whose `data` is an object of known fields.

A type's `StructuredType` holds everything that is specific to the type; all other code treats types
alike. `engine.tokens.rules.STRUCTURED` lists the names of these types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from engine.profile import TokensProfile
from engine.tokens.cards import (
    CARD_EXAMPLE,
    CARD_MASK_SCHEMA,
    card_mask,
    card_schema,
    read_card,
)
from engine.tokens.expressions import NUMBER
from engine.tokens.rules import CARD, STRUCTURED, BodyErrors, Located, Rules, SchemaKind

Read: TypeAlias = Callable[
    [Any, Rules, BodyErrors, Located, str, bool], tuple[dict[str, Any], str | None] | None
]


class StructuredType(NamedTuple):
    """What a structured type is.

    read: as `engine.tokens.cards.read_card`. mask: makes what callers see of the data. identity:
    the field that fingerprint and deduplication compare, by this expression, unless another is
    supplied (D-CARD-FPEXPR). schema, mask_schema: of the data and of its mask.
    example: some data. has_cvc: its cvc is kept apart and expires (D-CVC).
    """

    read: Read
    mask: Callable[[Mapping[str, Any]], dict[str, Any]]
    identity: str
    expression: str
    schema: Callable[[SchemaKind, TokensProfile], dict[str, Any]]
    mask_schema: Mapping[str, Any]
    example: Mapping[str, Any]
    has_cvc: bool = False


STRUCTURED_TYPES: Final[dict[str, StructuredType]] = {
    CARD: StructuredType(
        read=read_card,
        mask=card_mask,
        identity="number",
        expression=NUMBER,
        schema=card_schema,
        mask_schema=CARD_MASK_SCHEMA,
        example=CARD_EXAMPLE,
        has_cvc=True,
    )
}
assert STRUCTURED_TYPES.keys() == set(STRUCTURED)

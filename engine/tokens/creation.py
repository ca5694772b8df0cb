"""Creation: a draft becomes a stored token, its values sealed and hashed.

The vault is a neighbour that this package does not see: it is handed a tenant's `Keys`.

What it is not: the store. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from engine.model import Token
from engine.tokens.drafts import Draft
from engine.tokens.fingerprints import KeyedHash, dedup_place, fingerprint
from engine.tokens.rules import Rules

__all__ = ["Keys", "create_token", "dedup_hashes", "hash_indexes"]

_BARE: Final = tuple(Token._field_defaults.values())
"""All that a plain leaf has not."""

_token: Final = tuple.__new__
"""Makes a named tuple without the call that its class puts around this one."""


class Keys(Protocol):
    """One tenant's keys, as the vault gives them."""

    fingerprint: KeyedHash
    dedup: KeyedHash
    index: KeyedHash

    @property
    def seal(self) -> Callable[[str, str, bytes, str], bytes]:
        """(container, token id, plaintext, purpose `data` or `cvc`) → ciphertext."""
        ...


def dedup_hashes(drafts: list[Draft], keys: Keys, rules: Rules) -> list[bytes]:
    """Return what D-DEDUP-KEY compares, one a draft."""
    keyed = keys.dedup
    if not rules.dedup.container_in_key:
        return [keyed(dedup_place(draft.type, "") + draft.selected) for draft in drafts]
    return [keyed(dedup_place(draft.type, draft.container) + draft.selected) for draft in drafts]


def hash_indexes(draft: Draft, keys: Keys) -> tuple[bytes, ...]:
    """Return the keyed hashes of the indexed values, one an index."""
    return tuple([keys.index(message) for message in draft.index_messages])


def create_token(
    draft: Draft,
    keys: Keys,
    dedup: bytes,
    token_id: str,
    tenant_id: str,
    created_by: str,
    created_at_ns: int,
    cvc_until_ns: int,
) -> Token:
    """Return the token to be stored.

    dedup: its deduplication hash. cvc_until_ns: when a cvc is erased (QUO-CVC, D-CVC), whatever
    the token holds; kept only with a cvc.
    """
    container = draft.container
    sealed_data = keys.seal(container, token_id, draft.plaintext, "data")
    expression = draft.fingerprint_expression
    if draft.is_leaf and expression is None:
        begun = (token_id, tenant_id, draft.type, container, created_by, created_at_ns, sealed_data)
        return _token(Token, (*begun, dedup, *_BARE))
    cvc = draft.cvc
    return Token(
        token_id,
        tenant_id,
        draft.type,
        container,
        created_by,
        created_at_ns,
        sealed_data,
        dedup,
        draft.mask,
        draft.metadata,
        draft.search_indexes,
        hash_indexes(draft, keys) if draft.index_messages else (),
        None if expression is None else fingerprint(draft.type, draft.selected, keys.fingerprint),
        expression,
        None if cvc is None else keys.seal(container, token_id, cvc.encode(), "cvc"),
        None if cvc is None else cvc_until_ns,
    )

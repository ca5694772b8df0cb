"""Creation: a draft becomes a stored token, its values sealed and hashed.

The vault is a neighbour that this package does not see: it is handed a tenant's `Keys`.

What it is not: the store. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.model import Token
from engine.tokens.drafts import Draft
from engine.tokens.fingerprints import KeyedHash, dedup_place, fingerprint
from engine.tokens.rules import Rules

__all__ = ["Keys", "create_token", "create_tokens", "dedup_hashes", "hash_indexes"]


class Keys(Protocol):
    """One tenant's keys, as the vault gives them."""

    fingerprint: KeyedHash
    dedup: KeyedHash
    index: KeyedHash

    @property
    def seal(self) -> Callable[[str, str, bytes, str], bytes]:
        """(container, token id, plaintext, purpose `data` or `cvc`) → ciphertext."""
        ...

    @property
    def open(self) -> Callable[[str, str, bytes, str], bytes]:
        """(container, token id, ciphertext, purpose) → plaintext."""
        ...


def dedup_hashes(drafts: list[Draft], keys: Keys, rules: Rules) -> list[bytes]:
    """Return what D-DEDUP-KEY compares, one a draft."""
    keyed, place_of = keys.dedup, dedup_place
    if not rules.dedup.container_in_key:
        return [keyed(place_of(draft.type, "") + draft.selected) for draft in drafts]
    return [keyed(place_of(draft.type, draft.container) + draft.selected) for draft in drafts]


def hash_indexes(draft: Draft, keys: Keys) -> tuple[bytes, ...]:
    """Return the keyed hashes of the indexed values, one an index."""
    return tuple([keys.index(message) for message in draft.index_messages])


def create_tokens(
    drafts: Sequence[Draft],
    hashes: Sequence[bytes],
    keys: Keys,
    new_id: Callable[[], str],
    tenant_id: str,
    created_by: str,
    created_at_ns: int,
    cvc_until_ns: int,
) -> list[Token]:
    """Return the tokens to be stored, one a draft; the rest as in `create_token`.

    hashes: their deduplication hashes.
    """
    seal = keys.seal
    tokens: list[Token] = []
    for draft, dedup in zip(drafts, hashes):  # noqa: B905 # reason: asking for equal lengths costs as much as the loop
        token_id, container = new_id(), draft.container
        sealed = seal(container, token_id, draft.plaintext, "data")
        bare = draft.is_leaf and draft.fingerprint_expression is None
        rest = () if bare else _rest(draft, keys, token_id, cvc_until_ns)
        tokens.append(
            Token(
                token_id,
                tenant_id,
                draft.type,
                container,
                created_by,
                created_at_ns,
                sealed,
                dedup,
                *rest,
            )
        )
    return tokens


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
    (token,) = create_tokens(
        [draft],
        [dedup],
        keys,
        lambda: token_id,
        tenant_id,
        created_by,
        created_at_ns,
        cvc_until_ns,
    )
    return token


def _rest(draft: Draft, keys: Keys, token_id: str, cvc_until_ns: int) -> tuple[Any, ...]:
    """Return what only some tokens have, in the order of `Token`."""
    expression, cvc = draft.fingerprint_expression, draft.cvc
    return (
        draft.mask,
        draft.metadata,
        draft.search_indexes,
        hash_indexes(draft, keys) if draft.index_messages else (),
        None if expression is None else fingerprint(draft.type, draft.selected, keys.fingerprint),
        expression,
        None if cvc is None else keys.seal(draft.container, token_id, cvc.encode(), "cvc"),
        None if cvc is None else cvc_until_ns,
    )

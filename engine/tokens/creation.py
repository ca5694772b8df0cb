"""Creation: a draft becomes a stored token, its values sealed and hashed.

This package does not import the vault: it gets a tenant's `Keys`. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.model import Token
from engine.tokens.drafts import Draft
from engine.tokens.fingerprints import KeyedHash, dedup_place, fingerprint
from engine.tokens.rules import Rules

__all__ = [
    "Keys",
    "create_tokens",
    "cvc_purpose",
    "dedup_hashes",
    "hash_indexes",
]


class Keys(Protocol):
    """One tenant's keys, as the vault gives them."""

    fingerprint: KeyedHash
    dedup: KeyedHash
    index: KeyedHash

    @property
    def seal(self) -> Callable[[str, str, bytes, str], bytes]:
        """(container, token id, plaintext, purpose `data` or `cvc_purpose`) → ciphertext."""
        ...

    @property
    def open(self) -> Callable[[str, str, bytes, str], bytes]:
        """(container, token id, ciphertext, purpose) → plaintext."""
        ...


def cvc_purpose(until_ns: int | None) -> str:
    """Return the purpose that a cvc is sealed for: under another deadline it does not open."""
    return f"cvc until {until_ns}"


def dedup_hashes(drafts: list[Draft], keys: Keys, rules: Rules) -> list[bytes]:
    """Return what D-DEDUP-KEY compares, one a draft."""
    keyed, whole = keys.dedup, rules.dedup.container_in_key
    hashes = []
    type_ = container = None
    place = b""
    for draft in drafts:
        if draft.container is not container or draft.type is not type_:  # most are as the last
            type_, container = draft.type, draft.container
            place = dedup_place(type_, container if whole else "")
        hashes.append(keyed(place + draft.selected))
    return hashes


def hash_indexes(draft: Draft, keys: Keys) -> tuple[bytes, ...]:
    """Return the keyed hashes of the indexed values, one an index."""
    return tuple(map(keys.index, draft.index_messages))


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
    """Return the tokens to be stored, one a draft.

    hashes: their deduplication hashes. cvc_until_ns: when a cvc is erased (QUO-CVC, D-CVC),
    whatever the token holds; kept only with a cvc.
    """
    seal, fingerprinted, cvc_place = keys.seal, keys.fingerprint, cvc_purpose(cvc_until_ns)
    tokens: list[Token] = []
    for draft, dedup in zip(drafts, hashes):  # noqa: B905 # reason: asking for equal lengths costs as much as the loop
        token_id, container, type_ = new_id(), draft.container, draft.type
        sealed = seal(container, token_id, draft.plaintext, "data")
        expression = draft.fingerprint_expression
        if expression is None and draft.is_leaf:
            tokens.append(
                Token(
                    token_id, tenant_id, type_, container, created_by, created_at_ns, sealed, dedup
                )
            )
            continue
        cvc = draft.cvc
        tokens.append(
            Token(
                token_id,
                tenant_id,
                type_,
                container,
                created_by,
                created_at_ns,
                sealed,
                dedup,
                draft.mask,
                draft.metadata,
                draft.search_indexes,
                hash_indexes(draft, keys) if draft.index_messages else (),
                None if expression is None else fingerprint(type_, draft.selected, fingerprinted),
                expression,
                None if cvc is None else seal(container, token_id, cvc.encode(), cvc_place),
                None if cvc is None else cvc_until_ns,
            )
        )
    return tokens

"""Deduplication: which elements of a request create, and which come back as what exists.

TOK-DEDUP: where it is on, an equal value gives the existing token. D-DEDUP: on by the tenant's
setting or the object's flag (`Draft.deduplicate`). D-DEDUP-KEY: equal by the deduplication hash; of
several stored ones the oldest; inside one request, in document order, the first creates and later
ones are deduplicated.

The store does the look-up, `records` the redaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from engine.messages import Problem
from engine.model import Token
from engine.tokens.creation import Keys, cvc_purpose, hash_indexes
from engine.tokens.drafts import Draft, derive, unplaced
from engine.tokens.rules import Faults, Rules
from engine.tokens.strict_json import parse

__all__ = ["CREATE", "Decision", "check_limit", "count_limited", "decide", "merge_existing"]


class _Stored:
    """The location of faults in a stored token, which has no place in the body."""

    pointer: Final = ""


_STORED: Final = _Stored()


class _Create:
    """The decision to create."""

    def __repr__(self) -> str:
        return "CREATE"


CREATE: Final = _Create()

Decision = _Create | int | Token
"""`CREATE`; or the place in the request of the element that creates the equal token; or the stored
token."""


def decide(
    drafts: Sequence[Draft], hashes: Sequence[bytes], find: Callable[[bytes], Token | None]
) -> list[Decision]:
    """Return a decision a draft.

    find: deduplication hash → the tenant's oldest token of that hash. It is asked once a distinct
    hash, and only for drafts whose deduplication is on.
    """
    decisions: list[Decision] = []
    creating: dict[bytes, int] = {}
    stored: dict[bytes, Token | None] = {}
    for place, (draft, digest) in enumerate(zip(drafts, hashes, strict=True)):
        if draft.deduplicate:
            if digest not in stored:
                stored[digest] = find(digest)
            existing = stored[digest]
            if existing is not None:
                decisions.append(existing)
                continue
            if digest in creating:
                decisions.append(creating[digest])
                continue
        creating.setdefault(digest, place)
        decisions.append(CREATE)
    return decisions


def count_limited(decisions: Sequence[Decision], rules: Rules) -> int:
    """Return what Tokenize Limit counts (D-LIMIT-COUNT): new tokens, or every element."""
    if rules.tokens.limit_counts == "elements":
        return len(decisions)
    return decisions.count(CREATE)


def check_limit(count: int, limit: int, rules: Rules) -> None:
    """Raise the problem of a request over its Tokenize Limit (TOK-LIMIT, D-LIMIT-STATUS)."""
    if count > limit:
        what = "hold" if rules.tokens.limit_counts == "elements" else "create"
        raise Problem(
            rules.tokens.limit_status,
            f"The request would {what} {count} tokens, more than the Tokenize Limit of {limit}.",
            clause="TOK-LIMIT",
        )


def merge_existing(
    token: Token, draft: Draft, keys: Keys, rules: Rules, *, cvc_until_ns: int
) -> Token:
    """Return the stored token as a deduplicated draft leaves it (D-DEDUP-RECORD).

    `read_existing`: the same token; what the draft brings is dropped. `update_existing`: metadata
    merged over the old, indexes replaced when supplied, a cvc replaced with its retention begun
    anew (`cvc_until_ns`). Data, expression, `created_by` and `created_at` stay in both.
    Raises `Problem` 400 where the token would break a rule.
    """
    if rules.dedup.record == "read_existing":
        return token
    metadata = token.metadata
    if draft.metadata:
        metadata = {**(metadata or {}), **draft.metadata}
        limit = rules.tokens.metadata_entries_limit
        if len(metadata) > limit:
            raise Problem(
                400,
                f"The token's metadata would have more than {limit} entries.",
                clause="D-METADATA",
            )
    brought, hashes = draft.search_indexes, token.index_hashes
    indexes = token.search_indexes if brought is None else brought
    renews = draft.cvc is not None and rules.tokens.cvc_derive == "allow"
    if brought is not None or (renews and indexes):
        hashes = hash_indexes(_reindexed(token, indexes, draft.cvc, keys, rules), keys)
    sealed_cvc, until_ns = token.sealed_cvc, token.cvc_until_ns
    if draft.cvc is not None:
        until_ns = cvc_until_ns
        purpose = cvc_purpose(until_ns)
        sealed_cvc = keys.seal(token.container, token.id, draft.cvc.encode(), purpose)
    return replace(
        token,
        metadata=metadata,
        search_indexes=indexes,
        index_hashes=hashes,
        sealed_cvc=sealed_cvc,
        cvc_until_ns=until_ns,
    )


def _reindexed(
    token: Token, indexes: tuple[str, ...] | None, cvc: str | None, keys: Keys, rules: Rules
) -> Draft:
    """Return a draft of the stored data with the indexes and the cvc that the token will have.

    Data with equal fingerprints may differ elsewhere; indexes are derived from the stored data.
    """
    stored, faults = unplaced(token.type, token.container), Faults()
    stored.cvc, stored.search_indexes = cvc, indexes
    data = parse(keys.open(token.container, token.id, token.sealed_data, "data"))
    derive(stored, data, None, rules, faults, _STORED)
    if faults:
        raise Problem(
            400, "A search index selects nothing of the token that exists.", clause="D-INDEXES"
        )
    return stored

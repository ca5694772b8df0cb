"""Creation: turn new tokens into tokens, sealed and hashed, or find the existing equal ones.

The vault gives a tenant's keys. Nothing is written here.

Fingerprints and the deduplication hash say what "the same value" means (D-FINGERPRINT). A
fingerprint is HMAC-SHA-256 under a key of the tenant over type and canonical JSON of the value that
the expression in force selects, written in base58 (REC-FINGERPRINT). Equal values of a tenant and
type have equal fingerprints, which reveal nothing without the key.

The deduplication hash covers the same input and the container, under a second key (D-DEDUP-KEY), so
that the store can compare it and it never equals a fingerprint that a caller sees.

Deduplication decides which elements of a request create a token and which return an existing one.
TOK-DEDUP: where it is on, an equal value gives the existing token. D-DEDUP: on by the tenant's
setting or the object's flag (`NewToken.deduplicate`). D-DEDUP-KEY: equal by the deduplication hash;
of several stored ones the oldest; inside one request, in document order, the first creates and
later ones are deduplicated.

The store does the look-up; `engine.tokens.records` does the redaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec.structs import replace

from engine.messages import Problem
from engine.model import Token
from engine.tokens.rules import BodyErrors, Rules
from engine.tokens.shapes import NewToken, detached_token
from engine.tokens.strict_json import parse
from engine.tokens.types import derive
from engine.vault import TenantKeys


def cvc_purpose(until_ns: int | None) -> str:
    """Return the purpose that a cvc is sealed for: under another deadline it does not open."""
    return f"cvc until {until_ns}"


def dedup_hashes(new_tokens: list[NewToken], keys: TenantKeys, rules: Rules) -> list[bytes]:
    """Return what D-DEDUP-KEY compares, one hash per new token."""
    keyed, whole = keys.dedup, rules.dedup.container_in_key
    return [
        keyed(
            dedup_place(new_token.type, new_token.container if whole else "") + new_token.selected
        )
        for new_token in new_tokens
    ]


def create_tokens(
    new_tokens: Sequence[NewToken],
    hashes: Sequence[bytes],
    keys: TenantKeys,
    new_id: Callable[[], str],
    tenant_id: str,
    created_by: str,
    created_at_ns: int,
    cvc_until_ns: int,
) -> list[Token]:
    """Return the tokens to be stored, one per new token.

    hashes: their deduplication hashes. cvc_until_ns: when a cvc is erased (QUO-CVC, D-CVC),
    whatever the token holds; kept only with a cvc.
    """
    seal, purpose = keys.seal, cvc_purpose(cvc_until_ns)
    tokens: list[Token] = []
    token_ids = [new_id() for _ in new_tokens]  # obeys REC-ID
    for new_token, token_id, dedup in zip(new_tokens, token_ids, hashes):  # noqa: B905 # reason: asking for equal lengths costs as much as the loop
        container, type_ = new_token.container, new_token.type
        sealed = seal(container, token_id, new_token.plaintext, "data")  # obeys REC-SECRET
        expression = new_token.fingerprint_expression
        if expression is None and new_token.is_leaf:
            tokens.append(
                Token(
                    token_id, tenant_id, type_, container, created_by, created_at_ns, sealed, dedup
                )
            )
            continue
        sealed_cvc = until_ns = None
        if new_token.cvc is not None:
            until_ns = cvc_until_ns
            sealed_cvc = seal(container, token_id, new_token.cvc.encode(), purpose)
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
                new_token.mask,
                new_token.metadata,
                new_token.search_indexes,
                tuple(map(keys.index, new_token.index_messages)),
                None if expression is None else keys.fingerprint(type_, new_token.selected),
                expression,
                sealed_cvc,
                until_ns,
            )
        )
    return tokens


@lru_cache(maxsize=1024)
def dedup_place(type_: str, container: str) -> bytes:
    """Return the prefix of the selected value in the message that D-DEDUP-KEY compares.

    container: "" where it is not compared.
    """
    return f"{type_}\0{container}\0".encode()


def decide(
    new_tokens: Sequence[NewToken], hashes: Sequence[bytes], find: Callable[[bytes], Token | None]
) -> list[int | Token | None]:
    """Return one decision per new token.

    None: it creates a token. A number: it is equal to the one that the element at this place of the
    request creates. A token: it is equal to this stored one.

    find: deduplication hash → the tenant's oldest token of that hash. It is called once per
        distinct hash, and only for new tokens whose deduplication is on.
    """
    decisions: list[int | Token | None] = []
    creating: dict[bytes, int] = {}
    stored: dict[bytes, Token | None] = {}
    for place, (new_token, digest) in enumerate(zip(new_tokens, hashes, strict=True)):
        if new_token.deduplicate:
            if digest not in stored:
                stored[digest] = find(digest)  # obeys TOK-DEDUP
            existing = stored[digest]
            if existing is not None:
                decisions.append(existing)
                continue
            if digest in creating:
                decisions.append(creating[digest])
                continue
        creating.setdefault(digest, place)
        decisions.append(None)
    return decisions


def count_limited(decisions: Sequence[int | Token | None], rules: Rules) -> int:
    """Return what Tokenize Limit counts (D-LIMIT-COUNT): new tokens, or every element."""
    if rules.tokens.limit_counts == "elements":
        return len(decisions)
    return decisions.count(None)


def check_limit(count: int, limit: int, rules: Rules) -> None:
    """Raise the problem of a request over its Tokenize Limit (TOK-LIMIT, D-LIMIT-STATUS)."""
    if count > limit:  # obeys TOK-LIMIT
        what = "hold" if rules.tokens.limit_counts == "elements" else "create"
        raise Problem(
            rules.tokens.limit_status,
            f"The request would {what} {count} tokens, more than the Tokenize Limit of {limit}.",
            clause="TOK-LIMIT",
        )


def merge_existing(
    token: Token, new_token: NewToken, keys: TenantKeys, rules: Rules, *, cvc_until_ns: int
) -> Token:
    """Return the stored token as a deduplicated new one leaves it (D-DEDUP-RECORD).

    `read_existing`: the same token; what the new one brings is dropped. `update_existing`: metadata
    merged over the old, indexes replaced when supplied, a cvc replaced with its retention begun
    anew (`cvc_until_ns`). Data, expression, `created_by` and `created_at` stay in both.
    Raises `Problem` 400 where the token would break a rule.
    """
    if rules.dedup.record == "read_existing":
        return token
    metadata = token.metadata
    if new_token.metadata:
        metadata = {**(metadata or {}), **new_token.metadata}
        limit = rules.tokens.metadata_entries_limit
        if len(metadata) > limit:
            raise Problem(
                400,
                f"The token's metadata would have more than {limit} entries.",
                clause="D-METADATA",
            )
    brought, hashes = new_token.search_indexes, token.index_hashes
    indexes = token.search_indexes if brought is None else brought
    renews = new_token.cvc is not None and rules.tokens.cvc_derive == "allow"
    if brought is not None or (renews and indexes):
        indexed = _reindexed(token, indexes, new_token.cvc, keys, rules)
        hashes = tuple(map(keys.index, indexed.index_messages))
    sealed_cvc, until_ns = token.sealed_cvc, token.cvc_until_ns
    if new_token.cvc is not None:
        until_ns = cvc_until_ns
        purpose = cvc_purpose(until_ns)
        sealed_cvc = keys.seal(token.container, token.id, new_token.cvc.encode(), purpose)
    return replace(
        token,
        metadata=metadata,
        search_indexes=indexes,
        index_hashes=hashes,
        sealed_cvc=sealed_cvc,
        cvc_until_ns=until_ns,
    )


def _reindexed(
    token: Token, indexes: tuple[str, ...] | None, cvc: str | None, keys: TenantKeys, rules: Rules
) -> NewToken:
    """Return a new token of the stored data with the indexes and the cvc that the token will have.

    Data with equal fingerprints may differ elsewhere; indexes are derived from the stored data.
    """
    stored, faults = detached_token(token.type, token.container), BodyErrors()
    stored.cvc, stored.search_indexes = cvc, indexes
    data = parse(keys.open(token.container, token.id, token.sealed_data, "data"))
    derive(stored, data, None, rules, faults)
    if faults:
        raise Problem(
            400, "A search index selects nothing of the token that exists.", clause="D-INDEXES"
        )
    return stored

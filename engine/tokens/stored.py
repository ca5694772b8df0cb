"""Stored tokens: how they are created, changed and shown.

New tokens become tokens, sealed and hashed, or existing equal ones. The vault gives a tenant's
keys. Nothing is written here.

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

A patch is a JSON merge patch (RFC 7396) over a stored token (D-PATCH):

    metadata                 merged; a null member removes one entry, null removes all
    search_indexes           replaced; null removes them
    fingerprint_expression   replaced; null gives the default back
    data                     of a card merged, so that `{"data": {"cvc": "123"}}` is enough; of
                             others replaced (objects merged); null is refused
    encrypted                the same from an encrypted payload
    the container field      moves the token; null moves it to its type's default
    type                     may be repeated, never changed

Everything else is an unknown field. The patched token is checked by the rules of creation, and
every fault is named in one 400. A cvc that the patch brings starts its retention
anew (D-CVC); any other keeps its deadline.

The caller checks the permissions (in the old and the new container) and decrypts the stored data.

When the retention of a cvc has expired (D-CVC, QUO-CVC), it is removed, and under D-CVC-DERIVE
`allow` also what was derived from it: whoever has the key can find three digits from their keyed
hash in a thousand tries. Search indexes over it are removed; a fingerprint over it is derived again
as if no expression had been supplied, and so is the hash that deduplication compares. A patch of a
card with an expired cvc has the same result.

The store keeps the deadline and overwrites the data.

A record is what callers see of a stored token (section 2.1):

    REC-ID, REC-TENANT, REC-TYPE   as stored
    REC-CARD-MASK                  of a card: the masked object, where D-CARD-VIEW says
    REC-TOKEN-DATA, REC-SECRET     no sensitive input, ever; plaintext only where D-READ allows it
    REC-METADATA, REC-INDEXES      present only if supplied
    REC-FINGERPRINT, REC-FPEXPR    present with an expression in force
    REC-CREATED                    the application, and ISO 8601 with UTC offset
    REC-EXTRAS                     `_extras.deduplicated` on every record
    REC-DEDUP-REDACT               without token:read a stored one loses data and metadata

There is one rule of redaction (D-RECORD-VIEW): every operation shows a token that was stored before
in the same way to a key without token:read in the token's container.

Each record is a deep copy: changing it changes no stored data.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from engine.errors import VaultError
from engine.messages import Json, Problem
from engine.model import Token
from engine.profile import SECOND_NS
from engine.tokens import expressions
from engine.tokens.rules import STRUCTURED_TYPES, Rules
from engine.tokens.shapes import NewToken, TokenizeBody, detached_token, read_container
from engine.tokens.strict_json import BodyErrors, parse
from engine.tokens.types import (
    BOTH_FAULT,
    NOTHING,
    Decrypt,
    Validation,
    check_fields,
    derive,
    open_payload,
    read_data,
    read_expression,
    read_indexes,
    read_metadata,
)
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


@dataclass(slots=True)
class Change:
    """What a valid patch makes of a token.

    new_token: the whole token as it will be. restarts_cvc: the patch brought a cvc.
    reseals: data, cvc or container are touched, so ciphertexts are made anew.
    """

    new_token: NewToken
    reseals: bool = False
    restarts_cvc: bool = False

    @property
    def container(self) -> str:
        """Where the token will be."""
        return self.new_token.container


def validate_patch(
    body: Json,
    token: Token,
    data: Json,
    cvc: str | None,
    rules: Rules,
    *,
    decrypt: Decrypt | None = None,
) -> Change:
    """Return what the patch makes of the token.

    data, cvc: of the token as it is, opened; the cvc None when there is none or it has expired.
    Raises `Problem` 400 naming every fault.
    """
    if not isinstance(body, dict):
        raise Problem(400, "The body must be an object, a JSON merge patch.", clause="D-PATCH")
    reading = Validation(rules, rules.patch_fields, decrypt=decrypt)
    reading.cvc_optional = cvc is None
    new_token = detached_token(token.type, token.container)
    check_fields(body, reading, new_token)
    if "type" in body and body["type"] != token.type:
        reading.faults.add("/type", "must not change", "D-PATCH")
    new_token.container = _container(body, new_token, reading)
    change = Change(new_token)
    new_token.cvc, new_token.mask = cvc, token.mask
    new_token.metadata = _metadata(body, token, new_token, reading)
    merged = _data(body, data, change, reading)
    either = cvc or new_token.cvc  # one that the patch brings will do
    new_token.search_indexes = token.search_indexes and _outliving(
        token.search_indexes, token, either
    )
    if "search_indexes" in body:
        given = body["search_indexes"]
        new_token.search_indexes = (
            None if given is None else read_indexes(given, reading, new_token)
        )
    supplied = token.fingerprint_expression
    if supplied is not None and not _outliving((supplied,), token, either):
        supplied = None
    if "fingerprint_expression" in body:
        given = body["fingerprint_expression"]
        supplied = None if given is None else read_expression(given, reading, new_token)
    if merged is not NOTHING:
        derive(new_token, merged, supplied, rules, reading.faults)
    reading.faults.check()
    change.reseals = change.reseals or new_token.container != token.container
    return change


def apply_change(
    token: Token, change: Change, keys: TenantKeys, rules: Rules, *, cvc_until_ns: int
) -> Token:
    """Return the token to be stored. cvc_until_ns: the deadline of a cvc that starts anew."""
    new_token = change.new_token
    sealed_data, sealed_cvc, until_ns = token.sealed_data, token.sealed_cvc, token.cvc_until_ns
    if change.reseals:
        sealed_data = keys.seal(new_token.container, token.id, new_token.plaintext, "data")
        if new_token.cvc is None:
            sealed_cvc, until_ns = None, None
        else:
            until_ns = cvc_until_ns if change.restarts_cvc else token.cvc_until_ns
            purpose = cvc_purpose(until_ns)
            sealed_cvc = keys.seal(new_token.container, token.id, new_token.cvc.encode(), purpose)
    expression = new_token.fingerprint_expression
    return replace(
        token,
        container=new_token.container,
        sealed_data=sealed_data,
        sealed_cvc=sealed_cvc,
        cvc_until_ns=until_ns,
        dedup_hash=dedup_hashes([new_token], keys, rules)[0],
        mask=new_token.mask,
        metadata=new_token.metadata,
        search_indexes=new_token.search_indexes,
        index_hashes=tuple(map(keys.index, new_token.index_messages)),
        fingerprint=None
        if expression is None
        else keys.fingerprint(new_token.type, new_token.selected),
        fingerprint_expression=expression,
    )


def _outliving(texts: tuple[str, ...], token: Token, cvc: str | None) -> tuple[str, ...]:
    """Return those of a token's expressions that can still be derived (D-CVC-DERIVE allow).

    An expression over an expired cvc cannot, and would make every later patch fail. cvc: the
    token's, or the one in the patch.
    """
    structured_type = STRUCTURED_TYPES.get(token.type)
    return (
        texts
        if cvc is not None or not (structured_type and structured_type.has_cvc)
        else outliving(texts)
    )


def _container(body: dict[str, Any], new_token: NewToken, reading: Validation) -> str:
    field = reading.rules.tokens.container_field
    if field not in body:
        return new_token.container
    path = None
    if body[field] is not None:
        path = read_container(new_token, body[field], reading.rules, reading.faults)
    rules = reading.rules  # a type that the profile of today does not have goes where leaves do
    return rules.containers.get(new_token.type, rules.leaf_container) if path is None else path


def _metadata(body: dict[str, Any], token: Token, new_token: NewToken, reading: Validation) -> Any:  # noqa: ANN401 # reason: judged here
    if "metadata" not in body:
        return token.metadata
    given = body["metadata"]
    if given is None:
        return None
    if type(given) is dict:
        given = _merge(dict(token.metadata or {}), given)
    return read_metadata(given, reading, new_token)


def _data(body: dict[str, Any], data: Json, change: Change, reading: Validation) -> Any:  # noqa: ANN401 # reason: any JSON, or NOTHING
    """Return the data as it will be; sets the new token's cvc and what the change touches."""
    new_token = change.new_token
    field = "data"
    patch: Any = body.get("data", NOTHING)
    if "encrypted" in body and (patch is NOTHING or reading.rules.tokens.one_of != "data"):
        if patch is not NOTHING and reading.rules.tokens.one_of == "reject":
            reading.faults.add("", BOTH_FAULT, "TOK-ONE-OF")
            return NOTHING
        patch, field = open_payload(body["encrypted"], reading, new_token), "encrypted"
        if patch is NOTHING:
            return NOTHING
    if patch is NOTHING:
        return data
    if patch is None:
        reading.faults.add(f"/{field}", "must not be removed", "D-PATCH")
        return NOTHING
    change.reseals = True
    if new_token.type not in STRUCTURED_TYPES:
        if isinstance(patch, dict) and new_token.type in reading.rules.any_data:
            patch = _merge(data if isinstance(data, dict) else {}, patch)
        return read_data(new_token, patch, reading, field)
    if isinstance(patch, dict) and isinstance(data, dict):
        change.restarts_cvc = patch.get("cvc") is not None
        whole = data if new_token.cvc is None else {**data, "cvc": new_token.cvc}
        patch = _merge(whole, patch)
    return read_data(new_token, patch, reading, field)


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return RFC 7396's merge of two objects; neither is changed. As deep as the patch."""
    merged = {**target}
    stack = [(merged, patch)]
    while stack:
        into, changes = stack.pop()
        for key, value in changes.items():
            if value is None:
                into.pop(key, None)
            elif type(value) is dict:
                old = into.get(key)
                inner = {**old} if type(old) is dict else {}
                into[key] = inner
                stack.append((inner, value))
            else:
                into[key] = value
    return merged


def without_cvc(token: Token, keys_of: Callable[[str], TenantKeys], rules: Rules) -> Token:
    """Return the card as it stands when its cvc is erased.

    keys_of: tenant id → its keys; called only when a fingerprint must be derived again. Never
    raises `VaultError`, since a retention that fails would keep every cvc of every tenant: a card
    that cannot be decrypted loses its fingerprint and equals no other token.
    """
    bare = replace(token, sealed_cvc=None, cvc_until_ns=None)
    indexes = token.search_indexes
    if indexes is not None:
        retained = outliving(indexes)
        hashes = zip(indexes, token.index_hashes, strict=False)
        bare = replace(
            bare,
            search_indexes=retained,
            index_hashes=tuple(hashed for index, hashed in hashes if index in retained),
        )
    expression = token.fingerprint_expression
    if expression is None or outliving((expression,)):
        return bare
    try:
        return _fingerprinted(bare, keys_of(token.tenant_id), rules)
    except VaultError:
        return replace(bare, fingerprint=None, fingerprint_expression=None, dedup_hash=b"")


def outliving(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a card's expressions that select something when its cvc is gone.

    >>> outliving(("{{ data.cvc }}", "{{ data.number }}"))
    ('{{ data.number }}',)
    """
    return tuple(text for text in texts if (expressions.parse(text) or ())[:1] != ("cvc",))


def _fingerprinted(token: Token, keys: TenantKeys, rules: Rules) -> Token:
    """Return the card with the fingerprint that it has when no expression is supplied."""
    new_token = detached_token(token.type, token.container)
    data = parse(keys.open(token.container, token.id, token.sealed_data, "data"))
    derive(new_token, data, None, rules, BodyErrors())
    return replace(
        token,
        dedup_hash=dedup_hashes([new_token], keys, rules)[0],
        fingerprint=keys.fingerprint(new_token.type, new_token.selected),
        fingerprint_expression=new_token.fingerprint_expression,
    )


NO_PLAINTEXT: Final = object()
"""The default of `record`: no plaintext is shown."""


def answer_of(
    walked: TokenizeBody,
    made: Sequence[tuple[NewToken, Token, bool]],
    rules: Rules,
    may: Callable[[str, str], bool],
) -> Json:
    """Return the answer: the body with each element as an identifier, or a record (TOK-LEAF).

    made: (new token, token, deduplicated) per element. may: whether the caller holds a permission
    on a container.
    """
    assert len(made) == len(walked.elements), "one token an element"
    for new_token, token, deduplicated in made:
        if new_token.is_leaf:
            new_token.slot[new_token.key] = token.id  # obeys TOK-LEAF
        else:
            may_read = not deduplicated or may("token:read", token.container)  # obeys AUTH-READ
            new_token.slot[new_token.key] = record(token, rules, deduplicated, may_read)
    answer: Json = walked.root[0]
    return answer


def record(
    token: Token,
    rules: Rules,
    deduplicated: bool = False,  # noqa: FBT001, FBT002 # reason: the hot path calls by position
    may_read: bool = True,  # noqa: FBT001, FBT002 # reason: likewise
    *,
    with_container: bool = False,
    plaintext: Any = NO_PLAINTEXT,  # noqa: ANN401 # reason: any JSON, or NO_PLAINTEXT
) -> dict[str, Any]:
    """Return the record of a token.

    deduplicated: whether this request found the token instead of creating it. may_read: False where
    the token was stored before and the key lacks token:read in its container (AUTH-READ).
    with_container: adds `containers`, for the reads of /tokens (D-READ). plaintext: shown as
    `data` under the profile's `plaintext_reads`; the caller has asked for token:read before.
    """
    redacted = not may_read
    if redacted and rules.dedup.redact == "narrow":
        return _narrow(token, deduplicated=deduplicated)
    # obeys REC-TENANT, REC-TYPE
    document: dict[str, Any] = {"id": token.id, "tenant_id": token.tenant_id, "type": token.type}
    if token.mask is not None:  # obeys REC-TOKEN-DATA
        view = rules.tokens.card_view
        if view != "mask" and not redacted:
            document["data"] = {**token.mask}
        if view != "data":
            document["mask"] = {**token.mask}
    if plaintext is not NO_PLAINTEXT and rules.tokens.plaintext_reads and not redacted:
        document["data"] = plaintext
    if token.metadata is not None and (
        not redacted  # obeys REC-DEDUP-REDACT
        or (not deduplicated and rules.tokens.record_view == "metadata")
    ):
        document["metadata"] = {**token.metadata}  # obeys REC-METADATA
    if token.search_indexes is not None:
        document["search_indexes"] = [*token.search_indexes]  # obeys REC-INDEXES
    if token.fingerprint is not None:
        document["fingerprint"] = token.fingerprint
        document["fingerprint_expression"] = token.fingerprint_expression
    if with_container:
        document["containers"] = [token.container]
    document["created_by"] = token.created_by
    document["created_at"] = timestamp(token.created_at_ns)  # obeys REC-CREATED
    document["_extras"] = {"deduplicated": deduplicated}  # obeys REC-EXTRAS
    return document


def _narrow(token: Token, *, deduplicated: bool) -> dict[str, Json]:
    """D-DEDUP-REDACT, the narrow reading."""
    document: dict[str, Json] = {"id": token.id, "type": token.type, "tenant_id": token.tenant_id}
    if token.fingerprint is not None:
        document["fingerprint"] = token.fingerprint
    document["containers"] = [token.container]
    document["_extras"] = {"deduplicated": deduplicated}
    return document


@lru_cache(maxsize=64)  # the tokens of one request were created at one instant
def timestamp(at_ns: int) -> str:
    """Return an instant as ISO 8601 with UTC offset, in microseconds (REC-CREATED).

    >>> timestamp(1_767_225_600_000_001_999)
    '2026-01-01T00:00:00.000001+00:00'
    """
    seconds, rest_ns = divmod(at_ns, SECOND_NS)
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns // 1000:06d}+00:00"

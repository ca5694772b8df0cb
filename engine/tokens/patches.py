"""Patches: a JSON merge patch (RFC 7396) over a stored token (D-PATCH).

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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from engine.errors import VaultError
from engine.messages import Json, Problem
from engine.model import Token
from engine.tokens import expressions
from engine.tokens.creation import cvc_purpose, dedup_hashes
from engine.tokens.rules import BodyErrors, Rules
from engine.tokens.shapes import NewToken, detached_token, read_container
from engine.tokens.strict_json import parse
from engine.tokens.structures import STRUCTURED_TYPES
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

"""POST /tokenize: one or many tokens from a body in the caller's own shape (section 4.1).

`engine.tokens` implements the walk (TOK-OBJECT, TOK-PLAIN, TOK-ARRAY, TOK-COMPOSITE, TOK-LEAF);
this module is the operation: walk → validate → create → mirror.

POST /tokens and reactors share the steps after the walk:

    403 → 400 naming every fault → deduplication look-up → quota → write        (D-ORDER)

`validated` does the first two without a transaction, so that decryption, the main cost of a large
body, delays no other request. `create_all` does the rest in one transaction, so that an invalid
token anywhere creates nothing (TOK-ATOMIC) and racing requests deduplicate against each other
(TOK-DEDUP).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import compress, repeat
from typing import Any

from engine.messages import Response
from engine.model import EncryptionKey, Intent, Token
from engine.resources.operation import Context, Operation
from engine.tokens.shapes import NewToken, TokenizeBody, walk
from engine.tokens.stored import (
    answer_of,
    check_limit,
    count_limited,
    create_tokens,
    decide,
    dedup_hashes,
    merge_existing,
)
from engine.tokens.strict_json import parse
from engine.tokens.types import consumed, validate
from engine.vault import TenantKeys, jwe


def _decrypt(context: Context, compact: str, *, is_open: bool = False) -> bytes:
    """Open a compact encrypted payload under one of the tenant's keys (TOK-ENCRYPTED).

    is_open: whether a transaction is open; else the look-up opens one.

    `kid` is optional in a JWE (RFC 7516, 4.1.6). Without one there is nothing to guess where the
    tenant has exactly one key, and that is tried; with several the caller has to say which,
    because trying all would cost a private-key operation for each (D-ENCRYPTED).
    """
    services, tenant = context.services, context.tenant
    store = services.store

    def find_private(kid: str | None) -> bytes | None:
        with nullcontext() if is_open else store.transaction(write=False):
            if kid is None:
                first_keys = store.list(EncryptionKey, tenant.id, size=2)
                key = first_keys[0] if len(first_keys) == 1 else None
            else:
                key = store.get(EncryptionKey, kid)
            if key is None or key.tenant_id != tenant.id:
                return None
            keys = services.vault.of(tenant.id)
        return keys.open("/keys/", key.id, key.sealed_private, "private-key")

    return jwe.decrypt(compact, find_private)


def _open_intent(context: Context, intent_id: str) -> tuple[str, Any] | None:
    """Return type and data of a token intent that has not expired (D-INTENT, QUO-INTENT)."""
    services = context.services
    with services.store.transaction(write=False):
        intent = services.store.get(Intent, intent_id)
        if intent is None or intent.tenant_id != context.tenant.id:
            return None
        keys = services.vault.of(intent.tenant_id)
    if intent.until_ns <= context.steady_ns:  # obeys QUO-INTENT
        return None
    return intent.type, parse(keys.open("/intents/", intent.id, intent.sealed_data))


def decrypter(context: Context) -> Callable[[str], bytes]:
    """Return what opens encrypted payloads inside of an open transaction."""
    return partial(_decrypt, context, is_open=True)


def validated(walked: TokenizeBody, context: Context) -> TokenizeBody:
    """Return the body once every element is permitted and valid; with no transaction open.

    Raises `Problem`: 403 without token:create on a destination (AUTH-CREATE), 400 naming every
    fault (TOK-ATOMIC).
    """
    caller, rules = context.caller, context.services.rules
    is_plain = context.rights is None and context.configurer is None  # nothing but the caller's own
    for container in walked.containers:
        if not (is_plain and caller.may("token:create", container)):  # obeys AUTH-CREATE
            context.require("token:create", container)
    deduplicates = caller.tenant.settings.get(rules.dedup.setting_name, False)
    decrypt, open_intent = partial(_decrypt, context), partial(_open_intent, context)
    validate(walked, rules, deduplicates, decrypt, open_intent)
    return walked


def create_all(walked: TokenizeBody, context: Context) -> list[tuple[NewToken, Token, bool]]:
    """Create the tokens of a valid body; returns (new token, token, deduplicated) per element.

    What a deduplicated element brings changes the token that it came back as (D-DEDUP-RECORD).
    Raises `Problem`: the profile's status over the Tokenize Limit (TOK-LIMIT, QUO-TOKENIZE), 400
    for a token intent that another request has consumed meanwhile.
    """
    services, caller = context.services, context.caller
    rules, store, tenant = services.rules, services.store, caller.tenant
    keys = services.vault.of(tenant.id)
    new_tokens = walked.elements
    limit = tenant.quotas["Tokenize Limit"]
    decisions: list[int | Token | None] | None = None  # the common case: every element creates
    if walked.deduplicates:
        hashes = dedup_hashes(new_tokens, keys, rules)
        decisions = decide(new_tokens, hashes, partial(store.duplicate, tenant.id))
        check_limit(count_limited(decisions, rules), limit, rules)  # obeys QUO-TOKENIZE
        is_new = [decision is None for decision in decisions]
        creating, hashes = [*compress(new_tokens, is_new)], [*compress(hashes, is_new)]
    else:
        check_limit(len(new_tokens), limit, rules)  # before a million of them are hashed
        creating, hashes = new_tokens, dedup_hashes(new_tokens, keys, rules)
    until_ns = context.steady_ns + tenant.quotas["CVC Retention"]
    created = create_tokens(
        creating,
        hashes,
        keys,
        services.new_id,
        tenant.id,
        caller.application.id,
        context.wall_ns,
        until_ns,
    )
    for new_token in new_tokens:
        if new_token.intent_id is not None and not store.delete(Intent, new_token.intent_id):
            raise consumed(new_token)
    if created:
        store.add_tokens(created)
    if decisions is None:
        return [*zip(new_tokens, created, repeat(False))]
    made: list[tuple[NewToken, Token, bool]] = []
    following = iter(created)
    for new_token, decision in zip(new_tokens, decisions, strict=True):
        if decision is None:
            made.append((new_token, next(following), False))
        else:
            existing = made[decision][1] if isinstance(decision, int) else decision
            made.append((new_token, existing, True))
    return _merge(context, keys, made, until_ns)


def _merge(
    context: Context, keys: TenantKeys, made: list[tuple[NewToken, Token, bool]], until_ns: int
) -> list[tuple[NewToken, Token, bool]]:
    """Let deduplicated new tokens change the tokens that they came back as (D-DEDUP-RECORD)."""
    store, rules = context.services.store, context.services.rules
    merged: dict[str, Token] = {}
    for new_token, token, deduplicated in made:
        if deduplicated:
            existing = merged.get(token.id, token)
            changed = merge_existing(existing, new_token, keys, rules, cvc_until_ns=until_ns)
            if changed is not existing:
                merged[changed.id] = changed
    for changed in merged.values():
        store.update_token(changed)
    return [
        (new_token, merged.get(token.id, token), deduplicated)
        for new_token, token, deduplicated in made
    ]


def log_made(made: list[tuple[NewToken, Token, bool]], context: Context, status: int) -> bool:
    """Log what tokenizing has changed, in one entry; False when it changed nothing (D-LOGS)."""
    for _, token, deduplicated in made:
        if not deduplicated:
            context.log("token:create", "token", token.id, status)
            return True
    if context.services.rules.dedup.record == "update_existing":
        for new_token, token, _ in made:
            if (
                new_token.cvc is not None
                or new_token.metadata
                or new_token.search_indexes is not None
            ):
                context.log("token:update", "token", token.id, status)
                return True
    for new_token, _, _ in made:
        if new_token.intent_id is not None:  # consumed, though it made no token
            context.log("token-intent:delete", "token-intent", new_token.intent_id, status)
            return True
    return False


def _prepare(context: Context) -> TokenizeBody:
    services = context.services
    limit = context.caller.tenant.quotas["Tokenize Limit"]
    body: Any = context.body  # JSON, as the operation says
    walked = walk(body, services.rules, limit)
    if not walked.elements:
        context.require("token:create")  # D-EMPTY: on some container
    return validated(walked, context)


def _tokenize(context: Context) -> Response:
    walked: TokenizeBody = context.prepared
    made = create_all(walked, context)
    if context.entity_ids is not None:
        context.entity_ids.update((token.id, None) for _, token, _ in made)
    answer = answer_of(walked, made, context.services.rules, context.may)
    status = context.services.profile.http.tokenize_status
    log_made(made, context, status)
    return Response(status, answer)


OPERATIONS = (
    Operation(
        name="tokenize",
        method="POST",
        path="/tokenize",
        summary="Create one or many tokens, in a body of the caller's own shape.",
        prepare=_prepare,
        run=_tokenize,
        clauses=(
            "TOK-OBJECT",
            "TOK-PLAIN",
            "TOK-ARRAY",
            "TOK-COMPOSITE",
            "TOK-LEAF",
            "TOK-ATOMIC",
            "TOK-LIMIT",
        ),
        tier="specified",
        permission="token:create",
        body="json",
    ),
)

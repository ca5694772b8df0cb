"""Creating tokens: the steps that POST /tokenize and POST /tokens share, after the walk.

    403 → 400 naming every fault → deduplication look-up → quota → write        (D-ORDER)

One request is one transaction, so that an invalid token anywhere creates nothing (TOK-ATOMIC) and
racing requests deduplicate against each other (TOK-DEDUP).
"""

from __future__ import annotations

from functools import partial
from itertools import compress, repeat
from types import MethodType
from typing import Any

from engine.messages import Json
from engine.model import EncryptionKey, Intent, Token
from engine.resources.context import Context
from engine.tokens import (
    CREATE,
    Decision,
    Draft,
    Plan,
    check_limit,
    count_limited,
    create_tokens,
    decide,
    dedup_hashes,
    merge_existing,
    parse,
    record,
    validate,
)
from engine.vault import TenantKeys, jwe

__all__ = ["answer_of", "create_all", "decrypter", "log_made"]


def create_all(plan: Plan, context: Context) -> list[tuple[Draft, Token, bool]]:
    """Create what the plan asks for; returns (draft, its token, deduplicated) an element.

    Raises `Problem`: 403 without token:create on a destination (AUTH-CREATE), 400 naming every
    fault (TOK-ATOMIC), the profile's status over the Tokenize Limit (TOK-LIMIT, QUO-TOKENIZE).
    """
    services, caller = context.services, context.caller
    rules, store, tenant = services.rules, services.store, caller.tenant
    may = caller.may
    for container in plan.containers:
        if not may("token:create", container):
            context.require("token:create", container)
    keys = services.vault.of(tenant.id)
    drafts = validate(
        plan,
        rules,
        tenant.settings.get(rules.dedup.setting_name, False),
        MethodType(decrypter, context),  # a partial costs every request four times as much
        MethodType(_open_intent, context),
    )
    limit = tenant.quotas["Tokenize Limit"]
    assert isinstance(limit, int)
    if not plan.deduplicates:  # the common case: every element creates
        check_limit(len(drafts), limit, rules)  # before a million of them are hashed
        return _write(context, keys, drafts, dedup_hashes(drafts, keys, rules), None)
    hashes = dedup_hashes(drafts, keys, rules)
    decisions = decide(drafts, hashes, partial(store.duplicate, tenant.id))
    check_limit(count_limited(decisions, rules), limit, rules)
    return _write(context, keys, drafts, hashes, decisions)


def _write(
    context: Context,
    keys: TenantKeys,
    drafts: list[Draft],
    hashes: list[bytes],
    decisions: list[Decision] | None,
) -> list[tuple[Draft, Token, bool]]:
    """Write the new tokens and what a deduplicated draft changes (D-DEDUP-RECORD).

    decisions: None where every draft creates.
    """
    services, caller = context.services, context.caller
    tenant, store = caller.tenant, services.store
    retention_ns = tenant.quotas["CVC Retention"]
    assert isinstance(retention_ns, int)
    wall_ns = context.wall_ns
    until_ns = wall_ns + retention_ns
    creating, digests = drafts, hashes
    if decisions is not None:
        is_new = [decision is CREATE for decision in decisions]
        creating, digests = [*compress(drafts, is_new)], [*compress(hashes, is_new)]
    created_by = caller.application.id
    created = create_tokens(
        creating, digests, keys, services.new_id, tenant.id, created_by, wall_ns, until_ns
    )
    for draft in drafts:
        if draft.intent_id is not None:
            store.delete(Intent, draft.intent_id)
    if created:
        store.add_tokens(created)
    if decisions is None:
        return [*zip(drafts, created, repeat(False))]
    made: list[tuple[Draft, Token, bool]] = []
    following = iter(created)
    for draft, decision in zip(drafts, decisions, strict=True):
        if decision is CREATE:
            made.append((draft, next(following), False))
        else:
            existing = made[decision][1] if isinstance(decision, int) else decision
            assert isinstance(existing, Token), "an earlier element, or a stored token"
            made.append((draft, existing, True))
    return _merge(context, keys, made, until_ns)


def _merge(
    context: Context, keys: TenantKeys, made: list[tuple[Draft, Token, bool]], until_ns: int
) -> list[tuple[Draft, Token, bool]]:
    """Let deduplicated drafts change the tokens that they came back as (D-DEDUP-RECORD)."""
    store, rules = context.services.store, context.services.rules
    merged: dict[str, Token] = {}
    for draft, token, deduplicated in made:
        if deduplicated:
            existing = merged.get(token.id, token)
            changed = merge_existing(existing, draft, keys, rules, cvc_until_ns=until_ns)
            if changed is not existing:
                merged[changed.id] = changed
    for changed in merged.values():
        store.update_token(changed)
    return [(draft, merged.get(token.id, token), found) for draft, token, found in made]


def log_made(made: list[tuple[Draft, Token, bool]], context: Context, status: int) -> bool:
    """Log what tokenizing has changed, in one entry; False when it changed nothing (D-LOGS)."""
    for _, token, deduplicated in made:
        if not deduplicated:
            context.log("token:create", "token", token.id, status)
            return True
    if context.services.rules.dedup.record == "update_existing":
        for draft, token, _ in made:
            if draft.cvc is not None or draft.metadata or draft.search_indexes is not None:
                context.log("token:update", "token", token.id, status)
                return True
    for draft, _, _ in made:
        if draft.intent_id is not None:  # consumed, though it made no token
            context.log("token-intent:delete", "token-intent", draft.intent_id, status)
            return True
    return False


def answer_of(plan: Plan, made: list[tuple[Draft, Token, bool]], context: Context) -> Json:
    """Return the answer: the body with each element as an identifier, or a record (TOK-LEAF)."""
    assert len(made) == len(plan.elements), "one token an element"
    rules, may = context.services.rules, context.caller.may
    for draft, token, found in made:
        if draft.is_leaf:
            draft.hole[draft.key] = token.id
        else:
            may_read = not found or may("token:read", token.container)
            draft.hole[draft.key] = record(token, rules, found, may_read)
    return plan.answer


def decrypter(context: Context, compact: str) -> bytes:
    """Open a compact encrypted payload under one of the tenant's keys (TOK-ENCRYPTED).

    `kid` is optional in a JWE (RFC 7516, 4.1.6). Without one there is nothing to guess where the
    tenant has exactly one key, and that is tried; with several the caller has to say which, because
    trying all would cost the service a private-key operation for each (D-ENCRYPTED).
    """
    store, tenant = context.services.store, context.tenant
    keys = context.services.vault.of(tenant.id)

    def find_private(kid: str | None) -> bytes | None:
        key = _only_key(context) if kid is None else store.get(EncryptionKey, kid)
        if key is None or key.tenant_id != tenant.id:
            return None
        return keys.open("/keys/", key.id, key.sealed_private, "private-key")

    return jwe.decrypt(compact, find_private)


def _only_key(context: Context) -> EncryptionKey | None:
    """Return the tenant's encryption key where it has exactly one."""
    found = context.services.store.list(EncryptionKey, context.tenant.id, size=2)
    return found[0] if len(found) == 1 else None


def _open_intent(context: Context, intent_id: str) -> tuple[str, Any] | None:
    """Return type and data of a token intent that has not expired (D-INTENT, QUO-INTENT)."""
    intent = context.services.store.get(Intent, intent_id)
    if intent is None or intent.tenant_id != context.tenant.id:
        return None
    if intent.until_ns <= context.wall_ns:
        return None
    keys = context.services.vault.of(intent.tenant_id)
    return intent.type, parse(keys.open("/intents/", intent.id, intent.sealed_data))

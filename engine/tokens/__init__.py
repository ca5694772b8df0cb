"""Tokens: from a body to stored tokens, and from stored tokens to records for callers.

One tokenize request, in the order of D-ORDER:

    rules = Rules(profile.tokens, profile.dedup)              # once an engine
    body = parse(raw)                                         # or check_value(python_value)
    plan = walk(body, rules)                                  # POST /tokens: walk_one
    …                                                         # token:create on plan.containers
    drafts = validate(plan, rules, deduplicate=setting, decrypt=…, open_intent=…)
    hashes = dedup_hashes(drafts, keys, rules)                # keys = vault.of(tenant_id)
    decisions = decide(drafts, hashes, find)                  # CREATE | place in request | Token
    check_limit(count_limited(decisions, rules), limit, rules)
    tokens = create_tokens(drafts, hashes, keys, new_id, tenant_id=…, created_by=…,
                           created_at_ns=…, cvc_until_ns=…)   # of each CREATE
    token = merge_existing(token, draft, keys, rules, cvc_until_ns=…)     # for each other
    draft.hole[draft.key] = token.id if draft.is_leaf else record(token, rules, …)     # for each
    answer = plan.answer

The others:

    draft = validate_intent(walk_one(body, rules), rules, decrypt=…)
    change = validate_patch(body, token, data, cvc, rules, decrypt=…)     # PATCH
    token = apply_change(token, change, keys, rules, cvc_until_ns=…)      # change.container
    found = read_expressions(body, rules)                     # POST /detokenize
    found.check_limit(limit, rules); found.token_ids; raise found.unknown(ids)
    answer = found.rebuild(value_of)
    index_message(path, value)                                # hash it to search
    token = without_cvc(token, vault.of, rules)               # CVC Retention is over

Every `Problem` raised here is a 400 (or the profile's `limit_status`) that quotes no value.

This package stores nothing, seals nothing itself and checks no permission.
"""

from __future__ import annotations

from engine.tokens.creation import (
    CREATE,
    Decision,
    Keys,
    base58,
    check_limit,
    count_limited,
    create_tokens,
    cvc_purpose,
    decide,
    dedup_hashes,
    hash_indexes,
    merge_existing,
)
from engine.tokens.detokenize import DetokenizePlan, read_expressions, splice
from engine.tokens.expressions import index_message
from engine.tokens.expressions import parse as parse_expression
from engine.tokens.patches import Change, apply_change, validate_patch, without_cvc
from engine.tokens.records import record, timestamp
from engine.tokens.rules import CARD, TOKEN, Faults, Rules
from engine.tokens.shapes import Draft, Plan, walk, walk_one
from engine.tokens.strict_json import check_value, dumps, parse
from engine.tokens.types import Decrypt, OpenIntent, consumed, validate, validate_intent

__all__ = [
    "CARD",
    "CREATE",
    "TOKEN",
    "Change",
    "Decision",
    "Decrypt",
    "DetokenizePlan",
    "Draft",
    "Faults",
    "Keys",
    "OpenIntent",
    "Plan",
    "Rules",
    "apply_change",
    "base58",
    "check_limit",
    "check_value",
    "consumed",
    "count_limited",
    "create_tokens",
    "cvc_purpose",
    "decide",
    "dedup_hashes",
    "dumps",
    "hash_indexes",
    "index_message",
    "merge_existing",
    "parse",
    "parse_expression",
    "read_expressions",
    "record",
    "splice",
    "timestamp",
    "validate",
    "validate_intent",
    "validate_patch",
    "walk",
    "walk_one",
    "without_cvc",
]

"""Tokens: from a body to stored tokens, and from stored tokens to records for callers.

One tokenize request, in the order of D-ORDER:

    rules = Rules(profile.tokens, profile.dedup)              # once an engine
    body = parse(raw)                                         # or check_value(python_value)
    walked = walk(body, rules)                                # POST /tokens: walk_one
    …                                                         # token:create on walked.containers
    new = validate(walked, rules, deduplicate=setting, decrypt=…, open_intent=…)
    hashes = dedup_hashes(new, keys, rules)                   # keys = vault.of(tenant_id)
    decisions = decide(new, hashes, find)                     # CREATE | place in request | Token
    check_limit(count_limited(decisions, rules), limit, rules)
    tokens = create_tokens(new, hashes, keys, new_id, tenant_id=…, created_by=…,
                           created_at_ns=…, cvc_until_ns=…)   # of each CREATE
    token = merge_existing(token, new_token, keys, rules, cvc_until_ns=…)   # for each other
    new_token.slot[new_token.key] = token.id if new_token.is_leaf else record(token, rules, …)
    answer = walked.root[0]

The others:

    new_token = validate_intent(walk_one(body, rules), rules, decrypt=…)
    change = validate_patch(body, token, data, cvc, rules, decrypt=…)     # PATCH
    token = apply_change(token, change, keys, rules, cvc_until_ns=…)      # change.container
    found = read_expressions(body, rules)                     # POST /detokenize
    found.check_limit(limit, rules); found.token_ids; raise found.unknown(ids)
    answer = found.rebuild(value_of)
    index_message(path, value)                                # hash it to search
    token = without_cvc(token, vault.of, rules)               # CVC Retention is over

Every `Problem` raised here is a 400 (or the profile's `limit_status`) that quotes no value.

This package stores nothing and checks no permission.
"""

from typing import TYPE_CHECKING

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from engine.tokens.creation import CREATE as CREATE
    from engine.tokens.creation import Decision as Decision
    from engine.tokens.creation import check_limit as check_limit
    from engine.tokens.creation import count_limited as count_limited
    from engine.tokens.creation import create_tokens as create_tokens
    from engine.tokens.creation import cvc_purpose as cvc_purpose
    from engine.tokens.creation import decide as decide
    from engine.tokens.creation import dedup_hashes as dedup_hashes
    from engine.tokens.creation import merge_existing as merge_existing
    from engine.tokens.detokenize import read_expressions as read_expressions
    from engine.tokens.detokenize import splice as splice
    from engine.tokens.expressions import index_message as index_message
    from engine.tokens.patches import Change as Change
    from engine.tokens.patches import apply_change as apply_change
    from engine.tokens.patches import validate_patch as validate_patch
    from engine.tokens.patches import without_cvc as without_cvc
    from engine.tokens.records import record as record
    from engine.tokens.records import timestamp as timestamp
    from engine.tokens.rules import CARD as CARD
    from engine.tokens.rules import TOKEN as TOKEN
    from engine.tokens.rules import BodyErrors as BodyErrors
    from engine.tokens.rules import Rules as Rules
    from engine.tokens.shapes import NewToken as NewToken
    from engine.tokens.shapes import TokenizeBody as TokenizeBody
    from engine.tokens.shapes import walk as walk
    from engine.tokens.shapes import walk_one as walk_one
    from engine.tokens.strict_json import check_value as check_value
    from engine.tokens.strict_json import dumps as dumps
    from engine.tokens.strict_json import parse as parse
    from engine.tokens.types import Decrypt as Decrypt
    from engine.tokens.types import OpenIntent as OpenIntent
    from engine.tokens.types import consumed as consumed
    from engine.tokens.types import validate as validate
    from engine.tokens.types import validate_intent as validate_intent

__getattr__, __dir__, __all__ = on_demand(__name__)

"""Tokens: from a body to stored tokens, and from stored tokens to records for callers.

One tokenize request, in the order of D-ORDER:

    rules = Rules(profile.tokens, profile.dedup)              # once an engine
    body = parse(raw)                                         # or check_value(python_value)
    walked = walk(body, rules)                                # POST /tokens: walk_one
    …                                                         # token:create on walked.containers
    new = validate(walked, rules, deduplicate=setting, decrypt=…, open_intent=…)
    hashes = dedup_hashes(new, keys, rules)                   # keys = vault.of(tenant_id)
    decisions = decide(new, hashes, find)                     # None | place in request | Token
    check_limit(count_limited(decisions, rules), limit, rules)
    tokens = create_tokens(new, hashes, keys, new_id, tenant_id=…, created_by=…,
                           created_at_ns=…, cvc_until_ns=…)   # of each None
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

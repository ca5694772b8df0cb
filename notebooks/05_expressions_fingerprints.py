# %% [markdown]
# # Fingerprints: whether two tokens hold the same value
# An expression selects the part of a token that is fingerprinted or searched for. Equal
# fingerprints mean that the selected parts are equal, within one tenant and one type.
#
# Clauses: TOK-FPEXPR, TOK-INDEXES, REC-FINGERPRINT, REC-FPEXPR.

# %% [markdown]
# **Predict before you read on.** Two cards have the same number and different expiry dates. Do they
# have the same fingerprint?

# %%
import json
from typing import Any

import pandas as pd

from engine import Engine

CARD: dict[str, Any] = {
    "type": "card",
    "data": {
        "number": "4242424242424242",
        "expiration_month": 12,
        "expiration_year": 2030,
        "cvc": "123",
    },
}
engine = Engine(seed=7)
acme = engine.create_tenant("Acme")
key = engine.key_for(acme, "token:create", "token:search", "token:read")


def tokenize(body: Any, *, key: str) -> Any:
    """Tokenize, expecting to succeed; returns the answer's body."""
    answer = engine.ask("POST", "/tokenize", body, key=key)
    assert answer.status == 200, answer.body
    return answer.body


# %% [markdown]
# ## The two forms of an expression
# An expression is `{{ data }}` or `{{ data.key }}`, with one space on each side. It selects the
# whole value or one member of it (TOK-FPEXPR). Anything else is refused, which is our choice
# (D-EXPR).

# %%
tried = {
    expression: engine.ask(
        "POST", "/tokenize", {**CARD, "fingerprint_expression": expression}, key=key
    ).status
    for expression in ("{{ data }}", "{{data}}", "{{ data.number }}", "{{ number }}", "data")
}
assert list(tried.values()) == [200, 400, 200, 400, 400]
pd.Series(tried).rename_axis("expression").to_frame("status")

# %% [markdown]
# ## The fingerprint of a card
# A card that is sent without an expression gets `{{ data.number }}` (REC-FPEXPR). Its fingerprint
# is derived from the number alone, so the same card with a new expiry keeps it (REC-FINGERPRINT).

# %%
renewed = {"type": "card", "data": {**CARD["data"], "expiration_year": 2035}}
other = {"type": "card", "data": {"number": "5555555555554444"}}
records = tokenize([CARD, renewed, other], key=key)
frame = pd.DataFrame(
    {
        "number": [record["mask"]["number"] for record in records],
        "year": [record["mask"].get("expiration_year", "–") for record in records],
        "fingerprint": [record["fingerprint"][:12] + "…" for record in records],
    }
)
frame

# %%
assert records[0]["fingerprint_expression"] == "{{ data.number }}"
assert records[0]["fingerprint"] == records[1]["fingerprint"] != records[2]["fingerprint"]

# %% [markdown]
# A fingerprint is a hash under a key of the tenant (our choice, D-FINGERPRINT). Another tenant's
# fingerprint of the same card differs, so fingerprints cannot be compared across tenants, and
# somebody who has only fingerprints cannot compute the numbers.

# %%
stranger = engine.create_tenant("Other")
theirs = tokenize(CARD, key=engine.key_for(stranger, "token:create"))
assert theirs["fingerprint"] != records[0]["fingerprint"]

# %% [markdown]
# It does not protect against a caller of the same tenant who may create tokens: they can tokenize
# candidates and compare. The protection is `token:create` itself, which must be granted with care,
# and the rate limits, which decide how many candidates can be tried.

# %%
guesser = engine.key_for(acme, "token:create")
candidates = ["5555555555554444", "4242424242424242"]
guesses = [{"type": "card", "data": {"number": number}} for number in candidates]
answers = tokenize(guesses, key=guesser)
matches = [one["fingerprint"] == records[0]["fingerprint"] for one in answers]
assert matches == [False, True]
pd.Series(dict(zip(candidates, matches, strict=True))).to_frame("matches the stored card")

# %% [markdown]
# ## A supplied expression replaces the default
# With `{{ data }}` both number and expiry count, and the renewed card has another fingerprint
# (D-CARD-FPEXPR). The cvc never counts: the same card with and without it has one fingerprint. An
# expression over the cvc is refused (D-CVC-DERIVE): a hash must not keep the cvc beyond its
# retention (chapter 07).

# %%
whole = "{{ data }}"
first, second = tokenize(
    [{**CARD, "fingerprint_expression": whole}, {**renewed, "fingerprint_expression": whole}],
    key=key,
)
assert first["fingerprint_expression"] == whole
assert first["fingerprint"] != second["fingerprint"]
refused = engine.ask(
    "POST", "/tokenize", {**CARD, "fingerprint_expression": "{{ data.cvc }}"}, key=key
)
print(json.dumps(refused.body["errors"], indent=2))
assert refused.status == 400

# %% [markdown]
# ## Which cards look alike
# The expression decides what "the same" means. The table compares three cards, two of them with the
# same number, under both expressions.

# %%
cards = {"12/2030": CARD, "12/2035": renewed, "another": other}
prints = {
    f"{name}, by {expression}": tokenize({**card, "fingerprint_expression": expression}, key=key)[
        "fingerprint"
    ]
    for expression in ("{{ data.number }}", whole)
    for name, card in cards.items()
}
alike = {
    one: {
        other: "✓" if prints[one] == prints[other] else "–"
        for other in prints
        if other.partition(", ")[2] == one.partition(", ")[2]
    }
    for one in prints
}
by_number, by_all = "by {{ data.number }}", f"by {whole}"
assert alike[f"12/2030, {by_number}"][f"12/2035, {by_number}"] == "✓"
assert alike[f"12/2030, {by_all}"][f"12/2035, {by_all}"] == "–"
pairs = {
    one: {name: row[f"{name}, {one.partition(', ')[2]}"] for name in cards}
    for one, row in alike.items()
}
pd.DataFrame(pairs).T.rename_axis("same fingerprint as →")

# %% [markdown]
# ## Search indexes
# The same expressions define what can be searched (TOK-INDEXES). A query names the path and the
# exact value (D-SEARCH); a token that was not indexed is not found.

# %%
tokenize({"type": "token", "data": "Ada Lovelace", "search_indexes": [whole]}, key=key)
tokenize({"type": "token", "data": "Ada Lovelace"}, key=key)
found = engine.ask("POST", "/tokens/search", {"query": 'data:"Ada Lovelace"'}, key=key)
assert found.status == 200
assert len(found.body["data"]) == 1

# %% [markdown]
# ## What may have an expression
# Any token request object may have one (TOK-FPEXPR, specified): a token or a card, inside an array
# too, and an object with `encrypted` in place of `data`. The record shows the expression that is
# used.

# %%
brought = [
    {"type": "token", "data": "Ada", "fingerprint_expression": whole},
    {**CARD, "fingerprint_expression": "{{ data.number }}"},
]
in_force = [one["fingerprint_expression"] for one in tokenize(brought, key=key)]
print(in_force)
assert in_force == [whole, "{{ data.number }}"]

# %% [markdown]
# ## What was learnt
# The expression decides what "the same" means: by default the number alone, on request the whole
# card. Fingerprints can be compared within a tenant. A fingerprint does not protect against a
# caller who may tokenize candidates.
#
# ## Exercise
# Use fingerprints to find out whether two generic tokens hold the same text. What must you add to
# each request?

# %% tags=["answer"]
texts = ["Ada", "Grace", "Ada"]
marked = tokenize(
    [{"type": "token", "data": text, "fingerprint_expression": "{{ data }}"} for text in texts],
    key=key,
)
prints_of_texts = [one["fingerprint"] for one in marked]
print([one == prints_of_texts[0] for one in prints_of_texts])
assert prints_of_texts[0] == prints_of_texts[2] != prints_of_texts[1]
assert "fingerprint" not in tokenize({"type": "token", "data": "Ada"}, key=key)

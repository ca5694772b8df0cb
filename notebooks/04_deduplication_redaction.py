# %% [markdown]
# # Deduplication: when a value is already stored
# With deduplication an equal value returns the existing token, and hides part of its record from a
# key that may not read it.
#
# Clauses: TOK-DEDUP, REC-DEDUP-REDACT, AUTH-READ, REC-EXTRAS.

# %% [markdown]
# **Predict before you read on.** A card is stored twice, the second time by a key without
# `token:read`. Which fields of the record does that key see?

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
reader = engine.key_for(acme, "token:create", "token:read")
creator = engine.key_for(acme, "token:create")


def tokenize(body: Any, *, key: str) -> Any:
    """Tokenize, expecting to succeed; returns the answer's body."""
    answer = engine.ask("POST", "/tokenize", body, key=key)
    assert answer.status == 200, answer.body
    return answer.body


# %% [markdown]
# ## Turn it on
# A tenant starts with deduplication off: each of two equal values gets its own token. The tenant's
# setting turns it on, and a token request object can override it (TOK-DEDUP, D-DEDUP).

# %%
assert tokenize(["x"], key=reader) != tokenize(["x"], key=reader)
engine.set_setting(acme, "deduplicate_tokens", on=True)
assert tokenize(["y"], key=reader) == tokenize(["y"], key=reader)
alone = tokenize({"type": "token", "data": "y", "deduplicate_token": False}, key=reader)
assert alone["_extras"] == {"deduplicated": False}

# %% [markdown]
# ## Inside one request
# Six elements make four tokens. Of equal elements the first in document order creates a token, and
# the later ones are deduplicated. So the request stays within the Tokenize Limit of five.

# %%
fresh = Engine(seed=7)
shop = fresh.create_tenant("Shop", settings={"deduplicate_tokens": True})
key = fresh.key_for(shop, "token:create", "token:read")
six_elements = {"a": "x", "b": ["x", CARD], "c": CARD, "d": "y", "e": "z"}
answer = fresh.ask("POST", "/tokenize", six_elements, key=key).body
created = fresh.ask("GET", "/tokens", key=key).body["data"]
print(len(created), "tokens")
assert len(created) == 4
assert answer["a"] == answer["b"][0]
assert answer["c"]["id"] == answer["b"][1]["id"]
print(answer["b"][1]["_extras"], answer["c"]["_extras"])
assert answer["c"]["_extras"] == {"deduplicated": True}

# %% [markdown]
# ## Redaction
# A deduplicated record shows `data` and `metadata` only to a key that holds `token:read` in the
# token's container (REC-DEDUP-REDACT, AUTH-READ). Before you run it: what can a key that may only
# create still learn about a card that somebody else has stored?


# %%
def card(month: int, year: int, note: str) -> dict[str, object]:
    """Return the same card number with another expiry and note."""
    data = {"number": "4242424242424242", "expiration_month": month, "expiration_year": year}
    return {"type": "card", "data": data, "metadata": {"o": note}}


first = tokenize(card(12, 2030, "1"), key=reader)
second = tokenize(card(1, 2031, "2"), key=creator)
third = tokenize(card(1, 2031, "3"), key=reader)
print(json.dumps(second, indent=2))
assert first["id"] == second["id"] == third["id"]
assert "data" not in second
assert "metadata" not in second
assert third["data"] == first["data"]

# %% [markdown]
# The record is that of the *stored* token: its mask shows 12/2030, and its metadata is that of the
# first request. Whatever else a duplicate request sends is dropped (our choice, D-DEDUP-RECORD;
# `update_existing` would merge it).
#
# So the rule hides `data` and `metadata`, and leaves the rest. The creator sent 1/2031 and learns
# from `mask` that the stored card expires in 12/2030, and from `created_at` and `created_by` when
# and by whom it was stored. Where that is too much, D-DEDUP-REDACT also permits a narrower record,
# and `card_view = "data"` shows no mask.

# %%
assert second["mask"]["expiration_month"] == 12
assert (second["created_at"], second["created_by"]) == (first["created_at"], first["created_by"])
assert third["metadata"] == {"o": "1"}

# %% [markdown]
# The table shows what each of the three requests returned. The first created the token, the second
# came from a key that may only create, and the third from a key that may read.

# %%
answers = {"created": first, "may not read": second, "may read": third}
seen = {
    name: {who: "✓" if name in record else "–" for who, record in answers.items()}
    for name in ("id", "type", "mask", "data", "metadata", "fingerprint", "_extras")
}
assert {name for name, row in seen.items() if "–" in row.values()} == {"data", "metadata"}
pd.DataFrame(seen).T.rename_axis("field of the record")

# %% [markdown]
# ## When two values are equal
# Two tokens of a tenant are equal when they have the same type, the same container, and the same
# value under the fingerprint expression (D-DEDUP-KEY; chapter 05 explains the expression).

# %%
here = tokenize({"type": "token", "data": "z"}, key=reader)
there = tokenize({"type": "token", "data": "z", "containers": ["/pci/low/"]}, key=reader)
assert here["id"] != there["id"]

# %% [markdown]
# ## What was learnt
# Where deduplication is on, an equal value gives the existing token. Without `token:read` the
# record lacks `data` and `metadata`, and shows all the rest.
#
# ## Exercise
# Six equal strings in one request, with deduplication on: how many tokens are created, and does the
# Tokenize Limit of five refuse it?

# %% tags=["answer"]
six = Engine(seed=7)
owner = six.create_tenant("Six", settings={"deduplicate_tokens": True})
six_key = six.key_for(owner, "token:create", "token:read")
equal = six.ask("POST", "/tokenize", ["x"] * 6, key=six_key).body
found = six.ask("GET", "/tokens", key=six_key).body["data"]
print(len(found), "token,", len(set(equal)), "identifier")
assert (len(found), len(set(equal))) == (1, 1)

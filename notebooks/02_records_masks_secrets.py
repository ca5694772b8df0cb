# %% [markdown]
# # What a record shows, and what it never shows
# A record names the token's owner and type, who created it and when; no record shows the value.
#
# Clauses: REC-ID, REC-TENANT, REC-TYPE, REC-CARD-MASK, REC-TOKEN-DATA, REC-METADATA, REC-INDEXES,
# REC-CREATED, REC-EXTRAS, REC-SECRET, TOK-CARD-DATA, TOK-METADATA, TOK-INDEXES.

# %% [markdown]
# **Predict before you read on.** A card is sent with its number, expiry month, expiry year and cvc.
# Which of the four can you find unchanged in the record?

# %%
import json
from datetime import datetime
from typing import Any
from uuid import UUID

import pandas as pd

from engine import Engine, MemoryStore

CARD: dict[str, Any] = {
    "type": "card",
    "data": {
        "number": "4242424242424242",
        "expiration_month": 12,
        "expiration_year": 2030,
        "cvc": "123",
    },
}
store = MemoryStore()
engine = Engine(seed=7, store=store)
acme = engine.create_tenant("Acme")
key = engine.key_for(acme, "token:create")


def tokenize(body: Any, *, key: str) -> Any:
    """Tokenize, expecting to succeed; returns the answer's body."""
    answer = engine.ask("POST", "/tokenize", body, key=key)
    assert answer.status == 200, answer.body
    return answer.body


# %% [markdown]
# ## The record of a generic token
# The record holds an identifier, the tenant, the type, who created it and when, and whether it was
# deduplicated (chapter 04). There is no `data` (REC-TOKEN-DATA).

# %%
record = tokenize({"type": "token", "data": "Ada"}, key=key)
print(json.dumps(record, indent=2))
assert set(record) == {"id", "tenant_id", "type", "created_by", "created_at", "_extras"}
assert record["tenant_id"] == acme.id
assert record["created_at"].endswith("+00:00")
assert record["_extras"] == {"deduplicated": False}

# %% [markdown]
# ## Metadata and indexes
# Both are echoed, and present only if they were supplied (REC-METADATA, REC-INDEXES). Metadata is
# for what is *not* sensitive; indexes define which part of the data can be searched.

# %%
record = tokenize(
    {
        "type": "token",
        "data": "Ada",
        "metadata": {"source": "signup"},
        "search_indexes": ["{{ data }}"],
    },
    key=key,
)
assert record["metadata"] == {"source": "signup"}
assert record["search_indexes"] == ["{{ data }}"]

# %% [markdown]
# ## The mask of a card
# A card's record shows a masked object: every digit of the number but the last four is `X`, and
# month and year are as given. This engine shows it under `mask` and `data`, which is our choice
# (D-CARD-VIEW); neither ever holds anything else (REC-CARD-MASK).

# %%
record = tokenize(CARD, key=key)
print(json.dumps({name: record[name] for name in ("mask", "data")}, indent=2))
assert record["mask"] == record["data"]
assert record["mask"]["number"] == "XXXXXXXXXXXX4242"
assert set(record["mask"]) == {"number", "expiration_month", "expiration_year"}

# %% [markdown]
# Neither the `cvc` nor the full number is anywhere in the answer (REC-SECRET).

# %%
everything = str(record)
assert "4242424242424242" not in everything
assert "'123'" not in everything

# %% [markdown]
# ## Which fields each record has
# Some fields are in every record, some only where they were supplied. Only a card has `mask` and
# `data`. A fingerprint (chapter 05) is shown where the token has a fingerprint expression, as a
# card always has.

# %%
sent = {
    "a token": {"type": "token", "data": "Ada"},
    "with metadata": {"type": "token", "data": "Ada", "metadata": {"source": "signup"}},
    "indexed": {"type": "token", "data": "Ada", "search_indexes": ["{{ data }}"]},
    "a card": CARD,
}
records = {what: tokenize(body, key=key) for what, body in sent.items()}
fields = list(dict.fromkeys(name for record in records.values() for name in record))
held = {
    name: {what: "✓" if name in record else "–" for what, record in records.items()}
    for name in fields
}
always = {name for name, row in held.items() if set(row.values()) == {"✓"}}
assert always == {"id", "tenant_id", "type", "created_by", "created_at", "_extras"}
assert held["data"] == held["mask"] == held["fingerprint"]
assert [what for what, mark in held["mask"].items() if mark == "✓"] == ["a card"]
pd.DataFrame(held).T.rename_axis("field of the record")

# %% [markdown]
# ## Secrets at rest
# The store holds ciphertexts, and a printed record of the store does not show even those. No error
# quotes what was sent: it names a wrong card number by its position.

# %%
wrong = {"type": "card", "data": {"number": "4242424242424241"}}
refused = engine.ask("POST", "/tokenize", wrong, key=key)
print(json.dumps(refused.body["errors"], indent=2))
assert refused.status == 400
assert "4242424242424241" not in str(refused.body)

with store.transaction(write=False):
    stored = store.token(acme.id, record["id"])
print(stored)
assert stored is not None
assert b"4242424242424242" not in stored.sealed_data
assert repr(stored.sealed_data) not in repr(stored)

# %% [markdown]
# ## Each field of the record, checked
# `id` is a UUID (REC-ID), `tenant_id` is the owner's (REC-TENANT), `type` is what was asked for
# (REC-TYPE). `created_by` is a UUID and `created_at` a time with its offset (REC-CREATED).
# `_extras.deduplicated` is a boolean on every record (REC-EXTRAS). All of this is specified.

# %%
for what, one in records.items():
    assert str(UUID(one["id"])) == one["id"]
    assert one["tenant_id"] == acme.id
    assert one["type"] == ("card" if what == "a card" else "token")
    assert str(UUID(one["created_by"])) == one["created_by"]
    assert datetime.fromisoformat(one["created_at"]).utcoffset() is not None
    assert one["_extras"]["deduplicated"] is False

# %% [markdown]
# ## What may be sent
# The fields of a card are specified (TOK-CARD-DATA): `number` is a string of digits, month and year
# are integers, `cvc` is a string. Metadata is an object whose values are strings (TOK-METADATA).
# How each is validated, and the status 400, are our choice (D-CARD, D-METADATA).

# %%
faults = {
    "a card number that is not a string": {**CARD["data"], "number": 4242424242424242},
    "spaces in the card number": {**CARD["data"], "number": "4242 4242 4242 4242"},
    "a month as a string": {**CARD["data"], "expiration_month": "12"},
    "a year as a string": {**CARD["data"], "expiration_year": "2030"},
    "a cvc as a number": {**CARD["data"], "cvc": 123},
}
answers = {
    what: engine.ask("POST", "/tokenize", {"type": "card", "data": data}, key=key)
    for what, data in faults.items()
}
for what, answer in answers.items():
    print(f"{what}: {answer.status}, {', '.join(answer.body['errors'])}")
assert {answer.status for answer in answers.values()} == {400}
for metadata in ({"n": 1}, {"n": None}, ["n"], "n"):
    body = {"type": "token", "data": "x", "metadata": metadata}
    assert engine.ask("POST", "/tokenize", body, key=key).status == 400

# %% [markdown]
# ## What the specification leaves out
# It names no states of a token, no events, and no versions of the interface. A record has no such
# field here, and you should not expect one from another service.

# %%
assert not {"state", "status", "version", "updated_at"} & set(fields)

# %% [markdown]
# ## What was learnt
# A record names the token's owner and type, who created it and when; a card's record also shows the
# mask. The value, the full number and the cvc are in no record.
#
# ## Exercise
# Whose id is `created_by`: the key's or the application's? Make two keys of one application and
# compare.

# %% tags=["answer"]
application = engine.create_application(acme, "shop", grants=[("/", {"token:create"})])
makers = {
    tokenize({"type": "token", "data": "x"}, key=str(engine.create_key(application)))["created_by"]
    for _ in range(2)
}
print(makers == {application.id})
assert makers == {application.id}, "the application's: both of its keys create in its name"

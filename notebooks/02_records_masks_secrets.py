# %% [markdown]
# # Records, masks and secrets
# What anybody gets to see of a token, and what nobody does.
#
# Clauses: REC-ID, REC-TENANT, REC-TYPE, REC-CARD-MASK, REC-TOKEN-DATA, REC-METADATA, REC-INDEXES,
# REC-CREATED, REC-EXTRAS, REC-SECRET, TOK-CARD-DATA, TOK-METADATA, TOK-INDEXES.

# %%
import altair as alt

from notebooks.desk import CARD, Desk, show
from notebooks.pictures import grid

_ = alt.renderers.enable("svg")
desk = Desk()
key = desk.key("token:create")

# %% [markdown]
# ## The record of a generic token
# An identifier, whose it is, what it is, who made it and when, and whether it was there before.
# There is no `data` (REC-TOKEN-DATA): the value is what the token stands for.

# %%
record = desk.tokenize({"type": "token", "data": "Ada"}, key=key)
show(record)
assert set(record) == {"id", "tenant_id", "type", "created_by", "created_at", "_extras"}
assert record["tenant_id"] == desk.tenant.id
assert record["created_at"].endswith("+00:00")
assert record["_extras"] == {"deduplicated": False}

# %% [markdown]
# ## Metadata and indexes
# Both are echoed, and present only if they were supplied (REC-METADATA, REC-INDEXES). Metadata is
# for what is *not* sensitive; indexes say which part of the data can be searched for.

# %%
record = desk.tokenize(
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
# A card's record shows a masked object: every digit of the number is `X` but the last four, month
# and year as given. Where it stands is a choice that the seed leaves open; this engine shows it
# under `mask` and `data`, and neither ever holds anything else (REC-CARD-MASK).

# %%
record = desk.tokenize(CARD, key=key)
show({name: record[name] for name in ("mask", "data")})
assert record["mask"] == record["data"]
assert record["mask"]["number"] == "XXXXXXXXXXXX4242"
assert set(record["mask"]) == {"number", "expiration_month", "expiration_year"}

# %% [markdown]
# The `cvc` went in and is nowhere in the answer, and neither is the number (REC-SECRET).

# %%
everything = str(record)
assert "4242424242424242" not in everything
assert "'123'" not in everything

# %% [markdown]
# ## Side by side
# Which field stands in which record: some always, some only if something was supplied, `mask` and
# `data` for a card alone, and the fingerprint where an expression is in force.

# %%
sent = {
    "a token": {"type": "token", "data": "Ada"},
    "with metadata": {"type": "token", "data": "Ada", "metadata": {"source": "signup"}},
    "indexed": {"type": "token", "data": "Ada", "search_indexes": ["{{ data }}"]},
    "a card": CARD,
}
records = {what: desk.tokenize(body, key=key) for what, body in sent.items()}
fields = list(dict.fromkeys(name for record in records.values() for name in record))
held = {
    name: {what: "there" if name in record else "–" for what, record in records.items()}
    for name in fields
}
always = {name for name, row in held.items() if set(row.values()) == {"there"}}
assert always == {"id", "tenant_id", "type", "created_by", "created_at", "_extras"}
assert held["data"] == held["mask"] == held["fingerprint"]
assert [what for what, there in held["mask"].items() if there == "there"] == ["a card"]
grid(held, {"there": "#2a78d6", "–": "#e6e8eb"})

# %% [markdown]
# ## Secrets at rest
# The store holds ciphertexts under a key of the tenant, bound to their place; its records do not
# show even those. And no error quotes what was sent: a wrong card number is named by its place.

# %%
wrong = {"type": "card", "data": {"number": "4242424242424241"}}
refused = desk.ask("POST", "/tokenize", wrong, key=key)
show(refused.body["errors"])
assert refused.status == 400
assert "4242424242424241" not in str(refused.body)

store = desk.engine.services.store
with store.transaction(write=False):
    stored = store.token(desk.tenant.id, record["id"])
print(stored)
assert stored is not None
assert b"4242424242424242" not in stored.sealed_data

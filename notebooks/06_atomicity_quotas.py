# %% [markdown]
# # Atomicity and quotas
# All of a request or none of it, and how much of it there may be.
#
# Clauses: TOK-ATOMIC, TOK-LIMIT, QUO-TENANT, QUO-TOKENIZE, QUO-DETOKENIZE.

# %% [markdown]
# **Predict before you read on.** Six strings in one request, with a Tokenize Limit of five. How
# many tokens are there afterwards?

# %%
import altair as alt
import pandas as pd

from notebooks.desk import CARD, Desk, show

_ = alt.renderers.enable("svg")
desk = Desk()
key = desk.key("token:create", "token:read")

# %% [markdown]
# ## One invalid token fails the request
# Three valid elements and two invalid ones: the request fails as a whole and nothing is created
# (TOK-ATOMIC). That it fails with 400, and which fault the answer names, is our choice (D-ORDER).

# %%
body = {"a": "x", "b": ["y", {"type": "visa"}], "c": CARD, "d": {"type": "token"}}
refused = desk.ask("POST", "/tokenize", body, key=key)
show(refused.body["errors"])
assert refused.status == 400
assert list(refused.body["errors"]) == ["/b/1/type"], "one of the two faults is named"
assert desk.count() == 0

# %% [markdown]
# The engine judges in steps, and the first that fails answers alone: here the unknown type is
# found by the walk, before the missing `data` would be. Mend it, and the next step speaks.

# %%
refused = desk.ask("POST", "/tokenize", {**body, "b": ["y"]}, key=key)
show(refused.body["errors"])
assert list(refused.body["errors"]) == ["/d"]

# %% [markdown]
# ## The Tokenize Limit
# At most five tokens are created in one request, however they are nested (TOK-LIMIT,
# QUO-TOKENIZE). Exactly five pass. That a sixth is answered 400 is our choice (D-LIMIT-STATUS), and
# so is what is counted (D-LIMIT-COUNT).

# %%
five = {"a": ["1", ["2", {"b": "3"}]], "c": CARD, "d": "5"}
desk.tokenize(five, key=key)
assert desk.count() == 5
refused = desk.ask("POST", "/tokenize", {**five, "e": "6"}, key=key)
print(refused.status, refused.body["detail"])
assert refused.status == 400
assert desk.count() == 5

# %% [markdown]
# All or none, drawn: how many tokens a request creates that asks for so many.

# %%
created = []
for asked in range(1, 9):
    before = desk.count()
    desk.ask("POST", "/tokenize", [f"{asked}-{n}" for n in range(asked)], key=key)
    created.append(desk.count() - before)
assert created == [1, 2, 3, 4, 5, 0, 0, 0]
alt.Chart(
    pd.DataFrame({"asked for": range(1, 9), "created": created}), width=320, height=120
).mark_bar(aria=False).encode(x=alt.X("asked for:O", axis=alt.Axis(labelAngle=0)), y="created:Q")

# %% [markdown]
# ## Quotas are a tenant's
# The operator adjusts them, for one tenant, from the next request on (QUO-TENANT,
# D-QUOTA-CHANGE).

# %%
desk.engine.set_quota(desk.tenant, "Tokenize Limit", 6)
desk.tokenize({**five, "e": "6"}, key=key)
assert desk.count() == sum(created) + 5 + 6
neighbour = desk.engine.create_tenant("Neighbour")
other = desk.key("token:create", tenant=neighbour)
assert desk.ask("POST", "/tokenize", {**five, "e": "6"}, key=other).status == 400

# %% [markdown]
# ## The Detokenize Limit
# `POST /detokenize` takes any JSON with expressions that name tokens, and puts the values in
# their place. At most five expressions, repeats included (QUO-DETOKENIZE).
# That repeats count is our choice (D-DETOKENIZE-COUNT).

# %%
name = desk.tokenize({"name": "Ada"}, key=key)["name"]
letter = f"Dear {{{{ {name} }}}}"
answer = desk.ask("POST", "/detokenize", [letter] * 5, key=key)
show(answer.body[0])
assert answer.body == ["Dear Ada"] * 5
assert desk.ask("POST", "/detokenize", [letter] * 6, key=key).status == 400

# %% [markdown]
# ## What was learnt
# All of a request is created or none of it: one invalid element, or one token above the limit,
# fails the whole. Quotas are a tenant's, and a change holds from the next request on.
#
# ## Exercise
# What does a request of six strings create if only the last one is invalid (a number)? And which
# fault is named: the number, or the limit?

# %% tags=["answer"]
before_it = desk.count()
faulty = desk.ask("POST", "/tokenize", ["1", "2", "3", "4", "5", "6", 7], key=key)
print(faulty.status, list(faulty.body["errors"]))
assert desk.count() == before_it
assert list(faulty.body["errors"]) == ["/6"], "the number: a fault is found before the quota"

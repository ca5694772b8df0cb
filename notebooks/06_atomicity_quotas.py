# %% [markdown]
# # Atomic requests, quotas, and the order of checks
# A request succeeds as a whole or fails as a whole, and the answer reports only the first check
# that fails.
#
# Clauses: TOK-ATOMIC, TOK-LIMIT, QUO-TENANT, QUO-TOKENIZE, QUO-DETOKENIZE.

# %% [markdown]
# **Predict before you read on.** Six strings in one request, with a Tokenize Limit of five. How
# many tokens does it create?

# %%
import json
from typing import Any

import altair as alt
import pandas as pd

from engine import Engine

_ = alt.renderers.enable("svg")
pd.set_option("display.max_colwidth", 90)
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
key = engine.key_for(acme, "token:create", "token:read")


def tokenize(body: Any, *, key: str) -> Any:
    """Tokenize, expecting to succeed; returns the answer's body."""
    answer = engine.ask("POST", "/tokenize", body, key=key)
    assert answer.status == 200, answer.body
    return answer.body


def count() -> int:
    """Return how many tokens the tenant holds."""
    return len(engine.ask("GET", "/tokens?size=100", key=key).body["data"])


# %% [markdown]
# ## One invalid token fails the request
# Three valid elements and two invalid ones: the request fails as a whole and nothing is created
# (TOK-ATOMIC). The status 400 and the fault that the answer names are our choice (D-ORDER).

# %%
body = {"a": "x", "b": ["y", {"type": "visa"}], "c": CARD, "d": {"type": "token"}}
refused = engine.ask("POST", "/tokenize", body, key=key)
print(json.dumps(refused.body["errors"], indent=2))
assert refused.status == 400
assert list(refused.body["errors"]) == ["/1/1/type"], "the other fault belongs to a later step"
assert count() == 0
three = engine.ask("POST", "/tokenize", [1, {"type": "visa"}, 2], key=key)
assert list(three.body["errors"]) == ["/0", "/1/type", "/2"], "one step names all that it finds"

# %% [markdown]
# The engine checks in steps. The first step that finds a fault answers, and names every fault that
# it finds. Here it finds the unknown type `visa`; the missing `data` belongs to a later step. Fix
# it, and the next step answers.

# %%
refused = engine.ask("POST", "/tokenize", {**body, "b": ["y"]}, key=key)
print(json.dumps(refused.body["errors"], indent=2))
assert list(refused.body["errors"]) == ["/3"]

# %% [markdown]
# ## In which order
# We start with a request that is wrong in every way and fix one fault at a time. Each answer names
# the next fault: the path, the method, the key, the header, the JSON, the shape, the permission,
# the data, the quota (our choice, D-ORDER). Rate limits come before most of these, and are left out
# here.

# %%
pci = engine.key_for(acme, "token:create", container="/pci/")
as_text, as_json = {"Content-Type": "text/plain"}, {"Content-Type": "application/json"}
wrong = {"type": "card", "data": {"number": "4242424242424241"}}
right = {"type": "card", "data": {"number": "4242424242424242"}}
steps: list[tuple[str, str, str, Any, dict[str, Any]]] = [
    ("as it is", "PUT", "/nowhere", b"{", {}),
    ("the path", "PUT", "/tokenize", b"{", {}),
    ("the method", "POST", "/tokenize", b"{", {}),
    ("the key", "POST", "/tokenize", b"{", {"key": pci, "headers": as_text}),
    ("the header", "POST", "/tokenize", b"{", {"key": pci, "headers": as_json}),
    ("the JSON", "POST", "/tokenize", [wrong, 1, "x", *[right] * 5], {"key": pci}),
    ("the shape", "POST", "/tokenize", [wrong, "x", *[right] * 5], {"key": pci}),
    ("the permission", "POST", "/tokenize", [wrong, *[right] * 5], {"key": pci}),
    ("the data", "POST", "/tokenize", [right] * 6, {"key": pci}),
    ("the quota", "POST", "/tokenize", [right] * 5, {"key": pci}),
]
answers = [
    (fixed, engine.ask(method, path, sent, **more)) for fixed, method, path, sent, more in steps
]
order = [answer.status for _, answer in answers]
assert order == [404, 405, 401, 415, 400, 400, 403, 400, 400, 200]
held = count()
assert held == 5, "the last alone creates tokens"
pd.DataFrame(
    [
        {
            "fixed last": fixed,
            "status": answer.status,
            "detail": answer.body["detail"] if answer.status >= 400 else "five records",
        }
        for fixed, answer in answers
    ]
).set_index("fixed last")

# %% [markdown]
# ## The Tokenize Limit
# At most five tokens are created in one request, however they are nested (TOK-LIMIT, QUO-TOKENIZE).
# Exactly five pass. A request for a sixth is answered 400, which is our choice (D-LIMIT-STATUS),
# and so is what the limit counts (D-LIMIT-COUNT).

# %%
five = {"a": ["1", ["2", {"b": "3"}]], "c": CARD, "d": "5"}
tokenize(five, key=key)
assert count() == held + 5
refused = engine.ask("POST", "/tokenize", {**five, "e": "6"}, key=key)
print(refused.status, refused.body["detail"])
assert refused.status == 400
assert count() == held + 5

# %% [markdown]
# The picture shows how many tokens requests of one to eight strings create.

# %%
created = []
for asked in range(1, 9):
    before = count()
    engine.ask("POST", "/tokenize", [f"{asked}-{n}" for n in range(asked)], key=key)
    created.append(count() - before)
assert created == [1, 2, 3, 4, 5, 0, 0, 0]
alt.Chart(
    pd.DataFrame({"asked for": range(1, 9), "created": created}),
    width=320,
    height=120,
    description="Tokens created by tokens asked for: as many as asked from one to five, none from"
    " six to eight.",
).mark_bar(aria=False).encode(
    x=alt.X("asked for:O", title="tokens asked for", axis=alt.Axis(labelAngle=0)),
    y=alt.Y("created:Q", title="tokens created"),
)

# %% [markdown]
# ## Quotas belong to a tenant
# The operator changes a quota for one tenant (QUO-TENANT). A changed Tokenize Limit applies from
# the next request on (D-QUOTA-CHANGE).

# %%
engine.set_quota(acme, "Tokenize Limit", 6)
tokenize({**five, "e": "6"}, key=key)
assert count() == held + 5 + sum(created) + 6
neighbour = engine.create_tenant("Neighbour")
other = engine.key_for(neighbour, "token:create")
assert engine.ask("POST", "/tokenize", {**five, "e": "6"}, key=other).status == 400

# %% [markdown]
# ## The Detokenize Limit
# `POST /detokenize` takes any JSON with expressions that name tokens, and puts the values in their
# place. A request may hold at most five expressions (QUO-DETOKENIZE). Repeats count, which is our
# choice (D-DETOKENIZE-COUNT).

# %%
name = tokenize({"name": "Ada"}, key=key)["name"]
letter = f"Dear {{{{ {name} }}}}"
answer = engine.ask("POST", "/detokenize", [letter] * 5, key=key)
print(json.dumps(answer.body[0], indent=2))
assert answer.body == ["Dear Ada"] * 5
assert engine.ask("POST", "/detokenize", [letter] * 6, key=key).status == 400

# %% [markdown]
# ## What was learnt
# All of a request is created or none of it: one invalid element, or one token above the limit,
# fails the whole. Quotas belong to a tenant, and a changed Tokenize Limit applies from the next
# request on.
#
# ## Exercise
# What does a request of six strings create if only the last one is invalid (a number)? And which
# fault does the answer name: the number, or the limit?

# %% tags=["answer"]
before_it = count()
faulty = engine.ask("POST", "/tokenize", ["1", "2", "3", "4", "5", "6", 7], key=key)
print(faulty.status, list(faulty.body["errors"]))
assert count() == before_it
assert list(faulty.body["errors"]) == ["/6"], "the number: a fault comes before the quota"

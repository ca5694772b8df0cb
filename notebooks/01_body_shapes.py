# %% [markdown]
# # The four shapes of a request body
# `POST /tokenize` takes a body in the caller's own shape and gives the same shape back.
#
# Clauses: TOK-OBJECT, TOK-PLAIN, TOK-ARRAY, TOK-COMPOSITE, TOK-LEAF, TOK-TYPES, TOK-TOKEN-DATA,
# TOK-ONE-OF, TOK-ENCRYPTED, TOK-JSON, REC-SECRET.
#
# A tokenization service replaces sensitive values by tokens, and callers keep their own data
# structure. The engine runs in this process. Its clock moves only when a cell advances it.

# %% [markdown]
# **Predict before you read on.** You send `{"a": ["x", {"b": "y"}]}`. What shape comes back, and
# what replaces `x` and `y`?

# %%
import json
from typing import Any

import pandas as pd

from engine import Engine, encrypt

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
key = engine.key_for(acme, "token:create", "token:read", "encryption-key:create")


def tokenize(body: Any, *, key: str) -> Any:
    """Tokenize, expecting to succeed; returns the answer's body."""
    answer = engine.ask("POST", "/tokenize", body, key=key)
    assert answer.status == 200, answer.body
    return answer.body


# %% [markdown]
# ## A plain object
# An object without `type` whose values are strings comes back with the same keys; each value is
# replaced by the identifier of its token (TOK-PLAIN).

# %%
body = {"name": "Ada Lovelace", "phone": "+44 20 7946 0018"}
answered = engine.ask("POST", "/tokenize", body, key=key)
print(answered.status)
print(json.dumps(answered.body, indent=2))
assert answered.status == 200
assert list(answered.body) == list(body)
assert all(len(identifier) == 36 for identifier in answered.body.values())

# %% [markdown]
# `engine.ask` returns what an HTTP client would receive. Where a request is expected to succeed,
# the cells below use `tokenize`, which sends it, asserts the status and returns the body.

# %% [markdown]
# ## A token request object
# An object that holds `type` is no longer the caller's own structure: it requests one token, with
# all its options, and comes back as a *record* (TOK-OBJECT).

# %%
record = tokenize(
    {"type": "token", "data": "Ada Lovelace", "metadata": {"source": "signup"}}, key=key
)
print(json.dumps(record, indent=2))
assert record["type"] == "token"
assert record["metadata"] == {"source": "signup"}
assert "data" not in record

# %% [markdown]
# `data` went in and does not come out: no record shows the sensitive value (REC-SECRET). For the
# type `token` it is a string, nothing else (TOK-TOKEN-DATA, D-TOKEN-DATA), and it must not be
# missing (TOK-ONE-OF).

# %%
assert engine.ask("POST", "/tokenize", {"type": "token", "data": 36}, key=key).status == 400
assert engine.ask("POST", "/tokenize", {"type": "token"}, key=key).status == 400

# %% [markdown]
# ## An array
# An array may mix strings and token request objects of both types, `token` and `card`. Length and
# order stay (TOK-ARRAY, TOK-TYPES).

# %%
answer = tokenize(["Ada", CARD, "Lovelace"], key=key)
print(json.dumps(answer, indent=2))
assert [type(item).__name__ for item in answer] == ["str", "dict", "str"]
assert answer[1]["mask"]["number"] == "XXXXXXXXXXXX4242"

# %% [markdown]
# ## A composite
# A composite nests objects and arrays in one another (TOK-COMPOSITE). Each string becomes an
# identifier (TOK-LEAF), each object with `type` becomes a record, and the structure stays as it
# was.

# %%
order: dict[str, Any] = {
    "order": {"buyer": "Ada", "cards": [CARD], "notes": ["call first", "leave at the door"]}
}
mirrored = tokenize(order, key=key)
print(json.dumps(mirrored, indent=2))

# %% [markdown]
# The table shows for each position what was sent and what came back.


# %% tags=["setup"]
def leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Return place → the string or the object with `type` that stands there."""
    if isinstance(value, str) or (isinstance(value, dict) and "type" in value):
        return {place: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {
        where: leaf
        for name, inner in items
        for where, leaf in leaves(inner, f"{place}/{name}").items()
    }


def kinds(value: Any, string: str, typed: str) -> dict[str, str]:
    """Return place → what kind of thing stands there."""
    return {
        place: string if isinstance(leaf, str) else typed for place, leaf in leaves(value).items()
    }


# %%
pairs = pd.DataFrame(
    {
        "sent": kinds(order, "string", "token request object"),
        "came back": kinds(mirrored, "identifier", "record"),
    }
)
assert not pairs.isna().any(axis=None), "the same places"
assert set(map(tuple, pairs.to_numpy())) == {
    ("string", "identifier"),
    ("token request object", "record"),
}
pairs.rename_axis("place in the body")

# %% [markdown]
# ## Encrypted by the caller
# Instead of `data` there may be `encrypted`: a value that the caller has encrypted with an
# encryption key of the tenant, so that nobody between the caller and the service can read it. It is
# accepted in a single object and inside arrays, and makes the token that its plaintext would have
# made (TOK-ENCRYPTED). The form of encryption is our choice (D-ENCRYPTED).

# %%
public = engine.ask("POST", "/keys", {"algorithm": "ECDH-ES"}, key=key).body["public_key"]


def encrypted(value: Any) -> str:
    """Return what a client makes of a value."""
    return encrypt(public, json.dumps(value).encode())


(name,) = tokenize([{"type": "token", "encrypted": encrypted("Ada")}], key=key)
card = tokenize({"type": "card", "encrypted": encrypted(CARD["data"])}, key=key)
print(json.dumps(card["mask"], indent=2))
assert card["mask"]["number"] == "XXXXXXXXXXXX4242"
answer = engine.ask("POST", "/detokenize", [f"{{{{ {name['id']} }}}}"], key=key)
assert answer.body == ["Ada"]
tampered = encrypted("Ada")[:-4] + "AAAA"
refused = engine.ask("POST", "/tokenize", {"type": "token", "encrypted": tampered}, key=key)
assert refused.status == 400

# %% [markdown]
# ## A body that has none of these shapes
# The shapes hold strings and token request objects only. A number is neither (D-LEAF), so the
# request is refused as a whole, and the answer names the position of the fault (D-PROBLEM). Here
# `/1` is the second member, counted from 0; an error quotes no name.

# %%
refused = engine.ask("POST", "/tokenize", {"name": "Ada", "age": 36}, key=key)
print(refused.status)
print(json.dumps(refused.body["errors"], indent=2))
assert refused.status == 400
assert list(refused.body["errors"]) == ["/1"], "the second member: no error quotes a name"

# %% [markdown]
# Whatever the shape, the body is JSON, and its `Content-Type` is `application/json` (TOK-JSON).
# Anything else is answered 415 or 400, which is our choice (D-STATUSES).

# %%
asked = {
    "JSON": ("application/json", b'{"name": "Ada"}'),
    "JSON, declared as text": ("text/plain", b'{"name": "Ada"}'),
    "not JSON": ("application/json", b"name=Ada"),
}
statuses: dict[str, int] = {}
for what, (kind, text) in asked.items():
    headers = {"Content-Type": kind}
    statuses[what] = engine.ask("POST", "/tokenize", text, key=key, headers=headers).status
print(statuses)
assert list(statuses.values()) == [200, 415, 400]

# %% [markdown]
# ## What was learnt
# The structure of the body is yours and stays. A string becomes an identifier, an object with
# `type` becomes a record, and any other value fails the request.
#
# ## Exercise
# Store two people, each with a name and a card, in one request. Which parts of the answer are
# identifiers, and which are records? (One request may create at most five tokens: the Tokenize
# Limit.)

# %% tags=["answer"]
people = [{"name": "Ada", "card": CARD}, {"name": "Grace", "card": CARD}]
stored_people = tokenize(people, key=key)
assert [sorted(person) for person in stored_people] == [["card", "name"]] * 2
assert all(isinstance(person["name"], str) for person in stored_people)
assert all(person["card"]["type"] == "card" for person in stored_people)
pd.Series(kinds(stored_people, "identifier", "record")).to_frame("came back")

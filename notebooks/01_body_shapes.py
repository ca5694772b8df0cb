# %% [markdown]
# # The four body shapes
# `POST /tokenize` takes a body in the caller's own shape and gives the same shape back.
#
# Clauses: TOK-OBJECT, TOK-PLAIN, TOK-ARRAY, TOK-COMPOSITE, TOK-LEAF, TOK-TYPES, TOK-TOKEN-DATA,
# TOK-ONE-OF, TOK-ENCRYPTED, TOK-JSON, REC-SECRET.
#
# A tokenization service replaces sensitive values by tokens, and callers keep their own data
# structure. The engine runs in this process, under a clock that moves only when told.

# %% [markdown]
# **Predict before you read on.** You send `{"a": ["x", {"b": "y"}]}`. What shape comes back, and
# what stands where `x` and `y` stood?

# %%
import json
from typing import Any

import altair as alt

from engine import Request
from engine.vault import jwe
from notebooks.desk import CARD, Desk, show
from notebooks.pictures import mirror

_ = alt.renderers.enable("svg")
desk = Desk()
key = desk.key("token:create", "token:read", "key:create")

# %% [markdown]
# ## A plain object
# An object without `type` whose values are strings comes back with the same keys; each value is
# replaced by the identifier of its token (TOK-PLAIN).

# %%
body = {"name": "Ada Lovelace", "phone": "+44 20 7946 0018"}
answer = desk.tokenize(body, key=key)
show(answer)
assert list(answer) == list(body)
assert all(len(identifier) == 36 for identifier in answer.values())

# %% [markdown]
# ## A token request object
# An object that holds `type` is no longer the caller's own structure: it asks for one token, with
# everything that can be said about it, and comes back as a *record* (TOK-OBJECT).

# %%
record = desk.tokenize(
    {"type": "token", "data": "Ada Lovelace", "metadata": {"source": "signup"}}, key=key
)
show(record)
assert record["type"] == "token"
assert record["metadata"] == {"source": "signup"}
assert "data" not in record

# %% [markdown]
# `data` went in and does not come out: no record shows the sensitive value (REC-SECRET). For the
# type `token` it is a string, nothing else (TOK-TOKEN-DATA, D-TOKEN-DATA), and it must not be
# missing (TOK-ONE-OF).

# %%
assert desk.ask("POST", "/tokenize", {"type": "token", "data": 36}, key=key).status == 400
assert desk.ask("POST", "/tokenize", {"type": "token"}, key=key).status == 400

# %% [markdown]
# ## An array
# Strings and token request objects, mixed, of both types. Length and order stay (TOK-ARRAY,
# TOK-TYPES).

# %%
answer = desk.tokenize(["Ada", CARD, "Lovelace"], key=key)
show(answer)
assert [type(item).__name__ for item in answer] == ["str", "dict", "str"]
assert answer[1]["mask"]["number"] == "XXXXXXXXXXXX4242"

# %% [markdown]
# ## A composite
# Objects and arrays nested in one another (TOK-COMPOSITE). Whatever is a string becomes an
# identifier (TOK-LEAF), whatever holds `type` becomes a record, and the rest stays as it was.

# %%
order: dict[str, Any] = {
    "order": {"buyer": "Ada", "cards": [CARD], "notes": ["call first", "leave at the door"]}
}
mirrored = desk.tokenize(order, key=key)
show(mirrored)


def shape(value: Any) -> Any:
    """Return the structure alone."""
    if isinstance(value, dict) and "type" not in value:
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "record" if isinstance(value, dict) else "identifier"


assert shape(mirrored) == shape(order)
mirror(order, mirrored)

# %% [markdown]
# ## Encrypted by the caller
# Instead of `data` there may be `encrypted`: what the caller has encrypted with the tenant's public
# key, so that nobody between them and the service could read it. It is accepted in a single object
# and inside arrays, and is the token that its plaintext would have been (TOK-ENCRYPTED).
# How it is encrypted is our choice (D-ENCRYPTED).

# %%
public = desk.ask("POST", "/keys", {"algorithm": "ECDH-ES"}, key=key).body["public_key"]


def encrypted(value: Any) -> str:
    """Return what a client makes of a value."""
    return jwe.encrypt(public, json.dumps(value).encode())


(name,) = desk.tokenize([{"type": "token", "encrypted": encrypted("Ada")}], key=key)
card = desk.tokenize({"type": "card", "encrypted": encrypted(CARD["data"])}, key=key)
show(card["mask"])
assert card["mask"]["number"] == "XXXXXXXXXXXX4242"
answer = desk.ask("POST", "/detokenize", [f"{{{{ {name['id']} }}}}"], key=key)
assert answer.body == ["Ada"]
tampered = encrypted("Ada")[:-4] + "AAAA"
refused = desk.ask("POST", "/tokenize", {"type": "token", "encrypted": tampered}, key=key)
assert refused.status == 400

# %% [markdown]
# ## What is none of them
# The shapes hold strings and token request objects only. A number is neither (D-LEAF), so the
# request is refused as a whole, with the place of the fault (D-PROBLEM).

# %%
refused = desk.ask("POST", "/tokenize", {"name": "Ada", "age": 36}, key=key)
print(refused.status)
show(refused.body["errors"])
assert refused.status == 400
assert list(refused.body["errors"]) == ["/age"]

# %% [markdown]
# Whatever the shape, the body is JSON, and the header says so (TOK-JSON). That anything else is 415
# or 400 is our choice (D-STATUSES).

# %%
asked = {
    "JSON": ("application/json", b'{"name": "Ada"}'),
    "JSON by another name": ("text/plain", b'{"name": "Ada"}'),
    "no JSON": ("application/json", b"name=Ada"),
}
statuses = {}
for what, (kind, text) in asked.items():
    request = Request(
        "POST", "/tokenize", key=key, ip="203.0.113.7", headers={"Content-Type": kind}, body=text
    )
    statuses[what] = desk.engine.handle(request).status
print(statuses)
assert list(statuses.values()) == [200, 415, 400]

# %% [markdown]
# ## What was learnt
# The body's structure is yours and stays. A string becomes an identifier, an object with `type`
# becomes a record, and what is neither fails the request.
#
# ## Exercise
# Store two people, each with a name and a card, in one request. Which parts of the answer are
# identifiers, and which are records? (Mind the Tokenize Limit of five.)

# %% tags=["answer"]
people = [{"name": "Ada", "card": CARD}, {"name": "Grace", "card": CARD}]
stored_people = desk.tokenize(people, key=key)
assert [sorted(person) for person in stored_people] == [["card", "name"]] * 2
assert all(isinstance(person["name"], str) for person in stored_people)
assert all(person["card"]["type"] == "card" for person in stored_people)
shape(stored_people)

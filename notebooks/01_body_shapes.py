# %% [markdown]
# # The four body shapes
# `POST /tokenize` takes a body in the caller's own shape and gives the same shape back.
#
# Clauses: TOK-OBJECT, TOK-PLAIN, TOK-ARRAY, TOK-COMPOSITE, TOK-LEAF, TOK-TYPES.
#
# A tokenization service replaces sensitive values by tokens. What sets this operation apart is
# that the caller keeps its own data structure: nothing has to be taken apart and put together
# again. We ask an engine in this very process, under a clock that moves only when told.

# %%
import json
import random
from typing import Any

from engine import Engine, ModelWorld, Request

# Keys come from the operating system's entropy, so fingerprints differ from run to run. A page
# that is to look the same tomorrow hands in entropy of its own.
engine = Engine(world=ModelWorld(seed=1, entropy=random.Random(1).randbytes))
tenant = engine.create_tenant("Acme")
shop = engine.create_application(tenant, "shop", grants=[("/", {"token:create"})])
key = engine.create_key(shop)


def tokenize(body: Any) -> Any:
    """Ask once and return the answer's body."""
    answer = engine.handle(Request("POST", "/tokenize", key=key, ip="203.0.113.7", body=body))
    assert answer.status == 200, answer.body
    return answer.body


def show(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2))


# %% [markdown]
# ## A plain object (TOK-PLAIN)
# An object without `type` whose values are strings comes back with the same keys. Each value is
# replaced by the identifier of its token.

# %%
body = {"name": "Ada Lovelace", "phone": "+44 20 7946 0018"}
answer = tokenize(body)
show(answer)
assert list(answer) == list(body)
assert all(len(identifier) == 36 for identifier in answer.values())

# %% [markdown]
# ## A token request object (TOK-OBJECT)
# An object that holds `type` is no longer the caller's own structure: it asks for one token, with
# everything that can be said about it, and comes back as a *record*.

# %%
record = tokenize({"type": "token", "data": "Ada Lovelace", "metadata": {"source": "signup"}})
show(record)
assert record["type"] == "token"
assert record["metadata"] == {"source": "signup"}
assert "data" not in record

# %% [markdown]
# `data` went in and does not come out: a record never shows the sensitive value (REC-SECRET).
#
# ## An array (TOK-ARRAY)
# Strings and token request objects, mixed, of both types (TOK-TYPES). Length and order stay.

# %%
card = {
    "type": "card",
    "data": {"number": "4242424242424242", "expiration_month": 12, "expiration_year": 2030},
}
answer = tokenize(["Ada", card, "Lovelace"])
show(answer)
assert [type(item).__name__ for item in answer] == ["str", "dict", "str"]
assert answer[1]["mask"]["number"] == "XXXXXXXXXXXX4242"

# %% [markdown]
# ## A composite (TOK-COMPOSITE)
# Objects and arrays nested in one another. Whatever is a string becomes an identifier
# (TOK-LEAF), whatever holds `type` becomes a record, and the rest stays as it was.

# %%
order: dict[str, Any] = {
    "order": {"buyer": "Ada", "cards": [card], "notes": ["call first", "leave at door"]}
}
mirrored = tokenize(order)
show(mirrored)


def shape(value: Any) -> Any:
    """Return the structure alone."""
    if isinstance(value, dict) and "type" not in value:
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "record" if isinstance(value, dict) else "identifier"


assert shape(mirrored) == shape(order)

# %% [markdown]
# ## What is none of them
# The shapes hold strings and token request objects only. A number is neither, so the request is
# refused, as a whole, with the place of the fault.

# %%
refused = engine.handle(
    Request("POST", "/tokenize", key=key, ip="203.0.113.7", body={"name": "Ada", "age": 36})
)
print(refused.status)
show(refused.body["errors"])
assert refused.status == 400
assert list(refused.body["errors"]) == ["/age"]

# %% [markdown]
# # Retention: how long stored data can be read
# Some data can be read only for a time: a cvc for 1 h, a token intent for 24 h, a log entry for 24
# h. From that instant on it cannot be read.
#
# Clauses: QUO-CVC, QUO-INTENT, QUO-LOG, QUO-TENANT.

# %% [markdown]
# **Predict before you read on.** A card is stored at noon. Can its cvc be read at exactly 13:00?

# %%
from typing import Any

import pandas as pd

from engine import Engine, ManualClock

CARD: dict[str, Any] = {
    "type": "card",
    "data": {
        "number": "4242424242424242",
        "expiration_month": 12,
        "expiration_year": 2030,
        "cvc": "123",
    },
}
clock = ManualClock()  # moves only when told
engine = Engine(clock=clock, seed=7)
acme = engine.create_tenant("Acme")
key = engine.key_for(
    acme, "token:create", "token:read", "token-intent:create", "token-intent:read", "log:read"
)


def store_card() -> str:
    """Store the card and return its token's id."""
    answer = engine.ask("POST", "/tokenize", CARD, key=key)
    assert answer.status == 200, answer.body
    return str(answer.body["id"])


def read_card(token: str) -> dict[str, Any]:
    """Return the plaintext of a card that is still there."""
    answer = engine.ask("POST", "/detokenize", {"card": f"{{{{ {token} }}}}"}, key=key)
    assert answer.status == 200, answer.body
    return dict(answer.body["card"])


# %% [markdown]
# ## The cvc
# A card's cvc can be read for 1 h after it was stored (QUO-CVC). The card itself stays: its other
# fields are read as before.

# %%
card = store_card()
at_first, seen = read_card(card), []
for wait in ("0s", "59m59s", "1s"):
    clock.advance_ns(wait)
    seen.append({"after, s": clock.now_ns // 10**9, **read_card(card)})
assert [line.get("cvc", "gone") for line in seen] == ["123", "123", "gone"]
assert seen[-1]["after, s"] == 3600
assert read_card(card) == {name: at_first[name] for name in at_first if name != "cvc"}
pd.DataFrame(seen).fillna("gone")

# %% [markdown]
# ## Token intents
# A token intent holds data for a token that may be created later. From 24 h on it is gone
# (QUO-INTENT), and the answer is the same as for an intent that never existed.

# %%
made = engine.ask("POST", "/token-intents", CARD, key=key)
assert made.status == 201
intent = f"/token-intents/{made.body['id']}"
clock.advance_ns("23h59m59s")
just_before = engine.ask("GET", intent, key=key)
clock.advance_ns("1s")
just_after = engine.ask("GET", intent, key=key)
never = engine.ask("GET", "/token-intents/8a0f3f5e-0d5c-4f0e-9d0c-2b8c7b6d5e4f", key=key)
assert (just_before.status, just_after.status) == (200, 404)
assert (just_after.status, just_after.body) == (never.status, never.body)
pd.Series(
    {"one second before 24 h": just_before.status, "at exactly 24 h": just_after.status}
).to_frame("status")

# %% [markdown]
# ## The log
# A request that creates a token leaves an entry, and so does one that reads plaintext; listing
# tokens leaves none. Which requests do is our choice (D-LOGS). An entry can be read until it is 24
# h old, and is gone at exactly 24 h (QUO-LOG).


# %%
def entries() -> int:
    return len(engine.ask("GET", "/logs", key=key).body["data"])


clock.advance_ns("48h")
counts = {"after two days": entries()}
token = store_card()
counts["a token is created"] = entries()
read_card(token)
counts["its plaintext is read"] = entries()
engine.ask("GET", "/tokens", key=key)
counts["tokens are listed"] = entries()
clock.advance_ns("23h59m59s")
counts["one second before 24 h"] = entries()
clock.advance_ns("1s")
counts["at exactly 24 h"] = entries()
assert list(counts.values()) == [0, 1, 2, 2, 2, 0]
pd.Series(counts).to_frame("entries")

# %% [markdown]
# ## When a changed retention applies
# Quotas belong to a tenant (QUO-TENANT). When a change takes effect depends on the quota, and that
# is our choice (D-QUOTA-CHANGE). The deadline of a cvc is fixed when it is stored: a changed
# retention applies to cards that are stored from then on.

# %%
cards = {"stored before": store_card()}
engine.set_quota(acme, "CVC Retention", "10s")
cards["stored after"] = store_card()
seen, passed = [], 0
for second in (0, 5, 9, 10, 60, 600, 3599, 3600):
    clock.advance_ns(f"{second - passed}s")
    passed = second
    seen += [
        {"card": name, "second": second, "cvc": "✓" if "cvc" in read_card(card) else "–"}
        for name, card in cards.items()
    ]
frame = pd.DataFrame(seen)
gone = frame[frame["cvc"] == "–"].groupby("card")["second"].min()
assert gone.to_dict() == {"stored after": 10, "stored before": 3600}
by_second = frame.pivot_table("cvc", "card", "second", "first", sort=False)
by_second.rename_axis("cvc readable, by seconds since it was stored")

# %% [markdown]
# The age of a log entry is compared with the current quota: a changed log retention applies at
# once, to existing entries too. Another tenant's entries stay. When the retention is 24 h again,
# the entry can be read again: it was hidden, not deleted.

# %%
other = engine.create_tenant("Other")
keys = {"Acme": key, "Other": engine.key_for(other, "token:create", "log:read")}


def entries_of_each() -> dict[str, int]:
    """Return how many entries each tenant can read."""
    return {
        name: len(engine.ask("GET", "/logs", key=text).body["data"]) for name, text in keys.items()
    }


clock.advance_ns("24h")
for text in keys.values():
    assert engine.ask("POST", "/tokenize", ["Ada"], key=text).status == 200
clock.advance_ns("1m")
before = entries_of_each()
engine.set_quota(acme, "Log Retention", "10s")
after = entries_of_each()
engine.set_quota(acme, "Log Retention", "24h")
again = entries_of_each()
assert before == {"Acme": 1, "Other": 1}
assert after == {"Acme": 0, "Other": 1}
assert again == before, "hidden, not deleted"
pd.DataFrame({"retention 24 h": before, "Acme's is 10 s now": after}).rename_axis("tenant")

# %% [markdown]
# ## What was learnt
# Data with a retention can be read until the retention ends, and not from that instant on. The
# deadline of a cvc or an intent is fixed when it is stored. A log entry has no deadline of its own:
# its age is compared with the current quota. So a longer retention makes entries readable again
# that a shorter one hid, as long as they have not been deleted.
#
# ## Exercise
# A token intent is created, and after 23 h a token is created from it. Is the token gone after 25
# h?

# %% tags=["answer"]
text_intent = {"type": "token", "data": "x"}
waiting = engine.ask("POST", "/token-intents", text_intent, key=key).body["id"]
clock.advance_ns("23h")
from_intent = {"type": "token", "token_intent_id": waiting}
token_of_it = engine.ask("POST", "/tokenize", from_intent, key=key).body["id"]
clock.advance_ns("2h")
still = engine.ask("POST", "/detokenize", [f"{{{{ {token_of_it} }}}}"], key=key)
print(still.status, still.body)
assert still.body == ["x"], "no: it is a token now"

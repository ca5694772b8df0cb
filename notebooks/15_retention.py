# %% [markdown]
# # Retention
# Some data has a deadline: a cvc an hour, a token intent a day, a log entry a day. Until then it
# can be read, and from then on it cannot.
#
# Clauses: QUO-CVC, QUO-INTENT, QUO-LOG, QUO-TENANT.

# %% [markdown]
# **Predict before you read on.** A card is stored at noon. Can its cvc be read at exactly one
# o'clock?

# %%
import altair as alt
import pandas as pd

from notebooks.desk import CARD, Desk

_ = alt.renderers.enable("svg")
HOUR_S = 3600
desk = Desk()
key = desk.key("token:create", "token:read", "token-intent:create", "token-intent:read", "log:read")


def cvc_of(token: str) -> object:
    answer = desk.ask("POST", "/detokenize", {"card": f"{{{{ {token} }}}}"}, key=key)
    assert answer.status == 200, answer.body
    return answer.body["card"].get("cvc")


# %% [markdown]
# ## The cvc
# A card's cvc may be read for one hour after it was stored (QUO-CVC). The card itself stays.

# %%
card = desk.tokenize(CARD, key=key)["id"]
seen = []
for seconds in (0, HOUR_S - 1, 1):
    desk.wait(seconds)
    seen.append({"after, s": desk.clock.now_ns // 10**9, "cvc": cvc_of(card) or "gone"})
pd.DataFrame(seen)

# %%
assert [line["cvc"] for line in seen] == ["123", "123", "gone"]

# %% [markdown]
# ## Token intents
# An intent is a token that has not been decided upon; after a day it is as if it had never been
# (QUO-INTENT).

# %%
made = desk.ask("POST", "/token-intents", CARD, key=key)
assert made.status == 201
intent = f"/token-intents/{made.body['id']}"
desk.wait(24 * HOUR_S - 1)
assert desk.ask("GET", intent, key=key).status == 200
desk.wait(1)
assert desk.ask("GET", intent, key=key).status == 404

# %% [markdown]
# ## The log
# What changes something or reads a secret leaves an entry. It is readable until it is 24 hours old,
# and gone at exactly 24 h (QUO-LOG).


# %%
def entries() -> int:
    return len(desk.ask("GET", "/logs", key=key).body["data"])


desk.wait(48 * HOUR_S)
counts = [entries()]
desk.tokenize({"name": "Ada"}, key=key)
for seconds in (0, 24 * HOUR_S - 1, 1):
    desk.wait(seconds)
    counts.append(entries())
print(counts)
assert counts == [0, 1, 1, 0]

# %% [markdown]
# ## Whose deadline
# Quotas are a tenant's (QUO-TENANT). When a change takes effect depends on the quota, and that is
# our choice (D-QUOTA-CHANGE). The deadline of a cvc is fixed when it is stored: a changed retention
# holds for cards that are stored from then on. A log entry's age is judged by the quota of the
# moment: a changed log retention holds at once, for entries that are there already.

# %%
cards = {"stored before": desk.tokenize(CARD, key=key)["id"]}
desk.engine.set_quota(desk.tenant, "CVC Retention", "10s")
cards["stored after"] = desk.tokenize(CARD, key=key)["id"]
seen, passed = [], 0
for second in (0, 5, 9, 10, 60, 600, HOUR_S - 1, HOUR_S):
    desk.wait(second - passed)
    passed = second
    seen += [
        {"card": name, "second": second, "cvc": "readable" if cvc_of(card) else "gone"}
        for name, card in cards.items()
    ]
frame = pd.DataFrame(seen)
gone = frame[frame["cvc"] == "gone"].groupby("card")["second"].min()
print(gone.to_string())
assert gone.to_dict() == {"stored after": 10, "stored before": HOUR_S}
colours = alt.Scale(domain=["readable", "gone"], range=["#2a78d6", "#e34948"])
alt.Chart(frame, width=460, height=70).mark_point(filled=True, size=90, aria=False).encode(
    x=alt.X("second:O", title="seconds since it was stored", axis=alt.Axis(labelAngle=0)),
    y=alt.Y("card:N", title=None),
    color=alt.Color("cvc:N", scale=colours, title="cvc"),
)

# %%
fresh = Desk()
key = fresh.key("token:create", "log:read")
fresh.tokenize({"name": "Ada"}, key=key)
fresh.wait(60)
before = len(fresh.ask("GET", "/logs", key=key).body["data"])
fresh.engine.set_quota(fresh.tenant, "Log Retention", "10s")
after = len(fresh.ask("GET", "/logs", key=key).body["data"])
print(f"entries a minute old: {before}, and {after} once the retention is 10 s")
assert (before, after) == (1, 0)

# %% [markdown]
# ## What was learnt
# What has a retention can be read until it ends, and not at that very instant or later.
#
# ## Exercise
# A token intent is made, and after 23 hours a token is created from it. Is the token gone at hour
# 25?

# %% tags=["answer"]
decided = Desk()
holder = decided.key("token:create", "token:read", "token-intent:create")
waiting = decided.ask("POST", "/token-intents", {"type": "token", "data": "x"}, key=holder)
decided.wait(23 * HOUR_S)
token_of_it = decided.tokenize(
    {"type": "token", "token_intent_id": waiting.body["id"]}, key=holder
)["id"]
decided.wait(2 * HOUR_S)
still = decided.ask("POST", "/detokenize", [f"{{{{ {token_of_it} }}}}"], key=holder)
print(still.status, still.body)
assert still.body == ["x"], "no: it is a token now"

# %% [markdown]
# # Who may create a token, and where
# A key needs `token:create` on every container that a request creates tokens in.
#
# A *container* is the path at which a token is stored. A key belongs to an application, and a
# *grant* gives the application permissions on a path.
#
# Clauses: AUTH-HEADER, AUTH-CREATE, AUTH-KINDS, AUTH-LEGACY, TOK-CONTAINER.

# %% [markdown]
# **Predict before you read on.** A key may create in `/pci/`. It sends a card and a plain string in
# one request and names no container. The default is `/pci/high/` for cards and `/general/high/` for
# strings. Is the card stored?

# %%
from typing import Any

import pandas as pd

from engine import Engine, InputError

CARD: dict[str, Any] = {
    "type": "card",
    "data": {
        "number": "4242424242424242",
        "expiration_month": 12,
        "expiration_year": 2030,
        "cvc": "123",
    },
}
pd.set_option("display.max_colwidth", 90)
engine = Engine(seed=7)
acme = engine.create_tenant("Acme")
key = engine.key_for(acme, "token:create")

# %% [markdown]
# ## The API key
# Every request names an API key, in a header. A request without one, or with an unknown one, gets
# 401 before its body is read (AUTH-HEADER). Only two checks come earlier: an unknown path gets 404,
# and a method that the path does not have gets 405 (D-ORDER).

# %%
callers = {"nobody": None, "a stranger": "key_prod_us_pvt_unknown", "Acme": key}
answers = {
    who: engine.ask("POST", "/tokenize", {"a": "x"}, key=text) for who, text in callers.items()
}
assert [answer.status for answer in answers.values()] == [401, 401, 200]
assert "SVC-API-KEY" in answers["nobody"].headers["WWW-Authenticate"]
assert engine.ask("POST", "/tokenize", "no JSON shape", key=None).status == 401
assert engine.ask("POST", "/nowhere", {"a": "x"}, key=None).status == 404
assert engine.ask("PUT", "/tokenize", {"a": "x"}, key=None).status == 405
pd.Series({who: answer.status for who, answer in answers.items()}).to_frame("status")

# %% [markdown]
# ## Containers
# A token is stored in the container that the request names, or in the default container of its type
# (TOK-CONTAINER). The defaults are our choice (D-CONTAINER-DEFAULT). A grant on a path covers the
# path and all paths below it, by whole segments; that is our choice too (D-GRANT).

# %%
pci = engine.key_for(acme, "token:create", container="/pci/")
asked: dict[str, Any] = {
    "a card (default /pci/high/)": CARD,
    "a string (default /general/high/)": ["x"],
    "a token in /pci/low/": {"type": "token", "data": "x", "containers": ["/pci/low/"]},
    "a token in /pcix/": {"type": "token", "data": "x", "containers": ["/pcix/"]},
    "a card and a string": [CARD, "x"],
}
statuses = {
    what: engine.ask("POST", "/tokenize", body, key=pci).status for what, body in asked.items()
}
assert list(statuses.values()) == [200, 403, 200, 403, 403]
pd.Series(statuses).rename_axis("what is sent").to_frame("status")

# %% [markdown]
# The last row matters most: `token:create` is needed on *every* destination container of the
# request (AUTH-CREATE), and a request that fails creates nothing.
#
# ## Which grant covers which container
# Each cell shows whether a grant on the path of the row lets a key create in the container of the
# column.

# %%
paths = ("/", "/pci/", "/pci/high/", "/general/")
places = ("/pci/high/", "/pci/low/", "/pcix/", "/general/high/")
table = {
    path: {
        place: engine.ask(
            "POST",
            "/tokenize",
            {"type": "token", "data": "x", "containers": [place]},
            key=engine.key_for(acme, "token:create", container=path),
        ).status
        for place in places
    }
    for path in paths
}
assert set(table["/"].values()) == {200}
assert list(table["/pci/"].values()) == [200, 200, 403, 403]
assert all(
    (status == 200) == place.startswith(path)
    for path, row in table.items()
    for place, status in row.items()
)
marks = pd.DataFrame(table).T.replace({200: "✓ 200", 403: "– 403"})
marks.rename_axis("grant on ↓, destination →")

# %% [markdown]
# ## Kinds of applications
# Private, public and management applications, and legacy keys, are rate-limit classes (AUTH-KINDS).
# The kind also limits which permissions an application may hold: a management application may not
# hold `token:create` (D-PERMISSIONS). A key is legacy when its text contains neither `_prod_` nor
# `_test_` (AUTH-LEGACY), whatever kind its tenant has.

# %%
testing = engine.create_tenant("Testing", "test")
counted = {}
for tenant in (acme, testing):
    legacy = engine.key_for(tenant, "token:create", legacy=True)
    assert "_prod_" not in legacy
    assert "_test_" not in legacy
    answer = engine.ask("POST", "/tokenize", {"a": "x"}, key=legacy)
    counted[tenant.name] = ", ".join(answer.decision.counted)
    assert {"LIM-LEGACY", "LIM-PRIVATE.key"} <= set(answer.decision.counted)

public = engine.key_for(acme, "token:create", kind="public")
assert "LIM-PUBLIC" in engine.ask("POST", "/tokenize", {"a": "x"}, key=public).decision.counted
management = engine.key_for(acme, "application:read", kind="management")
refused = engine.ask("POST", "/tokenize", {"a": "x"}, key=management)
assert refused.status == 403
try:
    engine.key_for(acme, "token:create", kind="management")
except InputError as error:
    print(error)
else:
    raise AssertionError("a management application may not hold it")
pd.Series(counted).rename_axis("tenant").to_frame("rules that count a legacy key")

# %% [markdown]
# ## What was learnt
# A key needs `token:create` on every destination container of the request, named or default. If one
# is missing, the whole request fails.
#
# ## Exercise
# What is the smallest set of grants that lets a key store a card and a plain string in one request,
# without a grant on `/`?

# %% tags=["answer"]
narrow_grants = [("/pci/high/", {"token:create"}), ("/general/high/", {"token:create"})]
narrow = engine.create_key(engine.create_application(acme, "narrow", grants=narrow_grants))
both = engine.ask("POST", "/tokenize", [CARD, "x"], key=narrow)
elsewhere = engine.ask(
    "POST", "/tokenize", {"type": "token", "data": "x", "containers": ["/other/"]}, key=narrow
)
print(both.status, elsewhere.status)
assert (both.status, elsewhere.status) == (200, 403)

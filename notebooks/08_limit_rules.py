# %% [markdown]
# # The fourteen limit rules
# Fourteen rules limit how many requests a caller may send. Here a client sends 1.5 times as fast as
# each rule allows, with only that rule in force.
#
# Clauses: LIM-THROTTLE, LIM-BLOCK, and one for each rule: LIM-TEST-TENANT, LIM-SEARCH, LIM-READ,
# LIM-CREATE, LIM-PATCH, LIM-DELETE, LIM-ACCOUNT-UPDATER, LIM-PRIVATE, LIM-PUBLIC, LIM-MANAGEMENT,
# LIM-PROXY-KEY, LIM-PROXY-HOST, LIM-IP, LIM-LEGACY.

# %% [markdown]
# **Predict before you read on.** A public key may send 50 requests a minute and is then blocked for
# 10 s. It sends 51 at once, then waits 11 s. Is its next request admitted?

# %%
from fractions import Fraction

import altair as alt
import pandas as pd

from engine import Limiter, LimitTable, Profile, Subject
from simulator import caller, decide, strip, trace

_ = alt.renderers.enable("svg")
SECOND_NS = 10**9
table = LimitTable.default()
assert len(table.rules) == 14
assert sum(len(rule.counter_names) for rule in table) == 15
pd.DataFrame(
    [
        {
            "rule": rule.id,
            "requests": f"{rule.limit_requests:,}",
            "window, s": rule.window_ns // SECOND_NS,
            "action": rule.action,
            "block, s": (rule.block_ns or 0) // SECOND_NS or "–",
            "counters": len(rule.counter_names),
        }
        for rule in table
    ]
).set_index("rule")

# %% [markdown]
# Fourteen rows, fifteen counters: LIM-PRIVATE counts keys and addresses separately.
#
# ## Steady overload, one rule at a time
# The function below sends requests for 2.5 windows, 1.5 times as fast as the rule allows.


# %%
def overload(rule_id: str, who: Subject) -> pd.DataFrame:
    rule = table[rule_id]
    window_s = Fraction(rule.window_ns, SECOND_NS)
    step = window_s / rule.limit_requests * Fraction(2, 3)
    times = [step * n for n in range(int(window_s * Fraction(5, 2) / step))]
    frame = trace(times, who, table=LimitTable(rules=(rule,)))
    seen = (frame["outcome"] != "admitted").to_numpy().nonzero()[0]
    assert seen[0] == rule.limit_requests, "the first refusal is the first beyond the rate"
    assert set(frame.loc[seen, "rule"]) <= set(rule.counter_names)
    if rule.action == "block":
        begin, lasts = frame["second"][seen[0]], (rule.block_ns or 0) / SECOND_NS
        inside = frame[(frame["second"] >= begin) & (frame["second"] < begin + lasts)]
        assert set(inside["outcome"]) == {"blocked"}, "nothing until the block ends"
    else:
        after = frame[frame["second"] >= float(window_s)]
        assert after["outcome"].iloc[0] == "admitted", "the oldest request has left the window"
    return frame.assign(who=f"{rule_id}, {rule.limit_requests} / {window_s} s")


def outcomes(frame: pd.DataFrame) -> set[str]:
    return set(frame["outcome"])


def share(rule_id: str, one: Subject, other: Subject) -> bool:
    """Whether the requests of one caller count against the limit of the other."""
    rule = table[rule_id]
    limiter = Limiter({"Default": LimitTable(rules=(rule,))}, Profile().limits)
    for _ in range(rule.limit_requests):
        assert limiter.decide(0, one).admitted
    return not limiter.decide(0, other).admitted


# %% [markdown]
# ### LIM-TEST-TENANT
# A test tenant, any method and resource: 50 in 10 s for each pair of key and address.

# %%
tester = caller(tenant="test")
frame = overload("LIM-TEST-TENANT", tester)
assert outcomes(frame) == {"admitted", "refused"}
assert share("LIM-TEST-TENANT", tester, caller("DELETE", "/tokens/a", tenant="test"))
assert not share("LIM-TEST-TENANT", tester, caller(tenant="test", key="key-2"))
assert not share("LIM-TEST-TENANT", tester, caller(tenant="test", ip="203.0.113.8"))
strip(frame)

# %% [markdown]
# ### LIM-SEARCH
# Searching has a limit of its own: 50 in 10 s.

# %%
frame = overload("LIM-SEARCH", caller("POST", "/tokens/search"))
assert outcomes(frame) == {"admitted", "refused"}
strip(frame)

# %% [markdown]
# ### LIM-READ
# Listing tokens and detokenizing share one counter of 100 in 10 s.

# %%
frame = overload("LIM-READ", caller("POST", "/detokenize"))
assert outcomes(frame) == {"admitted", "refused"}
assert share("LIM-READ", caller("POST", "/detokenize"), caller("GET", "/tokens"))
strip(frame)

# %% [markdown]
# ### LIM-CREATE
# The two ways to create tokens share one counter too: 200 in 10 s.

# %%
frame = overload("LIM-CREATE", caller("POST", "/tokenize"))
assert outcomes(frame) == {"admitted", "refused"}
assert share("LIM-CREATE", caller("POST", "/tokenize"), caller("POST", "/tokens"))
strip(frame)

# %% [markdown]
# ### LIM-PATCH and LIM-DELETE
# Changing and deleting have a counter each, 200 in 10 s, shared by all tokens.

# %%
patch = overload("LIM-PATCH", caller("PATCH", "/tokens/a"))
delete = overload("LIM-DELETE", caller("DELETE", "/tokens/b"))
assert outcomes(patch) == outcomes(delete) == {"admitted", "refused"}
assert share("LIM-PATCH", caller("PATCH", "/tokens/a"), caller("PATCH", "/tokens/b"))
assert share("LIM-DELETE", caller("DELETE", "/tokens/a"), caller("DELETE", "/tokens/b"))
assert not share("LIM-PATCH", caller("PATCH", "/tokens/a"), caller("DELETE", "/tokens/a"))
strip(pd.concat([patch, delete]))

# %% [markdown]
# ### LIM-ACCOUNT-UPDATER
# Anything below `/account-updater`: 10 in 10 s. This is the throttle with the lowest rate; only
# LIM-PUBLIC, which blocks, has a lower one.

# %%
frame = overload("LIM-ACCOUNT-UPDATER", caller("GET", "/account-updater/jobs"))
assert outcomes(frame) == {"admitted", "refused"}
rates = {rule.id: Fraction(rule.limit_requests, rule.window_ns) for rule in table}
throttles = {rule.id for rule in table if rule.action == "throttle"}
assert min(throttles, key=lambda name: rates[name]) == "LIM-ACCOUNT-UPDATER"
assert min(rates, key=lambda name: rates[name]) == "LIM-PUBLIC"
strip(frame)

# %% [markdown]
# ### LIM-PRIVATE
# A private application: 2,000 in 10 s for the key, and 2,000 in 10 s for the address.

# %%
frame = overload("LIM-PRIVATE", caller(kind="private"))
assert outcomes(frame) == {"admitted", "refused"}
assert share("LIM-PRIVATE", caller(), caller(ip="203.0.113.8"))
assert share("LIM-PRIVATE", caller(), caller(key="key-2"))
assert not share("LIM-PRIVATE", caller(), caller(key="key-2", ip="203.0.113.8"))
strip(frame)

# %% [markdown]
# ### LIM-PUBLIC
# A public application: 50 a minute, and a caller that exceeds it is *blocked* for 10 s (LIM-BLOCK).

# %%
frame = overload("LIM-PUBLIC", caller(kind="public"))
assert outcomes(frame) == {"admitted", "blocked"}
strip(frame)

# %% [markdown]
# ### LIM-MANAGEMENT
# A management application: 200 a minute for the key, wherever it comes from, and a block of 60 s.

# %%
manager = caller(kind="management")
frame = overload("LIM-MANAGEMENT", manager)
assert outcomes(frame) == {"admitted", "blocked"}
assert share("LIM-MANAGEMENT", manager, caller(kind="management", ip="203.0.113.8"))
strip(frame)

# %% [markdown]
# ### LIM-PROXY-KEY and LIM-PROXY-HOST
# A proxy that needs no API key is counted by its own key, or by its custom hostname, each with the
# caller's address: 50 in 10 s.

# %%
by_key = overload("LIM-PROXY-KEY", caller(kind=None, key=None, proxy_key="proxy-1"))
by_host = overload("LIM-PROXY-HOST", caller(kind=None, key=None, host="pay.shop.example"))
assert outcomes(by_key) == outcomes(by_host) == {"admitted", "refused"}
strip(pd.concat([by_key, by_host]))

# %% [markdown]
# ### LIM-IP
# Anything from one address: 2,000 in 10 s, and a block of 30 s. It belongs to no tenant, and counts
# requests without a key too.

# %%
frame = overload("LIM-IP", caller(kind=None, key=None))
assert table["LIM-IP"].is_global
assert outcomes(frame) == {"admitted", "blocked"}
strip(frame)

# %% [markdown]
# ### LIM-LEGACY
# A legacy key: 100 a minute, in addition to the limits of its application's kind.

# %%
frame = overload("LIM-LEGACY", caller(legacy=True))
assert outcomes(frame) == {"admitted", "refused"}
assert {"LIM-LEGACY", "LIM-PRIVATE.key"} <= set(decide([0], caller(legacy=True))[0].counted)
strip(frame)

# %% [markdown]
# ## The difference between a throttle and a block
# A throttle admits requests again as soon as the oldest ones leave the window (LIM-THROTTLE). A
# block (LIM-BLOCK) admits nothing until it ends. Three rules block.

# %%
blocks = {rule.id: (rule.block_ns or 0) // SECOND_NS for rule in table if rule.action == "block"}
print(blocks)
assert blocks == {"LIM-PUBLIC": 10, "LIM-MANAGEMENT": 60, "LIM-IP": 30}

# %% [markdown]
# ## What was learnt
# Fourteen rules limit how many requests a caller may send. Each counts by key, by address, or by an
# address together with a key or a hostname. Eleven throttle and three block.
#
# ## Exercise
# A public key sends 51 requests at once, one at 11 s and one at 61 s. Which of the last three are
# admitted?

# %% tags=["answer"]
late = trace([0.0] * 51 + [11.0, 61.0], caller("POST", "/tokens", kind="public"))
assert list(late["outcome"][50:]) == ["blocked", "blocked", "admitted"]
late.tail(3)

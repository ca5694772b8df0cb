# %% [markdown]
# # Which limit a client reaches first
# Several rules count most requests, and the first one that is full refuses; which one that is
# depends on how fast, from which address and with which key requests are sent.
#
# Clauses: LIM-LOWEST, LIM-TEST-TENANT, LIM-CREATE, LIM-PRIVATE, LIM-IP, LIM-LEGACY.

# %% [markdown]
# **Predict before you read on.** A test tenant's legacy key sends two requests a second. Two rules
# could refuse: 50 in 10 s and 100 a minute. Which one refuses first?

# %%
from fractions import Fraction

import altair as alt
import pandas as pd

from engine import Limiter, LimitTable, Profile
from simulator import caller, decide, mechanism, strip, trace

_ = alt.renderers.enable("svg")
SECOND_NS = 10**9
table = LimitTable.default()

# %% [markdown]
# ## Which rules count a request
# `POST /tokens` on a test tenant, with a legacy key of a private application: six counters.

# %%
tester = caller("POST", "/tokens", tenant="test", legacy=True)
decision = decide([0], tester)[0]
rates = pd.DataFrame(
    {
        "counter": decision.counted,
        "requests": [
            f"{table[name.partition('.')[0]].limit_requests:,}" for name in decision.counted
        ],
        "window, s": [
            table[name.partition(".")[0]].window_ns // SECOND_NS for name in decision.counted
        ],
    }
)
rates

# %%
assert len(decision.counted) == 6

# %% [markdown]
# The specification's example is the same without the legacy key: `POST /tokens` on a test tenant is
# limited to 50 in 10 s, though LIM-CREATE alone would allow 200 (LIM-LOWEST).

# %%
plain = caller("POST", "/tokens", tenant="test")
fast = [Fraction(n, 60) for n in range(60)]
first = trace(fast, plain)
assert (first["outcome"] == "admitted").sum() == 50
assert set(first.loc[50:, "rule"]) == {"LIM-TEST-TENANT"}

# %% [markdown]
# The picture shows two counters. Both count every request that is admitted, and the one that is
# full first refuses. LIM-CREATE is never full.

# %%
mechanism([n / 4 for n in range(80)], plain, title="two counters, the lowest wins")

# %% [markdown]
# ## "Lowest" is not "lowest rate"
# The client sends 60 requests within 1 s with the legacy key. LIM-LEGACY has the lowest rate, 100 a
# minute, but LIM-TEST-TENANT is reached first, 50 in 10 s. If only the rule with the lowest rate
# counted (`compose = "lowest"`, D-COMPOSE, a value for simulation only), all 60 would pass.

# %%
every = trace(fast, tester)
lowest = trace(fast, tester, compose="lowest")
assert (every["outcome"] == "admitted").sum() == 50
assert (lowest["outcome"] == "admitted").sum() == 60
assert set(every.loc[50:, "rule"]) == {"LIM-TEST-TENANT"}
strip(pd.concat([every.assign(who="all rules count"), lowest.assign(who="the lowest rate alone")]))

# %% [markdown]
# At a lower rate another rule refuses first: at two requests a second LIM-TEST-TENANT is never
# reached, and LIM-LEGACY refuses from 50 s on.

# %%
slow = trace([Fraction(n, 2) for n in range(240)], tester)
assert set(slow["rule"]) == {"", "LIM-LEGACY"}
assert slow.loc[slow["outcome"] != "admitted", "second"].iloc[0] == 50
strip(slow.assign(who="two a second"))

# %% [markdown]
# ## A refused request counts against no rule
# A request that one rule refuses is charged to no rule (D-COUNT). So a client that exceeds
# LIM-CREATE can still read as much as before.

# %%
limiter = Limiter({"Default": table}, Profile().limits)
create, read = caller("POST", "/tokens"), caller("GET", "/tokens")
creating = [limiter.decide(0, create) for _ in range(2500)]
reading = [limiter.decide(0, read) for _ in range(100)]
assert sum(decision.admitted for decision in creating) == 200
assert all(decision.admitted for decision in reading)

# %% [markdown]
# ## A counter that never refuses alone
# LIM-PRIVATE counts a key *or* an address: two counters of 2,000 in 10 s. LIM-IP counts the same
# address, the same 2,000 in 10 s, over all traffic. Whenever LIM-PRIVATE's counter of the address
# is full, LIM-IP's is full too, and LIM-IP also blocks. So LIM-IP is the rule that is reported, and
# no client can see LIM-PRIVATE's counter of the address alone.

# %%
limiter = Limiter({"Default": table}, Profile().limits)
crowd = [caller(path=f"/applications/{n}", key=f"key-{n % 4}") for n in range(2001)]
decisions = [limiter.decide(n, who) for n, who in enumerate(crowd)]
last = decisions[-1]
print(last.outcome, last.rule, last.refusing)
assert all(decision.admitted for decision in decisions[:-1])
assert last.rule == "LIM-IP"
assert set(last.refusing) == {"LIM-PRIVATE.ip", "LIM-IP"}

# %% [markdown]
# Four keys are behind one address, and each sends 500 requests: no counter of a key is near its
# limit. Without LIM-IP in the table, LIM-PRIVATE's counter of the address refuses.

# %%
without = LimitTable(rules=tuple(rule for rule in table if rule.id != "LIM-IP"))
limiter = Limiter({"Default": without}, Profile().limits)
decisions = [limiter.decide(n, who) for n, who in enumerate(crowd)]
assert decisions[-1].rule == "LIM-PRIVATE.ip"

# %% [markdown]
# ## What was learnt
# Every rule that matches a request is tested. If one is full, the request is refused and charged to
# none; otherwise all of them count it. So which limit is "the lowest" depends on how fast requests
# are sent, not on the rate alone.
#
# ## Exercise
# Which rule refuses first when a legacy key of a test tenant sends six requests a second?

# %% tags=["answer"]
quick = trace([Fraction(n, 6) for n in range(240)], tester)
first_refusal = quick[quick["outcome"] != "admitted"].iloc[0]
print(first_refusal.to_dict())
assert first_refusal["rule"] == "LIM-TEST-TENANT"

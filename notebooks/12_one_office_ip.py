# %% [markdown]
# # One office IP
# Two hundred people and a script leave through one address. Whom does the script harm?
#
# Clauses: LIM-PUBLIC, LIM-IP.

# %%
import altair as alt

import simulator
from simulator.scenario import load, with_value

_ = alt.renderers.enable("svg")
scenario = load("shared-office")
print(scenario.question)
print(scenario.answer)

# %%
office = simulator.run(scenario, fidelity="limits", progress=False)
by_key = office.metrics(by=["group", "key"])[["offered", "refused", "refused_share"]]
print(by_key.round(3).to_string())
share = by_key["refused_share"]
assert share["browsers", "key-0001"] > 0.5
assert share["browsers", "key-0002"] == share["browsers", "key-0003"] == 0

# %% [markdown]
# LIM-PUBLIC counts the *pair* of address and key. Those who share both with the script share its
# block; those who share the address alone do not notice.

# %%
office.plots.timeline(bins=60)

# %% [markdown]
# ## Counting by address alone
# If the pair were read as two counters, one an address and one a key (D-AND-COUNTER), the whole
# office would be one counter, and everybody in it would be shut out.

# %%
each = simulator.run(
    with_value(scenario, "choices.limits.and_counter", "each"), fidelity="limits", progress=False
)
harmed = each.metrics(by=["group", "key"])["refused_share"]["browsers"]
print(harmed.round(3).to_string())
assert (harmed > 0.5).all()

# %% [markdown]
# ## A script that keeps to the rate
# At 40 a minute the script alone would never be refused. It still leaves only ten a minute to the
# sixty people on its key, so some are; but far fewer.

# %%
slow = {"kind": "poisson", "rate": "40/1m"}
quiet = simulator.run(
    with_value(scenario, "clients.script.arrivals", slow), fidelity="limits", progress=False
)
calmer = quiet.metrics(by=["group", "key"])["refused_share"]
print(calmer.round(3).to_string())
assert 0 < calmer["browsers", "key-0001"] < share["browsers", "key-0001"]
assert calmer["browsers", "key-0002"] == 0

# %% [markdown]
# ## The address itself
# LIM-IP, 2,000 in 10 s, is far away: an office meets the counter of its key long before.

# %%
clauses = office.clauses
assert clauses["refused"]["LIM-IP"] == 0
assert clauses["offered"]["LIM-IP"] == clauses["offered"]["LIM-PUBLIC"]

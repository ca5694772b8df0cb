# %% [markdown]
# # A scenario that looks like your traffic
# `fit` reads an access log and writes a scenario that makes such traffic: which clients, how many,
# how fast, and what they do after a refusal.
#
# Clauses: LIM-PUBLIC.
#
# The question of an analyst: here is a log; what would other limits do to *traffic like this*? A
# replay repeats only this log. A scenario can be run under other limits, with other clients, and
# many times.

# %% [markdown]
# **Predict before you read on.** A log names keys and addresses, but not which client sent a
# request. What distinguishes a script from 200 people behind the same address?

# %%
from typing import Any

import altair as alt
import pandas as pd

import simulator
from simulator import load, with_value

_ = alt.renderers.enable("svg")
pd.set_option("display.max_colwidth", 90)

# %% tags=["parameters"]
SEED = 7
RUNS = 20

# %% [markdown]
# ## A log from a known scenario
# To see how good a fit is, we take the log of a known scenario: 200 people who pause 5 min on
# average between requests (their think time), and a script that sends five requests a second, all
# behind one address.

# %%
office = with_value(load("shared-office"), "seed", SEED)
log = simulator.run(office, fidelity="compiled", progress=False).requests
people, script = (group for group in office.clients if group.name in {"browsers", "script"})
assert people.count == 200
assert str(getattr(script.arrivals, "rate", None)) == "50/10s"
log.head(3)

# %% [markdown]
# ## The fit
# Clients are distinguished by when they send requests: one at random times, independent of the
# answers (an open loop), the others after a pause (a closed loop). Some of the people sent nothing
# within the 10 min of the log; their number is estimated from the others.

# %%
found = simulator.fit(log, as_kind="public", runs=RUNS)
groups = found.groups.sort_values("clients")
assert groups["loop"].tolist() == ["open", "closed"]
assert groups["clients"].iloc[0] == 1
assert groups["seen"].iloc[1] < people.count
groups.T

# %% [markdown]
# Each number has a 95 % interval. The true values lie inside: 200 people, five requests a second.

# %%
one, many = groups.index
parameters: dict[Any, Any] = found.parameters.to_dict("index")
rate, count = parameters[one, "rate"], parameters[many, "count"]
assert rate["low"] <= 5 <= rate["high"]
assert count["low"] <= people.count <= count["high"]
found.parameters.round(3)

# %% [markdown]
# ## The file
# The fit is a scenario like any other, with the evidence for each number as a comment.

# %%
assert load(found.text) == found.scenario
print(found.text)

# %% [markdown]
# ## Is it good enough?
# The comparison runs the log and the scenario under the same limits (here LIM-PUBLIC refuses). From
# `low` to `high` is a 95 % prediction interval: if the scenario is right, 95 of 100 logs of this
# traffic lie there. If this log does, the two agree.

# %%
agrees = dict(found.comparison["agrees"])
assert agrees["offered", ""]
assert agrees["refused share", ""]
assert agrees["refused share", "LIM-PUBLIC"]
found.comparison.round(3)

# %% [markdown]
# The picture shows the same: the log as a point, the interval of the scenario as a line.

# %%
found.plots.comparison()

# %% [markdown]
# A fit also lists what the log does not show, and where the fit is poor.

# %%
assert any("how long answers take" in line for line in found.lost)
pd.Series(found.lost, name="limits of the fit").to_frame()

# %% [markdown]
# ## Predict what was not seen
# A stricter test fits only the first half of the log and predicts the second half.

# %%
half = simulator.fit(log, as_kind="public", holdout="50%", runs=RUNS).comparison
predicted: dict[Any, Any] = half.to_dict("index")
share = predicted["refused share", ""]
assert share["low"] <= share["log"] <= share["high"]
half.loc[[("offered", ""), ("refused share", "")]].round(3)

# %% [markdown]
# ## What was learnt
# Groups that share an address can be distinguished by when they send requests. A fit comes with
# intervals, a comparison with the log and a list of its limits; a prediction is only valid while
# the traffic stays the same.
#
# ## Exercise
# Would a limit of 100 a minute have helped the people of this log? Run the fitted scenario under
# both limits.

# %% tags=["answer"]
higher = with_value(found.scenario, "rules.LIM-PUBLIC.rate", "100/1m")
refused = []
for each in (found.scenario, higher):
    played = simulator.run(each, fidelity="compiled", replications=RUNS, progress=False)
    refused.append(dict(played.replications["mean"])[f"refused_share{{client='{many}'}}"])
print([f"{100 * share:.1f} %" for share in refused])
assert refused[1] < refused[0]

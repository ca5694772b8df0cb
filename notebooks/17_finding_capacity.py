# %% [markdown]
# # Finding capacity
# How many people fit behind one address and one public key before more than one attempt in a
# hundred is refused? Pilots of a few runs look for the border; fresh runs then decide a value on
# each side of it.
#
# Clauses: LIM-PUBLIC.

# %% [markdown]
# **Predict before you read on.** Fifty people ask once a minute on average, and the limit is fifty
# a minute. Is one in a hundred refused, fewer, or more?

# %%
import altair as alt
import pandas as pd

import simulator

_ = alt.renderers.enable("svg")
SCENARIO = """
name = "office"
duration = "20m"
warm_up = "1m"
seed = 7

[[tenants]]
name = "acme"

[[applications]]
name = "page"
tenant = "acme"
kind = "public"

[[addresses]]
name = "office"

[[clients]]
name = "people"
count = 20
application = "page"
addresses = "office"
think = { kind = "exponential", mean = "1m" }
mix = [{ request = "POST /tokenize" }]
retry = { kind = "full-jitter", base = "1s", cap = "20s", attempts = 4 }
"""

# %% [markdown]
# Each person asks once a minute on average. On average fifty people make fifty requests a minute,
# which is the limit (LIM-PUBLIC); but arrivals bunch, so the answer must be lower.

# %%
found = simulator.capacity(
    SCENARIO,
    vary="clients.people.count",
    between=(10, 60),
    keep="refused_share <= 0.01",
    tolerance=0.1,
)
print(f"keeps up to {found.keeps}, breaks from {found.breaks} on")
assert found.keeps is not None
assert found.breaks is not None
assert int(found.keeps) < int(found.breaks) <= 50

# %% [markdown]
# Every value that was played, with the interval of the refused share over its runs. A value *keeps*
# the condition when the whole interval does, and *breaks* it when none of it does. Between the two
# nothing is claimed. The interval is a confidence sequence by betting: it holds however often one
# looks, and a share of 1 % takes hundreds of runs to be shown, even where no run refuses anything.

# %%
trials = pd.DataFrame(
    [
        {
            "people": int(trial.value),
            "mean": trial.interval.mean,
            "low": trial.interval.low,
            "high": trial.interval.high,
            "runs": trial.interval.runs,
            "verdict": "pilot" if trial.is_pilot else trial.verdict,
        }
        for trial in found.trials
    ]
).sort_values("people")
trials.round(4)

# %%
assert (trials.loc[trials["verdict"] == "kept", "high"] <= 0.01).all()
assert (trials.loc[trials["verdict"] == "broken", "low"] > 0.01).all()

# %%
base = alt.Chart(trials, width=520, height=180).encode(x=alt.X("people:Q"))
(
    base.mark_rule(aria=False).encode(y=alt.Y("low:Q", title="refused share"), y2="high:Q")
    + base.mark_point(filled=True, aria=False).encode(y="mean:Q", color="verdict:N")
)

# %% [markdown]
# A single run would not do: under another seed forty-five people are refused more or less often.

# %%
crowd = SCENARIO.replace("count = 20", "count = 45")
shares = [
    simulator.run(crowd, fidelity="limits", seed=seed, progress=False).summary["totals"]["refused"]
    for seed in range(5)
]
print("refused, by seed:", shares)
assert len(set(shares)) > 1

# %% [markdown]
# ## What was learnt
# Arrivals bunch, so a limit equal to the average refuses many. A search says up to where a
# condition is kept, from where it is broken, and claims nothing between.
#
# ## Exercise
# Play the office with 30 and with 60 people, once each. On which side of the border does each lie?

# %% tags=["answer"]
sides = {
    people: simulator.run(
        SCENARIO.replace("count = 20", f"count = {people}"), fidelity="limits", progress=False
    )
    .metrics()["refused_share"]
    .iloc[0]
    for people in (30, 60)
}
print({people: f"{share:.1%}" for people, share in sides.items()})
assert sides[30] < 0.01 < sides[60]

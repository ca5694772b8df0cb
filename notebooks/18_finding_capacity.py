# %% [markdown]
# # How many people fit under a limit
# The question is how many people can share one address and one public key while at most one attempt
# in a hundred is refused.
#
# Clauses: LIM-PUBLIC.

# %% [markdown]
# **Predict before you read on.** Fifty people send one request a minute on average, and the limit
# is fifty a minute. Is one in a hundred refused, fewer, or more?

# %%
import altair as alt
import pandas as pd

import simulator
from simulator import interval_of, load, with_value

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

# %% tags=["parameters"]
SEED = 7  # of the first run; the others count up from it
RUNS = 20

# %% [markdown]
# ## Fifty a minute on average
# Each person waits a minute on average and then sends a request. So fifty people make at most fifty
# requests a minute on average, which is the limit (LIM-PUBLIC). Where each waits exactly a minute,
# nobody is refused in any run. Where the waits are random (exponential), requests bunch: some
# minutes bring more than fifty, and whoever is refused retries.

# %%
office = with_value(load(SCENARIO), "seed", SEED)
fifty = with_value(office, "clients.people.count", 50)
waits = {
    "exactly a minute": {"kind": "constant", "value": "1m"},
    "a minute on average": {"kind": "exponential", "mean": "1m"},
}
shares = {
    wait: [run["line"]["refused_share"] for run in result.summary["replications"]["runs"]]
    for wait, drawn in waits.items()
    for result in [
        simulator.run(
            with_value(fifty, "clients.people.think", drawn),
            fidelity="compiled",
            replications=RUNS,
            progress=False,
        )
    ]
}
crowd = interval_of(shares["a minute on average"], "refused_share")
assert max(shares["exactly a minute"]) == 0
assert crowd.low > 0.01
pd.DataFrame(
    {
        wait: {"least": min(runs), "mean": sum(runs) / len(runs), "most": max(runs)}
        for wait, runs in shares.items()
    }
).T.round(3).rename_axis("refused share of 20 runs")

# %% [markdown]
# The shares of single runs differ, so one run does not answer the question.

# %%
assert len(set(shares["a minute on average"])) == RUNS

# %% [markdown]
# ## The search
# `capacity` first looks for the border with a few runs at each value (pilots). Then it runs two
# values near the border under the same fresh seeds. The border is where a straight line between
# their shares crosses 1 %, and the ends of its 95 % interval are the answer. Fifty is too many, so
# the border lies below.

# %%
found = simulator.capacity(
    office,
    vary="clients.people.count",
    between=(10, 60),
    keep="refused_share <= 0.01",
    tolerance=0.1,
)
assert found.keeps is not None
assert found.breaks is not None
assert int(found.keeps) < int(found.breaks) < 50
pd.Series({"the condition is kept up to": found.keeps, "and broken from": found.breaks}).to_frame(
    "people"
)

# %% [markdown]
# Every value that was run, with the interval of the refused share over its runs. A value is *kept*
# when its whole interval meets the condition, and *broken* when none of it does. Pilots decide
# nothing. Between `keeps` and `breaks` nothing is claimed.

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
assert found.border is not None
assert int(found.keeps) <= found.border.low < found.border.high <= int(found.breaks)
near = trials[trials["verdict"] != "pilot"]
assert near["people"].min() <= found.border.mean <= near["people"].max()
colour = alt.Color("verdict:N", title="verdict", sort=["kept", "not decided", "broken", "pilot"])
base = alt.Chart(
    trials,
    width=520,
    height=220,
    description="Refused share by the number of people. It crosses the line of 1 % inside a narrow"
    " band, the answer; far below it is 0, and at 60 people it is above one half.",
).encode(x=alt.X("people:Q", title="people", scale=alt.Scale(zero=False)))
share = alt.Axis(format="%", title="refused share (root scale)", values=[0, 0.01, 0.05, 0.2, 0.6])
answer = pd.DataFrame({"from": [int(found.keeps)], "to": [int(found.breaks)], "kept": [0.01]})
(
    alt.Chart(answer).mark_rect(opacity=0.2, aria=False).encode(x="from:Q", x2="to:Q")
    + alt.Chart(answer).mark_rule(strokeDash=[4, 3], aria=False).encode(y="kept:Q")
    + base.transform_filter("datum.verdict != 'pilot'")
    .mark_rule(aria=False)
    .encode(y="low:Q", y2="high:Q", color=colour)
    + base.mark_point(filled=True, size=80, aria=False).encode(
        y=alt.Y("mean:Q", axis=share, scale=alt.Scale(type="sqrt")), color=colour
    )
)

# %% [markdown]
# ## What was learnt
# Random arrivals bunch, so a limit equal to the average refuses some requests, in this office more
# than one in a hundred. A search reports up to which value a condition holds and from which value
# it fails, and claims nothing in between.
#
# ## Exercise
# Run the office with 30 and with 60 people, once each. On which side of the border does each lie?

# %% tags=["answer"]
sides = {
    people: simulator.run(
        with_value(office, "clients.people.count", people), fidelity="compiled", progress=False
    )
    .metrics()["refused_share"]
    .iloc[0]
    for people in (30, 60)
}
print({people: f"{share:.1%}" for people, share in sides.items()})
assert sides[30] < 0.01 < sides[60]

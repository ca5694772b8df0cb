# %% [markdown]
# # How many people fit under a limit
# This chapter finds how many people can share one address and one public key while at most 1 % of
# their attempts are refused.
#
# Clauses: LIM-PUBLIC.

# %% [markdown]
# **Predict before you read on.** 50 people send one request a minute each on average, and the limit
# is 50 a minute. Is 1 % of the attempts refused, less, or more?

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
# ## 50 requests a minute on average
# Each person waits a minute on average and then sends a request. So 50 people make at most 50
# requests a minute on average, which is the limit (LIM-PUBLIC). If each waits exactly a minute,
# nobody is refused in any run. If the waits are random (exponential), requests bunch: some minutes
# bring more than 50, and refused people retry.

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
# `capacity` first searches with a few runs at each value (the coarse search) for the border: the
# number of people at which 1 % is refused. Then it runs values on both sides of the border under
# fresh seeds. A line through the shares of all these runs crosses 1 % at the border, and the ends
# of the border's 95 % interval are the answer. 50 people are too many, so the border lies below 50.

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
pd.Series(
    {"at most 1 % refused, up to": found.keeps, "more than 1 % refused, from": found.breaks}
).to_frame("people")

# %% [markdown]
# The table shows every value that was run, with the interval of the refused share over its runs.
# The verdict is *met* when the whole interval meets the condition, and *not met* when none of it
# does. The coarse search decides nothing. The answer comes from the interval of the border and not
# from these verdicts, so a value at an end of the answer may be undecided by itself. Nothing is
# claimed about the values between the two numbers of the answer.

# %%
trials = pd.DataFrame(
    [
        {
            "people": int(trial.value),
            "mean": trial.interval.mean,
            "low": trial.interval.low,
            "high": trial.interval.high,
            "runs": trial.interval.runs,
            "verdict": "coarse search" if trial.is_coarse else trial.verdict,
        }
        for trial in found.trials
    ]
).sort_values("people")
trials.round(4)

# %%
assert found.border is not None
assert int(found.keeps) <= found.border.low < found.border.high <= int(found.breaks)
near = trials[trials["verdict"] != "coarse search"]
assert near["people"].min() <= found.border.mean <= near["people"].max()
colour = alt.Color(
    "verdict:N", title="verdict", sort=["met", "not decided", "not met", "coarse search"]
)
base = alt.Chart(
    trials,
    width=520,
    height=220,
    description="Refused share by the number of people. It crosses the line of 1 % inside a narrow"
    " band, the answer; far below it is 0, and at 60 people it is above one half.",
).encode(x=alt.X("people:Q", title="people", scale=alt.Scale(zero=False)))
share = alt.Axis(
    labelExpr="format(100 * datum.value, '~g') + ' %'",
    title="refused share (square-root scale)",
    values=[0, 0.01, 0.05, 0.2, 0.6],
)
answer = pd.DataFrame({"from": [int(found.keeps)], "to": [int(found.breaks)], "bound": [0.01]})
(
    alt.Chart(answer).mark_rect(opacity=0.2, aria=False).encode(x="from:Q", x2="to:Q")
    + alt.Chart(answer).mark_rule(strokeDash=[4, 3], aria=False).encode(y="bound:Q")
    + base.transform_filter("datum.verdict != 'coarse search'")
    .mark_rule(aria=False)
    .encode(y="low:Q", y2="high:Q", color=colour)
    + base.mark_point(filled=True, size=80, aria=False).encode(
        y=alt.Y("mean:Q", axis=share, scale=alt.Scale(type="sqrt")), color=colour
    )
)

# %% [markdown]
# ## What was learnt
# In this office requests arrive at random and bunch, so a limit equal to their average refuses more
# than 1 % of them. A search reports up to which value a condition is met, and from which it is not;
# it claims nothing in between.
#
# ## Exercise
# Run the office with 30 and with 60 people, once each. On which side of the border is each?

# %% tags=["answer"]
sides = {
    people: simulator.run(
        with_value(office, "clients.people.count", people), fidelity="compiled", progress=False
    )
    .metrics()["refused_share"]
    .iloc[0]
    for people in (30, 60)
}
print({people: f"{100 * share:.1f} %" for people, share in sides.items()})
assert sides[30] < 0.01 < sides[60]

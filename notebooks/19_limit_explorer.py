# %% [markdown]
# # The limit explorer: one change at a time
# Sliders change the number of people, the rate of a script and the limits; each move of a slider
# runs the whole scenario again and redraws its picture.
#
# Clauses: LIM-PUBLIC, LIM-BLOCK, LIM-CREATE, LIM-IP.
#
# Open this notebook in JupyterLab (`make lab`) and run it: sliders need a kernel. Without a kernel
# you see three positions of the sliders.

# %% [markdown]
# **Predict before you read on.** 200 people share an address with a script that sends far more than
# the limit. Which helps the people more: a limit four times as high, or a script that sends a
# tenth?

# %%
from typing import Any

import altair as alt
import pandas as pd

import simulator
from simulator import interval_of, load, with_value

_ = alt.renderers.enable("svg")
print(load("shared-office").question)

# %% tags=["parameters"]
SEED = 7  # of the first run; the others count up from it
RUNS = 20

# %% [markdown]
# ## Sliders
# There is one slider for the number of clients in each group, one for the rate of each steady
# sender, and one for each limit that the traffic meets. Beside them is a list of the algorithms,
# and above them are buttons for three positions. The first run on a machine compiles the
# simulation, and a message is shown meanwhile.

# %%
scenario = with_value(load("shared-office"), "seed", SEED)
explorer = simulator.explore(scenario)
explorer

# %% [markdown]
# All parts of the picture have the same scale. With a kernel the upper part shows the values that
# are set, and the lower part the scenario as it is in its file. Try this: raise `LIM-PUBLIC` as far
# as it goes. Then put it back, and slow down the script instead.
#
# ## What a slider does
# A slider sets one value of the scenario. The value has a path in the scenario's file, and moving
# the slider gives the same run as editing the file, to the last decision.

# %%
knobs = pd.DataFrame([(k.label, k.path, f"{k.value:,}", f"{k.most:,}") for k in explorer.knobs])
knobs.columns = pd.Index(["slider", "path", "value", "most"])
knobs

# %%
moved = explorer.play({"rules.LIM-PUBLIC.rate": "150/1m"})
edited = simulator.run(
    with_value(scenario, "rules.LIM-PUBLIC.rate", "150/1m"), fidelity="limits", progress=False
)
assert moved.summary["sha256"] == edited.summary["sha256"]
assert {"clients[0].count", "clients[1].arrivals.rate", "rules.LIM-PUBLIC.rate"} <= set(
    knobs["path"]
)

# %% [markdown]
# ## Twenty runs at each position
# First the limit alone, from a third of what it is to four times as much. Then the script alone,
# from one request in 10 s to 100, with the limit of 50. A picture of the explorer is one run; here
# each position is run with 20 seeds.


# %%
def refused_shares(values: dict[str, Any]) -> list[float]:
    """Return the refused share of the people in each run."""
    runs = [explorer.play({**values, "seed": seed}) for seed in range(SEED, SEED + RUNS)]
    return [float(run.metrics(by="group")["refused_share"]["browsers"]) for run in runs]


sliders = {
    "LIM-PUBLIC, a minute": ("rules.LIM-PUBLIC.rate", "1m", (16, 25, 50, 75, 100, 150, 200)),
    "the script, in 10 s": ("clients[1].arrivals.rate", "10s", (1, 2, 5, 10, 20, 50, 100)),
}
frame = pd.DataFrame(
    [
        {
            "slider": name,
            "value": value,
            **interval_of(refused_shares({path: f"{value}/{window}"}), "refused_share")._asdict(),
        }
        for name, (path, window, values) in sliders.items()
        for value in values
    ]
)
base = alt.Chart(
    frame,
    width=230,
    height=160,
    description="Refused share of the people, with intervals. It is lower for a limit of 200 than"
    " for 16, and higher for a script of 50 in 10 s than for one of 5.",
).encode(x=alt.X("value:Q", title="value of the slider"))
(
    base.mark_rule(aria=False).encode(
        y=alt.Y("low:Q", title="refused share of the people"), y2="high:Q"
    )
    + base.mark_line(point=True, aria=False).encode(y="mean:Q")
).facet(column=alt.Column("slider:N", title=None)).resolve_scale(x="independent")

# %% [markdown]
# Both changes help. In this office, a script that slows down to a tenth helps the people more than
# a limit four times as high (LIM-PUBLIC). The differences below are taken seed by seed.


# %%
def difference(one: list[float], other: list[float]) -> dict[str, float]:
    """Return the mean difference of paired runs with its interval."""
    found = interval_of([a - b for a, b in zip(one, other, strict=True)])
    return {"mean": found.mean, "low": found.low, "high": found.high}


as_it_stands = refused_shares({})
higher_limit = refused_shares({"rules.LIM-PUBLIC.rate": "200/1m"})
slower_script = refused_shares({"clients[1].arrivals.rate": "5/10s"})
differences = pd.DataFrame(
    {
        "as it stands − limit 200": difference(as_it_stands, higher_limit),
        "as it stands − script 5 in 10 s": difference(as_it_stands, slower_script),
        "limit 200 − script 5 in 10 s": difference(higher_limit, slower_script),
    }
).T
limit, script = (frame[frame["slider"] == name].set_index("value") for name in sliders)
assert limit["mean"][[16, 50, 200]].is_monotonic_decreasing
assert script["mean"][[5, 20, 50]].is_monotonic_increasing
assert (differences["low"] > 0).all()
differences.round(3).rename_axis("refused share of the people")

# %% [markdown]
# ## The algorithm
# The list beside the sliders changes the algorithm of every limit (D-ALGORITHM). The algorithm
# matters too: in this office, the people are refused less under the token bucket than under the
# sliding log. GCRA with its default burst decides as the bucket does, in every run.

# %%
algorithms = ("sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra")
counted = {name: refused_shares({"choices.limits.algorithm": name}) for name in algorithms}
means = pd.Series({name: sum(shares) / RUNS for name, shares in counted.items()})
assert counted["gcra"] == counted["token-bucket"]
assert difference(counted["sliding-log"], counted["token-bucket"])["low"] > 0
means.round(3).rename_axis("algorithm").to_frame("refused share of the people")

# %% [markdown]
# ## What was learnt
# A position of the sliders gives the same run as a scenario file with these values, to the last
# decision.
#
# ## Exercise
# Halve the number of people with the slider for their group. By how much does the share of refused
# attempts change?

# %% tags=["answer"]
fewer = interval_of(refused_shares({"clients[0].count": 100}), "refused_share")
many = limit.loc[50]
print(f"200 people: {100 * many['mean']:.1f} %, 100 people: {100 * fewer.mean:.1f} %")
assert abs(fewer.mean - many["mean"]) < 0.1, "little: it is the script that uses up the limit"

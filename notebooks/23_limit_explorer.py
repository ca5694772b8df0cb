# %% [markdown]
# # The limit explorer
# What if there were fewer people, a gentler script, a higher limit? Here the answer is a slider
# away: each move plays the whole scenario again, and the picture follows.
#
# Clauses: LIM-PUBLIC, LIM-BLOCK, LIM-CREATE, LIM-IP.
#
# Open this notebook in JupyterLab (`make lab`) and run it: sliders need a kernel. Without a
# kernel you see the defaults, and further down what some positions of the sliders give.

# %% [markdown]
# **Predict before you read on.** Raise the limit fourfold, or slow the script to a tenth: which
# helps the people more?

# %%
import altair as alt
import pandas as pd

import simulator
from simulator.scenario import load, with_value

_ = alt.renderers.enable("svg")
scenario = load("shared-office")
print(scenario.question)

# %% [markdown]
# ## Sliders
# One for the number of clients in each group, for the rate of those who ask steadily, and for each
# limit that the traffic meets; below them the way of counting. (Whoever runs this for the first
# time on a machine waits while the simulation is compiled.)

# %%
explorer = simulator.explore(scenario)
explorer

# %% [markdown]
# The upper picture is for the values that are set, the lower one for the scenario as it stands. Try
# this: raise `LIM-PUBLIC` as far as it goes. Then put it back, and slow down the script instead.
#
# ## What a slider does
# It is a path in the scenario, and moving it is what editing the file would be: the same run, to
# the last decision.

# %%
knobs = pd.DataFrame([(k.label, k.path, k.value, k.most) for k in explorer.knobs])
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
# ## Some positions
# First the limit alone, from a third of what it is to four times as much. Then the script alone,
# from one request in ten seconds to a hundred, with the limit as it stands.


# %%
def refused_share(path: str, value: str) -> float:
    by_group = explorer.play({path: value}).metrics(by="group")["refused_share"]
    return float(by_group["browsers"])


sliders = {
    "LIM-PUBLIC, a minute": ("rules.LIM-PUBLIC.rate", "1m", (16, 25, 50, 75, 100, 150, 200)),
    "the script, in 10 s": ("clients[1].arrivals.rate", "10s", (1, 2, 5, 10, 20, 50, 100)),
}
frame = pd.DataFrame(
    [
        {"slider": name, "value": value, "share": refused_share(path, f"{value}/{window}")}
        for name, (path, window, values) in sliders.items()
        for value in values
    ]
)
limit, script = (frame[frame["slider"] == name].set_index("value")["share"] for name in sliders)
alt.Chart(frame, width=230, height=160).mark_line(point=True, aria=False).encode(
    x=alt.X("value:Q", title=None),
    y=alt.Y("share:Q", title="refused share of the people"),
    column=alt.Column("slider:N", title=None),
).resolve_scale(x="independent")

# %% [markdown]
# A limit four times as high does not even halve what the people are refused: the script asks 300 a
# minute and takes whatever is given. A script that slows down to 30 a minute leaves them almost
# alone, under the limit as it is (LIM-PUBLIC).

# %%
print(f"limit 50 → 200: {limit[50]:.1%} → {limit[200]:.1%}")
print(f"script 50 → 5: {script[50]:.1%} → {script[5]:.1%}")
assert limit.is_monotonic_decreasing
assert script.is_monotonic_increasing
assert limit[200] > limit[50] / 2
assert script[5] < 0.03

# %% [markdown]
# ## The way of counting
# The list below the sliders changes how every limit is counted (D-ALGORITHM). With a script that
# asks six times as often as it may, it moves what the people are refused by less than ten points.

# %%
algorithms = ("sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra")
counted = pd.Series(
    {name: refused_share("choices.limits.algorithm", name) for name in algorithms}, name="share"
)
print(counted.round(3).to_string())
assert counted["gcra"] == counted["token-bucket"]
assert counted.max() - counted.min() < 0.1

# %% [markdown]
# ## What was learnt
# A position of the sliders is a scenario file with other values: the same run, to the last
# decision.
#
# ## Exercise
# Halve the number of people with the slider for their group. By how much does the share of refused
# attempts change?

# %% tags=["answer"]
fewer_people = float(
    explorer.play({"clients[0].count": 100}).metrics(by="group")["refused_share"]["browsers"]
)
print(f"{limit[50]:.1%} with 200, {fewer_people:.1%} with 100")
assert abs(fewer_people - limit[50]) < 0.1, "little: it is the script that uses up the limit"

# %% [markdown]
# # The account updater at month end
# Batch jobs are few and large, and the limit for them is ten requests in ten seconds, shared by
# uploads and polls. Who polls for results uses up what new jobs need.
#
# Clauses: LIM-ACCOUNT-UPDATER, ACC-FILE, ACC-SPLIT.

# %%
import altair as alt
import pandas as pd

import simulator
from simulator.scenario import load, with_value

_ = alt.renderers.enable("svg")
scenario = load("month-end")
print(scenario.question)
print(scenario.answer)

# %% [markdown]
# Three shops upload 75 MB each time: a file holds at most 30 MB (ACC-FILE), so their volume is
# split into three, one job a file (ACC-SPLIT). Six pollers ask for results every 1.5 s.

# %%
month_end = simulator.run(scenario, fidelity="limits", progress=False)
groups = month_end.metrics(by="group")
print(groups[["offered", "refused", "refused_share"]].round(3).to_string())
assert set(month_end.clauses.query("refused > 0").index) == {"LIM-ACCOUNT-UPDATER"}
assert groups["refused_share"]["upload"] > 0.5
assert groups["offered"]["poll"] > 5 * groups["offered"]["upload"]
month_end.plots.timeline(bins=60)

# %% [markdown]
# ## Poll less often
# The same uploads, with other intervals of polling.

# %%
lines = []
for interval in ("1500ms", "3s", "6s", "15s"):
    changed = with_value(scenario, "clients.poll.think", {"kind": "constant", "value": interval})
    found = simulator.run(changed, fidelity="limits", progress=False).metrics(by="group")
    lines.append({"poll every": interval, **found["refused_share"].to_dict()})
frame = pd.DataFrame(lines).set_index("poll every")
print(frame.round(3).to_string())
assert frame["upload"]["1500ms"] == frame["upload"].max()
assert frame["upload"]["6s"] < 0.02
assert frame["upload"]["15s"] < 0.02

# %% [markdown]
# From six seconds on almost no upload is refused: two pollers a key then ask three or four times
# in ten seconds, and leave the rest to the jobs.

# %%
alt.Chart(frame.reset_index(), width=420).mark_bar(aria=False).encode(
    x=alt.X("upload:Q", title="refused share of uploads"),
    y=alt.Y("poll every:N", sort=None),
)

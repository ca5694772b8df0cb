# %% [markdown]
# # What should my client do, or the limit be?
# `advise` plays a scenario as it is and with one change at a time, and says which change helps
# whom, by how much, and what it costs.
#
# Clauses: LIM-PUBLIC, LIM-BLOCK, ERR-429.
#
# The question that an analyst was asked: forty clients share one public key, and a reload of a page
# shuts them out for minutes. Should they retry in another way, have keys of their own, or should
# the limit be higher?

# %% [markdown]
# **Predict before you read on.** Which of the three changes helps most, and which costs most?

# %%
import tempfile
from pathlib import Path

import altair as alt
import pandas as pd

import simulator
from engine import LimitTable
from simulator import load, with_value

_ = alt.renderers.enable("svg")
pd.set_option("display.max_colwidth", 90)

# %% tags=["parameters"]
SEED = 7  # of the first run; the others count up from it
RUNS = 20

# %% [markdown]
# ## What binds
# For each clause that refuses the group: the share that it refuses, and `explains`, how much less
# would be refused without it. Both have an interval over the same runs. Here LIM-PUBLIC explains
# all that is refused (ERR-429).

# %%
storm = with_value(load("retry-storm"), "seed", SEED)
found = simulator.advise(storm, groups=["impatient"], replications=RUNS, most_replications=20)
binding = found.binding
(line,) = binding.to_dict("records")
assert line["clause"] == "LIM-PUBLIC"
assert abs(line["explains"] - line["refused_share"]) < 1e-9
binding.round(3)

# %% [markdown]
# ## What would help
# Each line is one change, run with the same seeds as the runs without it. A change is *sure* if the
# interval of the difference does not contain 0.

# %%
changes = found.changes
shares = changes[changes["metric"].str.startswith("refused_share")].set_index("about")
kinder = shares[shares["says"].str.startswith("honour Retry-After")].iloc[0]
keys = shares.loc["keys"]
assert kinder["sure"]
assert keys["sure"]
assert keys["after"] < kinder["after"] < kinder["before"]
shares[["says", "before", "after", "low", "high", "sure"]].round(3)

# %% [markdown]
# Both ways help: clients that honour `Retry-After` are refused less, and with a key for each of
# them even less. LIM-PUBLIC counts the pair of key and address, so another key has a counter of its
# own.
#
# ## What it costs the operator
# The other side of the question: from which limit on would at most one attempt in a hundred of this
# group be refused? The price of a limit is the most that one party can then send within a window.

# %%
limit = found.limit.iloc[0]
assert limit["rule"] == "LIM-PUBLIC"
assert limit["price"] > 2 * limit["price_now"]
found.limit

# %%
tradeoff = found.tradeoff.sort_values("limit")
lowest, highest = tradeoff.iloc[0], tradeoff.iloc[-1]
assert lowest["refused_share"] > 0.01 > highest["refused_share"]
found.chart()

# %% [markdown]
# The limit needed is more than twice today's, and it applies to every party, not only to these
# clients.
#
# ## Apply it
# Each suggestion holds its change: as edits, as a scenario, and as a diff of the scenario's file.
# Run again with other seeds, the change has the effect that was stated.

# %%
change = next(each for each in found.suggestions if each.says.startswith("honour Retry-After"))
again = simulator.run(
    with_value(change.applied_to(storm), "seed", SEED + 1_000),
    fidelity="compiled",
    replications=RUNS,
    progress=False,
)
share = again.replications.loc["refused_share{client='impatient'}"]
assert share["high"] < kinder["before"]
print(change.diff(storm))

# %% [markdown]
# ## Several tables at once
# `policies` runs scenarios under several limit tables and shows what each does to each group. A `*`
# marks tables that no other one beats in everything, including the highest load on the service.

# %%
with tempfile.TemporaryDirectory() as folder:
    tables = []
    for number in (40, 100, 200):
        tables.append(Path(folder, f"{number}.toml"))
        table = LimitTable.default().replace_rule("LIM-PUBLIC", rate=f"{number}/1m")
        tables[-1].write_text(table.to_toml(), "utf-8")
    played = simulator.policies(storm, limits=tables, replications=RUNS)
rows = played.table.assign(policy=played.table["policy"].map(lambda name: Path(name).stem))
impatient = rows[rows["group"] == "impatient"].set_index("policy")
order = ["40", "as it stands", "100", "200"]
assert impatient.loc[order, "refused_share"].is_monotonic_decreasing
impatient.loc[order].round(3)

# %% [markdown]
# ## What was learnt
# Clients that honour `Retry-After` are refused less, at no cost to anyone. Without that, the limit
# would have to be more than twice as high.
#
# ## Exercise
# What is the largest pace of the two scripts of `management-loop`, so that at most one request in a
# hundred is refused?

# %% tags=["answer"]
answer = simulator.advise("management-loop").pace
print(answer)
assert all(3.2 < float(pace.removesuffix("/s")) <= 200 / 60 for pace in answer["keeps"])

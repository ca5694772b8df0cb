# %% [markdown]
# # How to run a parameter sweep
# A sweep runs a scenario at every point of a space of values, and a Dask cluster distributes the
# points over its workers.
#
# Clauses: LIM-PUBLIC, LIM-BLOCK.

# %% [markdown]
# **Predict before you read on.** 80 people under a limit of 100 a minute use the same part of their
# limit as 20 people under 25 a minute. Are they refused more, as much, or less?

# %%
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from distributed import LocalCluster

import simulator
from simulator import interval_of, load, with_value

_ = alt.renderers.enable("svg")
SCENARIO = """
name = "office"
duration = "10m"
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
SEED = 7  # of the first run of a point; the others count up from it
RUNS = 20

# %% [markdown]
# ## A cluster
# This cluster has two workers, here threads of this process, which start fast. A cluster of many
# machines is started by its operator (`dask scheduler`, `dask worker`); to use it you need its
# address. Its workers must have the same version of Tollgate installed.

# %%
cluster: Any = LocalCluster(  # type: ignore[no-untyped-call] # reason: untyped library
    n_workers=2,
    processes=False,
    threads_per_worker=1,
    dashboard_address="127.0.0.1:0",
    silence_logs=logging.CRITICAL,
)
folder = Path(tempfile.mkdtemp())
print(len(cluster.workers), "workers")
assert len(cluster.workers) == 2

# %% [markdown]
# ## Two axes
# One axis is how many people share an address and a public key, the other is what LIM-PUBLIC allows
# them a minute. An axis is a path in the scenario and its values; every pair of values is a point,
# and each point is run with 20 seeds. Each run is written to a Parquet file in a folder, and the
# sweep returns all runs as a data frame. (These runs have the fidelity `limits`. The default of a
# sweep is `compiled`, which makes the same decisions.)

# %%
PEOPLE, LIMITS = [20, 40, 60, 80], ["25/1m", "50/1m", "100/1m"]


def sweep(name: str) -> pd.DataFrame:
    return simulator.sweep(
        SCENARIO,
        {"clients.people.count": PEOPLE, "rules.LIM-PUBLIC.rate": LIMITS},
        out=folder / name,
        replications=RUNS,
        seed=SEED,
        fidelity="limits",
        scheduler=cluster.scheduler_address,
    )


found = sweep("office")
print(len(found), "runs of", found["point"].nunique(), "points")
assert len(found) == 4 * 3 * RUNS
assert set(found["status"]) == {"ok"}
assert set(found["seed"]) == set(range(SEED, SEED + RUNS))
found.iloc[:4, [0, 1, 3, 4, 10, 15]]

# %% [markdown]
# ## The result
# The table shows the refused share of each point: its mean over the runs, and the 95 % interval of
# the mean. The share rises with the people and falls with the limit. Where two intervals overlap,
# the difference may be chance. After 20 runs without a refusal the interval still reaches 16.8 %:
# 20 runs cannot exclude that one run in six is refused altogether.

# %%
cells = pd.DataFrame(
    [
        {"people": people, "limit": limit, **interval_of(list(runs), "refused_share")._asdict()}
        for (people, limit), runs in found.groupby(
            ["clients.people.count", "rules.LIM-PUBLIC.rate"]
        )["refused_share"]
    ]
)
cells["said"] = [
    f"{100 * mean:.1f} % [{100 * low:.1f} %, {100 * high:.1f} %]"
    for mean, low, high in zip(cells["mean"], cells["low"], cells["high"], strict=True)
]
share = cells.pivot_table("mean", "people", "limit")[LIMITS].to_numpy()
assert (np.diff(share, axis=0) >= 0).all(), "more people, more refused"
assert (np.diff(share, axis=1) <= 0).all(), "a higher limit, fewer refused"
cells.pivot_table("said", "people", "limit", aggfunc="first")[LIMITS]

# %%
base = alt.Chart(
    cells,
    width=420,
    height=180,
    description="Refused share by the number of people and the limit, with intervals: it rises with"
    " the people and falls with the limit.",
).encode(
    x=alt.X("limit:N", sort=LIMITS, title="LIM-PUBLIC, requests / window"),
    y=alt.Y("people:O", sort="descending", title="people"),
)
base.mark_rect(aria=False).encode(
    color=alt.Color("mean:Q", title="refused share", scale=alt.Scale(scheme="reds"))
) + base.mark_text(aria=False).encode(
    text="said:N",
    color=alt.when(alt.datum.mean > 0.5).then(alt.value("white")).otherwise(alt.value("black")),
)

# %% [markdown]
# ## The same share of the limit, in two sizes
# 20 people under 25 a minute and 80 under 100 a minute use the same part of their limit. Before you
# run it: which of the two is refused more? These two points are run with more seeds, for narrower
# intervals.

# %%
ratios = {}
for people, limit in ((20, "25/1m"), (80, "100/1m")):
    point = with_value(load(SCENARIO), "clients.people.count", people)
    point = with_value(point, "rules.LIM-PUBLIC.rate", limit)
    played = simulator.run(
        point, fidelity="limits", seed=SEED, replications=5 * RUNS, progress=False
    )
    ratios[people] = played.replications.loc["refused_share", ["mean", "low", "high"]]
compared = pd.DataFrame(ratios).T.astype(float)
assert compared["low"][20] > compared["high"][80]
compared.round(3).rename_axis("people")

# %% [markdown]
# The small crowd is. Its number of requests a minute varies more, compared with its mean. The table
# shows this for both crowds under a limit that refuses nobody.

# %%
spread = {}
for people in (20, 80):
    point = with_value(load(SCENARIO), "clients.people.count", people)
    point = with_value(point, "rules.LIM-PUBLIC.rate", "1000/1m")
    minutes: list[int] = []
    for seed in range(SEED, SEED + RUNS):
        rows = simulator.run(point, fidelity="limits", seed=seed, progress=False).requests
        minutes += (rows["t_ns"] // (60 * 10**9)).value_counts().to_list()
    spread[people] = float(np.std(minutes) / np.mean(minutes))
assert spread[20] > 1.5 * spread[80]
pd.Series(spread).round(2).rename_axis("people").to_frame("standard deviation / mean")

# %% [markdown]
# ## The same decisions
# Every run stores its scenario and a hash of all its requests and decisions. A run without the
# cluster has the same hash as the run of a worker.

# %%
row = found.iloc[len(found) // 2]
again = simulator.run(row["scenario"], fidelity="limits", seed=row["seed"], progress=False)
print(row["sha256"][:12], again.summary["sha256"][:12])
assert again.summary["sha256"] == row["sha256"]
compiled = simulator.run(row["scenario"], fidelity="compiled", seed=row["seed"], progress=False)
assert compiled.summary["sha256"] == row["sha256"], "and compiled, which is a sweep's default"

# %% [markdown]
# The hash also shows where a limit does not matter: two runs of the same crowd with the same seed
# in which nobody was refused are equal, whatever the limit was.

# %%
calm = found[found["refused"] == 0]
alike = calm.groupby(["clients.people.count", "seed"])["sha256"].apply(list)
print(len(calm), "runs refused nobody;", len(alike), "different hashes among them")
assert all(len(set(hashes)) == 1 for hashes in alike)
assert alike.map(len).max() > 1

# %% [markdown]
# ## Continue a sweep that was stopped
# A run that is in the folder is not repeated. Suppose that the cluster stopped before two of the
# runs were written: the same call runs those two and changes no other file.

# %%
files = sorted((folder / "office").glob("point=*/run-*.parquet"))
for lost in files[3:5]:
    lost.unlink()
kept = {file: file.stat().st_mtime_ns for file in files if file.exists()}
whole = sweep("office")
assert whole.equals(found)
assert all(file.stat().st_mtime_ns == written for file, written in kept.items())
print(len(files) - len(kept), "run again,", len(kept), "unchanged")

# %% [markdown]
# ## Sample points from ranges
# For ranges of values, points are sampled instead of listed: a Latin hypercube spreads a given
# number of points evenly over all ranges.

# %%
drawn = simulator.sweep(
    SCENARIO,
    {"clients.people.count": "10..90", "rules.LIM-PUBLIC.rate": "20/1m..120/1m"},
    sample="lhs:16",
    out=folder / "drawn",
    fidelity="limits",
    scheduler=cluster.scheduler_address,
)
drawn["limit"] = drawn["rules.LIM-PUBLIC.rate"].str.removesuffix("/1m").astype(int)
drawn["people"] = drawn["clients.people.count"]
wanted = drawn["people"] / drawn["limit"]
assert len(drawn) == 16
assert drawn.loc[wanted < 0.6, "refused_share"].max() < 0.05
assert drawn.loc[wanted > 1.2, "refused_share"].min() > 0.5
alt.Chart(
    drawn[["limit", "people", "refused_share"]],
    width=300,
    height=200,
    description="Sixteen sampled points by limit and people. Well below the diagonal the refused"
    " share is near 0, well above it is above one half.",
).mark_point(filled=True, size=120, stroke="#888", strokeWidth=0.5, aria=False).encode(
    x=alt.X("limit:Q", title="LIM-PUBLIC, requests a minute"),
    y=alt.Y("people:Q", title="people"),
    color=alt.Color("refused_share:Q", title="refused share", scale=alt.Scale(scheme="reds")),
)

# %% [markdown]
# Each person sends at most one request a minute on average, not counting retries. On the diagonal
# the number of people equals the limit. Well below it, less than 5 % of the attempts are refused;
# well above it, more than half.

# %%
cluster.close()
shutil.rmtree(folder)

# %% [markdown]
# ## What was learnt
# A sweep runs every point of a space of values, on this machine or on a cluster, with the same
# decisions. Finished runs are not repeated.
#
# ## Exercise
# Sweep 40 and 80 people on this machine, without a cluster. Which of the two is refused more?

# %% tags=["answer"]
alone_folder = Path(tempfile.mkdtemp())
alone = simulator.sweep(
    SCENARIO,
    {"clients.people.count": [40, 80]},
    out=alone_folder / "alone",
    seed=SEED,
    fidelity="limits",
    workers=1,
)
refused_at = alone.set_index("clients.people.count")["refused_share"]
print(refused_at.round(3).to_dict())
assert refused_at.iloc[0] < refused_at.iloc[1]
assert set(alone["sha256"]) <= set(found["sha256"]), "the runs of the cluster"
shutil.rmtree(alone_folder)

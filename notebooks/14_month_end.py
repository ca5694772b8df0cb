# %% [markdown]
# # What do polls take from uploads?
# The account updater's limit is ten requests in ten seconds, shared by uploads and by polls for
# results.
#
# Clauses: LIM-ACCOUNT-UPDATER, ACC-FILE, ACC-SPLIT.

# %% [markdown]
# **Predict before you read on.** Six pollers ask every 1.5 s, and ten requests in 10 s are allowed
# to each pair of key and address. What do uploads get?

# %%
from typing import Any

import altair as alt
import pandas as pd

import simulator
from engine import Engine, split_batch
from simulator import load, with_value

_ = alt.renderers.enable("svg")
scenario = load("month-end")
print(scenario.question)


def runs_of(changed: Any) -> simulator.Result:
    return simulator.run(changed, fidelity="compiled", seed=SEED, replications=RUNS, progress=False)


# %% tags=["parameters"]
SEED = 7  # of the first run; the others count up from it
RUNS = 40

# %% [markdown]
# ## Uploads and polls share the limit
# Three shops upload files of at most 30 MB (ACC-FILE): a volume of 75 MB is split into three files,
# one job a file (ACC-SPLIT). Six pollers, two on each shop's key, ask for results every 1.5 s. Each
# share is a mean over runs with other seeds, with its 95 % interval; the picture shows the first.

# %%
month_end = runs_of(scenario)
groups = month_end.metrics(by="group")
assert set(month_end.clauses.query("refused > 0").index) == {"LIM-ACCOUNT-UPDATER"}
assert groups["offered"]["poll"] > 5 * groups["offered"]["upload"]
names = [f"refused_share{{client='{group}'}}" for group in ("upload", "poll")]
shares = month_end.replications.loc[names]
assert shares["low"].iloc[0] > 0.4
shares[["mean", "low", "high"]].astype(float).round(3)

# %%
month_end.plots.timeline(bins=60)

# %% [markdown]
# In this run more than five in six attempts are polls, and they leave too little room for uploads:
# the next section changes nothing but the polling.
#
# ## Poll less often
# The same uploads, with other intervals of polling. Before you run it: from which interval on are
# fewer than one in eight uploads refused?

# %%
lines = []
for interval in ("1500ms", "3s", "6s", "15s"):
    changed = with_value(scenario, "clients.poll.think", {"kind": "constant", "value": interval})
    result = runs_of(changed) if interval != "1500ms" else month_end
    lines.append(
        {"poll every": interval, **result.replications.loc["refused_share{client='upload'}"]}
    )
frame = pd.DataFrame(lines).set_index("poll every")[["mean", "low", "high"]]
assert frame["mean"].is_monotonic_decreasing
assert frame["high"]["3s"] < frame["low"]["1500ms"]
assert frame["high"]["6s"] < 0.125
assert frame["high"]["15s"] < 0.125
frame.astype(float).round(3)

# %% [markdown]
# From six seconds on: fewer than one upload in eight is refused.

# %%
base = alt.Chart(
    frame.reset_index(),
    width=420,
    description="The refused share of uploads by the interval of polling, with 95 % intervals: the"
    " longer the interval, the smaller the share; from 6 s on below one in eight.",
).encode(y=alt.Y("poll every:N", sort=None))
(
    base.mark_rule(aria=False).encode(
        x=alt.X("low:Q", title="refused share of uploads, 95 % interval"), x2="high:Q"
    )
    + base.mark_point(filled=True, size=60, aria=False).encode(x="mean:Q")
)

# %% [markdown]
# ## Where the edge is
# A file may hold 30 MB (ACC-FILE). That these are 30,000,000 bytes is our choice (D-UNITS), and so
# are the statuses: a file of exactly that size is taken, and one with a byte more is refused.
# `split_batch` cuts a larger volume into files that fit, each with the header; together they hold
# every line (ACC-SPLIT).

# %%
engine = Engine(seed=7)
rights = ("account-updater:job:create", "account-updater:job:read")
key = engine.key_for(engine.create_tenant("Acme"), *rights)


def uploaded(size_bytes: int) -> int:
    job = engine.ask("POST", "/account-updater/jobs", {}, key=key).body
    return engine.ask("PUT", job["upload_url"], b"x" * size_bytes).status


uploads = {f"{size:,} bytes": uploaded(size) for size in (30_000_000, 30_000_001)}
rows = [f"8a0f3f5e-0d5c-4f0e-9d0c-{n:012},2030,1\n".encode() for n in range(100)]
header = b"token,expiration_year,expiration_month\n"
volume = header + b"".join(rows)
files = list(split_batch(volume, limit_bytes=2000))
assert list(uploads.values()) == [204, 413]
assert max(len(file) for file in files) <= 2000
assert b"".join(file.removeprefix(header) for file in files) == b"".join(rows)
print(f"{len(volume):,} bytes in {len(files)} files of at most 2,000")
pd.Series(uploads).to_frame("status")

# %% [markdown]
# ## What was learnt
# Polls and uploads share ten requests in ten seconds. Whoever polls less often leaves room for
# uploads.
#
# ## Exercise
# 75 MB are to be uploaded. How many files, and so how many jobs, do they make?

# %% tags=["answer"]
line = b"8a0f3f5e-0d5c-4f0e-9d0c-2b8c7b6d5e4f,2030,1\n"
tenth = split_batch(header + line * (7_500_000 // len(line)), limit_bytes=3_000_000)
files_needed = len(list(tenth))
print(files_needed, "files, tried at a tenth of the size")
assert files_needed == 3

# %% [markdown]
# # How polling starves uploads
# The limit of the account updater is 10 requests in 10 s, shared by uploads of card files and by
# polls for results.
#
# Clauses: LIM-ACCOUNT-UPDATER, ACC-FILE, ACC-SPLIT.

# %% [markdown]
# **Predict before you read on.** Two pollers and some uploads share a key, which may send 10
# requests in 10 s. Each poller sends one every 1.5 s. Is an upload more often refused than a poll?

# %%
from typing import Any

import altair as alt
import pandas as pd

import simulator
from engine import Engine, split_batch
from simulator import caller, load, mechanism, with_value

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
# one job for each file (ACC-SPLIT). Six pollers, two on each shop's key, request results every 1.5
# s. Each share is a mean over runs with different seeds, with its 95 % interval; the picture shows
# the first run.

# %%
month_end = runs_of(scenario)
groups = month_end.metrics(by="group")
assert set(month_end.clauses.query("refused > 0").index) == {"LIM-ACCOUNT-UPDATER"}
assert groups["offered"]["poll"] > 5 * groups["offered"]["upload"]
names = [f"refused_share{{client='{group}'}}" for group in ("upload", "poll")]
shares = month_end.replications.loc[names]
assert shares["low"].iloc[0] > 0.4
by_group = shares[["mean", "low", "high"]].astype(float).round(3)
by_group.set_axis(["uploads", "polls"]).rename_axis("refused share of")

# %%
month_end.plots.timeline(bins=60)

# %% [markdown]
# In this run more than five of six attempts are polls, and they leave too little room for uploads.
# The next section changes only the polling.
#
# ## Poll less often, or at random
# Now the same uploads meet other polling intervals: always the same one, or random ones with the
# same mean. Before you run it: are more uploads refused with a poll every 1.5 s or with one every 2
# s?

# %%
ways: dict[str, Any] = {
    "always the same": lambda interval: {"kind": "constant", "value": interval},
    "random": lambda interval: {"kind": "exponential", "mean": interval},
}
lines = []
for interval in ("1.5 s", "2 s", "3 s", "6 s"):
    for way, think in ways.items():
        changed = with_value(scenario, "clients.poll.think", think(interval.replace(" ", "")))
        uploads = runs_of(changed).replications.loc["refused_share{client='upload'}"]
        lines.append({"interval": way, "poll every": interval, **uploads})
frame = pd.DataFrame(lines)[["interval", "poll every", "mean", "low", "high"]]
by_way = frame.set_index(["interval", "poll every"]).astype(float)
same, random = by_way.loc["always the same"], by_way.loc["random"]
assert same["low"]["2 s"] > same["high"]["1.5 s"], "polling less often refuses more"
assert random["mean"].is_monotonic_decreasing
assert random["high"]["2 s"] < same["low"]["2 s"]
assert max(same["mean"]["6 s"], random["mean"]["6 s"]) < 0.05
by_way.round(3)

# %% [markdown]
# With a fixed poll every 2 s more uploads are refused than with one every 1.5 s, though fewer polls
# are sent. Two pollers on a key send exactly 10 requests in 10 s. Each poll leaves the window 10 s
# after it was sent, at the instant at which the same poller sends another one. So the polls use up
# the room as soon as there is any: their phases lock, and the uploads are locked out. With a poll
# every 1.5 s the pollers exceed the limit themselves; they are refused, wait, and lose their phase.
# With random intervals no phase lasts, and here fewer uploads are refused the longer the interval
# is. In this example a poll every 6 s leaves enough room either way.
#
# The next picture shows two pollers and one upload every 3 s. The polls come at the same phase of
# every window, and each takes the room that an older poll of the same poller leaves.

# %%
updater = caller("GET", "/account-updater/jobs")
lanes = {
    "poller 1": [n * 2.0 for n in range(20)],
    "poller 2": [n * 2.0 + 1 for n in range(20)],
    "uploads": [n * 3.0 + 0.5 for n in range(3, 13)],
}
locked = mechanism(lanes, updater, title="polls every 2 s")
outcomes = [step.decision.outcome for step in locked.steps if step.lane == "uploads"]
assert outcomes.count("refused") > 8
locked

# %% [markdown]
# The picture below shows all intervals.

# %%
base = alt.Chart(
    frame,
    width=420,
    description="The refused share of uploads by the interval of polling, with 95 % intervals."
    " Polls at random intervals: the share falls with the interval. Polls at fixed intervals: it is"
    " highest at 2 s, where their phases lock.",
).encode(
    y=alt.Y("poll every:N", sort=None),
    color=alt.Color("interval:N", title="interval"),
    yOffset=alt.YOffset("interval:N"),
)
(
    base.mark_rule(aria=False).encode(
        x=alt.X("low:Q", title="refused share of uploads, 95 % interval"), x2="high:Q"
    )
    + base.mark_point(filled=True, size=60, aria=False).encode(
        x="mean:Q", shape=alt.Shape("interval:N", legend=None)
    )
)

# %% [markdown]
# ## The size limit of a file
# A file may hold 30 MB (ACC-FILE). Our choices are that this is 30,000,000 bytes (D-UNITS), and the
# statuses: a file of exactly that size is accepted, and one with a byte more is refused.
# `split_batch` cuts a larger volume into files that fit, each with the header; together they hold
# every line (ACC-SPLIT).

# %%
engine = Engine(seed=7)
rights = ("account-updater:job:create", "account-updater:job:read")
key = engine.key_for(engine.create_tenant("Acme"), *rights)


def uploaded(size_bytes: int) -> int:
    job = engine.ask("POST", "/account-updater/jobs", {}, key=key).body
    return engine.ask("PUT", job["upload_url"], b"x" * size_bytes).status


answers = {f"{size:,} bytes": uploaded(size) for size in (30_000_000, 30_000_001)}
rows = [f"8a0f3f5e-0d5c-4f0e-9d0c-{n:012},2030,1\n".encode() for n in range(100)]
header = b"token,expiration_year,expiration_month\n"
volume = header + b"".join(rows)
files = list(split_batch(volume, limit_bytes=2000))
assert list(answers.values()) == [204, 413]
assert max(len(file) for file in files) <= 2000
assert b"".join(file.removeprefix(header) for file in files) == b"".join(rows)
print(f"{len(volume):,} bytes in {len(files)} files of at most 2,000")
pd.Series(answers).to_frame("status")

# %% [markdown]
# ## What was learnt
# Polls and uploads share 10 requests in 10 s. Poll at random intervals: polls at a fixed interval
# can lock in phase with the window and lock out everybody else, even if fewer are sent.
#
# ## Exercise
# A client wants to upload 75 MB. How many files, and so how many jobs, does it need?

# %% tags=["answer"]
line = b"8a0f3f5e-0d5c-4f0e-9d0c-2b8c7b6d5e4f,2030,1\n"
tenth = split_batch(header + line * (7_500_000 // len(line)), limit_bytes=3_000_000)
files_needed = len(list(tenth))
print(files_needed, "files, tried at a tenth of the size")
assert files_needed == 3

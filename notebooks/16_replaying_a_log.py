# %% [markdown]
# # Replaying an access log
# Before a limit is turned on: what would it have done to yesterday's traffic? A log goes through
# the same limits as a request does, one decision a line.
#
# Clauses: LIM-PUBLIC, LIM-IP.

# %% [markdown]
# **Predict before you read on.** One address asks once a second on a public key. Which share of its
# requests would have been refused?

# %%
import altair as alt
import pandas as pd

import simulator
from engine import LimitTable

_ = alt.renderers.enable("svg")

# %% [markdown]
# A small log: three addresses on one public key. The first asks once a second, the second every
# three seconds, the third reloads everything in the second minute. Common and combined logs, JSON
# lines, CSV and Parquet are read from files; a frame is taken as it is.

# %%
start = pd.Timestamp("2026-03-02T09:00:00Z")
seconds = {
    "203.0.113.7": [*range(240)],
    "203.0.113.8": [*range(0, 240, 3)],
    "203.0.113.9": [60 + n / 10 for n in range(120)],
}
log = pd.DataFrame(
    [
        {"time": start + pd.Timedelta(seconds=second), "ip": ip, "key": "page"}
        for ip, asked in seconds.items()
        for second in asked
    ]
).sort_values("time", kind="stable")
log["method"], log["path"] = "POST", "/tokens"
log.head(4)

# %%
result = simulator.replay(log, as_kind="public")
by_ip = result.metrics(by="ip")[["offered", "refused"]]
assert set(result.clauses.query("refused > 0").index) == {"LIM-PUBLIC"}
assert by_ip["refused"]["203.0.113.8"] == 0
assert by_ip["refused"]["203.0.113.9"] == 70, "50 of its 120 pass within the minute"
by_ip

# %%
result.plots.timeline(bins=60)

# %% [markdown]
# The log cannot say what a refused client would have done next: a replay counts what was asked,
# and adds no retries.
#
# ## Who gains and who loses
# A proposal: 100 a minute in place of 50. Replay under the new table, against the old one.

# %%
wider = LimitTable.default().replace_rule("LIM-PUBLIC", rate="100/1m")
against = simulator.replay(
    log, as_kind="public", limits=wider, against=LimitTable.default()
).summary["against"]
pd.DataFrame(against["clauses"])

# %%
line = against["clauses"][0]
assert line["clause"] == "LIM-PUBLIC"
assert line["refused_new"] < line["refused_old"]
assert (line["gained"], line["lost"]) == (line["refused_old"] - line["refused_new"], 0)

# %% [markdown]
# ## Shadow mode
# A rule in shadow counts and refuses nobody: it reports what it would refuse.

# %%
shadow = simulator.replay(
    log, as_kind="public", limits=LimitTable.default().replace_rule("LIM-PUBLIC", shadow=True)
)
row = shadow.clauses.loc["LIM-PUBLIC"]
assert shadow.summary["totals"]["refused"] == 0
assert row["shadow_refused"] == by_ip["refused"].sum()

# %% [markdown]
# ## Names that nobody may see
# With `pseudonymise` addresses and keys become keyed hashes before anything is written, under a
# key that nobody keeps. The decisions are the same.

# %%
hidden = simulator.replay(log, as_kind="public", pseudonymise=True)
assert not set(hidden.requests["ip"]) & set(seconds)
assert hidden.summary["totals"]["refused"] == result.summary["totals"]["refused"]

# %% [markdown]
# ## What was learnt
# A replay plays yesterday's requests through the limits: who would have been refused, when and by
# which clause. It adds no retries.
#
# ## Exercise
# From which limit on would nobody in this log have been refused? Try 60, 120 and 180 a minute.

# %% tags=["answer"]
counts_by_rate = {
    rate: simulator.replay(
        log,
        as_kind="public",
        limits=LimitTable.default().replace_rule("LIM-PUBLIC", rate=f"{rate}/1m"),
    ).summary["totals"]["refused"]
    for rate in (60, 120, 180)
}
print(counts_by_rate)
assert counts_by_rate[60] > 0
assert counts_by_rate[120] == counts_by_rate[180] == 0

# %% [markdown]
# # What a limit would have done to your traffic
# A replay applies the limits to an access log before they are turned on, one decision per line.
#
# Clauses: LIM-PUBLIC, LIM-IP.

# %% [markdown]
# **Predict before you read on.** One address sends one request a second with a public key, which
# may send 50 a minute. What share of its requests would have been refused?

# %%
import shutil
import tempfile
from pathlib import Path

import altair as alt
import pandas as pd

import simulator
from engine import LimitTable

_ = alt.renderers.enable("svg")

# %% [markdown]
# The log holds three addresses that use one public key. The first sends a request every second, and
# the second one every 3 s. The third sends ten a second for 12 s in the second minute. A log does
# not name the kind of a key: `as_kind` says that these are public.

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
by_ip = result.metrics(by="ip")[["offered", "refused", "refused_share"]]
assert list(by_ip["offered"]) == [240, 80, 120]
assert round(by_ip["refused_share"]["203.0.113.7"], 2) == 0.17, "once a second: one in six"
assert set(result.clauses.query("refused > 0").index) == {"LIM-PUBLIC"}
assert by_ip["refused"]["203.0.113.8"] == 0
assert by_ip["refused"]["203.0.113.9"] == 70, "50 of its 120 pass within the minute"
by_ip.round(2)

# %%
result.plots.timeline(bins=60)

# %% [markdown]
# A log does not show what a refused client would have done next: a replay decides every request of
# the log once and adds no retries.
#
# A log may be a data frame, as here, or a file of CSV, JSON Lines or Parquet.

# %%
folder = Path(tempfile.mkdtemp())
log.to_csv(folder / "log.csv", index=False)
log.to_json(folder / "log.jsonl", orient="records", lines=True, date_format="iso")
log.to_parquet(folder / "log.parquet", index=False)
decided = {
    file.name: simulator.replay(file, as_kind="public").summary["totals"]
    for file in sorted(folder.iterdir())
}
decided["the data frame"] = result.summary["totals"]
shutil.rmtree(folder)
assert len(result.requests) == len(log) == 440
assert {total["refused"] for total in decided.values()} == {by_ip["refused"].sum()}
pd.DataFrame(decided).T[["offered", "refused"]]

# %% [markdown]
# ## Who gains and who loses
# Suppose that the limit becomes 100 a minute in place of 50. The replay compares the new table with
# the old one.

# %%
wider = LimitTable.default().replace_rule("LIM-PUBLIC", rate="100/1m")
against = simulator.replay(
    log, as_kind="public", limits=wider, against=LimitTable.default()
).summary["against"]
line = against["clauses"][0]
assert line["clause"] == "LIM-PUBLIC"
assert line["refused_new"] < line["refused_old"]
assert (line["gained"], line["lost"]) == (line["refused_old"] - line["refused_new"], 0)
pd.DataFrame(against["clauses"])

# %% [markdown]
# ## Shadow mode
# A rule in shadow mode counts requests but refuses none: it reports which ones it would refuse.

# %%
shadow = simulator.replay(
    log, as_kind="public", limits=LimitTable.default().replace_rule("LIM-PUBLIC", shadow=True)
)
row = shadow.clauses.loc[["LIM-PUBLIC"], ["refused", "shadow_refused"]]
assert shadow.summary["totals"]["refused"] == 0
assert row["shadow_refused"].sum() == by_ip["refused"].sum()
row

# %% [markdown]
# ## Pseudonyms for keys and addresses
# With `pseudonymise`, addresses and keys become hashes under a random key of each replay, so two
# replays show different names. The decisions are the same.

# %%
hidden, again = (simulator.replay(log, as_kind="public", pseudonymise=True) for _ in range(2))
for column in ("ip", "key"):
    shown, names = set(hidden.requests[column]), set(log[column])
    assert len(shown) == len(names)
    assert not shown & (names | set(again.requests[column]))
assert list(hidden.requests["outcome"]) == list(result.requests["outcome"])

# %% [markdown]
# ## What was learnt
# A replay applies the limits to yesterday's requests: which would have been refused, when and by
# which clause. It adds no retries.
#
# ## Exercise
# Under which limits would nobody in this log have been refused? Try 60, 120 and 180 a minute.

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

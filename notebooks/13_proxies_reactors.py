# %% [markdown]
# # Proxies and reactors
# Behind a proxy and in a reactor somebody else's time counts: a destination that is slow, an
# instance that has to start first.
#
# Clauses: PRX-TIMEOUT, ERR-408, RCT-HOT, RCT-TIMEOUT, LIM-PROXY-KEY.

# %%
import altair as alt
import pandas as pd

import simulator
from simulator.scenario import load, with_value

_ = alt.renderers.enable("svg")
REACTOR = """
name = "reactor"
duration = "3m"
[choices.outside]
hot_concurrency = 1
cold_start = "2s"
[[tenants]]
name = "acme"
[[applications]]
name = "workers"
tenant = "acme"
[[reactors]]
name = "enrich"
tenant = "acme"
service = { kind = "constant", value = "SERVICE" }
[[clients]]
name = "burst"
count = 3
application = "workers"
loop = "open"
arrivals = { kind = "constant", rate = "1/100s" }
mix = [{ request = "POST /reactors/{id}/react", reactor = "enrich" }]
retry = { kind = "none" }
"""


def seconds(service: str) -> pd.DataFrame:
    text = REACTOR.replace("SERVICE", service)
    rows = simulator.run(text, fidelity="limits", progress=False).requests.head(3)
    return pd.DataFrame({"takes_s": rows["latency_ns"] / 1e9, "status": rows["status"]})


# %% [markdown]
# ## Hot and cold
# One instance is hot. Three invocations at once: the first finds it idle and takes 1 s; for the
# others instances start cold, which takes 2 s more (RCT-HOT).

# %%
three = seconds("1s")
print(three["takes_s"].to_list())
assert three["takes_s"].to_list() == [1.0, 3.0, 3.0]

# %% [markdown]
# The cold start is part of the 30 s that an invocation may take: 29 s of work pass on the hot
# instance and fail with 504 on a cold one (RCT-TIMEOUT).

# %%
late = seconds("29s")
print(late.to_string(index=False))
assert late["takes_s"].to_list() == [29.0, 30.0, 30.0]
assert list(late["status"][1:]) == [504, 504]

# %% [markdown]
# ## Under a rising load

# %%
scenario = load("cold-starts")
print(scenario.question)
print(scenario.answer)
rising = simulator.run(scenario, fidelity="limits", progress=False)
by_minute = rising.metrics(by=["group", "time"], bin="1m").loc["rising-load"]
curve = pd.DataFrame(
    {
        "a_second": by_minute["offered"].to_numpy() / 60,
        "median_s": by_minute["latency_p50_ns"].to_numpy() / 1e9,
    }
)
assert curve["median_s"].iloc[0] < 1
assert curve["median_s"].iloc[1:].min() > 1.5
alt.Chart(curve, width=480, height=160).mark_point(filled=True, aria=False).encode(
    x=alt.X("a_second:Q", title="invocations a second"),
    y=alt.Y("median_s:Q", title="median, seconds"),
)

# %% [markdown]
# With more hot instances fewer start cold (D-HOT).

# %%
hotter = simulator.run(
    with_value(scenario, "choices.outside.hot_concurrency", 8), fidelity="limits", progress=False
)
medians = [run.metrics(by="group")["latency_p50_ns"]["rising-load"] for run in (rising, hotter)]
print([f"{median / 1e9:.2f} s" for median in medians])
assert medians[1] < medians[0] / 2

# %% [markdown]
# ## A slow destination
# A proxy waits 25 s for its destination and then answers 408 (PRX-TIMEOUT, ERR-408). Callers who
# ask again then meet the proxy's own limit (LIM-PROXY-KEY).

# %%
slow = load("slow-destination")
print(slow.question)
print(slow.answer)
proxied = simulator.run(slow, fidelity="limits", progress=False)
timeouts = proxied.requests.query("status == 408")
tills = timeouts[timeouts["path"] == "/proxy/charge"]
assert len(tills) > 0
assert set(tills["latency_ns"]) == {25_000_000_000}
assert proxied.clauses["refused"]["LIM-PROXY-KEY"] > 0
proxied.plots.timeline(bins=60)

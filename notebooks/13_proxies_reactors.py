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
from notebooks.limits_desk import COLOURS
from notebooks.outside_desk import NS, OutsideDesk
from simulator.scenario import load, with_value

_ = alt.renderers.enable("svg")
COLD_START = {"outside": {"cold_start_ns": 2 * NS}}


def invocations(service_s: int, *at_s: float) -> pd.DataFrame:
    """Invoke a reactor at these seconds, its code running so long each time."""
    desk = OutsideDesk(takes_ns=service_s * NS, **COLD_START)
    ended = desk.invoke(*at_s)
    return pd.DataFrame(
        {
            "invocation": [f"{n}. at {at:g} s" for n, at in enumerate(at_s, 1)],
            "at": at_s,
            "ends": [task.ended_ns / NS for task in ended],
            "status": [task.result.status for task in ended],
        }
    )


# %% [markdown]
# ## Hot and cold
# A reactor has one hot instance. Whoever finds it idle starts at once; whoever does not gets a new
# one, which has to start first (RCT-HOT). Here a start takes 2 s and the code 1 s.
#
# Of three invocations at once the first is the lucky one. A fourth, half a second later, still
# finds none idle. A fifth at 1.5 s does: the hot instance has been idle since 1.

# %%
five = invocations(1, 0, 0, 0, 0.5, 1.5)
print(five.to_string(index=False))
assert five["ends"].to_list() == [1.0, 3.0, 3.0, 3.5, 2.5]
assert set(five["status"]) == {200}
parts = pd.DataFrame(
    [
        {"invocation": name, "from": begin, "to": end, "what": what}
        for name, at, ends in zip(five["invocation"], five["at"], five["ends"], strict=True)
        for begin, end, what in (
            (at, ends - 1, "starts cold"),
            (ends - 1, ends, "runs"),
        )
        if begin < end
    ]
)
colours = alt.Scale(domain=["starts cold", "runs"], range=[COLOURS["delayed"], COLOURS["admitted"]])
alt.Chart(parts, width=480, height=130).mark_bar(aria=False).encode(
    x=alt.X("from:Q", title="seconds"),
    x2="to",
    y=alt.Y("invocation:N", title=None),
    color=alt.Color("what:N", scale=colours, title=None),
)

# %% [markdown]
# The cold start is part of the 30 s that an invocation may take: 29 s of work pass on the hot
# instance, and on a cold one are cut off at 30 s, with 504 (RCT-TIMEOUT).

# %%
late = invocations(29, 0, 0)
print(late.to_string(index=False))
assert late["ends"].to_list() == [29.0, 30.0]
assert late["status"].to_list() == [200, 504]

# %% [markdown]
# ## Exactly 25 seconds
# A proxy gives its destination 25 s. One that takes exactly as long passes; a nanosecond more is
# 408, and the caller knows at 25 s (PRX-TIMEOUT, ERR-408).


# %%
def through_a_proxy(takes_ns: int) -> tuple[int, int]:
    desk = OutsideDesk(takes_ns=takes_ns)
    task = desk.at(0, "GET", "/proxy", key=None, proxy_key=desk.proxy())
    desk.run()
    return task.result.status, task.ended_ns


print(through_a_proxy(25 * NS), through_a_proxy(25 * NS + 1))
assert through_a_proxy(25 * NS) == (200, 25 * NS)
assert through_a_proxy(25 * NS + 1) == (408, 25 * NS)

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
# A shop where one call in ten hangs. Callers who are told 408 ask again. The proxy's own limit
# (LIM-PROXY-KEY) refuses requests too; is that what the retries of 408 meet?

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
rows = proxied.requests.sort_values(["client", "t_ns"])
rows["told"] = rows.groupby("client")["status"].shift()
after_408 = rows[(rows["attempt"] > 1) & (rows["told"] == 408)]
met = int((after_408["status"] == 429).sum())
print(f"{len(after_408)} retries of a 408, {met} of them refused")
assert len(after_408) > 100
assert met / len(after_408) < 0.05, "hardly any of them"
proxied.plots.timeline(bins=60)

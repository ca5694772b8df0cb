# %% [markdown]
# # How to retry
# A refused client sends its request again. It chooses how long to wait before doing so.
#
# Clauses: LIM-PUBLIC, LIM-BLOCK, ERR-429.
#
# One simulated run is one sample, so every figure here is a mean over runs with different seeds,
# with its 95 % interval. The *fidelity* of a run is how much of the service takes part: in
# `compiled` runs only the limits do, as machine code, and they decide as the whole service would.

# %% [markdown]
# **Predict before you read on.** Clients retry four times a second and ignore `Retry-After`, or
# honour it. By what factor does the number of refusals differ?

# %%
from typing import Any

import altair as alt
import pandas as pd

import simulator
from simulator import interval_of, load, with_value

_ = alt.renderers.enable("svg")
scenario = load("retry-storm")
print(scenario.question)


def runs_of(changed: Any) -> simulator.Result:
    return simulator.run(changed, fidelity="compiled", seed=SEED, replications=RUNS, progress=False)


def values(result: simulator.Result, metric: str) -> list[float]:
    """Return a metric of each run, in the order of the seeds."""
    return [run["line"][metric] for run in result.summary["replications"]["runs"]]


# %% tags=["parameters"]
SEED = 7  # of the first run; the others count up from it
RUNS = 20
ATTEMPTS = 20  # of one request, the first included

# %% [markdown]
# ## A storm
# Forty clients share one public key. In the third minute all browsers reload a page at once, and
# send more requests than LIM-PUBLIC admits. Refused clients (ERR-429) try again every 250 ms and
# ignore `Retry-After`. The picture shows the first run.

# %%
storm = runs_of(scenario)
assert min(values(storm, "attempts_per_success")) > 3, "most attempts are in vain, in every run"
assert set(storm.clauses.query("refused > 0").index) == {"LIM-PUBLIC"}
storm.replications.loc[
    ["offered", "refused", "attempts_per_success"], ["mean", "low", "high"]
].astype(float).round(1)

# %%
storm.plots.timeline(bins=60)

# %% [markdown]
# In the 10 s from the start of the burst on, most attempts are retries.

# %%
echoes = []
for seed in range(SEED, SEED + RUNS):
    rows = simulator.run(scenario, fidelity="compiled", seed=seed, progress=False).requests
    peak = rows[(rows["t_ns"] >= 120e9) & (rows["t_ns"] < 130e9)]
    echoes.append(float((peak["attempt"] > 1).mean()))
echo = interval_of(echoes, "refused_share")
print(
    f"retries among the attempts of the peak: {100 * echo.mean:.0f} % "
    f"[{100 * echo.low:.0f} %, {100 * echo.high:.0f} %]"
)
assert echo.low > 0.5

# %% [markdown]
# ## If refusals extended the block
# A block ends 10 s after it began, however many requests come meanwhile (LIM-BLOCK). Another
# service may let each refusal begin the 10 s anew (D-BLOCK-START). Then retries extend the block,
# and the key is blocked for most of a run of 600 s.

# %%
extended = runs_of(with_value(scenario, "choices.limits.block_extends", value=True))
blocked = pd.DataFrame(
    {
        name: result.replications.loc["blocked_time", ["mean", "low", "high"]]
        for name, result in (("default", storm), ("refusals extend", extended))
    }
).T.astype(float)
assert blocked["low"]["refusals extend"] > 360e9
assert blocked["high"]["default"] < 120e9
(blocked / 1e9).round().rename_axis("the key is blocked, seconds")

# %% [markdown]
# ## Retry strategies
# Four ways to wait, each with the same number of attempts, without and with `Retry-After`, and
# clients that never retry. *Jitter* is a random part of the wait: it keeps clients that were
# refused together from retrying together. Before you run it: with which of the four is least
# refused?

# %%
waits: dict[str, dict[str, Any]] = {
    "every 250 ms": {"kind": "fixed", "delay": "250ms"},
    "exponential": {"kind": "exponential", "base": "250ms", "cap": "20s"},
    "full jitter": {"kind": "full-jitter", "base": "250ms", "cap": "20s"},
    "decorrelated jitter": {"kind": "decorrelated-jitter", "base": "250ms", "cap": "20s"},
}
ways: dict[tuple[str, str], dict[str, Any]] = {
    (name, header): {**wait, "attempts": ATTEMPTS, "honour_retry_after": header == "honoured"}
    for header in ("ignored", "honoured")
    for name, wait in waits.items()
}
ways["never retry", "–"] = {"kind": "none"}
results = {}
for way, retry in ways.items():
    changed = scenario
    for group in ("impatient", "burst"):
        changed = with_value(changed, f"clients.{group}.retry", retry)
    results[way] = runs_of(changed)
lines = [
    {"wait": wait, "Retry-After": header, **result.replications.loc["refused"]}
    for (wait, header), result in results.items()
]
frame = pd.DataFrame(lines)[["wait", "Retry-After", "mean", "low", "high"]]
refused = frame.set_index(["Retry-After", "wait"])
ignored, honoured = refused.loc["ignored"], refused.loc["honoured"]
others = ignored.drop("every 250 ms")
assert others["high"].max() < ignored["low"]["every 250 ms"], "any back-off is refused less"
assert honoured["high"].max() < others["low"].min() / 1.5, "honouring the header, less again"
assert len({tuple(values(results[name, "honoured"], "refused")) for name in waits}) == 1
frame.round(0).rename(columns={"mean": "refused attempts of a run, mean"})

# %% [markdown]
# In this example it helps most to honour `Retry-After`. With it the four strategies are refused
# equally often, in every run: their own delays are shorter than the header's, so the header alone
# decides. Without it, each back-off is refused less than a retry every 250 ms.
#
# ## The delays matter
# How much a back-off helps depends on its delays. The next table compares a back-off that is capped
# at 100 ms with one whose first delay is already 30 s.

# %%
delays: dict[str, dict[str, Any]] = {
    "10 ms, at most 100 ms": {"base": "10ms", "cap": "100ms"},
    "30 s, at most 2 min": {"base": "30s", "cap": "2m"},
}
lines = []
for name, delay in delays.items():
    for header in ("ignored", "honoured"):
        retry = {"kind": "decorrelated-jitter", **delay, "attempts": ATTEMPTS}
        retry["honour_retry_after"] = header == "honoured"
        changed = scenario
        for group in ("impatient", "burst"):
            changed = with_value(changed, f"clients.{group}.retry", retry)
        lines.append(
            {"delays": name, "Retry-After": header, **runs_of(changed).replications.loc["refused"]}
        )
by_delay = pd.DataFrame(lines).set_index(["delays", "Retry-After"])[["mean", "low", "high"]]
short, long = (by_delay.loc[name] for name in delays)
assert short["low"]["ignored"] > ignored["high"]["every 250 ms"], "a back-off that hardly backs off"
assert long["high"]["honoured"] < honoured["low"].min(), "longer than the header, at random"
by_delay.astype(float).round(0)

# %% [markdown]
# In this storm, a back-off that never exceeds 100 ms is refused more than a retry every 250 ms. One
# that waits longer than the header, at random, is refused least of all strategies that retry: its
# clients do not retry together.

# %%
label = alt.Y("wait:N", sort=None, title="way to wait")
base = alt.Chart(
    frame,
    width=420,
    description="Refused attempts of a run by the way to wait, with intervals. With Retry-After"
    " ignored, every 250 ms is refused most; honouring it, all four are refused equally, and less.",
).encode(y=label)
colour = alt.Color("Retry-After:N", title="Retry-After")
(
    base.mark_rule(aria=False).encode(
        x=alt.X("low:Q", title="refused attempts, 95 % interval"),
        x2="high:Q",
        color=colour,
    )
    + base.mark_point(filled=True, size=60, aria=False).encode(
        x="mean:Q", color=colour, shape=alt.Shape("Retry-After:N", legend=None)
    )
)

# %% [markdown]
# ## What it costs
# Here, clients that never retry are refused least, and fewer of their requests succeed.


# %%
def difference(one: simulator.Result, other: simulator.Result, metric: str) -> tuple[float, float]:
    """Return the interval of the mean difference, seed by seed."""
    pairs = zip(values(one, metric), values(other, metric), strict=True)
    found = interval_of([a - b for a, b in pairs], metric, difference=True)
    return found.low, found.high


polite, never = results["full jitter", "honoured"], results["never retry", "–"]
for metric in ("refused", "admitted"):
    low, high = difference(polite, never, metric)
    print(f"{metric}, honouring the header − never retrying: +{low:.0f} to +{high:.0f}")
    assert low > 0

# %% [markdown]
# Honouring the header has a price too. The header names one instant to everybody. All clients come
# back then, the counter is soon full again, and the next block begins: here the key is blocked for
# longer than in the storm. If the end of a block clears the counter (D-BLOCK-RESET), it is blocked
# for a shorter time than in the storm.

# %%
clearing = with_value(scenario, "choices.limits.block_reset", "clear")
for group in ("impatient", "burst"):
    retry = ways["full jitter", "honoured"]
    clearing = with_value(clearing, f"clients.{group}.retry", retry)
ends = {"keep": polite, "clear": runs_of(clearing)}
longer = {name: difference(result, storm, "blocked_time") for name, result in ends.items()}
for name, (low, high) in longer.items():
    print(f"{name}: blocked for {low / 1e9:+.0f} to {high / 1e9:+.0f} s more than in the storm")
assert longer["keep"][0] > 0
assert longer["clear"][1] < 0

# %% [markdown]
# ## What was learnt
# In this storm, clients that honour `Retry-After` are refused less often. How they back off matters
# where their own delays exceed the header's: a random wait about as long as the window spreads the
# retries.
#
# ## Exercise
# Let only the steady clients honour `Retry-After`, and leave the burst as it is. Are there fewer
# refusals than in the storm?

# %% tags=["answer"]
half = simulator.run(
    with_value(
        scenario,
        "clients.impatient.retry",
        {"kind": "full-jitter", "base": "250ms", "cap": "20s", "attempts": 20},
    ),
    fidelity="compiled",
    progress=False,
)
whole_storm = simulator.run(scenario, fidelity="compiled", progress=False)
both_totals = [run.summary["totals"]["refused"] for run in (half, whole_storm)]
print(both_totals)
assert both_totals[0] < both_totals[1]

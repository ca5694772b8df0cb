# %% [markdown]
# # Retries and retry storms
# A refused client asks again. How it does so decides whether the refusal costs it a moment, or
# costs everybody the day.
#
# Clauses: LIM-PUBLIC, LIM-BLOCK, ERR-429.

# %%
import altair as alt
import pandas as pd

import simulator
from simulator.scenario import load, with_value

_ = alt.renderers.enable("svg")
scenario = load("retry-storm")
print(scenario.question)

# %% [markdown]
# Forty clients and, in the third minute, a burst. After a refusal all of them try again four times
# a second and never read `Retry-After` (ERR-429).

# %%
storm = simulator.run(scenario, fidelity="limits", progress=False)
print(scenario.answer)
totals = storm.summary["totals"]
assert totals["refused"] > 2 * totals["requests"], "more refusals than there were wishes"
assert set(storm.clauses.query("refused > 0").index) == {"LIM-PUBLIC"}
storm.plots.timeline(bins=60)

# %% [markdown]
# The spike is an echo: nine of ten attempts in it are retries. But it ends with the block, because
# a block ends N seconds after it began however often one asks meanwhile (LIM-BLOCK).

# %%
rows = storm.requests
spike = rows[(rows["t_ns"] >= 120e9) & (rows["t_ns"] < 130e9)]
assert (spike["attempt"] > 1).mean() > 0.85
assert (spike["outcome"] == "blocked").mean() > 0.95

# %% [markdown]
# ## If refusals extended the block
# A service may read its rule otherwise (D-BLOCK-START). Then the echo feeds itself: clients that
# ask four times a second keep the block alive until the last of them has given up.

# %%
strict = simulator.run(
    with_value(scenario, "choices.limits.block_extends", value=True),
    fidelity="limits",
    progress=False,
)


def shut_s(result: simulator.Result) -> float:
    return float(result.clauses["blocked_ns"].sum()) / 1e9


print(f"blocked: {shut_s(storm):.1f} s, and {shut_s(strict):.1f} s where refusals extend it")
assert shut_s(strict) > shut_s(storm)

# %% [markdown]
# ## Some ways to ask again
# The same clients with other manners. What is compared: attempts for a success, and refusals.

# %%
manners: dict[str, dict[str, object]] = {
    "every 250 ms": {"kind": "fixed", "delay": "250ms", "attempts": 20},
    "exponential": {"kind": "exponential", "base": "250ms", "cap": "20s", "attempts": 20},
    "full jitter": {"kind": "full-jitter", "base": "250ms", "cap": "20s", "attempts": 20},
    "decorrelated jitter": {"kind": "decorrelated-jitter", "base": "250ms", "cap": "20s"},
    "never": {"kind": "none"},
}
lines = []
for name, retry in manners.items():
    for honour in (False, True):
        if honour and name != "full jitter":
            continue
        changed = scenario
        told = {} if retry["kind"] == "none" else {"honour_retry_after": honour}
        for group in ("impatient", "burst"):
            changed = with_value(changed, f"clients.{group}.retry", {**retry, **told})
        totals = simulator.run(changed, fidelity="limits", progress=False).summary["totals"]
        lines.append(
            {
                "retry": f"{name}, honours Retry-After" if honour else name,
                "refused": totals["refused"],
                "served": totals["succeeded"] / totals["requests"],
            }
        )
frame = pd.DataFrame(lines).set_index("retry")
print(frame.round(3).to_string())
refused = frame["refused"]
assert refused["every 250 ms"] == refused.max()
assert refused["full jitter, honours Retry-After"] < refused["full jitter"] / 2
assert frame["served"]["never"] == frame["served"].min()
assert frame["served"].drop("never").min() > frame["served"]["never"]

# %% [markdown]
# Backing off makes fewer echoes, and reading the header fewer still. Not
# retrying at all is polite, and serves the fewest.

# %%
alt.Chart(frame.reset_index(), width=480).mark_bar(aria=False).encode(
    x=alt.X("refused:Q", title="refused attempts"), y=alt.Y("retry:N", sort=None, title=None)
)

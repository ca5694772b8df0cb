# %% [markdown]
# # Refused, blocked or delayed
# A throttle refuses or delays what is beyond the rate; a block refuses everything for some seconds
# once the rate is exceeded.
#
# Clauses: LIM-THROTTLE, LIM-BLOCK, LIM-PUBLIC, LIM-MANAGEMENT, LIM-TEST-TENANT, ERR-429.

# %% [markdown]
# **Predict before you read on.** A client is blocked at second 0 for 10 s, and sends a request
# every second meanwhile. When is one admitted again?

# %%
from fractions import Fraction

import altair as alt
import pandas as pd

from engine import LimitTable
from simulator import caller, decide, mechanism, refused, spans, strip, trace

_ = alt.renderers.enable("svg")
public = caller("POST", "/tokens", kind="public")
as_throttle = LimitTable.default().replace_rule("LIM-PUBLIC", action="throttle", block_ns=None)

# %% [markdown]
# ## The block itself
# One request at 0, 49 at 55 s, one at 55.5: the last is one too many and begins a block of 10 s,
# until 65.5. The window has room from 60 on, when the first request leaves it. So at 62 a throttle
# admits and a block does not (LIM-BLOCK).

# %%
times: list[Fraction | float] = [
    0,
    *[55] * 49,
    Fraction(111, 2),
    62,
    Fraction(131, 2) - Fraction(1, 10**9),
]
times += [Fraction(131, 2), 66]
block = trace(times, public)
throttle = trace(times, public, table=as_throttle)
assert list(block["outcome"][50:]) == ["blocked", "blocked", "blocked", "admitted", "blocked"]
assert throttle["outcome"][51] == "admitted"
pd.DataFrame({"10 s block": block["outcome"], "throttle": throttle["outcome"]}).set_axis(
    [f"{float(second):.9g}" for second in times]
).iloc[49:].rename_axis("second")

# %% [markdown]
# One nanosecond before 65.5 it still refuses, at 65.5 it admits: a block that begins at *t* holds
# in [*t*, *t* + 10 s).
#
# The counter of such a block: nothing is charged during the block, and the window frees its places.

# %%
mechanism([0, *[50] * 29, *[55] * 20, *range(56, 80)], public, title="LIM-PUBLIC and its block")

# %% [markdown]
# ## Keep or clear
# 51 requests at once, then one a second. The block ends at 10. If the counter slides on, it is
# still full and the next request begins another block, until requests start leaving the window at
# 60 s. If it is cleared, service resumes at 10 (D-BLOCK-RESET).

# %%
burst = [0] * 51 + list(range(1, 100))
keep = trace(burst, public)
clear = trace(burst, public, block_reset="clear")
assert spans(refused(keep)) == "0-59"
assert spans(refused(clear)) == "0-9, 60-69"
strip(pd.concat([keep.assign(who="keep"), clear.assign(who="clear")]))

# %% [markdown]
# ## What a long block costs
# A management script at four requests a second: 200 pass in 50 s, then it is blocked for 60 s
# (LIM-MANAGEMENT). It gets 200 through in 110 s; a throttle would give 200 in 60 s.

# %%
manager = caller(kind="management")
quarter = [Fraction(n, 4) for n in range(4 * 220)]
blocked = trace(quarter, manager)
gentle = trace(
    quarter,
    manager,
    table=LimitTable.default().replace_rule("LIM-MANAGEMENT", action="throttle", block_ns=None),
)
assert spans(refused(blocked)) == "50-109, 160-219"
assert spans(refused(gentle)) == "50-59, 110-119, 170-179"
strip(pd.concat([blocked.assign(who="60 s block"), gentle.assign(who="throttle")]))

# %% [markdown]
# ## Refuse or delay
# A private key on a test tenant at ten requests a second, twice what LIM-TEST-TENANT allows.
# Refusing (D-THROTTLE): half get 429. Counting the refused ones too (D-COUNT): after the first 50
# none of this trace is admitted. Delaying, first come first served, by at most 10 s: half wait, and
# a third is refused.

# %%
tester = caller("POST", "/tokens", tenant="test")
tenth = [Fraction(n, 10) for n in range(300)]
refusing = trace(tenth, tester)
counting = trace(tenth, tester, count_refused=True)
delaying = trace(tenth, tester, throttle="delay")
assert refused(refusing)[0] == 5.0
assert spans(refused(refusing)) == "5-9, 15-19, 25-29"
assert refused(counting) == [n / 10 for n in range(50, 300)]
assert len(refused(refusing)) == len(tenth) / 2
assert (delaying["outcome"] == "delayed").sum() == len(tenth) / 2
assert len(refused(delaying)) == len(tenth) / 3
strip(
    pd.concat(
        [
            refusing.assign(who="refuse"),
            counting.assign(who="refuse, refusals count"),
            delaying.assign(who="delay up to 10 s"),
        ]
    )
)

# %% [markdown]
# A delayed request is charged where it is released, in the order of arrival. The requests of
# seconds 5 to 9 wait 5 s each, those of 10 to 14 wait 10 s; those after them would wait longer than
# the bound, are refused and change nothing (D-THROTTLE).

# %%
waits = delaying.assign(
    step=(delaying["second"] // 5 * 5).astype(int),
    wait_s=delaying["wait_s"].where(delaying["outcome"] != "refused"),
)
by_step = waits.groupby("step")["wait_s"].agg(["min", "max"])
by_step

# %%
assert list(by_step["max"].fillna(-1)) == [0, 5, 10, -1, 10, -1]
alt.Chart(
    waits.dropna()[["second", "wait_s"]],
    width=560,
    height=120,
    description="The wait of each request by when it was sent: none until 5 s, then 5 s, then 10 s;"
    " requests that are refused are left out.",
).mark_point(size=6, aria=False).encode(
    x=alt.X("second:Q", title="sent at, seconds"), y=alt.Y("wait_s:Q", title="wait, seconds")
)

# %% [markdown]
# ## How long to wait
# A refused request gets 429 (ERR-429) with `Retry-After`: whole seconds, rounded up, at least 1.
# `wait_ns` is the exact time. The header is our choice (D-429-HEADERS); the specification names
# the status alone.

# %%
decisions = decide([0] * 50 + [Fraction(9_999_999_999, 10**9), 10], tester)
print(decisions[50].wait_ns, "ns")
assert decisions[50].outcome == "refused"
assert decisions[50].wait_ns == 1
assert decisions[51].outcome == "admitted"

# %% [markdown]
# The wait is no promise. It ends when the counter has room, provided that nobody else sends a
# request. In this example two callers share a counter, and both answers say 4 s. One request leaves
# the window then, so there is room for one of them.

# %%
filling: list[Fraction | float] = [0, *[5] * 49]
told = decide([*filling, 6, 6], tester)[50:]
print([f"{one.outcome}, wait {one.wait_ns / 10**9:g} s" for one in told])
assert [one.wait_ns for one in told] == [4 * 10**9, 4 * 10**9]
back = decide([*filling, 6, 6, 10, 10], tester)[52:]
print([one.outcome for one in back])
assert [one.outcome for one in back] == ["admitted", "refused"]

# %% [markdown]
# ## What was learnt
# A throttle refuses what is beyond the rate; a block refuses everything for a time. A block always
# lasts its fixed time, however often you retry, but the counter may still be full when it ends.
#
# ## Exercise
# A management key sends one request a second for five minutes. Is it ever refused? And at four a
# second?

# %% tags=["answer"]
paces = {
    pace: trace([n / pace for n in range(300 * pace)], caller(kind="management")) for pace in (1, 4)
}
shares = {pace: len(refused(frame)) / len(frame) for pace, frame in paces.items()}
print(shares)
assert shares[1] == 0
assert shares[4] > 0.3

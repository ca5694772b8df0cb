# %% [markdown]
# # Refused, blocked or delayed
# A throttle refuses or delays the requests beyond the limit; a block refuses every request for some
# seconds once the limit is exceeded.
#
# Clauses: LIM-THROTTLE, LIM-BLOCK, LIM-PUBLIC, LIM-MANAGEMENT, LIM-TEST-TENANT, ERR-429.

# %% [markdown]
# **Predict before you read on.** A public key may send 50 requests a minute and is then blocked for
# 10 s. It sends 51 requests at once and then one a second. When is one admitted again?

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
# A client sends one request at 0 s, 49 at 55 s and one at 55.5 s. The last is one too many and
# begins a block of 10 s, until 65.5 s. The window has room from 60 s on, when the first request
# leaves it. So at 62 s a throttle admits and a block does not (LIM-BLOCK).

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
    [f"{float(second):.11g}" for second in times]
).iloc[49:].rename_axis("second")

# %% [markdown]
# One nanosecond before 65.5 s it still refuses, and at 65.5 s it admits: a block that begins at *t*
# holds in [*t*, *t* + 10 s).
#
# The picture shows the counter during such a block: no request is counted, and old ones leave the
# window.

# %%
rule = LimitTable(rules=(LimitTable.default()["LIM-PUBLIC"],))
sent = [0, *[50] * 29, *[55] * 20, *range(56, 80)]
mechanism(sent, public, title="LIM-PUBLIC and its block", table=rule)

# %% [markdown]
# ## The counter when a block ends
# A public key sends 51 requests at once, then one a second. The block ends at 10 s. If the counter
# is kept, it is still full and the next request begins another block, until requests leave the
# window at 60 s. If the counter is cleared, requests are admitted from 10 s on (D-BLOCK-RESET).

# %%
burst = [0] * 51 + list(range(1, 100))
keep = trace(burst, public)
clear = trace(burst, public, block_reset="clear")
assert spans(refused(keep)) == "0-59"
assert spans(refused(clear)) == "0-9, 60-69"
strip(pd.concat([keep.assign(who="keep"), clear.assign(who="clear")]))

# %% [markdown]
# ## What a long block costs
# A management script sends four requests a second: 200 pass in 50 s, then it is blocked for 60 s
# (LIM-MANAGEMENT). So 200 are admitted in 110 s; a throttle would admit 200 in 60 s.

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
# A private key on a test tenant sends ten requests a second, twice what LIM-TEST-TENANT allows. If
# the throttle refuses (D-THROTTLE), half of the requests get 429. If refused requests count too
# (D-COUNT), none of this trace is admitted after the first 50. If the throttle delays, first come
# first served, by at most 10 s, half of the requests wait and a third is refused.

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
# A delayed request is counted when it is released, in the order of arrival. The requests of seconds
# 5 to 9 wait 5 s each, and those of seconds 10 to 14 wait 10 s. The next ones would wait longer
# than the bound: they are refused and not counted (D-THROTTLE).

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
# only the status.

# %%
decisions = decide([0] * 50 + [Fraction(9_999_999_999, 10**9), 10], tester)
print(decisions[50].wait_ns, "ns")
assert decisions[50].outcome == "refused"
assert decisions[50].wait_ns == 1
assert decisions[51].outcome == "admitted"

# %% [markdown]
# The wait is not a promise: it holds if nobody else sends a request. In this example two callers
# share a counter, and both answers say 4 s. One request leaves the window then, so there is room
# for one of them.

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
# A throttle refuses the requests beyond the limit; a block refuses every request for a time. A
# block always lasts its fixed time, however often you retry, but the counter may still be full when
# it ends.
#
# ## Exercise
# A management key sends one request a second for five minutes. Is it ever refused? And if it sends
# four a second?

# %% tags=["answer"]
paces = {
    pace: trace([n / pace for n in range(300 * pace)], caller(kind="management")) for pace in (1, 4)
}
shares = {pace: len(refused(frame)) / len(frame) for pace, frame in paces.items()}
print(shares)
assert shares[1] == 0
assert shares[4] > 0.3

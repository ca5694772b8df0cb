# %% [markdown]
# # From 429 to clause: which limit refused, and what to do
# Every 429 names the counter that refused and the time until a request can succeed; this page shows
# where, and what to change.
#
# A *clause* is one rule of the specification. It has a name, and the name of a limit's clause
# begins with `LIM-`, as in LIM-PUBLIC. Where the specification leaves a detail open, the engine
# makes a choice, and the choice has a name that begins with `D-`. A *tenant* is one customer of the
# service, and a *test tenant* is one for tests. A *private* or *public key* here is an API key of a
# private or a public application (a program on a server, or a page in a browser), not an encryption
# key.
#
# Clauses: ERR-429, LIM-PUBLIC, LIM-BLOCK, LIM-CREATE, LIM-TEST-TENANT.

# %% [markdown]
# **Predict before you read on.** A public key may send 50 requests a minute and is then blocked for
# 10 s. It sends 51 requests at even intervals within 4 s. How long does the last answer tell it to
# wait: 10 s, 56 s or 60 s?

# %%
import json
import tempfile
from pathlib import Path

import altair as alt
import pandas as pd

import simulator
from engine import Engine, LimitTable, ManualClock
from simulator import caller, strip, trace
from simulator import refused as refused_places

_ = alt.renderers.enable("svg")
pd.set_option("display.max_colwidth", 90)

# %% [markdown]
# ## A complete request and its refusal
# 50 requests in 4 s are admitted, one every 80 ms. The next one is refused.

# %%
clock = ManualClock()
engine = Engine(seed=7, clock=clock)
shop = engine.create_tenant("Shop")
page = engine.create_application(shop, "page", kind="public", grants=[("/", {"token:create"})])
key = engine.create_key(page)

for _number in range(50):
    assert engine.ask("POST", "/tokenize", {"name": "Ada"}, key=key).status == 200
    clock.advance_ns("80ms")
refused = engine.ask("POST", "/tokenize", {"name": "Ada"}, key=key)
assert refused.status == 429

print("HTTP/1.1 429 Too Many Requests")
for name, value in refused.headers.items():
    if name.lower() in {"retry-after", "ratelimit", "ratelimit-policy", "content-type"}:
        print(f"{name}: {value}")
print()
print(json.dumps(refused.body, indent=2))

# %% [markdown]
# Read it from the bottom:
#
# - The **body** names the clause, the number of requests, the window, and what the requests are
#   counted by: here the key with the address.
# - **`RateLimit-Policy`** is that rule's quota `q` and its window `w` in seconds.
# - **`RateLimit`** is what is left of it: `r` requests, and `t` seconds until the counter is empty.
# - **`Retry-After`** is the number of seconds after which the next request can succeed, rounded up.
#
# Only the status is specified (ERR-429); the headers are our choice (D-429-HEADERS).
#
# ## Why 56 s, if the block lasts 10 s?
# Two conditions must hold before a request can succeed. The block must have ended: it ends 10 s
# after it began, at 14 s. And the counter must have room. It counts in a *sliding window*: at any
# instant, the requests that were admitted in the last 60 s. The first of the 50 requests, sent at 0
# s, leaves the window at 60 s. It is 4 s now, so the later of the two is 56 s away.

# %%
assert refused.headers["Retry-After"] == "56"
assert refused.decision.rule == "LIM-PUBLIC"
assert refused.decision.wait_ns == 56 * 10**9
outcomes = {}
for second in (13, 14, 59, 60):
    clock.advance_ns(second * 10**9 - clock.now_ns)
    answer = engine.ask("POST", "/tokenize", {"name": "Ada"}, key=key)
    outcomes[second] = answer.decision.outcome
print(outcomes)
assert outcomes == {13: "blocked", 14: "blocked", 59: "blocked", 60: "blocked"}

# %% [markdown]
# Even at 60 s it is refused! The request at 14 s came when the block had ended and the counter was
# still full. It exceeded the rate again, so it began the next block, and so did the one at 59 s. A
# client that retries after its block, but before `Retry-After` has passed, keeps itself out. (A
# retry during a block changes nothing.) A client that waits is admitted:

# %%
patient = Engine(seed=7, clock=(still := ManualClock()))
app = patient.create_application(
    patient.create_tenant("Shop"), "page", kind="public", grants=[("/", {"token:create"})]
)
other_key = patient.create_key(app)
for _number in range(50):
    patient.ask("POST", "/tokenize", {"name": "Ada"}, key=other_key)
    still.advance_ns("80ms")
wait = patient.ask("POST", "/tokenize", {"name": "Ada"}, key=other_key).headers["Retry-After"]
still.advance_ns(f"{wait}s")
again = patient.ask("POST", "/tokenize", {"name": "Ada"}, key=other_key)
print(f"after {wait} s: {again.status}")
assert again.status == 200

# %% [markdown]
# The picture shows both clients: one that retries every 5 s, and one that waits.

# %%
first = [n * 0.08 for n in range(50)]
retrying = [*first, *range(4, 120, 5)]
waiting = [*first, 4, *range(60, 120, 5)]
public = caller("POST", "/tokenize", kind="public")
impatient, calm = trace(retrying, public), trace(waiting, public)
assert len(refused_places(impatient)) > 10
assert len(refused_places(calm)) == 1
strip(pd.concat([impatient.assign(who="every 5 s"), calm.assign(who="Retry-After")]))

# %% [markdown]
# ## From the symptom to the counter
# The limit table says which requests are counted together. So the *other* requests that are refused
# at the same time show which counter is full, even where a deployment answers without headers.

# %%
symptoms = pd.DataFrame(
    [
        {
            "refused is": "one operation; others with the same key pass",
            "counter": "the operation's: LIM-CREATE, LIM-READ, LIM-SEARCH …",
            "what to do": "send several tokens in one request; spread the load over the window",
        },
        {
            "refused is": "every request of the key, from this address alone",
            "counter": "key and address: LIM-PUBLIC, LIM-TEST-TENANT, LIM-LEGACY",
            "what to do": "slow down; give each program a key of its own",
        },
        {
            "refused is": "every request of the key, from every address",
            "counter": "the key: LIM-MANAGEMENT, LIM-PRIVATE",
            "what to do": "give each program a key of its own",
        },
        {
            "refused is": "every key, from this address alone",
            "counter": "the address: LIM-IP, LIM-PRIVATE",
            "what to do": "find the program behind the shared address that sends most",
        },
        {
            "refused is": "everything for some seconds, then all passes again",
            "counter": "a block: LIM-PUBLIC 10 s, LIM-IP 30 s, LIM-MANAGEMENT 60 s",
            "what to do": "stop retrying until Retry-After has passed, then add a random wait",
        },
    ]
).set_index("refused is")
known = {rule.id for rule in LimitTable.default()}
named = {word.strip(",") for text in symptoms["counter"] for word in text.split() if "LIM-" in word}
assert {word.strip(":") for word in named} <= known
blocks = {rule.id: rule.block_ns for rule in LimitTable.default() if rule.block_ns}
assert blocks == {"LIM-PUBLIC": 10**10, "LIM-IP": 3 * 10**10, "LIM-MANAGEMENT": 6 * 10**10}
symptoms

# %% [markdown]
# ## Find the limit that refuses most in a log
# `replay` applies the limits to an access log. Its table of clauses begins with the one that
# refused most. In this log a program tokenizes ten times a second, and another one searches as
# often, which is too often.

# %%
lines = []
for number in range(1_200):
    second = number // 20
    path = "/tokens/search" if number % 2 else "/tokenize"
    stamp = f"17/May/2025:10:{second // 60:02}:{second % 60:02} +0000"
    lines.append(f'192.0.2.7 - - [{stamp}] "POST {path} HTTP/1.1" 200 512')
log = Path(tempfile.mkdtemp()) / "access.log"
size_bytes = log.write_text("\n".join(lines) + "\n", "utf-8")

# %%
result = simulator.replay(log, as_kind="private")
binding = result.clauses.query("refused > 0")
assert list(binding.index) == ["LIM-SEARCH"]
binding[["offered", "refused"]]

# %% [markdown]
# ## What was learnt
# A 429 names its clause and the time to wait, until both the block has ended and the counter has
# room. A retry after the block and before there is room begins the next block. Without headers, the
# requests that are refused together show which counter is full.
#
# ## Exercise
# A private key on a test tenant sends 60 `POST /tokenize` in one second. Which clause refuses it,
# how many requests are refused, and what is `Retry-After` in the last answer?

# %% tags=["answer"]
tester = Engine(seed=7, clock=(tick := ManualClock()))
tested = tester.key_for(tester.create_tenant("Lab", kind="test"), "token:create")
answers = []
for _number in range(60):
    answers.append(tester.ask("POST", "/tokenize", {"name": "Ada"}, key=tested))
    tick.advance_ns(10**9 // 60)
last = answers[-1]
print(
    last.decision.rule, sum(answer.status == 429 for answer in answers), last.headers["Retry-After"]
)
assert last.decision.rule == "LIM-TEST-TENANT"
assert [answer.status for answer in answers] == [200] * 50 + [429] * 10
assert last.headers["Retry-After"] == "10"

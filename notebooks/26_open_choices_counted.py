# %% [markdown]
# # Open choices in what is counted, and how long it takes
# This chapter covers the other half of the profile: how limits count, what a block does, and how
# long destinations, reactors and jobs take. As in chapter 25, each value is tried on a small case,
# and the difference is shown.
#
# Clauses: those that leave a choice, among them LIM-LOWEST, LIM-THROTTLE, LIM-BLOCK,
# LIM-TEST-TENANT, LIM-PUBLIC, LIM-PRIVATE, LIM-READ, LIM-LEGACY, LIM-PROXY-KEY, PRX-TIMEOUT,
# RCT-CODE, RCT-PAYLOAD, RCT-HOT, RCT-TIMEOUT, ACC-FILE.

# %% [markdown]
# **Predict before you read on.** A client sends ten requests a second, the limit is 50 in 10 s, and
# refused requests count too. When is a request admitted again after the first refusal?

# %%
import random
from typing import Any

import altair as alt
import pandas as pd

from engine import (
    DECISIONS,
    CallAnswer,
    Engine,
    Limiter,
    LimitTable,
    ManualClock,
    ModelWorld,
    NodesLimiter,
    Profile,
    Request,
    Response,
    VirtualLoop,
    choices,
)
from simulator import caller, decide, refused, spans, strip, trace

_ = alt.renderers.enable("svg")
pd.set_option("display.max_colwidth", 70)
NS = 10**9
rows: list[dict[str, Any]] = []


def walk(section: str, cases: dict[str, Any]) -> pd.DataFrame:
    """Run each case under every value of its choice; returns what was seen, a row a value.

    cases: field → a case, or (a case, other values). Each value must show another result than the
    default does.
    """
    known = {choice.name: choice for choice in choices() if choice.section == section}
    began = len(rows)
    for name, given in cases.items():
        choice = known[name]
        case, others = given if isinstance(given, tuple) else (given, [])
        first, *rest = choice.trials(case, *others)
        assert rest, f"{choice.path}: another value is needed"
        assert first[2] not in [seen for _, _, seen in rest], f"{choice.path} shows no difference"
        for value, kind, seen in (first, *rest):
            text = ", ".join(map(str, seen)) if isinstance(seen, list | tuple) else str(seen)
            rows.append({"choice": name, "decision": choice.decision, "question": choice.asks})
            rows[-1] |= {"value": value, "is": kind, "seen": text, "path": choice.path}
    index = ["choice", "decision", "question", "value"]
    return pd.DataFrame(rows[began:])[[*index, "is", "seen"]].set_index(index)


def seen_of(path: str, value: str) -> str:
    """Return what was seen under a value."""
    return next(str(row["seen"]) for row in rows if (row["path"], row["value"]) == (path, value))


# %% [markdown]
# ## How a limit counts
# A key on a test tenant may send 50 requests in 10 s. It sends a burst of 50 at 4 s, then ten a
# second. The picture shows the seconds in which requests are refused, and the table below it how
# many. The sliding counter and the token bucket refuse in the same seconds, but not the same
# number. GCRA with its default burst decides as the bucket does.

# %%
tester = caller("POST", "/tokens", tenant="test")
burst = [4.0] * 50 + [4 + n / 10 for n in range(1, 160)]
algorithms = ["sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra"]
pictures = {name: trace(burst, tester, algorithm=name).assign(who=name) for name in algorithms}
assert refused(pictures["gcra"]) == refused(pictures["token-bucket"])
strip(pd.concat(pictures.values()))


# %%
def refused_spans(times: Any, who: Any, **base: Any) -> Any:
    return lambda *, limits: spans(refused(trace(times, who, **{**base, **limits})))


def count_and_spans(times: Any, who: Any) -> Any:
    def case(*, limits: dict[str, Any]) -> str:
        seconds = refused(trace(times, who, **limits))
        return f"{len(seconds)} refused: {spans(seconds)}"

    return case


def last_outcome(*requests: Any, **base: Any) -> Any:
    """Decide requests (how many, at, who) and show what became of the last."""

    def case(*, limits: dict[str, Any]) -> str:
        table = base.get("table") or LimitTable.default()
        limiter = Limiter({"Default": table}, Profile().replace(limits=limits).limits)
        for count, at_s, who in requests:
            for _ in range(count):
                last = limiter.decide(round(at_s * NS), who)
        return f"{last.outcome} {last.rule or ''}".strip()

    return case


def counters(who: Any) -> Any:
    return lambda *, limits: decide([0], who, **limits)[0].counted


def misses(*, limits: dict[str, Any]) -> int:
    """Ask 51 times for a token that does not exist."""
    engine = Engine(profile=Profile().replace(limits=limits), seed=7)
    key = engine.key_for(engine.create_tenant("Acme", "test"), "token:read")
    return [engine.ask("GET", "/tokens/none", key=key).status for _ in range(51)][-1]


def outcomes(*, limits: dict[str, Any]) -> dict[str, int]:
    frame = trace([0.0] * 120, tester, **{"throttle": "delay", **limits})
    return {str(name): int(count) for name, count in frame["outcome"].value_counts().items()}


walk(
    "limits",
    {
        "algorithm": count_and_spans(burst, tester),
        "fixed_anchor": refused_spans(burst, tester, algorithm="fixed-window"),
        "burst_requests": (
            refused_spans([n / 10 for n in range(200)], tester, algorithm="gcra"),
            [1, 10],
        ),
        "edges": last_outcome((50, 0, tester), (1, 10, tester)),
        "count_refused": refused_spans([n / 10 for n in range(300)], tester),
        "counted_statuses": misses,
        "throttle": outcomes,
        "delay_bound_ns": (outcomes, [0, 20 * NS]),
    },
)

# %% [markdown]
# Where refused requests count too, a client that does not slow down is refused to the end of this
# trace. Whether an admission exactly one window ago still counts decides one request.

# %%
counted = [seen_of("limits.algorithm", name) for name in algorithms]
assert len(set(counted[:4])) == 4, "four ways of counting, four answers"
assert counted[4] == counted[3]
assert seen_of("limits.count_refused", "false") == "5-9, 15-19, 25-29"
assert seen_of("limits.count_refused", "true") == "5-29", "to the end"
assert seen_of("limits.edges", "half-open") == "admitted"
assert seen_of("limits.edges", "closed") == "refused LIM-TEST-TENANT"

# %% [markdown]
# ## What a block does
# A public key has a limit of 50 a minute and a block of 10 s (LIM-BLOCK). It sends 51 requests at
# once, then one a second.

# %%
public = caller("POST", "/tokens", kind="public")
crowd = [0.0] * 51 + [float(n) for n in range(1, 150)]
readings: dict[str, dict[str, Any]] = {
    "default": {},
    "refusals extend the block": {"block_extends": True},
    "the counter is cleared": {"block_reset": "clear"},
}
strip(pd.concat([trace(crowd, public, **given).assign(who=who) for who, given in readings.items()]))

# %%
walk(
    "limits",
    {"block_extends": refused_spans(crowd, public), "block_reset": refused_spans(crowd, public)},
)

# %%
assert seen_of("limits.block_reset", "keep") == "0-59, 110-119"
assert seen_of("limits.block_reset", "clear") == "0-9, 60-69, 120-129"
assert seen_of("limits.block_extends", "true") == "0-149", "to the end"

# %% [markdown]
# ## Which counters there are
# Each case fills a counter and then sends one more request, with another key, address or resource.

# %%
fast = [n / 60 for n in range(60)]
legacy = caller("POST", "/tokens", tenant="test", legacy=True)
other_key = caller("POST", "/tokens", tenant="test", key="key-2")
other_ip = caller("POST", "/tokens", tenant="test", ip="203.0.113.8")
without_ip = LimitTable(rules=tuple(rule for rule in LimitTable.default() if rule.id != "LIM-IP"))


def many_addresses(*, limits: dict[str, Any]) -> str:
    engine = Engine(profile=Profile().replace(limits=limits), seed=7)
    asked = [Request("GET", "/tokens", ip=f"192.0.2.{number}") for number in range(30)]
    waiting = [engine.handle(each).status for each in asked].count(503)
    return f"{waiting} of 30 addresses are told to wait"


def neighbours_of_a_key(*, limits: dict[str, Any]) -> str:
    by_key = last_outcome((50, 0, tester), (1, 0, other_key))(limits=limits).partition(" ")[0]
    by_ip = last_outcome((50, 0, tester), (1, 0, other_ip))(limits=limits).partition(" ")[0]
    return f"other key {by_key}, other address {by_ip}"


walk(
    "limits",
    {
        "compose": refused_spans(fast, legacy),
        "or_counter": last_outcome(
            (2000, 0, caller()), (1, 0, caller(key="key-2")), table=without_ip
        ),
        "and_counter": neighbours_of_a_key,
        "or_resource": last_outcome(
            (100, 0, caller("GET", "/tokens")), (1, 0, caller("POST", "/detokenize"))
        ),
        "get_tokens": last_outcome((101, 0, caller("GET", "/tokens/a"))),
        "legacy_class": counters(caller(legacy=True)),
        "proxy_rules": counters(caller(proxy_key="proxy-1")),
        "counters_limit": (many_addresses, [20]),
    },
)


# %%
pair = seen_of("limits.and_counter", "pair")
assert pair == "other key admitted, other address admitted"
assert seen_of("limits.and_counter", "each") == pair.replace("admitted", "refused")

# %% [markdown]
# ## Several nodes
# A public key sends 20 requests a second, and a balancer gives each request to one of three nodes.
# A single counter would admit 50. Each row shows how many are admitted.


# %%
def on_nodes(asked: int = 150, **base: Any) -> Any:
    def case(*, nodes: dict[str, Any]) -> str:
        profile = Profile().replace(nodes={"count": 3, **base, **nodes})
        draw = random.Random(7).random
        tables = {"Default": LimitTable.default()}
        limiter = NodesLimiter(tables, profile.limits, profile.nodes, draw)
        decided = [limiter.decide(n * NS // 20, public) for n in range(asked)]
        return f"{sum(each.admitted for each in decided)} of {asked}"

    return case


public = caller(kind="public")
walk(
    "nodes",
    {
        "count": (on_nodes(sharing="none"), [3]),
        "balance": on_nodes(sharing="none"),
        "sharing": on_nodes(60, balance="random", race_ns=NS),
        "every_ns": (on_nodes(sharing="synced"), [2 * NS]),
        "lag_ns": (on_nodes(sharing="synced"), [NS]),
        "race_ns": (on_nodes(sharing="shared-slow"), [NS]),
    },
)

# %%
assert seen_of("nodes.count", "3") == "150 of 150", "three times the limit"
assert seen_of("nodes.sharing", "exact") == "50 of 60"
assert seen_of("nodes.balance", "address") == "50 of 150", "one address meets one node"
assert seen_of("nodes.race_ns", "1 s") == "69 of 150", "19 more while the race lasts"

# %% [markdown]
# ## Destinations and reactors
# Two invocations come at once, and two more 10 s later. Each case shows when they end, or the
# status and time of a single request.


# %% tags=["setup"]
class Service:
    """An engine without limits, whose destinations and reactors take as long as is said."""

    def __init__(self, takes_s: int = 0, **profile: Any) -> None:
        self.clock = ManualClock()
        world = ModelWorld(
            clock=self.clock,
            seed=7,
            destination=lambda call: (takes_s * NS, CallAnswer(200, {}, call.body)),
            service_ns=lambda _code, _args: takes_s * NS,
        )
        self.engine = Engine(
            world=world, limits=LimitTable(rules=()), profile=Profile().replace(**profile)
        )
        kinds = ("reactor:create", "reactor:invoke", "proxy:create", "account-updater:job:create")
        rights = (*kinds, "account-updater:job:read")
        self.key = self.engine.key_for(self.engine.create_tenant("Acme"), *rights)

    def create(self, path: str, **body: Any) -> Response:
        """Create a reactor, a proxy or a job."""
        return self.engine.ask("POST", path, body, key=self.key)

    def invoke(self, *at_s: float, **args: Any) -> list[tuple[int, float]]:
        """Invoke one reactor at these seconds; returns the status of each, and when it ends."""
        code = "module.exports = (request) => request"
        made = self.create("/reactors", name="enrich", code=code, configuration={})
        path, loop = f"/reactors/{made.body['id']}/react", VirtualLoop(self.clock)
        asked = [
            Request("POST", path, key=self.key, ip="203.0.113.7", body={"args": args}) for _ in at_s
        ]
        tasks = [
            loop.at(round(at * NS), self.engine.submit(request))
            for at, request in zip(at_s, asked, strict=True)
        ]
        loop.run()
        return [(task.result.status, task.ended_ns / NS) for task in tasks]

    def through_proxy(self, body: Any = None) -> tuple[int, float]:
        """Send a body through a proxy; returns the status, and when the caller has it."""
        address = "https://shop.example/charge"
        made = self.create("/proxies", name="pay", destination_url=address)
        answer = self.engine.ask("POST", "/proxy", body, proxy_key=made.body["key"])
        return answer.status, self.clock.now_ns / NS


# %%
def ends(takes_s: int) -> Any:
    def case(**profile: Any) -> str:
        ended = Service(takes_s, **profile).invoke(0, 0, 10, 10)
        return ", ".join(f"{end_s:g} s" for _, end_s in ended)

    return case


def invoked(takes_s: int) -> Any:
    def case(**profile: Any) -> str:
        ((status, end_s),) = Service(takes_s, **profile).invoke(0)
        return f"{status} after {end_s:g} s"

    return case


def proxied(**profile: Any) -> str:
    status, end_s = Service(20, **profile).through_proxy()
    return f"{status} after {end_s:g} s"


def answered_with(size: int) -> Any:
    def case(**profile: Any) -> int:
        return Service(**profile).through_proxy(b"x" * size)[0]

    return case


def code_of(size: int) -> Any:
    def case(**profile: Any) -> int:
        made = Service(**profile).create(
            "/reactors", name="enrich", code="x" * size, configuration={}
        )
        return made.status

    return case


def payload_of(size: int) -> Any:
    def case(**profile: Any) -> int:
        return Service(**profile).invoke(0, text="x" * size)[0][0]

    return case


walk(
    "outside",
    {
        "destination_timeout_ns": (proxied, [10 * NS]),
        "answer_limit_bytes": (answered_with(2000), [1000]),
        "reactor_timeout_ns": (invoked(20), [10 * NS]),
        "reactor_timeout_status": invoked(31),
        "reactor_code_limit": (code_of(2000), [1000]),
        "reactor_payload_limit_bytes": (payload_of(2000), [1000]),
        "hot_concurrency": (ends(1), [0, 2]),
        "cold_start_ns": (ends(1), [3 * NS]),
        "keep_hot_ns": (ends(1), [60 * NS]),
        "instances_cap": (ends(5), [1]),
    },
)


# %%
assert seen_of("outside.cold_start_ns", "1 s") == "1 s, 2 s, 11 s, 12 s"
assert seen_of("outside.keep_hot_ns", "60 s") == "1 s, 2 s, 11 s, 11 s", "the second is hot now"
assert seen_of("outside.instances_cap", "1") == "5 s, 10 s, 15 s, 20 s", "one after another"

# %% [markdown]
# ## The account updater
# A job processes a file of three rows.


# %%
BATCH = b"token,expiration_year,expiration_month\n" + 3 * (
    b"8a0f3f5e-0d5c-4f0e-9d0c-2b8c7b6d5e4f,2030,1\n"
)


def completes(**profile: Any) -> str:
    service = Service(**profile)
    job = service.create("/account-updater/jobs").body
    service.engine.ask("PUT", job["upload_url"], BATCH)
    path = f"/account-updater/jobs/{job['id']}"
    for second in range(1, 60):
        service.clock.advance_ns("1s")
        shown = service.engine.ask("GET", path, key=service.key).body
        if shown["status"] == "completed":
            return f"completed within {second} s"
    return "still processing"


def uploads(after_s: int) -> Any:
    def case(**profile: Any) -> int:
        service = Service(**profile)
        job = service.create("/account-updater/jobs").body
        service.clock.advance_ns(f"{after_s}s")
        return service.engine.ask("PUT", job["upload_url"], BATCH).status

    return case


walk(
    "account_updater",
    {
        "file_limit_bytes": (uploads(0), [100]),
        "upload_valid_ns": (uploads(120), [60 * NS]),
        "job_base_ns": (completes, [10 * NS]),
        "job_row_ns": (completes, [2 * NS]),
    },
)

# %% [markdown]
# ## Every choice was tried
# The list comes from the profile itself. Chapter 25 covers four sections of the profile, and this
# chapter covers the rest.

# %%
before = {"tokens", "dedup", "identity", "http"}
here = {"limits", "nodes", "outside", "account_updater"}
known = choices()
mine = [choice for choice in known if choice.section in here]
tried = {(row["path"], row["value"]) for row in rows}
assert {choice.section for choice in known} == before | here
assert {path for path, _ in tried} == {choice.path for choice in mine}
assert {choice.path for choice in known} == {path for one in DECISIONS for path in one.fields}
assert tried >= {(choice.path, choice.written(value)) for choice in mine for value in choice.listed}
pd.Series({"choices": len(mine), "values tried": len(rows), "choices in all": len(known)}).to_frame(
    "how many"
)

# %%
counts = pd.DataFrame(
    [
        {"section": choice.section, "is": what, "values": len(values)}
        for choice in known
        for what, values in (("permitted", choice.readings), ("study", choice.study))
    ]
)
assert set(counts.groupby("section")["values"].sum().nlargest(2).index) == {"tokens", "limits"}
assert set(counts.query("`is` == 'study' and values > 0")["section"]) == {"limits", "nodes"}
alt.Chart(
    counts,
    width=420,
    description="Listed values beside the default, by section of the profile: the sections limits"
    " and tokens list most; a few values of limits are for study.",
).mark_bar(aria=False).encode(
    x=alt.X("sum(values):Q", title="listed values beside the default"),
    y=alt.Y("section:N", sort="-x", title="section of the profile"),
    color=alt.Color("is:N", title="the value is"),
)

# %% [markdown]
# A choice without listed values is a number or a name; for such a choice, every value but the
# default is permitted.

# %% [markdown]
# ## What was learnt
# How a limit counts, what a block does, and how long destinations, reactors and jobs take are
# choices as well, and the profile holds them.
#
# ## Exercise
# A test tenant sends 120 requests at once, and requests are delayed instead of refused. How many
# are admitted late?

# %% tags=["answer"]
late_ones = trace([0.0] * 120, tester, throttle="delay")["outcome"].value_counts().to_dict()
print(*(f"{count} {outcome}" for outcome, count in late_ones.items()), sep=", ")
assert late_ones["delayed"] > 0

"""A scenario written out and read again is the same scenario, whatever it holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from engine.files import Rate, parse_toml
from simulator.scenario import METRICS, Condition, Scenario, dump, loads, schema
from simulator.scenario.clients import (
    AimdPacing,
    Ask,
    ClientGroup,
    Dealing,
    DecorrelatedJitter,
    ExponentialRetry,
    FixedRetry,
    FullJitter,
    NoRetry,
    TokenBucketPacing,
    TypeWeights,
)
from simulator.scenario.draws import (
    Constant,
    ConstantArrivals,
    DailyArrivals,
    Discrete,
    Exponential,
    Lognormal,
    OnOffArrivals,
    Pareto,
    PoissonArrivals,
    RampArrivals,
    Step,
    StepArrivals,
    Uniform,
)
from simulator.scenario.model import (
    AddressPool,
    Application,
    Proxy,
    Quotas,
    Reactor,
    RuleChange,
    Tenant,
    Threshold,
)

TIME = st.integers(1, 10**15)
RATE = st.builds(Rate, st.integers(1, 10**6), TIME)
PAUSE = st.builds(Rate, st.integers(0, 10**6), TIME)
SHARE = st.floats(0, 1)
WEIGHT = st.floats(0.001, 1e6)
ATTEMPTS = st.integers(1, 100)

DRAW = st.one_of(
    st.builds(Constant, value_ns=TIME),
    st.builds(lambda low, more: Uniform(low_ns=low, high_ns=low + more), TIME, TIME),
    st.builds(Exponential, mean_ns=TIME),
    st.builds(Lognormal, median_ns=TIME, sigma=st.floats(0, 5)),
    st.builds(Pareto, least_ns=TIME, alpha=st.floats(0.1, 5)),
    st.lists(st.tuples(TIME, WEIGHT), min_size=1, max_size=3).map(
        lambda rows: Discrete(
            values_ns=tuple(value for value, _ in rows), weights=tuple(w for _, w in rows)
        )
    ),
)
ARRIVALS = st.one_of(
    st.builds(ConstantArrivals, rate=RATE),
    st.builds(PoissonArrivals, rate=RATE),
    st.dictionaries(TIME, PAUSE, min_size=1, max_size=4).map(
        lambda steps: StepArrivals(
            steps=tuple(Step(at_ns=at, rate=rate) for at, rate in sorted(steps.items()))
        )
    ),
    st.builds(RampArrivals, from_rate=PAUSE, to_rate=PAUSE, over_ns=TIME),
    st.builds(
        DailyArrivals,
        rate=RATE,
        hours=st.lists(WEIGHT, min_size=24, max_size=24).map(tuple),
        day_ns=st.integers(24, 10**15),
    ),
    st.builds(
        OnOffArrivals,
        on_rate=RATE,
        off_rate=PAUSE,
        on_ns=TIME,
        off_ns=TIME,
        begin=st.sampled_from(["on", "either"]),
    ),
)
STATUSES = st.lists(st.integers(400, 599), min_size=1, max_size=3).map(tuple)
COMMON: dict[str, Any] = {
    "attempts": ATTEMPTS,
    "honour_retry_after": st.booleans(),
    "statuses": STATUSES,
}
RETRY = st.one_of(
    st.just(NoRetry()),
    st.builds(FixedRetry, delay_ns=TIME, **COMMON),
    *(
        st.builds(cls, base_ns=st.integers(1, 10**9), cap_ns=st.integers(10**9, 10**12), **COMMON)
        for cls in (ExponentialRetry, FullJitter, DecorrelatedJitter)
    ),
)
PACING = st.one_of(
    st.none(),
    st.builds(TokenBucketPacing, rate=RATE, burst=st.integers(1, 100)),
    st.builds(
        AimdPacing,
        start=st.just(Rate(5, 10**9)),
        maximum=st.just(Rate(50, 10**9)),
        increase=st.floats(0.001, 10),
        decrease_percent=st.integers(1, 99),
    ),
)
DEALING = st.builds(
    Dealing, zipf=st.none() | st.floats(0, 3), per=st.sampled_from(["client", "request"])
)
ASK = st.one_of(
    st.builds(
        Ask,
        request=st.sampled_from(["POST /tokenize", "POST /detokenize", "GET /tokens?size=3"]),
        weight=WEIGHT,
        tokens=st.integers(0, 5),
        tokens_max=st.none() | st.integers(5, 50),
        types=st.builds(TypeWeights, token=WEIGHT, card=WEIGHT),
        shape=st.sampled_from([None, "array", "composite"]),
        duplicate_share=SHARE,
        invalid_share=SHARE,
        cvc=st.booleans(),
        pick=st.sampled_from(["newest", "oldest", "uniform"]),
        size_bytes=st.integers(0, 10**9),
    ),
    st.just(Ask(request="POST /proxy/x", proxy="psp", via="host")),
    st.just(Ask(request="POST /reactors/{id}/react", reactor="enrich")),
    st.just(Ask(request="POST /account-updater/jobs", size_bytes=75_000_000, split=True)),
)


def _clients(name: str) -> st.SearchStrategy[ClientGroup]:
    common: dict[str, Any] = {
        "name": st.just(name),
        "count": st.integers(0, 1000),
        "applications": st.sampled_from([("shop",), ("shop", "old")]),
        "keys": DEALING,
        "addresses": st.sampled_from([None, "office"]),
        "mix": st.lists(ASK, min_size=1, max_size=3).map(tuple),
        "retry": RETRY,
        "pacing": PACING,
        "concurrency": st.none() | st.integers(1, 10),
        "deadline_ns": st.none() | TIME,
        "service": DRAW,
    }
    return st.one_of(
        st.builds(ClientGroup, loop=st.just("closed"), think=DRAW, **common),
        st.builds(ClientGroup, loop=st.just("open"), arrivals=ARRIVALS, **common),
    )


LABELS = st.sampled_from([(), (("client", "web"),), (("clause", "LIM-IP"), ("tenant", "acme"))])
COMPARES = st.sampled_from(["<=", ">=", "<", ">", "==", "!="])


def _conditions(name: str) -> st.SearchStrategy[Condition]:
    """Return conditions on a metric, with bounds that its values can have."""
    least, most = int(METRICS[name].least), int(min(METRICS[name].most, 10**12))
    bound = st.integers(least, most).map(float)
    return st.builds(Condition, metric=st.just(name), labels=LABELS, compare=COMPARES, bound=bound)


CONDITION = st.sampled_from(sorted(METRICS)).flatmap(_conditions)
QUOTAS = st.builds(
    Quotas,
    tokenize_limit=st.none() | st.integers(0, 1000),
    detokenize_limit=st.none() | st.integers(0, 1000),
    cvc_retention_ns=st.none() | TIME,
    log_retention_ns=st.none() | TIME,
    token_intent_retention_ns=st.none() | TIME,
    rate_limit=st.sampled_from([None, "Default"]),
)
QUESTION = st.text(st.sampled_from("abc é?#="), max_size=150).map(
    lambda text: " ".join(text.split())
)
SCENARIOS = st.builds(
    Scenario,
    name=st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True),
    question=QUESTION,
    answer=QUESTION,
    duration_ns=st.integers(10**12, 10**15),
    warm_up_ns=st.integers(0, 10**11),
    seed=st.integers(0, 2**63 - 1),
    start_time_ns=st.integers(0, 10**15).map(lambda us: us * 1000),
    rules=st.dictionaries(
        st.sampled_from(["LIM-PUBLIC", "LIM-IP"]),
        st.builds(
            RuleChange,
            rate=st.none() | st.builds(Rate, st.integers(1, 1000), st.integers(1, 10**11)),
            block_ns=st.none() | st.integers(1, 10**12),
            shadow=st.sampled_from([None, True, False]),
            off=st.booleans(),
        ),
        max_size=2,
    ),
    choices=st.sampled_from([{}, {"limits": {"algorithm": "gcra", "delay_bound": "3s"}}]),
    tenants=st.builds(
        Tenant,
        name=st.just("acme"),
        kind=st.sampled_from(["test", "production"]),
        quotas=QUOTAS,
        settings=st.dictionaries(st.text(max_size=5), st.booleans(), max_size=2),
    ).map(lambda tenant: (tenant,)),
    applications=st.just(
        (
            Application(name="shop", tenant="acme", kind="public", keys=3),
            Application(name="old", tenant="acme", legacy_keys=1),
        )
    ),
    addresses=st.builds(
        AddressPool, name=st.just("office"), count=st.integers(1, 200), deal=DEALING
    ).map(lambda pool: (pool,)),
    proxies=st.builds(
        Proxy,
        name=st.just("psp"),
        tenant=st.just("acme"),
        host=st.just("pay.example"),
        destination=DRAW,
        unreachable_share=SHARE,
        request_transform=st.none() | DRAW,
    ).map(lambda proxy: (proxy,)),
    reactors=st.builds(Reactor, name=st.just("enrich"), tenant=st.just("acme"), service=DRAW).map(
        lambda reactor: (reactor,)
    ),
    clients=st.tuples(_clients("web"), _clients("batch")),
    thresholds=st.lists(st.builds(Threshold, that=CONDITION), max_size=2).map(tuple),
)


@pytest.mark.slow
@given(scenario=SCENARIOS)
def test_a_scenario_written_out_reads_back_equal_and_obeys_the_schema(scenario: Scenario) -> None:
    text = dump(scenario)

    assert loads(text) == scenario
    assert dump(loads(text)) == text
    SCHEMA.validate(parse_toml(text, "x").value)


SCHEMA = Draft202012Validator(schema())

"""What the chapters state in general holds for drawn inputs, not for their own numbers alone.

Each test is named after its chapter and restates the chapter's sentence from the definition. More
of them are in `test_statements_on_…`.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any, get_args

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator
from engine import Decision, Engine, Limiter, LimitTable, ManualClock, Profile
from engine.limits import Subject
from engine.profile import Algorithm
from simulator import caller, decide, load, trace, with_value
from tests.notebooks._drawn import FEW, PUBLIC, SECOND_NS, alone, rates, times_s

NUMBERS = ("4242424242424242", "5555555555554444")


@given(times=times_s, rate=rates, block_s=st.integers(1, 4))
def test_00_the_wait_is_the_later_of_the_blocks_end_and_room(
    times: list[Fraction], rate: tuple[int, int], block_s: int
) -> None:
    requests, window_s = rate
    table = alone("LIM-PUBLIC", rate, block_s)
    decisions = decide(times, PUBLIC, table=table)
    refused = next((n for n, one in enumerate(decisions) if not one.admitted), None)
    if refused is None:
        return
    now, before = times[refused], times[:refused]
    room = before[-requests] + window_s
    wait = max(now + block_s, room) - now
    assert Fraction(decisions[refused].wait_ns, SECOND_NS) == wait
    until = now + wait
    instant = Fraction(1, SECOND_NS)
    patient = [*before, now, until]
    assert decide(patient, PUBLIC, table=table)[-1].admitted
    hasty = [*before, now, until - instant]
    assert not decide(hasty, PUBLIC, table=table)[-1].admitted
    if room > now + block_s:
        retried = decide([*before, now, now + block_s, until], PUBLIC, table=table)
        begins_anew = retried[-2:]
        assert begins_anew[0].outcome == "blocked"
        assert begins_anew[1].admitted == (block_s <= until - now - block_s)


names = st.text("abc", min_size=1, max_size=3)
typed = st.fixed_dictionaries({"type": st.just("token"), "data": st.text("xyz", min_size=1)})
bodies = st.recursive(
    st.one_of(st.text("xyz", min_size=1), typed),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(names, inner, min_size=1, max_size=3),
    ),
    max_leaves=8,
).filter(lambda body: not isinstance(body, str))


def shape(value: Any, leaf: str) -> Any:
    """Return a value with a word in place of each string, and of each object with `type`."""
    if isinstance(value, str):
        return leaf
    if isinstance(value, list):
        return [shape(item, leaf) for item in value]
    if "type" in value:
        return "a record"
    return {name: shape(item, leaf) for name, item in value.items()}


@FEW
@given(body=bodies, number=st.integers())
def test_01_the_structure_of_a_body_is_the_callers_and_stays(body: Any, number: int) -> None:
    engine = Engine(seed=7)
    acme = engine.create_tenant("Acme")
    engine.set_quota(acme, "Tokenize Limit", 100)
    key = engine.key_for(acme, "token:create", "token:read")
    answer = engine.ask("POST", "/tokenize", body, key=key)
    assert answer.status == 200, answer.body
    assert shape(answer.body, "x") == shape(body, "x")
    created = len(engine.ask("GET", "/tokens?size=100", key=key).body["data"])
    assert engine.ask("POST", "/tokenize", [body, number], key=key).status == 400
    assert len(engine.ask("GET", "/tokens?size=100", key=key).body["data"]) == created


@FEW
@given(number=st.text("0123456789", min_size=12, max_size=19), place=st.integers(0, 6))
def test_02_no_error_quotes_what_was_sent(number: str, place: int) -> None:
    card = {"number": NUMBERS[0], "expiration_month": 12, "expiration_year": 2030}
    bodies: list[Any] = [
        {"type": "card", "data": {**card, "number": number + "x"}},
        {"type": "card", "data": {**card, "cvc": number}},
        {"type": "card", "data": {**card, number: 1}},
        {"type": "token", "data": "x", "metadata": {number: 1}},
        {"type": "token", "data": "x", number: "y"},
        {number: 1},
        {"type": number},
    ]
    engine = Engine(seed=7)
    key = engine.key_for(engine.create_tenant("Acme"), "token:create")
    refused = engine.ask("POST", "/tokenize", [bodies[place]], key=key)
    assert refused.status == 400
    assert number not in json.dumps(refused.body)


containers = st.lists(st.sampled_from(["pci", "pcix", "high", "low"]), max_size=3).map(
    lambda steps: "/" + "".join(f"{step}/" for step in steps)
)


@FEW
@given(grants=st.lists(containers, min_size=1, max_size=3), destinations=st.data())
def test_03_a_key_needs_its_permission_on_every_destination(
    grants: list[str], destinations: st.DataObject
) -> None:
    places = destinations.draw(
        st.lists(containers.filter(lambda path: path != "/"), min_size=1, max_size=4)
    )
    engine = Engine(seed=7)
    acme = engine.create_tenant("Acme")
    granted = [(path, {"token:create"}) for path in dict.fromkeys(grants)]
    key = engine.create_key(engine.create_application(acme, "app", grants=granted))
    body = [{"type": "token", "data": "x", "containers": [place]} for place in places]
    covered = all(any(place.startswith(path) for path in grants) for place in places)
    assert engine.ask("POST", "/tokenize", body, key=key).status == (200 if covered else 403)


cards = st.fixed_dictionaries(
    {
        "number": st.sampled_from(NUMBERS),
        "expiration_month": st.sampled_from([1, 12]),
        "expiration_year": st.sampled_from([2030, 2035]),
    },
    optional={"cvc": st.sampled_from(["123", "456"])},
)
notes = st.dictionaries(names, st.text("xyz"), max_size=2)


@FEW
@given(card=cards, again=cards, note=notes, other=notes)
def test_04_without_read_a_duplicate_lacks_data_and_metadata_alone(
    card: dict[str, Any], again: dict[str, Any], note: dict[str, str], other: dict[str, str]
) -> None:
    engine = Engine(seed=7)
    acme = engine.create_tenant("Acme", settings={"deduplicate_tokens": True})
    reader = engine.key_for(acme, "token:create", "token:read")
    creator = engine.key_for(acme, "token:create")
    again = {**again, "number": card["number"]}

    def record(data: dict[str, Any], metadata: dict[str, str], key: str) -> dict[str, Any]:
        body = {"type": "card", "data": data, "metadata": metadata}
        return dict(engine.ask("POST", "/tokenize", body, key=key).body)

    record(card, note, reader)
    read, redacted = record(again, other, reader), record(again, other, creator)
    assert redacted == {k: v for k, v in read.items() if k not in {"data", "metadata"}}
    assert read["metadata"] == note
    assert read["data"]["expiration_year"] == card["expiration_year"], "the stored one's"


@FEW
@given(first=cards, second=cards, expression=st.sampled_from(["{{ data }}", "{{ data.number }}"]))
def test_05_equal_fingerprints_mean_that_the_selected_parts_are_equal(
    first: dict[str, Any], second: dict[str, Any], expression: str
) -> None:
    engine = Engine(seed=7)
    acme, other = engine.create_tenant("Acme"), engine.create_tenant("Other")
    key, stranger = (engine.key_for(tenant, "token:create") for tenant in (acme, other))

    def fingerprint(data: Any, kind: str, key: str) -> str:
        body = {"type": kind, "data": data, "fingerprint_expression": expression}
        return str(engine.ask("POST", "/tokenize", body, key=key).body["fingerprint"])

    def selected(card: dict[str, Any]) -> Any:
        whole = {name: value for name, value in card.items() if name != "cvc"}
        return whole if expression == "{{ data }}" else card["number"]

    prints = [fingerprint(card, "card", key) for card in (first, second)]
    assert (prints[0] == prints[1]) == (selected(first) == selected(second))
    assert fingerprint(first, "card", stranger) != prints[0], "another tenant"


@FEW
@given(limit=st.integers(1, 8), strings=st.integers(1, 10), invalid=st.none() | st.integers(0, 10))
def test_06_all_of_a_request_is_created_or_none_of_it(
    limit: int, strings: int, invalid: int | None
) -> None:
    engine = Engine(seed=7)
    acme = engine.create_tenant("Acme")
    engine.set_quota(acme, "Tokenize Limit", limit)
    key = engine.key_for(acme, "token:create", "token:read")
    body: list[Any] = [f"text {n}" for n in range(strings)]
    if invalid is not None:
        body.insert(invalid, {"type": "visa"})
    is_valid = invalid is None and strings <= limit
    assert engine.ask("POST", "/tokenize", body, key=key).status == (200 if is_valid else 400)
    created = engine.ask("GET", "/tokens?size=100", key=key).body["data"]
    assert len(created) == (strings if is_valid else 0)


@FEW
@given(at_first=st.integers(1, 20), later=st.integers(1, 20), steps=st.lists(st.integers(0, 7)))
def test_07_a_cvc_has_a_deadline_and_a_log_entry_an_age(
    at_first: int, later: int, steps: list[int]
) -> None:
    clock = ManualClock()
    engine = Engine(clock=clock, seed=7)
    acme = engine.create_tenant("Acme")
    key = engine.key_for(acme, "token:create", "token:read", "log:read")
    for quota in ("CVC Retention", "Log Retention"):
        engine.set_quota(acme, quota, f"{at_first}s")
    card = {"type": "card", "data": {"number": NUMBERS[0], "cvc": "123"}}
    token = engine.ask("POST", "/tokenize", card, key=key).body["id"]
    for quota in ("CVC Retention", "Log Retention"):
        engine.set_quota(acme, quota, f"{later}s")
    age, written = 0, [0]
    for step in steps:
        clock.advance_ns(f"{step}s")
        age += step
        entries = engine.ask("GET", "/logs", key=key).body["data"]
        assert len(entries) == sum(age - second < later for second in written)
        shown = engine.ask("POST", "/detokenize", [f"{{{{ {token} }}}}"], key=key).body[0]
        assert ("cvc" in shown) == (age < at_first)
        written.append(age)


@given(times=times_s, rates=st.tuples(rates, rates, rates))
def test_09_the_first_full_rule_refuses_and_no_rule_counts_what_is_refused(
    times: list[Fraction], rates: tuple[tuple[int, int], ...]
) -> None:
    rules = dict(zip(("LIM-TEST-TENANT", "LIM-CREATE", "LIM-LEGACY"), rates, strict=True))
    table = LimitTable(rules=tuple(alone(name, rate)[name] for name, rate in rules.items()))
    who = caller("POST", "/tokens", tenant="test", legacy=True)
    admitted: list[Fraction] = []
    for now, decision in zip(times, decide(times, who, table=table), strict=True):
        full = {
            name
            for name, (requests, window_s) in rules.items()
            if sum(now - window_s < then for then in admitted) >= requests
        }
        assert set(decision.refusing) == full
        if decision.admitted:
            admitted.append(now)


@FEW
@given(times=times_s, rate=rates, who=st.data())
def test_09_the_address_counter_of_private_keys_is_never_full_alone(
    times: list[Fraction], rate: tuple[int, int], who: st.DataObject
) -> None:
    table = LimitTable(
        rules=(
            alone("LIM-PRIVATE", rate)["LIM-PRIVATE"],
            alone("LIM-IP", rate, block_s=2)["LIM-IP"],
        )
    )
    callers = st.sampled_from([caller(kind=None, key=None), caller(), caller(key="key-2")])
    limiter = Limiter({"Default": table}, Profile().limits)
    for now in times:
        decision = limiter.decide(int(now * SECOND_NS), who.draw(callers))
        if "LIM-PRIVATE.ip" in decision.refusing:
            assert decision.rule == "LIM-IP"


def most_in_a_window(times: list[Fraction], decisions: list[Decision], window_s: int) -> int:
    """Return the most admissions in any window (t - window, t]."""
    passed = [now for now, one in zip(times, decisions, strict=True) if one.admitted]
    return max(sum(end - window_s < then <= end for then in passed) for end in passed)


@given(times=times_s, rate=rates)
def test_10_each_algorithm_keeps_to_its_worst_case(
    times: list[Fraction], rate: tuple[int, int]
) -> None:
    requests, window_s = rate
    table = alone("LIM-PUBLIC", rate)
    decided = {
        name: decide(times, PUBLIC, table=table, algorithm=name) for name in get_args(Algorithm)
    }
    most = {name: most_in_a_window(times, it, window_s) for name, it in decided.items()}
    assert most["sliding-log"] <= requests
    assert most["fixed-window"] <= 2 * requests
    assert most["sliding-counter"] <= 2 * requests
    assert most["token-bucket"] <= 2 * requests - 1
    assert most["gcra"] == most["token-bucket"]
    passed = [[one.admitted for one in decided[name]] for name in ("gcra", "token-bucket")]
    assert passed[0] == passed[1], "GCRA with the same burst decides as the bucket does"


@given(times=times_s, rate=rates, block_s=st.integers(1, 4))
def test_11_a_block_always_lasts_its_time_and_the_counter_slides_on(
    times: list[Fraction], rate: tuple[int, int], block_s: int
) -> None:
    requests, window_s = rate
    decisions = decide(times, PUBLIC, table=alone("LIM-PUBLIC", rate, block_s))
    admitted: list[Fraction] = []
    until = Fraction(-1)
    for now, decision in zip(times, decisions, strict=True):
        is_full = sum(now - window_s < then for then in admitted) >= requests
        assert decision.admitted == (now >= until and not is_full)
        if decision.admitted:
            admitted.append(now)
        elif now >= until:
            until = now + block_s


@settings(max_examples=15)
@given(times=times_s, rate=rates, addresses=st.data())
def test_16_a_replay_decides_each_line_as_the_limits_do(
    times: list[Fraction], rate: tuple[int, int], addresses: st.DataObject
) -> None:
    ips = ["203.0.113.7", "203.0.113.8", "203.0.113.9"]
    drawn = [addresses.draw(st.sampled_from(ips)) for _ in times]
    start = pd.Timestamp("2026-03-02T09:00:00Z")
    log = pd.DataFrame(
        {
            "time": [start + pd.Timedelta(float(now), "s") for now in times],
            "ip": drawn,
            "key": "page",
            "method": "POST",
            "path": "/tokens",
        }
    )
    table = alone("LIM-PUBLIC", rate, block_s=1)
    plain, hidden = (
        simulator.replay(log, as_kind="public", limits=table, pseudonymise=hides)
        for hides in (False, True)
    )
    by_ip: dict[str, list[str]] = {}
    for ip in ips:
        asked = [now for now, its in zip(times, drawn, strict=True) if its == ip]
        who: Subject = caller("POST", "/tokens", kind="public", ip=ip)
        by_ip[ip] = list(trace(asked, who, table=table)["outcome"]) if asked else []
    assert list(plain.requests["outcome"]) == [by_ip[ip].pop(0) for ip in drawn]
    assert list(hidden.requests["outcome"]) == list(plain.requests["outcome"])


@pytest.mark.slow
@settings(max_examples=10)
@given(people=st.integers(1, 60), spare=st.integers(0, 20), seed=st.integers(0, 1_000))
def test_18_people_who_wait_exactly_a_window_are_never_refused(
    people: int, spare: int, seed: int
) -> None:
    scenario = load(
        f"""
        duration = "5m"
        seed = {seed}
        tenants = [{{ name = "acme" }}]
        applications = [{{ name = "page", tenant = "acme", kind = "public" }}]
        addresses = [{{ name = "office" }}]
        [[clients]]
        name = "people"
        count = {people}
        application = "page"
        addresses = "office"
        think = {{ kind = "constant", value = "1m" }}
        """
    )
    at_most = with_value(scenario, "rules.LIM-PUBLIC.rate", f"{people + spare}/1m")
    result = simulator.run(at_most, fidelity="limits", progress=False)
    assert result.summary["totals"]["refused"] == 0
    assert result.summary["totals"]["offered"] >= 4 * people

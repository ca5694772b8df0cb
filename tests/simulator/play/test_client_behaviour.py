"""What a client does, step by step, to the instant: loops, retries, pacing, bounds, deadlines."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import simulator
from simulator.play.simulation import Fidelity
from simulator.rows import Result
from simulator.study.runs import run

MS = 1_000_000
S = 1_000_000_000

HEAD = """
duration = "{duration}"
[rules.LIM-PUBLIC]
rate = "{rate}"
action = "throttle"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
"""


def play(
    group: str, *, rate: str = "50/1m", duration: str = "10s", fidelity: str = "limits"
) -> Result:
    """Run one group of clients of a public key, whose limit is given."""
    text = HEAD.replace("{duration}", duration).replace("{rate}", rate)
    client = '[[clients]]\nname = "c"\napplication = "a"\n'
    result = run(text + client + group, fidelity=fidelity)  # type: ignore[arg-type] # reason: parametrised
    assert result.violations == ()
    return result


def trace(result: Result) -> list[tuple[int, int, str]]:
    """Return (ms, attempt, outcome's first letter) of each row."""
    return [
        (row["t_ns"] // MS, row["attempt"], row["outcome"][0]) for row in result.table.to_pylist()
    ]


def counts(result: Result) -> tuple[int, ...]:
    """Return how many requests began, and succeeded, failed and are pending of these."""
    totals = result.summary["totals"]
    names = ("requests", "succeeded", "failed", "requests_pending")
    return tuple(totals[name] for name in names)


def closed(think: str, service: str = "0s") -> str:
    return (
        f'think = {{ kind = "constant", value = "{think}" }}\n'
        f'service = {{ kind = "constant", value = "{service}" }}\n'
    )


def open_loop(rate: str, service: str = "0s") -> str:
    return (
        f'loop = "open"\narrivals = {{ kind = "constant", rate = "{rate}" }}\n'
        f'service = {{ kind = "constant", value = "{service}" }}\n'
    )


FIDELITIES = pytest.mark.parametrize("fidelity", ["limits", "engine"])


@FIDELITIES
def test_a_closed_loop_thinks_asks_and_waits(fidelity: str) -> None:
    found = play(closed("2s", "500ms"), fidelity=fidelity)
    assert trace(found) == [(2_000, 1, "a"), (4_500, 1, "a"), (7_000, 1, "a"), (9_500, 1, "a")]
    assert found.requests["latency_ns"].tolist() == [500 * MS] * 4
    assert found.summary["totals"]["requests"] == 4


@FIDELITIES
def test_loops_of_one_client_share_its_key(fidelity: str) -> None:
    found = play(closed("3s", "1s") + "concurrency = 2\n", fidelity=fidelity)
    assert trace(found) == [(3_000, 1, "a")] * 2 + [(7_000, 1, "a")] * 2
    assert set(found.requests["client"]) == {0}


@FIDELITIES
def test_an_open_loop_does_not_wait_unless_it_is_bound(fidelity: str) -> None:
    assert len(play(open_loop("1/1s", "3s"), fidelity=fidelity).requests) == 10
    bound = play(open_loop("1/1s", "3s") + "concurrency = 1\n", fidelity=fidelity)
    assert trace(bound) == [(ms, 1, "a") for ms in (0, 3_000, 6_000, 9_000)]
    two = play(open_loop("2/1s", "3s") + "concurrency = 2\n", fidelity=fidelity)
    assert [ms for ms, _, _ in trace(two)] == [0, 500, 3_000, 3_500, 6_000, 6_500, 9_000, 9_500]


@FIDELITIES
def test_arrivals_that_wait_for_a_place_count_from_their_arrival(fidelity: str) -> None:
    """Coordinated omission: five arrivals a second for 60 s, one at a time, a second each."""
    bound = open_loop("5/1s", "1s") + "concurrency = 1\n"
    found = play(bound, rate="99/1m", duration="60s", fidelity=fidelity)
    assert counts(found) == (300, 59, 0, 241)
    waits_ns = [(k + 1) * S - k * 200 * MS for k in range(60)]  # the k-th is sent at k s
    assert found.requests["latency_ns"].tolist() == waits_ns
    stopped = play(bound + 'stop = "30s"\n', rate="99/1m", duration="60s", fidelity=fidelity)
    assert counts(stopped) == (150, 30, 0, 120)


@FIDELITIES
def test_who_waits_for_a_place_until_its_deadline_is_not_sent(fidelity: str) -> None:
    """Each second five arrive; the place is free once a second, for the oldest in time."""
    bound = open_loop("5/1s", "1s") + 'concurrency = 1\ndeadline = "1500ms"\nstop = "3s"\n'
    found = play(bound, duration="10s", fidelity=fidelity)
    # Sent at 0 s, at 1 s the arrival of 0.2 s, which is answered too late, at 2 s that of 0.6 s:
    # that of 0.4 s had until 1.9 s. Deadlines of 3 s and later come after the stop.
    assert trace(found) == [(0, 1, "a"), (1_000, 1, "a"), (2_000, 1, "a")]
    assert counts(found) == (15, 1, 7, 7)


@FIDELITIES
def test_retry_after_is_waited_for_in_whole_seconds(fidelity: str) -> None:
    retry = 'retry = { kind = "fixed", delay = "100ms", attempts = 3 }\n'
    # One request in 2.3 s: the second, at 1 s, is told 1.3 s, which the header says as 2.
    found = play(
        open_loop("1/1s") + 'stop = "3500ms"\n' + retry, rate="1/2300ms", fidelity=fidelity
    )
    assert trace(found) == [
        (0, 1, "a"),
        (1_000, 1, "r"),
        (2_000, 1, "r"),
        (3_000, 1, "a"),
        (3_000, 2, "r"),
        (3_000, 2, "r"),
    ]
    assert found.requests["wait_ns"].tolist()[1] == 1_300 * MS


@FIDELITIES
def test_who_is_told_no_time_waits_its_own(fidelity: str) -> None:
    """D-429-HEADERS: a service may leave `Retry-After` out; then there is nothing to honour."""
    retry = 'retry = { kind = "fixed", delay = "100ms", attempts = 2 }\n'
    group = open_loop("1/1s") + 'stop = "1500ms"\n' + retry
    silent = "[choices.http]\nretry_after = false\n"
    text = HEAD.replace("{duration}", "5s").replace("{rate}", "1/1h")
    client = '[[clients]]\nname = "c"\napplication = "a"\n'
    told = run(text + client + group, fidelity=fidelity)  # type: ignore[arg-type] # reason: parametrised
    untold = run(text + silent + client + group, fidelity=fidelity)  # type: ignore[arg-type] # reason: parametrised
    assert [ms for ms, _, _ in trace(told)] == [0, 1_000]
    assert [ms for ms, _, _ in trace(untold)] == [0, 1_000, 1_100]


@FIDELITIES
def test_without_retry_after_the_backoff_alone_counts(fidelity: str) -> None:
    retry = (
        'retry = { kind = "exponential", base = "100ms", cap = "250ms", attempts = 4, '
        "honour_retry_after = false }\n"
    )
    group = open_loop("2/1s") + 'stop = "1s"\n' + retry
    found = play(group, rate="1/10s", fidelity=fidelity)
    assert trace(found) == [
        (0, 1, "a"),
        (500, 1, "r"),
        (600, 2, "r"),
        (800, 3, "r"),
    ]  # the fourth would begin at 1.05 s, after the stop
    longer = play(group.replace('"1s"\nretry', '"10s"\nretry'), rate="1/10s", duration="900ms")
    assert longer.summary["totals"]["requests"] == 2


@FIDELITIES
def test_a_client_gives_up_after_its_attempts(fidelity: str) -> None:
    retry = 'retry = { kind = "fixed", delay = "1s", attempts = 3, honour_retry_after = false }\n'
    found = play(closed("4s") + retry, rate="1/1h", duration="20s", fidelity=fidelity)
    assert trace(found) == [
        (4_000, 1, "a"),
        *((8_000 + ms, n, "r") for ms, n in ((0, 1), (1_000, 2), (2_000, 3))),
        *((14_000 + ms, n, "r") for ms, n in ((0, 1), (1_000, 2), (2_000, 3))),
    ]
    totals = found.summary["totals"]
    assert (totals["requests"], totals["succeeded"]) == (3, 1)


@FIDELITIES
def test_a_deadline_ends_retries_and_late_answers_are_no_success(fidelity: str) -> None:
    retry = 'retry = { kind = "fixed", delay = "1s", attempts = 9, honour_retry_after = false }\n'
    group = open_loop("1/5s") + 'deadline = "2500ms"\n' + retry
    found = play(group, rate="1/1h", fidelity=fidelity)
    assert [ms for ms, _, _ in trace(found)] == [0, 5_000, 6_000, 7_000]
    late = play(open_loop("1/5s", "3s") + 'deadline = "2500ms"\n', fidelity=fidelity)
    totals = late.summary["totals"]
    assert (totals["requests"], totals["succeeded"], totals["admitted"]) == (2, 0, 2)


@FIDELITIES
def test_a_token_bucket_paces_first_come_first_served(fidelity: str) -> None:
    pacing = 'pacing = { kind = "token-bucket", rate = "1/1s", burst = 2 }\n'
    found = play(open_loop("4/1s") + 'stop = "5s"\n' + pacing, fidelity=fidelity)
    assert [ms for ms, _, _ in trace(found)] == [0, 250, 1_000, 2_000, 3_000, 4_000]
    assert found.summary["totals"]["refused"] == 0


@FIDELITIES
def test_aimd_slows_down_after_a_refusal_and_speeds_up_after_an_answer(fidelity: str) -> None:
    pacing = (
        'pacing = { kind = "aimd", start = "1/1s", maximum = "8/1s", increase = 1.0, '
        "decrease_percent = 50 }\n"
    )
    found = play(closed("1ms") + pacing, rate="3/1h", duration="5s", fidelity=fidelity)
    # Gaps of 1/2, 1/3, then a refusal halves 4 (after three answers) to 2, to 1, to 1/2.
    starts = [ms for ms, _, _ in trace(found)]
    assert starts == [1, 501, 834, 1_084, 1_584, 2_584, 4_584]


@FIDELITIES
def test_start_and_stop_bound_a_group(fidelity: str) -> None:
    group = open_loop("1/1s") + 'start = "2500ms"\nstop = "5500ms"\n'
    assert [ms for ms, _, _ in trace(play(group, fidelity=fidelity))] == [2_500, 3_500, 4_500]
    late = play(closed("1s", "500ms") + 'start = "2s"\nstop = "5s"\n', fidelity=fidelity)
    assert [ms for ms, _, _ in trace(late)] == [3_000, 4_500]


def test_the_end_is_excluded_and_what_is_under_way_is_answered() -> None:
    found = play(open_loop("1/1s", "5s"), duration="3s")
    assert [ms for ms, _, _ in trace(found)] == [0, 1_000, 2_000]
    assert (found.requests["latency_ns"] == 5 * S).all()


def test_at_one_instant_the_lower_client_number_comes_first() -> None:
    found = play(open_loop("1/1s") + "count = 3\n", rate="1/1ms")
    assert found.requests["client"].tolist() == [0, 1, 2] * 10


@pytest.mark.parametrize("fidelity", ["engine", "limits", "compiled"])
def test_delayed_beyond_the_end_is_pending(fidelity: Fidelity) -> None:
    text = HEAD.replace("{duration}", "3s").replace("{rate}", "1/2s")
    client = '[[clients]]\nname = "c"\napplication = "a"\n' + open_loop("1/1s")
    result = run(text + '[choices.limits]\nthrottle = "delay"\n' + client, fidelity=fidelity)
    totals = result.summary["totals"]
    assert result.requests["wait_ns"].tolist() == [0, S, 2 * S]
    assert (totals["offered"], totals["admitted"], totals["pending"]) == (3, 2, 1)


MIXED = """
    think = { kind = "exponential", mean = "100ms" }
    count = 4
    mix = [
        { request = "POST /tokenize", tokens_max = 7, shape = "composite", invalid_share = 0.1 },
        { request = "POST /tokenize", types = { card = 1 }, duplicate_share = 0.5 },
        { request = "POST /tokenize", tokens = 2 },
        { request = "POST /tokens", types = { token = 1, card = 1 }, duplicate_share = 0.3 },
        { request = "DELETE /tokens/{id}", pick = "uniform" },
        { request = "PATCH /tokens/{id}", pick = "oldest" },
        { request = "GET /tokens/{id}" },
        { request = "POST /detokenize", tokens = 3, tokens_max = 6, pick = "uniform" },
        { request = "POST /tokens/search", pick = "uniform" },
        { request = "POST /token-intents" },
    ]
"""


@pytest.mark.parametrize("deduplicate", ["true", "false"])
def test_bodies_reach_every_answer_and_tokens_are_conserved(deduplicate: str) -> None:
    text = HEAD.replace("{duration}", "40s").replace("{rate}", "10000/1m")
    text = text.replace(
        'name = "t"', f'name = "t"\nsettings = {{ deduplicate_tokens = {deduplicate} }}'
    )
    text = text.replace('kind = "public"', 'kind = "private"')
    result = run(text + '[[clients]]\nname = "c"\napplication = "a"\n' + MIXED)
    assert result.violations == ()
    assert "tokens" in result.summary["checks"]["invariants"]
    frame = result.requests
    seen = {
        (method, path, status)
        for method, path, status in zip(
            frame["method"], frame["path"], frame["status"].astype(int), strict=True
        )
    }
    assert {
        ("POST", "/tokenize", 200),
        ("POST", "/tokenize", 400),
        ("POST", "/tokens", 201),
        ("DELETE", "/tokens/{id}", 204),
        ("PATCH", "/tokens/{id}", 200),
        ("GET", "/tokens/{id}", 200),
        ("POST", "/detokenize", 200),
        ("POST", "/detokenize", 400),
        ("POST", "/tokens/search", 200),
        ("POST", "/token-intents", 201),
    } <= seen


def test_tokens_that_nobody_was_told_of_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.play.engine_backend.ids_of", lambda body: iter(()))
    text = HEAD.replace("{duration}", "3s").replace("{rate}", "100/1m")
    client = '[[clients]]\nname = "c"\napplication = "a"\n' + open_loop("1/1s")
    result = run(text + client, fidelity="engine")
    assert [violation.invariant for violation in result.violations] == ["tokens"]
    assert result.violations[0].what == "3 tokens created, 0 identifiers returned"
    assert result.summary["checks"]["faults"] == 1


def test_a_retry_is_counted_from_the_answer_where_nobody_waits_for_it() -> None:
    """An open loop goes on meanwhile; what a body answers takes the service's time."""
    group = open_loop("1/1d", "700ms") + (
        'retry = { kind = "fixed", delay = "1s", attempts = 3, on = [404] }\n'
        'mix = [ { request = "GET /nowhere" } ]\n'
    )
    found = play(group, fidelity="engine")
    assert trace(found) == [(0, 1, "a"), (1700, 2, "a"), (3400, 3, "a")]


def test_an_attempt_passes_few_files_on_its_way_to_its_row() -> None:
    """Limits alone: client, tally, gate, limiter, its algorithm, and the row."""
    root = Path(simulator.__file__).parents[1]
    ours = (str(root / "engine"), str(root / "simulator"))
    ways: Counter[tuple[str, ...]] = Counter()
    way: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path, function = frame.f_code.co_filename, frame.f_code.co_name
        if event != "call" or not path.startswith(ours):
            return
        if function == "_to_its_end" and path.endswith("simpy_driver.py"):
            way[:] = [path]
        elif way and path not in way:
            way.append(path)
        if way and function == "add" and path.endswith("record.py"):
            ways[tuple(way)] += 1
            way.clear()

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        play("count = 2\n" + closed("10ms"), rate="50/1s")
    finally:
        sys.setprofile(before)
    assert ways.total() > 1_000
    common = [found for found, count in ways.items() if count > ways.total() // 20]
    assert max(len(found) for found in common) <= 7, common

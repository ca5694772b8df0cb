"""Sessions of a log: what is sampled looks like the log, and runs alike at every fidelity."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import simulator
from engine.errors import InputError
from simulator.scenario import loads
from simulator.study.fit.sessions import CallerRequests, cut_sessions
from simulator.traffic.draws import Stream
from simulator.traffic.sessions import (
    FILE_COLUMNS,
    SECOND_NS,
    SessionCaller,
    SessionLog,
    read_sessions,
    stream_of,
    write_sessions,
)

HOUR_NS = 3_600 * SECOND_NS


def caller(t_s: np.ndarray, number: int = 0) -> CallerRequests:
    """Return a caller that sends one kind of request."""
    t_ns = np.sort(t_s * SECOND_NS).astype(np.int64)
    return CallerRequests(0, number, number, t_ns, np.zeros(len(t_ns), np.int64))


def poisson(random: np.random.Generator, rate: float, span_s: float) -> np.ndarray:
    return random.uniform(0, span_s, random.poisson(rate * span_s))


def bursts(random: np.random.Generator, span_s: float) -> np.ndarray:
    """Return about forty requests half a second apart, every five minutes or so."""
    starts = np.cumsum(random.exponential(300, round(span_s / 300)))
    sizes = random.integers(20, 60, len(starts))
    times = [s + np.cumsum(random.exponential(0.5, n)) for s, n in zip(starts, sizes, strict=True)]
    merged = np.concatenate(times)
    return merged[merged < span_s]


def sampled(log: SessionLog, client: int = 0, until_ns: int | None = None) -> list[int]:
    uniform = Stream(3, f"log/{client}/arrivals").uniform
    return [t_ns for t_ns, _ in log.arrivals(client, until_ns or log.span_ns, uniform)]


def test_poisson_requests_are_sessions_of_one() -> None:
    random = np.random.default_rng(1)
    log = cut_sessions([caller(poisson(random, 0.2, 36_000))], ["GET /tokens"], 10 * HOUR_NS)
    assert {len(s.requests) for s in log.callers[0].streams[0].sessions} == {1}


def test_bursts_are_sessions_and_come_again_as_they_were() -> None:
    random = np.random.default_rng(2)
    log = cut_sessions([caller(bursts(random, 36_000))], ["GET /tokens"], 10 * HOUR_NS)
    stream = log.callers[0].streams[0]
    assert 60 < len(stream.sessions) < 140
    gaps = {b - a for session in stream.sessions for a, b in pairwise(session.offsets_ns)}
    arrivals = sampled(log)
    assert abs(len(arrivals) / log.size - 1) < 0.25
    inner = [b - a for a, b in pairwise(arrivals) if b - a in gaps]
    assert len(inner) > 0.9 * (len(arrivals) - len(stream.sessions)), "inner times are the log's"


def test_a_schedule_keeps_its_period_beyond_the_log() -> None:
    jobs = np.concatenate([600 * n + 7 + np.arange(30) * 0.1 for n in range(12)])
    log = cut_sessions([caller(jobs)], ["GET /tokens"], 2 * HOUR_NS)
    starts = [t_ns for t_ns in sampled(log, until_ns=4 * HOUR_NS) if t_ns % (600 * SECOND_NS) < 8e9]
    assert min(starts) == 7 * SECOND_NS
    assert len({t_ns // (600 * SECOND_NS) for t_ns in starts}) == 24


def test_a_job_beside_requests_at_random_is_a_stream_of_its_own() -> None:
    random = np.random.default_rng(4)
    plain = np.sort(poisson(random, 0.05, 36_000))
    jobs = np.concatenate([3_600 * n + 60 + np.arange(40) * 0.2 for n in range(10)])
    order = np.argsort(np.concatenate([plain, jobs]))
    t_ns = (np.concatenate([plain, jobs])[order] * SECOND_NS).astype(np.int64)
    kinds = np.concatenate([np.zeros(len(plain)), np.ones(len(jobs))])[order].astype(np.int64)
    both = CallerRequests(0, 0, 0, t_ns, kinds)
    log = cut_sessions([both], ["GET /tokens", "POST /tokens"], 10 * HOUR_NS)
    periods = [stream.period_ns() for stream in log.callers[0].streams]
    assert None in periods
    assert any(period and abs(period / HOUR_NS - 1) < 0.01 for period in periods)


def test_copies_have_keys_of_their_own_and_share_what_many_keys_share() -> None:
    one = stream_of([[(0, 0)]])
    callers = [
        SessionCaller("a", key, address, (one,)) for key, address in ((0, 0), (1, 0), (2, 1))
    ]
    log = SessionLog.of(callers, ["GET /tokens"], HOUR_NS)
    assert [log.identity(client) for client in range(6)] == [
        *((0, 0), (1, 0), (2, 1)),
        *((3, 0), (4, 0), (5, 3)),
    ]


def test_the_file_reads_back_equal(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    callers = [caller(bursts(random, 3_600), n) for n in range(3)]
    log = cut_sessions(callers, ["POST /tokenize"], HOUR_NS)
    path = tmp_path / "log.sessions.csv"
    write_sessions({"people": log}, path)
    copy = read_sessions(path, "people", HOUR_NS)
    assert copy.callers == log.callers
    assert copy.requests == log.requests
    assert sampled(copy, 2) == sampled(log, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", ":1:1: the columns must be group, caller"),
        (",".join(FILE_COLUMNS) + "\n", "must hold at least one request"),
        (
            ",".join(FILE_COLUMNS) + "\ng,0,a/0,0,0,0,x,GET /tokens\n",
            ":2:1: a row must have numbers",
        ),
        (
            ",".join(FILE_COLUMNS) + "\ng,0,a/0,0,0,0,3600,GET /tokens\n",
            ":2:1: a row must have numbers",
        ),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "log.sessions.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_sessions(path, "g", HOUR_NS)


SCENARIO = """
duration = "1h"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
keys = 6
[[addresses]]
name = "pool"
count = 6
[[clients]]
name = "log"
count = 6
application = "a"
addresses = "pool"
loop = "open"
arrivals = { kind = "sessions", file = "log.sessions.csv", group = "log", span = "1h" }
mix = [{ request = "GET /tokens" }, { request = "POST /tokenize" }]
"""


def test_sessions_run_alike_at_every_fidelity(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    callers = [caller(bursts(random, 3_600), n) for n in range(3)]
    log = cut_sessions(callers, ["POST /tokenize"], HOUR_NS)
    write_sessions({"log": log}, tmp_path / "log.sessions.csv")
    scenario = loads(SCENARIO, folder=tmp_path)
    runs = [simulator.run(scenario, fidelity=name) for name in ("engine", "limits", "compiled")]
    rows = [run.requests[["t_ns", "client", "key", "ip", "path", "outcome"]] for run in runs]
    assert rows[0].equals(rows[1])
    assert rows[0].equals(rows[2])
    assert set(rows[0]["path"]) == {"/tokenize"}
    assert rows[0]["key"].nunique() == 6


def test_a_request_without_an_entry_of_the_mix_is_refused(tmp_path: Path) -> None:
    log = cut_sessions([caller(np.array([1.0, 2.0, 3.0]))], ["PATCH /tokens/{id}"], HOUR_NS)
    write_sessions({"log": log}, tmp_path / "log.sessions.csv")
    with pytest.raises(InputError, match=r"clients 'log': mix must have an entry for 'PATCH"):
        simulator.run(loads(SCENARIO, folder=tmp_path), fidelity="limits")

"""What the probes say of limiters that others wrote, each configured in a known way.

nginx `limit_req` is a token bucket in milliseconds whose refused requests do not count; HAProxy's
rates are a sliding counter, and its rules say whether refused requests count. The probes are told
the rate and must report the family, and refuse every rate that is further off than they can tell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.bench import Bench
from conformance.exchanges import Ask
from conformance.over_http import HttpTransport
from conformance.probes.asking import SECOND_NS, Asker, Counter
from conformance.probes.families import Family, Rate, fits
from conformance.probes.measuring import histories_of, measure
from conformance.probes.playing import Played, play_throttle_row
from conformance.probes.signature import CONTROL
from conformance.registry import Check
from conformance.session import Session
from conformance.target import Target
from tests.conformance.foreign._servers import LOOSE, demo, haproxy, nginx

pytestmark = [pytest.mark.slow, pytest.mark.alone]

RATE = Rate(40, 4 * SECOND_NS)
ROW = "LIM-CREATE"


def _nobody(_: Bench) -> list[object]:
    return []


def _played(target: Target, port: int) -> Played:
    """Play the clusters of a throttle row of `RATE` against a port."""
    target = dataclasses.replace(
        target, base_url=f"http://127.0.0.1:{port}", sources=("127.0.0.1", "127.0.0.2")
    )
    transport = HttpTransport(target)
    try:
        session = Session(target, transport, seed=1)
        probe = Check(f"foreign.{ROW}", (ROW,), "", "", _nobody)  # type: ignore[arg-type] # reason: never judged
        bench = Bench(probe, session)
        here, there = target.addresses

        def asker(key: str, source: str | None) -> Asker:
            return lambda _: Ask(method="POST", path="/tokenize", body={}, key=key, source=source)

        probes = {
            CONTROL: asker("private_prod.1", here),
            "other key": asker("private_prod.2", here),
            "other address": asker("private_prod.1", there),
        }
        counter = Counter(bench, ROW, probes[CONTROL])
        found: Played = transport.run([play_throttle_row(counter, RATE, probes, frozenset())])[0]
    finally:
        transport.close()
    assert {one.status for one in counter.exchanges()} == {200, 429}
    return found


def _assert_reports(
    played: Played,
    algorithm: str,
    *,
    counts_refused: bool,
    like: frozenset[str] = frozenset(),
    off_part: int = 5,
) -> None:
    """Hold what is reported against what was configured.

    like: algorithms that may fit as well. off_part: a limit or window that is 1 part in so many
    off, and twice the resolution, must not fit. A sliding counter at an unknown alignment says
    less of its rate than a bucket.
    """
    histories = histories_of([played])
    measured = measure(histories, RATE)
    assert measured.fault is None, measured.summary
    assert measured.refused
    assert not measured.delays
    shown = {(one.algorithm, one.counts_refused) for one in measured.families}
    assert (algorithm, counts_refused) in shown, measured.summary
    assert {each for each, _ in shown} <= {algorithm, *like}, measured.summary
    assert {counted for _, counted in shown} == {counts_refused}, measured.summary
    truth = next(one for one in measured.families if one.algorithm == algorithm)
    step = RATE.limit_requests // off_part
    step += -(-2 * RATE.limit_requests * measured.resolution_ns // RATE.window_ns)
    for limit in (max(RATE.limit_requests - step, 1), RATE.limit_requests + step):
        assert not fits(histories, Rate(limit, RATE.window_ns), truth), limit
    off_ns = 2 * measured.resolution_ns + RATE.window_ns // off_part
    windows = [RATE.window_ns - off_ns]
    if not counts_refused:  # else what was refused would fill a longer window as well
        windows.append(RATE.window_ns + off_ns)
    for window_ns in windows:
        assert not fits(histories, Rate(RATE.limit_requests, window_ns), truth), window_ns
    assert measure(histories, Rate(RATE.limit_requests // 4, RATE.window_ns)).fault is not None
    assert played.signature.tells
    assert played.signature.refused("other key") is False
    assert played.signature.refused("other address") is False


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Target]:
    """The demo, whose own limits never refuse here."""
    with demo(tmp_path / "demo", LOOSE) as target:
        yield target


def test_nginx_is_a_token_bucket_whose_refusals_do_not_count(
    upstream: Target, tmp_path: Path
) -> None:
    """A burst of 39 beyond the request that is due: 40 at once, refilled 10 a second."""
    with nginx(tmp_path / "nginx", upstream, "rate=10r/s", "burst=39 nodelay") as port:
        played = _played(upstream, port)
    _assert_reports(played, "token-bucket", counts_refused=False)


def test_nginx_without_a_burst_is_gcra_of_burst_1(upstream: Target, tmp_path: Path) -> None:
    """LIM-THROTTLE: one request each tenth of a second; the probes say so with the burst."""
    with nginx(tmp_path / "nginx", upstream, "rate=10r/s", "") as port:
        played = _played(upstream, port)
    measured = measure(histories_of([played]), RATE)
    assert measured.families == (Family("gcra", burst_requests=1),), measured.summary


def test_haproxy_is_a_sliding_counter_whose_refusals_count(
    upstream: Target, tmp_path: Path
) -> None:
    """`track-sc0` counts a request before `deny` looks at the rate."""
    rules = [f"deny deny_status 429 if {{ sc_http_req_rate(0) gt {RATE.limit_requests} }}"]
    with haproxy(tmp_path / "haproxy", upstream, "http_req_rate(4s)", rules) as port:
        played = _played(upstream, port)
    # Under a load that hardly pauses all of these stay full where refused requests count.
    like = frozenset({"sliding-log", "fixed-window"})
    _assert_reports(played, "sliding-counter", counts_refused=True, like=like, off_part=2)


def test_haproxy_may_leave_refusals_uncounted(upstream: Target, tmp_path: Path) -> None:
    """A counter of its own is raised only for what was not denied."""
    rules = [
        f"deny deny_status 429 if {{ sc_gpc0_rate(0) ge {RATE.limit_requests} }}",
        "sc-inc-gpc0(0)",
    ]
    with haproxy(tmp_path / "haproxy", upstream, "gpc0,gpc0_rate(4s)", rules) as port:
        played = _played(upstream, port)
    _assert_reports(played, "sliding-counter", counts_refused=False, off_part=2)

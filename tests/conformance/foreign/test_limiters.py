"""What the probes say of limiters that others wrote, each configured in a known way.

nginx `limit_req` is a token bucket in milliseconds whose refused requests do not count; HAProxy's
rates are a sliding counter, and its rules say whether refused requests count. The probes are told
the rate and must report the family, and refuse every rate that is further off than they can tell:
where the machine pauses too long they say nothing, and never that the limiter is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.bench import Bench
from conformance.exchanges import Ask
from conformance.over_http import HttpTransport
from conformance.probes.asking import SECOND_NS, Asker, Counter
from conformance.probes.delaying import delays_that_fit
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
_KEYS = 8
_SHARP_NS = RATE.window_ns // 20
ROW = "LIM-CREATE"


def _nobody(_: Bench) -> list[object]:
    return []


@dataclass(frozen=True, slots=True)
class Seen:
    """What was played of one limiter: the clusters of a row, and another counter filled at once."""

    row: Played
    filled: Counter


def _played(target: Target, port: int) -> Seen:
    """Play against a port until the machine paused little enough, on fresh keys each time.

    Whatever it paused nothing may be called wrong; but only then what fits says how sharply.
    """
    for first_key in range(1, _KEYS, 3):
        seen = _play_once(target, port, first_key)
        measured = measure(histories_of([seen.row]), RATE)
        assert measured.fault is None, measured.fault
        if measured.delays or (
            _resolution_ns(seen) <= _SHARP_NS
            and (seen.row.signature.tells or seen.row.signature.is_spaced)
        ):
            return seen
    pytest.skip("the machine pauses too often to tell how a limiter counts")


def _resolution_ns(seen: Seen) -> int:
    """Return the resolution of both counters' histories."""
    histories = [*histories_of([seen.row]), seen.filled.clusters()]
    return max(measure([history], RATE).resolution_ns for history in histories)


def _play_once(target: Target, port: int, first_key: int) -> Seen:
    """Play the clusters of a throttle row of `RATE`, and beside it one counter filled at once."""
    target = dataclasses.replace(
        target, base_url=f"http://127.0.0.1:{port}", sources=("127.0.0.1", "127.0.0.2")
    )
    transport = HttpTransport(target)
    try:
        session = Session(target, transport, seed=1)
        probe = Check(f"foreign.{ROW}", (ROW,), "", "", _nobody)  # type: ignore[arg-type] # reason: never judged
        bench = Bench(probe, session)
        here, there = target.addresses
        mine, other, third = (f"private_prod.{first_key + place}" for place in range(3))

        def asker(key: str, source: str | None) -> Asker:
            return lambda _: Ask(method="POST", path="/tokenize", body={}, key=key, source=source)

        probes = {
            CONTROL: asker(mine, here),
            "other key": asker(other, here),
            "other address": asker(mine, there),
        }
        row = Counter(bench, ROW, probes[CONTROL])
        filled = Counter(bench, "filled", asker(third, here))
        played, _ = transport.run(
            [play_throttle_row(row, RATE, probes, frozenset()), _fill(filled)]
        )
    finally:
        transport.close()
    assert {one.status for one in row.exchanges()} == {200, 429}
    return Seen(played, filled)


async def _fill(counter: Counter) -> None:
    """Send as many as the limit at once, and three quarters of it one and a half windows later."""
    first = await counter.send("filled", RATE.limit_requests)
    at_ns = first.last_received_ns + RATE.window_ns * 3 // 2
    await counter.send("half empty", RATE.limit_requests * 3 // 4, at_ns=at_ns)


def _assert_reports(
    seen: Seen,
    algorithm: str,
    *,
    counts_refused: bool,
    windows_per_cent: tuple[int, int] = (80, 120),
) -> None:
    """Hold what is reported against what was configured.

    Another limit does not fit, and no window outside `windows_per_cent`: a sliding counter at an
    unknown alignment says less of its window than a bucket.
    """
    row, filled = histories_of([seen.row]), [seen.filled.clusters()]
    measured = measure(row, RATE)
    assert measured.refused
    assert not measured.delays
    shown = {(one.algorithm, one.counts_refused) for one in measured.families}
    assert shown == {(algorithm, counts_refused)}, measured.summary
    truth = measured.families[0]
    assert fits(filled, RATE, truth)
    # What is regained while a burst goes out blurs the limit, and the window as well.
    blur_ns = 2 * _resolution_ns(seen)
    step = 1 + -(-RATE.limit_requests * blur_ns // RATE.window_ns)
    for limit in (RATE.limit_requests - step, RATE.limit_requests + step):
        other = Rate(limit, RATE.window_ns)
        assert not (fits(row, other, truth) and fits(filled, other, truth)), limit
    shortest_ns, longest_ns = (RATE.window_ns * part // 100 for part in windows_per_cent)
    for window_ns in (shortest_ns - blur_ns, longest_ns + blur_ns):
        other = Rate(RATE.limit_requests, window_ns)
        assert not (fits(row, other, truth) and fits(filled, other, truth)), window_ns
    assert measure(row, Rate(RATE.limit_requests // 4, RATE.window_ns)).fault is not None
    assert seen.row.signature.tells
    assert seen.row.signature.refused("other key") is False
    assert seen.row.signature.refused("other address") is False


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
    measured = measure(histories_of([played.row]), RATE)
    assert measured.families == (Family("gcra", burst_requests=1),), measured.summary


def test_nginx_that_delays_spaces_what_it_holds_back(upstream: Target, tmp_path: Path) -> None:
    """LIM-THROTTLE, D-THROTTLE delay: without `nodelay` a burst goes on at the zone's pace."""
    with nginx(tmp_path / "nginx", upstream, "rate=10r/s", "burst=39") as port:
        played = _played(upstream, port)
    histories = histories_of([played.row])
    measured = measure(histories, RATE)
    assert measured.delays
    assert measured.families == (Family("gcra", burst_requests=1),), measured.summary
    low_ns, high_ns = measured.bound_ns or (0, 0)
    blur_ns = 2 * measured.resolution_ns + SECOND_NS // 10
    assert low_ns - blur_ns <= 39 * SECOND_NS // 10 <= high_ns + blur_ns
    for limit in (RATE.limit_requests // 2, RATE.limit_requests * 2):
        assert not delays_that_fit(histories, Rate(limit, RATE.window_ns), 10 * SECOND_NS)


def test_haproxy_is_a_sliding_counter_whose_refusals_count(
    upstream: Target, tmp_path: Path
) -> None:
    """`track-sc0` counts a request before `deny` looks at the rate."""
    rules = [f"deny deny_status 429 if {{ sc_http_req_rate(0) gt {RATE.limit_requests} }}"]
    with haproxy(tmp_path / "haproxy", upstream, "http_req_rate(4s)", rules) as port:
        played = _played(upstream, port)
    _assert_reports(played, "sliding-counter", counts_refused=True, windows_per_cent=(75, 140))


def test_haproxy_may_leave_refusals_uncounted(upstream: Target, tmp_path: Path) -> None:
    """A counter of its own is raised only for what was not denied."""
    rules = [
        f"deny deny_status 429 if {{ sc_gpc0_rate(0) ge {RATE.limit_requests} }}",
        "sc-inc-gpc0(0)",
    ]
    with haproxy(tmp_path / "haproxy", upstream, "gpc0,gpc0_rate(4s)", rules) as port:
        played = _played(upstream, port)
    _assert_reports(played, "sliding-counter", counts_refused=False, windows_per_cent=(80, 130))

"""What the probes say of limiters that others wrote, each configured in a known way.

nginx `limit_req` is a token bucket in milliseconds whose refused requests do not count; HAProxy's
rates are a sliding counter, and its rules say whether refused requests count. The probes are told
the rate and must report the family, and refuse every rate that is further off than they can tell.

What one play can tell hangs on where its clusters fall: HAProxy begins a key's windows when it
likes, and a machine pauses when it likes. So keys are played until each false reading is refused by
one play at least, and none may refuse the true one, whatever the machine did meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from conformance.probes.bursts import SECOND_NS, Asker, Counter
from conformance.probes.delays import Arrivals, delays_that_fit
from conformance.probes.families import Cluster, Family, Rate, fits
from conformance.probes.measurement import Measured, histories_of, measure
from conformance.probes.procedures import Played, play_throttle_row
from conformance.probes.signature import CONTROL, Probes
from conformance.runner.bench import Bench
from conformance.runner.registry import Check
from conformance.runner.session import Session
from conformance.target import Target
from conformance.wire.exchange import Ask
from conformance.wire.over_http import HttpTransport
from tests.conformance.foreign._servers import LOOSE, demo, haproxy, nginx, watching

pytestmark = [pytest.mark.slow, pytest.mark.alone]

RATE = Rate(40, 4 * SECOND_NS)
_KEYS_A_PLAY: Final = 3
_PLAYS: Final = 6
_ENOUGH: Final = 3
_SHARP_NS = RATE.window_ns // 20
_BURST_1 = Family("gcra", burst_requests=1)
_OTHER_ADDRESS: Final = "127.0.0.2"
ROW = "LIM-CREATE"


def _nobody(_: Bench) -> list[object]:
    return []


@dataclass(frozen=True, slots=True)
class Seen:
    """What was played of one limiter: the clusters of a row, and another counter filled at once."""

    row: Played
    filled: Counter

    @property
    def histories(self) -> Sequence[Sequence[Cluster]]:
        """The row's histories."""
        return histories_of([self.row])

    @property
    def measured(self) -> Measured:
        """What the probes report of the row."""
        return measure(self.histories, RATE)

    @property
    def resolution_ns(self) -> int:
        """The resolution of both counters' histories."""
        both = [*self.histories, self.filled.clusters()]
        return max(measure([history], RATE).resolution_ns for history in both)

    def refuses(self, other: Rate, truth: Family) -> bool:
        """Whether one of the counters cannot be of another rate."""
        filled = [self.filled.clusters()]
        return not (fits(self.histories, other, truth) and fits(filled, other, truth))


Doubts: TypeAlias = Callable[[Seen], set[str]]
"""What a play leaves open of what it must tell; asserts what holds on any machine."""


def _play_until_told(target: Target, port: int, doubts: Doubts) -> None:
    """Play on fresh keys until nothing is left open that no play has told.

    A play that paused may leave anything open, and only what is asserted counts of it.
    """
    left: set[str] = set()
    sharp = 0
    with watching() as untold:
        for turn in range(_PLAYS):
            seen = _play_once(target, port, 1 + turn * _KEYS_A_PLAY)
            measured = seen.measured
            assert measured.fault is None, measured.fault
            found = doubts(seen)
            if not measured.delays and seen.resolution_ns > _SHARP_NS:
                continue
            left = left & found if sharp else found
            sharp += 1
            if not left:
                return
        if sharp < _ENOUGH:
            untold(f"{sorted(left) or 'anything'} in {sharp} sharp plays")
    pytest.fail(f"{sharp} sharp plays have not told: {sorted(left)}")


def _play_once(target: Target, port: int, first_key: int) -> Seen:
    """Play the clusters of a throttle row of `RATE`, and beside it one counter filled at once."""
    target = dataclasses.replace(
        target, base_url=f"http://127.0.0.1:{port}", sources=("127.0.0.1", _OTHER_ADDRESS)
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

        askers = {
            CONTROL: asker(mine, here),
            "other key": asker(other, here),
            "other address": asker(mine, there),
        }
        row = Counter(bench, ROW, askers[CONTROL])
        filled = Counter(bench, "filled", asker(third, here))
        probes = Probes(askers, own=frozenset())
        played, _ = transport.run([play_throttle_row(row, RATE, probes), _fill(filled)])
    finally:
        transport.close()
    assert {one.status for one in row.exchanges()} == {200, 429}
    return Seen(played, filled)


async def _fill(counter: Counter) -> None:
    """Send as many as the limit at once, and three quarters of it one and a half windows later."""
    first = await counter.send("filled", RATE.limit_requests)
    at_ns = first.last_received_ns + RATE.window_ns * 3 // 2
    await counter.send("half empty", RATE.limit_requests * 3 // 4, at_ns=at_ns)


def _reports(
    algorithm: str, *, counts_refused: bool, windows_per_cent: tuple[int, int] = (80, 120)
) -> Doubts:
    """Return what must be reported of a limiter that was configured so.

    No other family fits, nor another limit, nor a window outside `windows_per_cent`: a sliding
    counter at an unknown alignment says less of its window than a bucket.
    """

    def doubts(seen: Seen) -> set[str]:
        measured = seen.measured
        assert measured.refused
        assert not measured.delays
        true = [
            one
            for one in measured.families
            if (one.algorithm, one.counts_refused) == (algorithm, counts_refused)
        ]
        assert true, measured.summary
        truth = true[0]
        assert fits([seen.filled.clusters()], RATE, truth)
        open_ = {f"{one} is no other" for one in measured.families if one not in true}
        others = _others(2 * seen.resolution_ns, windows_per_cent)
        open_ |= {name for name, other in others.items() if not seen.refuses(other, truth)}
        if measure(seen.histories, Rate(RATE.limit_requests // 4, RATE.window_ns)).fault is None:
            open_.add("a quarter of the limit is a fault")
        if seen.row.signature.tells:
            assert seen.row.signature.refused("other key") is False
            assert seen.row.signature.refused("other address") is False
        else:
            open_.add("other keys and addresses have counters of their own")
        return open_

    return doubts


def _others(blur_ns: int, windows_per_cent: tuple[int, int]) -> dict[str, Rate]:
    """Return rates that are not the configured one.

    blur_ns: what is regained while a burst goes out blurs the limit, and the window as well.
    """
    limit, window_ns = RATE.limit_requests, RATE.window_ns
    step = 1 + -(-limit * blur_ns // window_ns)
    shortest_ns, longest_ns = (window_ns * part // 100 for part in windows_per_cent)
    return {
        "a lower limit": Rate(limit - step, window_ns),
        "a higher limit": Rate(limit + step, window_ns),
        "a shorter window": Rate(limit, shortest_ns - blur_ns),
        "a longer window": Rate(limit, longest_ns + blur_ns),
    }


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Target]:
    """The demo, whose own limits never refuse here."""
    with demo(tmp_path / "demo", LOOSE, _PLAYS * _KEYS_A_PLAY) as target:
        yield target


def test_nginx_is_a_token_bucket_whose_refusals_do_not_count(
    upstream: Target, tmp_path: Path
) -> None:
    """A burst of 39 beyond the request that is due: 40 at once, refilled 10 a second."""
    with nginx(tmp_path / "nginx", upstream, "rate=10r/s", "burst=39 nodelay") as port:
        _play_until_told(upstream, port, _reports("token-bucket", counts_refused=False))


def test_nginx_without_a_burst_is_gcra_of_burst_1(upstream: Target, tmp_path: Path) -> None:
    """LIM-THROTTLE: one request each tenth of a second; the probes say so with the burst."""
    with nginx(tmp_path / "nginx", upstream, "rate=10r/s", "") as port:
        _play_until_told(upstream, port, _is_burst_1)


def _is_burst_1(seen: Seen) -> set[str]:
    measured = seen.measured
    assert _BURST_1 in measured.families, measured.summary
    open_ = {f"{one} is no other" for one in measured.families if one != _BURST_1}
    return open_ if seen.row.signature.is_spaced else open_ | {"even the first burst is spaced"}


def test_nginx_that_delays_spaces_what_it_holds_back(upstream: Target, tmp_path: Path) -> None:
    """LIM-THROTTLE, D-THROTTLE delay: without `nodelay` a burst goes on at the zone's pace."""
    with nginx(tmp_path / "nginx", upstream, "rate=10r/s", "burst=39") as port:
        _play_until_told(upstream, port, _is_delayed_by_39)


def _is_delayed_by_39(seen: Seen) -> set[str]:
    measured = seen.measured
    open_ = set()
    if not measured.delays:
        open_.add("what is beyond the pace is held back")
    elif measured.families != (_BURST_1,):
        assert _BURST_1 in measured.families, measured.summary
        open_.add("one family only")
    low_ns, high_ns = measured.bound_ns or (0, 0)
    blur_ns = 2 * measured.resolution_ns + SECOND_NS // 10
    if not low_ns - blur_ns <= 39 * SECOND_NS // 10 <= high_ns + blur_ns:
        open_.add("39 requests are held back")
    for limit in (RATE.limit_requests // 2, RATE.limit_requests * 2):
        other = Rate(limit, RATE.window_ns)
        if delays_that_fit(Arrivals(seen.histories), other, 10 * SECOND_NS):
            open_.add(f"not {limit} in a window")
    return open_


def test_haproxy_is_a_sliding_counter_whose_refusals_count(
    upstream: Target, tmp_path: Path
) -> None:
    """`track-sc0` counts a request before `deny` looks at the rate."""
    rules = [f"deny deny_status 429 if {{ sc_http_req_rate(0) gt {RATE.limit_requests} }}"]
    with haproxy(tmp_path / "haproxy", upstream, "http_req_rate(4s)", rules) as port:
        says = _reports("sliding-counter", counts_refused=True, windows_per_cent=(75, 140))
        _play_until_told(upstream, port, says)


def test_haproxy_may_leave_refusals_uncounted(upstream: Target, tmp_path: Path) -> None:
    """A counter of its own is raised only for what was not denied."""
    rules = [
        f"deny deny_status 429 if {{ sc_gpc0_rate(0) ge {RATE.limit_requests} }}",
        "sc-inc-gpc0(0)",
    ]
    with haproxy(tmp_path / "haproxy", upstream, "gpc0,gpc0_rate(4s)", rules) as port:
        says = _reports("sliding-counter", counts_refused=False, windows_per_cent=(80, 130))
        _play_until_told(upstream, port, says)

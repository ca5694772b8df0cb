"""How fast the plain-Python limiter decides, against the `limits` library's moving window.

Both check the same rules of W1 under a frozen clock, all rules before any is charged, and get
their inputs ready-made: ours subjects, the peer its items and identifiers. Beside it: our other
algorithms, decisions with the room for the header fields, as the service asks for both at once, and
the two peers' ways that charge rule by rule.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from unittest import mock

from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from engine.limits import Limiter, LimitTable, Subject
from engine.profile import Algorithm, LimitsProfile
from tests.benchmarks import _measure
from tests.benchmarks.workload_w1 import subjects, w1

_REQUESTS: Final = 100_000

_Calls = list[tuple[float, Sequence[tuple[RateLimitItemPerSecond, tuple[str, ...]]]]]


def _ours(times_ns: list[int], asked: list[Subject], algorithm: Algorithm) -> Callable[[], object]:
    limiter = Limiter({"Default": LimitTable.default()}, LimitsProfile(algorithm=algorithm))
    fresh = [_again(subject) for subject in asked]

    def run() -> None:
        decide = limiter.decide
        for now_ns, subject in zip(times_ns, fresh, strict=True):
            decide(now_ns, subject)

    return run


def _again(subject: Subject) -> Subject:
    """Return an equal subject that remembers no counters, as each HTTP request brings one."""
    return Subject(
        subject.method,
        subject.path,
        subject.ip,
        key_id=subject.key_id,
        tenant_kind=subject.tenant_kind,
        application_kind=subject.application_kind,
        legacy=subject.legacy,
    )


def _with_headroom(times_ns: list[int], asked: list[Subject]) -> Callable[[], object]:
    limiter = Limiter({"Default": LimitTable.default()}, LimitsProfile())
    fresh = [_again(subject) for subject in asked]

    def run() -> None:
        for now_ns, subject in zip(times_ns, fresh, strict=True):
            limiter.decide_with_status(now_ns, subject)

    return run


def _peer_calls(times_ns: list[int], asked: list[Subject]) -> _Calls:
    """Return, a request, the time and what the peer must check: an item and identifiers a rule."""
    table = LimitTable.default()
    limiter = Limiter({"Default": table}, LimitsProfile())
    items = {
        name: RateLimitItemPerSecond(rule.limit_requests, rule.window_ns // 10**9, name)
        for rule in table
        for name in rule.counter_names
    }
    by_key = {"LIM-PRIVATE.key", "LIM-MANAGEMENT"}
    by_ip = {"LIM-PRIVATE.ip", "LIM-IP"}
    calls: _Calls = []
    for now_ns, subject in zip(times_ns, asked, strict=True):
        key, ip = subject.key_id or "", subject.ip
        checks = [
            (items[name], (key,) if name in by_key else (ip,) if name in by_ip else (ip, key))
            for name in (counter.settings.name for counter in limiter.match(subject).counters)
        ]
        calls.append((now_ns / 1e9, checks))
    return calls


def _nothing(_failure: object) -> None:
    """Pass over how the peer's own thread ends where it meets a key that is gone already."""


def _peer(
    calls: _Calls,
    strategy: type[MovingWindowRateLimiter | FixedWindowRateLimiter],
    *,
    all_first: bool,
) -> Callable[[], object]:
    storage = MemoryStorage()
    peer = strategy(storage)

    def run() -> None:
        now = 0.0
        with (
            mock.patch.object(time, "time", lambda: now),  # noqa: PT008 # reason: no mock's record
            mock.patch.object(threading, "excepthook", _nothing),
        ):
            for now, checks in calls:  # noqa: B007 # reason: the frozen clock reads it
                if all_first:
                    if all(peer.test(item, *who) for item, who in checks):
                        for item, who in checks:
                            peer.hit(item, *who)
                else:
                    for item, who in checks:
                        if not peer.hit(item, *who):
                            break

    return run


def main(*, big: bool = False) -> None:
    """Print the tables; more requests would tell no more (`compiled` has them)."""
    requests = _REQUESTS
    workload = w1(requests)
    times_ns = workload.t_ns.tolist()
    asked = subjects(workload)
    calls = _peer_calls(times_ns, asked)
    peer = _measure.version("limits")
    contest = _measure.Contestant
    algorithms: tuple[Algorithm, ...] = ("fixed-window", "sliding-counter", "token-bucket", "gcra")
    moving, fixed = MovingWindowRateLimiter, FixedWindowRateLimiter
    contestants = [
        contest("Tollgate, sliding log", partial(_ours, times_ns, asked, "sliding-log"), requests),
        *(
            contest(f"Tollgate, {name}", partial(_ours, times_ns, asked, name), requests)
            for name in algorithms
        ),
        contest("Tollgate, with headroom", partial(_with_headroom, times_ns, asked), requests),
        contest(
            "limits moving window, all tested first",
            partial(_peer, calls, moving, all_first=True),
            requests,
            peer,
        ),
        contest(
            "limits moving window, one by one",
            partial(_peer, calls, moving, all_first=False),
            requests,
            peer,
        ),
        contest(
            "limits fixed window, all tested first",
            partial(_peer, calls, fixed, all_first=True),
            requests,
            peer,
        ),
    ]
    timings = _measure.interleave(contestants, rounds=5)
    _measure.show(f"Limit decisions on W1, {requests} requests", "requests", timings)

"""`limits` answers as the compiled limiter does, where its semantic is ours (D-ALGORITHM).

W1 without its blocks, which the library does not know, under a frozen clock: its moving window is
our sliding log, its fixed window ours anchored at the first request, all rules tested before any is
charged (LIM-LOWEST, D-COUNT). Its windows are closed and ours half-open, which shows at exact ties
only; in W1 no two instants are a window apart.
"""

import time
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from engine.limits import Limiter, LimitTable, Subject
from engine.profile import LimitsProfile
from simulator.kernel.limiter import ColumnLimiter
from tests.benchmarks.workload_w1 import subjects, w1
from tests.simulator.kernel.test_column_limiter import numbered

BY_KEY = {"LIM-PRIVATE.key", "LIM-MANAGEMENT"}
BY_IP = {"LIM-PRIVATE.ip", "LIM-IP"}


def without_blocks() -> LimitTable:
    return LimitTable(
        tuple(replace(rule, action="throttle", block_ns=None) for rule in LimitTable.default())
    )


def theirs(
    strategy: type[MovingWindowRateLimiter | FixedWindowRateLimiter],
    table: LimitTable,
    calls: list[tuple[int, Subject]],
) -> list[bool]:
    """Return what the library decides: every rule is tested, then every rule is hit, or none."""
    limiter = Limiter({"Default": table}, LimitsProfile())
    items = {
        name: RateLimitItemPerSecond(rule.limit_requests, rule.window_ns // 10**9, name)
        for rule in table
        for name in rule.counter_names
    }
    storage = MemoryStorage()
    storage.timer.cancel()  # it would clear by the real clock, in the middle of the trace
    storage.timer.join()
    peer = strategy(storage)
    now_s, decided = 0.0, []
    with (
        mock.patch.object(time, "time", lambda: now_s),  # noqa: PT008 # reason: no mock's record
        mock.patch.object(storage, "_MemoryStorage__schedule_expiry"),  # a thread's real clock
    ):
        for now_ns, subject in calls:
            now_s = now_ns / 1e9
            checks = []
            for name in (counter.settings.name for counter in limiter.match(subject).counters):
                who = [] if name in BY_KEY else [subject.ip]
                checks.append(
                    (items[name], [*who, *([] if name in BY_IP else [str(subject.key_id)])])
                )
            fine = all(peer.test(item, *who) for item, who in checks)
            decided.append(fine)
            if fine:
                assert all(peer.hit(item, *who) for item, who in checks)
    return decided


def check(
    strategy: type[MovingWindowRateLimiter | FixedWindowRateLimiter],
    profile: LimitsProfile,
    requests: int,
) -> None:
    workload, table = w1(requests), without_blocks()
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    limiter = ColumnLimiter({"Default": table}, profile)
    ours = limiter.decide(numbered(limiter, calls)).admitted
    assert 0.03 < 1 - ours.mean() < 0.5, "rules bind, or nothing is shown"
    differ = np.flatnonzero(ours != np.array(theirs(strategy, table, calls)))
    assert not len(differ), f"row {differ[0]} is the first of {len(differ)} that differ"


@pytest.mark.parametrize(
    "requests", [8_000, pytest.param(60_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_its_moving_window_is_our_sliding_log(requests: int) -> None:
    check(MovingWindowRateLimiter, LimitsProfile(), requests)


@pytest.mark.parametrize(
    "requests", [8_000, pytest.param(60_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_its_fixed_window_is_ours_that_begins_with_a_request(requests: int) -> None:
    profile = LimitsProfile(algorithm="fixed-window", fixed_anchor="first")
    check(FixedWindowRateLimiter, profile, requests)

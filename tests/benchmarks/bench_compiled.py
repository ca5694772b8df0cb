"""Limit decisions on W1, compiled, from columns to decisions, against three libraries.

Ours takes arrays and gives rule, wait and the mask of all refusing rules; all rules are tested
before any is charged. The peers get their inputs ready-made under a frozen clock. The decision loop
stands beside its floor: reading every counter's line once, and deciding nothing. At the end: memory
a counter, and how long a cold process takes to its first decision, and to the end of a first run.
"""

import asyncio
import datetime as dt
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from unittest import mock

import numba
import numpy as np
from aiolimiter import AsyncLimiter
from limits.strategies import MovingWindowRateLimiter
from throttled import RateLimiterType, Throttled, per_duration
from throttled.store import MemoryStore

from engine.limits import LimitTable, Subject
from engine.profile import Algorithm, LimitsProfile
from simulator.kernel.deciding import COUNTERS, RING_SLOTS
from simulator.kernel.limiter import ColumnLimiter
from tests.benchmarks import _measure
from tests.benchmarks.bench_limits import _peer, _peer_calls
from tests.benchmarks.workload_w1 import KINDS, RESOURCES, Workload, subjects, w1
from tests.memory import peak_kb

_REQUESTS: Final = 1_000_000
_PEER_REQUESTS: Final = 120_000
_BIG_REQUESTS: Final = 100_000_000
_ALGORITHMS: Final[tuple[Algorithm, ...]] = (
    "sliding-log",
    "fixed-window",
    "sliding-counter",
    "token-bucket",
    "gcra",
)


def _limiter(algorithm: Algorithm = "sliding-log") -> ColumnLimiter:
    return ColumnLimiter({"Default": LimitTable.default()}, LimitsProfile(algorithm=algorithm))


def _kinds(limiter: ColumnLimiter, workload: Workload) -> Any:
    """Return a table, key and resource → the limiter's number, and where in it each key begins."""
    codes = 4 * len(KINDS)
    table = np.zeros((codes, len(RESOURCES)), dtype=np.int32)
    for code in range(codes):
        for place, (method, path) in enumerate(RESOURCES):
            subject = Subject(
                method,
                path,
                "ip",
                key_id="key",
                tenant_kind="test" if code & 2 else "production",
                application_kind=KINDS[code >> 2],
                legacy=bool(code & 1),
            )
            table[code, place] = limiter.kind(subject)
    code_of_key = workload.key_kind * 4 + workload.key_is_test * 2 + workload.key_is_legacy
    return table.reshape(-1), code_of_key.astype(np.int32) * len(RESOURCES)


def _lanes(limiter: ColumnLimiter, workload: Workload) -> Any:
    table, first_of_key = _kinds(limiter, workload)
    kind = table.take(first_of_key.take(workload.key) + workload.resource)
    return limiter.lanes(kind, workload.key, workload.ip)


def _ours(workload: Workload, algorithm: Algorithm) -> Callable[[], object]:
    limiter = _limiter(algorithm)
    table, first_of_key = _kinds(limiter, workload)

    def run() -> object:
        kind = table.take(first_of_key.take(workload.key) + workload.resource)
        lane = limiter.lanes(kind, workload.key, workload.ip)
        return limiter.decide(workload.t_ns, lane)

    return run


def _loop(workload: Workload) -> Callable[[], object]:
    limiter = _limiter()
    return partial(limiter.decide, workload.t_ns, _lanes(limiter, workload))


@numba.njit  # type: ignore[untyped-decorator] # reason: numba has no types
def _touch(counters: Any, lanes: Any, lane: Any, out: Any) -> None:
    for row in range(len(lane)):
        total = 0
        for place in range(lanes.shape[1]):
            total += counters[lanes[lane[row], place]].ready
        out[row] = total


def _floor(workload: Workload) -> Callable[[], object]:
    limiter = _limiter()
    lane, limits = _lanes(limiter, workload), limiter.limits
    out = np.empty(len(lane), np.int64)
    return lambda: _touch(limits.counters, limits.lanes, lane, out)


def _aiolimiter(calls: Any) -> Callable[[], object]:
    """Acquire every rule's bucket, one by one, where all have capacity."""
    known: dict[Any, AsyncLimiter] = {}
    loop = asyncio.new_event_loop()
    now = 0.0
    prepared = []
    for at_s, checks in calls:
        buckets = []
        for item, who in checks:
            place = (item, who)
            if place not in known:
                known[place] = AsyncLimiter(item.amount, item.multiples * item.GRANULARITY.seconds)
            buckets.append(known[place])
        prepared.append((at_s, buckets))

    async def ask() -> None:
        nonlocal now
        for now, buckets in prepared:  # noqa: B007 # reason: the frozen clock reads it
            if all(bucket.has_capacity() for bucket in buckets):
                for bucket in buckets:
                    await bucket.acquire()

    def run() -> None:
        with mock.patch.object(loop, "time", lambda: now):  # noqa: PT008 # reason: no mock's record
            loop.run_until_complete(ask())
        loop.close()

    return run


def _throttled(calls: Any) -> Callable[[], object]:
    """Ask every rule's limiter, one by one, until one refuses."""
    store = MemoryStore(options={"MAX_SIZE": 1 << 20})
    known: dict[str, Throttled] = {}
    prepared = []
    for at_s, checks in calls:
        asked = []
        for item, who in checks:
            name = item.namespace
            if name not in known:
                window = dt.timedelta(seconds=item.multiples * item.GRANULARITY.seconds)
                known[name] = Throttled(
                    using=RateLimiterType.GCRA.value,
                    quota=per_duration(window, limit=item.amount, burst=item.amount),
                    store=store,
                )
            asked.append((known[name], name + "/" + "/".join(who)))
        prepared.append((at_s, asked))

    def run() -> None:
        now = 0.0
        with mock.patch("time.time", lambda: now):  # noqa: PT008 # reason: no mock's record
            for now, asked in prepared:  # noqa: B007 # reason: the frozen clock reads it
                for limiter, key in asked:
                    if limiter.limit(key).limited:
                        break

    return run


_COLD: Final = """
import time; began = time.perf_counter()
import numpy as np
from engine.limits import LimitTable, Subject
from engine.profile import LimitsProfile
from simulator.kernel.limiter import ColumnLimiter
limiter = ColumnLimiter({"Default": LimitTable.default()}, LimitsProfile())
kind = limiter.kind(Subject("POST", "/tokenize", "ip"))
zero = np.zeros(1, np.int64)
limiter.decide(zero, limiter.lanes(zero + kind, zero - 1, zero))
print(time.process_time(), time.perf_counter() - began)
"""

_COLD_RUN: Final = """
import time; began = time.perf_counter()
import simulator
simulator.run("management-loop", fidelity="compiled", seed=7)
print(time.process_time(), time.perf_counter() - began)
"""


def _tell_cold_start(what: str, code: str) -> None:
    """Print how long a new process takes; Python's own cache of compiled files is warm too."""
    command = [sys.executable, "-c", code]
    with tempfile.TemporaryDirectory() as cache:
        known = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        runs = [
            subprocess.run(command, capture_output=True, check=True, env=known, text=True).stdout
            for _ in range(6)
        ]
    taken = [[float(figure) for figure in run.split()] for run in runs[1:]]
    processor_s, wall_s = (statistics.median(column) for column in zip(*taken, strict=True))
    print(
        f"cold process, warm caches, to {what}: {processor_s:.2f} s of the processor, "
        f"{wall_s:.2f} s of the wall clock"
    )


def main(*, big: bool = False) -> None:
    """Print the tables."""
    workload, few = w1(_REQUESTS), w1(_PEER_REQUESTS)
    calls = _peer_calls(few.t_ns.tolist(), subjects(few))
    contest = _measure.Contestant
    version = _measure.version
    contestants = [
        *(
            contest(f"Tollgate compiled, {name}", partial(_ours, workload, name), len(workload))
            for name in _ALGORITHMS
        ),
        contest(
            "limits moving window, all tested first",
            partial(_peer, calls, MovingWindowRateLimiter, all_first=True),
            len(few),
            version("limits"),
        ),
        contest("throttled-py GCRA", partial(_throttled, calls), len(few), version("throttled-py")),
        contest("aiolimiter", partial(_aiolimiter, calls), len(few), version("aiolimiter")),
    ]
    timings = _measure.interleave(contestants, rounds=5, of_processor=True)
    _measure.show("W1, columns to decisions", "requests", timings)
    loop = [
        contest("decision loop, sliding log", partial(_loop, workload), len(workload)),
        contest("touch floor", partial(_floor, workload), len(workload)),
    ]
    timings = _measure.interleave(loop, rounds=25, of_processor=True)
    _measure.show("The decision loop on W1", "requests", timings)
    _tell_memory(workload)
    _tell_cold_start("the first decision", _COLD)
    _tell_cold_start("the end of a run of twenty minutes", _COLD_RUN)
    if big:
        _big()


def _tell_memory(workload: Workload) -> None:
    limiter = _limiter()
    limiter.decide(workload.t_ns, _lanes(limiter, workload))
    limits = limiter.limits
    counters = int(limits.used[COUNTERS]) - 1
    line = limits.counters.itemsize + limits.blocks.itemsize
    ring = limits.rings.itemsize * int(limits.used[RING_SLOTS]) / counters
    whole = sum(array.nbytes for array in limits) / counters
    print(
        f"{counters} active counters: {line} bytes each and {ring:.0f} of ring; "
        f"{whole:.0f} with hash tables, lanes and spare room"
    )


def _big() -> None:
    """Decide about 10^8 requests, piece by piece."""
    limiter, decided, began_s = _limiter(), 0, time.perf_counter()
    piece = w1(_REQUESTS)
    lane = _lanes(limiter, piece)
    period_ns = int(piece.t_ns[-1]) + 1
    for turn in range(_BIG_REQUESTS // len(piece)):
        verdicts, _ = limiter.decide(piece.t_ns + turn * period_ns, lane)
        decided += len(verdicts)
        if turn in {0, 9, 99}:
            peak = peak_kb() / 1_024
            print(f"after {decided} requests: peak memory {peak:.0f} MB")
    print(f"{decided} requests in {time.perf_counter() - began_s:.1f} s")

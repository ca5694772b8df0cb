"""Known worlds: logs made without the simulator, and whether their fits refuse as they do.

    python -m tests.simulator.fit.worlds [WORLD …]

A world makes a log from a seed. Its fit is judged under five limits that it was not fitted to, by a
plain count in this file: a sliding log per key and address, with the block of LIM-PUBLIC. Clients
that wait for answers and retry send otherwise under other limits: the world, and the scenario, are
played under each.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd

import simulator
from engine.files import Rate
from engine.limits import LimitTable
from simulator.scenario import Scenario

SPAN_S = 18_000
START_NS = 1_767_225_600 * 10**9
BLOCK_NS = 10 * 10**9
LIMITS = ((25, 60), (50, 60), (100, 60), (20, 10), (200, 600))
"""Requests in a window of seconds."""
PLAYED_REQUESTS = 100_000

Row = tuple[float, str, str]
"""Second, address, key."""


def poisson(random: np.random.Generator) -> Iterable[Row]:
    """Yield 6 clients of 40 requests a minute at random."""
    for client in range(6):
        for t_s in random.uniform(0, SPAN_S, random.poisson(SPAN_S * 40 / 60)):
            yield t_s, f"192.0.2.{client}", f"k{client}"


def bursts(random: np.random.Generator) -> Iterable[Row]:
    """Yield 20 clients that send 20 to 80 requests, half a second apart, then pause."""
    for client in range(20):
        t_s = 0.0
        while t_s < SPAN_S:
            t_s += random.exponential(600)
            for _ in range(random.integers(20, 80)):
                yield t_s, f"192.0.2.{client}", f"k{client}"
                t_s += random.exponential(0.5)


def unequal(random: np.random.Generator) -> Iterable[Row]:
    """Yield 12 clients at random whose rates are lognormal."""
    for client, rate in enumerate(0.2 * np.exp(1.5 * random.standard_normal(12))):
        for t_s in random.uniform(0, SPAN_S, random.poisson(SPAN_S * rate)):
            yield t_s, f"192.0.2.{client}", f"k{client}"


def nat(random: np.random.Generator) -> Iterable[Row]:
    """Yield 40 clients behind one address and one key, each with visits of a few requests."""
    for _ in range(40):
        t_s = 0.0
        while t_s < SPAN_S:
            t_s += random.exponential(240)
            for _ in range(random.integers(1, 8)):
                yield t_s, "192.0.2.1", "k"
                t_s += random.exponential(2)


def hourly(random: np.random.Generator) -> Iterable[Row]:
    """Yield 8 clients at random, and a batch of 300 requests on each full hour."""
    for client in range(8):
        for t_s in random.uniform(0, SPAN_S, random.poisson(SPAN_S * 0.15)):
            yield t_s, f"192.0.2.{client}", f"k{client}"
    for hour in range(SPAN_S // 3_600):
        for number in range(300):
            yield hour * 3_600 + random.uniform(0, 2) + number * 0.2, "198.51.100.1", "batch"


def ramp(random: np.random.Generator) -> Iterable[Row]:
    """Yield 3 clients at random whose rate grows from nothing to 100 a minute."""
    for client in range(3):
        t_s = SPAN_S * np.sqrt(random.uniform(0, 1, random.poisson(SPAN_S * 50 / 60)))
        for at_s in t_s:
            yield float(at_s), f"192.0.2.{client}", f"k{client}"


def day(random: np.random.Generator) -> Iterable[Row]:
    """Yield 15 clients in sessions, whose rate follows half a day."""
    for client in range(15):
        t_s = 0.0
        while t_s < SPAN_S:
            t_s += random.exponential(60 / (0.1 + np.sin(np.pi * min(t_s, SPAN_S) / SPAN_S) ** 2))
            for _ in range(random.integers(5, 40)):
                yield t_s, f"192.0.2.{client}", f"k{client}"
                t_s += random.exponential(1)


def retries(
    random: np.random.Generator, limit: int = 50, window_s: int = 60
) -> Iterable[tuple[float, str, str, int]]:
    """Yield 8 clients that think, ask, and ask again 3 s after a refusal, four times at most."""
    doors = [Door(limit, window_s) for _ in range(8)]
    turns = [(float(random.exponential(1)), client, 1) for client in range(8)]
    while turns and turns[0][0] < SPAN_S:
        t_s, client, attempt = heapq.heappop(turns)
        lets_in = doors[client].lets_in(round(t_s * 1e9))
        yield t_s, f"192.0.2.{client}", f"k{client}", 200 if lets_in else 429
        if lets_in or attempt == 5:
            heapq.heappush(turns, (t_s + float(random.exponential(1)), client, 1))
        else:
            heapq.heappush(turns, (t_s + 3, client, attempt + 1))


class Door:
    """A sliding log of one caller, with the block of LIM-PUBLIC."""

    def __init__(self, limit: int, window_s: int) -> None:
        self._limit, self._window_ns = limit, window_s * 10**9
        self._log = deque[int]()
        self._until_ns = 0

    def lets_in(self, t_ns: int) -> bool:
        """Decide a request."""
        while self._log and self._log[0] <= t_ns - self._window_ns:
            self._log.popleft()
        if t_ns < self._until_ns:
            return False
        if len(self._log) >= self._limit:
            self._until_ns = t_ns + BLOCK_NS
            return False
        self._log.append(t_ns)
        return True


WORLDS: dict[str, Callable[[np.random.Generator], Iterable[tuple[float | str | int, ...]]]] = {
    made.__name__: made for made in (poisson, bursts, unequal, nat, hourly, ramp, day, retries)
}


def log_of(world: str, seed: int) -> pd.DataFrame:
    """Return the log of a world in order of time."""
    random = np.random.default_rng(seed)
    rows = sorted(row for row in WORLDS[world](random) if float(row[0]) < SPAN_S)
    frame = pd.DataFrame(rows, columns=["time", "ip", "key", "status"][: len(rows[0])])
    frame["time"] = (frame["time"] * 1e9).astype("int64") + START_NS
    frame["method"], frame["path"] = "POST", "/tokenize"
    return frame


def refused_share(rows: pd.DataFrame, limit: int, window_s: int) -> float:
    """Return the share of some requests that is refused."""
    admitted = 0
    for _, times_ns in rows.groupby(["ip", "key"])[rows.columns[0]]:
        door = Door(limit, window_s)
        admitted += sum(map(door.lets_in, times_ns.tolist()))
    return 1 - admitted / max(1, len(rows))


def played_share(scenario: Scenario, limit: int, window_s: int, runs: int) -> float:
    """Return the refused share of a scenario whose only limit is this one."""
    table = LimitTable((LimitTable.default()["LIM-PUBLIC"],))
    table = table.replace_rule("LIM-PUBLIC", rate=str(Rate(limit, window_s * 10**9)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "limits.toml"
        path.write_text(table.to_toml(), "utf-8")
        played = [
            simulator.run(scenario, fidelity="compiled", seed=seed, check=False, limits=path)
            for seed in range(runs)
        ]
    return float(np.mean([run.summary["totals"]["refused_share"] for run in played]))


def shares(world: str, seed: int = 1) -> list[tuple[float, float]]:
    """Return the refused shares of a log and of its fit, saved and loaded, under each limit.

    The fit is played three times at least, and small logs more often: their runs differ more.
    """
    log = log_of(world, seed)
    runs = max(3, PLAYED_REQUESTS // len(log))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fitted.toml"
        fit = simulator.fit(log, as_kind="public", judged=False)
        fit.save(path)
        scenario = simulator.load(path)
        if world == "retries":
            return [
                (
                    float(
                        np.mean(
                            [row[3] == 429 for row in retries(np.random.default_rng(seed), *limit)]
                        )
                    ),
                    played_share(scenario, *limit, runs),
                )
                for limit in LIMITS
            ]
        played = [
            simulator.run(scenario, fidelity="compiled", seed=seed, check=False).requests[
                ["t_ns", "ip", "key"]
            ]
            for seed in range(runs)
        ]
    plain = log[["time", "ip", "key"]]
    return [
        (
            refused_share(plain, *limit),
            float(np.mean([refused_share(rows, *limit) for rows in played])),
        )
        for limit in LIMITS
    ]


def main() -> None:
    """Print each world's shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}")
    for world in parser.parse_args().worlds or WORLDS:
        began_s = time.monotonic()
        pairs = shares(world)
        text = "  ".join(f"{log:.1%} → {fitted:.1%}" for log, fitted in pairs)
        print(f"{world:<10} {text}  ({time.monotonic() - began_s:.0f} s)", flush=True)  # noqa: T201 # reason: a script's answer


if __name__ == "__main__":
    main()

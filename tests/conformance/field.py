"""The field: conforming deployments of every kind, run after run; none may be failed.

`python -m tests.conformance.field` plays 120 runs in virtual time: five algorithms, throttles that
refuse and that delay, 0, 50 and 150 ms of latency, a calm and a loaded machine, and the first and
third of three runs in a row on the same keys. It prints every false failure and how many clauses
were inconclusive, and exits 1 where anything was failed. Load is modelled, so that the machine
that plays it does not matter: pauses of everything that is under way, and a front that answers
some requests by itself, before or after the limiter has counted them.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from conformance.runner.registry import all_checks
from conformance.runner.runner import Options, Run
from conformance.runner.verdicts import Verdict
from conformance.wire.exchange import Ask
from conformance.wire.in_process import deploy
from conformance.wire.transport import Answer, EngineTransport, Place
from engine import Profile
from engine.profile import Algorithm
from engine.world import Clock

__all__ = ["RUNS", "Conditions", "Pauses", "Played", "play", "play_each"]

_MS_NS: Final = 1_000_000
ALGORITHMS: Final[tuple[Algorithm, ...]] = (
    "sliding-log",
    "fixed-window",
    "sliding-counter",
    "token-bucket",
    "gcra",
)
THROTTLES: Final = ("refuse", "delay")
TIMED: Final = ("proxies.timeout", "reactors.timeout")
MEASURING: Final = (
    *(check.id for check in all_checks().values() if check.is_probe),
    *TIMED,
)
"""The checks that measure limits and times: what a machine and an earlier run can disturb."""
_FRONT_STATUSES: Final = (408, 413, 414, 431, 502, 503, 504)
_FRONT_SHARE: Final = 0.003


@dataclasses.dataclass(frozen=True, slots=True)
class Conditions:
    """What a deployment is and where it stands; in_a_row: how many runs follow each other."""

    algorithm: Algorithm
    throttle: str
    latency_ms: int
    is_loaded: bool = False
    in_a_row: int = 1
    seed: int = 7

    @property
    def name(self) -> str:
        """One line of the table."""
        load = "loaded" if self.is_loaded else "calm"
        return f"{self.algorithm}, {self.throttle}, {self.latency_ms} ms, {load}, #{self.in_a_row}"


@dataclasses.dataclass(frozen=True, slots=True)
class Played:
    """What the last of the runs said: (clause, check, sentence) of failures and of the unsaid."""

    conditions: Conditions
    failed: tuple[tuple[str, str, str], ...]
    unsaid: tuple[tuple[str, str, str], ...]
    took_ns: int
    requests: int

    @property
    def unsaid_clauses(self) -> int:
        """How many clauses are inconclusive."""
        return len({clause for clause, _, _ in self.unsaid})


class Pauses:
    """Instants at which the whole machine stands still, as busy neighbours make it."""

    def __init__(self, seed: int, every_s: float = 0.4, most_s: float = 0.12) -> None:
        self._chance = random.Random(seed)
        self._every_s = every_s
        self._most_s = most_s
        self._last = [(0, 0)]

    def after(self, at_ns: int) -> int:
        """Return when what would happen at an instant does."""
        while self._last[-1][1] <= at_ns:
            begin = self._last[-1][1] + int(self._chance.expovariate(1 / self._every_s) * 1e9)
            lasts = int(self._chance.uniform(0.005, self._most_s) * 1e9)
            if self._chance.random() < 0.02:
                lasts *= 5
            self._last.append((begin, begin + lasts))
        del self._last[:-64]
        return next((end for begin, end in self._last if begin <= at_ns < end), at_ns)


class _Way:
    """The way there and back: a fixed part, a little jitter, and the pauses of a busy machine."""

    def __init__(self, conditions: Conditions, seed: int) -> None:
        self._chance = random.Random(seed)
        self._half_ns = conditions.latency_ms * _MS_NS // 2
        self._jitter_ns = max(_MS_NS // 2, self._half_ns // 15)
        self._pauses = Pauses(seed) if conditions.is_loaded else None
        self.clock: Clock | None = None

    def __call__(self) -> tuple[int, int]:
        there_ns, back_ns = (
            self._half_ns + self._chance.randrange(1, self._jitter_ns) for _ in range(2)
        )
        if self._pauses is None:
            return there_ns, back_ns
        assert self.clock is not None
        now_ns = self.clock.now_ns
        there = self._pauses.after(now_ns + there_ns)
        back = self._pauses.after(there + back_ns)
        return there - now_ns, back - there


class _Fronted(EngineTransport):
    """A deployment whose front answers some requests by itself: counted or not, nobody knows."""

    chance: random.Random | None = None

    async def send(self, ask: Ask, place: Place) -> Answer:
        answer: Answer
        if self.chance is None or self.chance.random() >= _FRONT_SHARE:
            answer = await super().send(ask, place)
            return answer
        status = self.chance.choice(_FRONT_STATUSES)
        if self.chance.random() < 0.5:
            answer = await super().send(ask, place)
            return Answer(answer.sent_ns, answer.received_ns, status, {}, b"")
        now_ns = self.now_ns
        return Answer(now_ns, now_ns + _MS_NS, status, {}, b"")


def play(conditions: Conditions, *, checks: Sequence[str] = ()) -> Played:
    """Run the suite as often as asked for, back to back on one deployment; return the last run."""
    return list(play_each(conditions, checks=checks))[-1]


def play_each(conditions: Conditions, *, checks: Sequence[str] = ()) -> Iterator[Played]:
    """Run the suite back to back on one deployment; yield what each run said."""
    all_checks()
    way = _Way(conditions, conditions.seed)
    choices = {"algorithm": conditions.algorithm, "throttle": conditions.throttle}
    made = deploy(profile=Profile().replace(limits=choices), latency=way)
    way.clock = made.engine.clock
    transport = made.transport
    transport.__class__ = _Fronted
    assert isinstance(transport, _Fronted)
    for turn in range(conditions.in_a_row):
        if conditions.is_loaded:
            transport.chance = random.Random(f"front {conditions.seed} {turn}")
        options = Options(checks=tuple(checks), seed=conditions.seed + turn)
        began_ns = transport.now_ns
        run = Run(made.target, options, transport=transport)
        run.execute()
        here = dataclasses.replace(conditions, in_a_row=turn + 1)
        yield _played(here, run, transport.now_ns - began_ns)


def _played(conditions: Conditions, run: Run, took_ns: int) -> Played:
    bad = {Verdict.FAIL, Verdict.ERROR}
    said = run.findings
    return Played(
        conditions,
        tuple((one.clause, one.check, one.says) for one in said if one.verdict in bad),
        tuple(
            (one.clause, one.check, one.says) for one in said if one.verdict is Verdict.INCONCLUSIVE
        ),
        took_ns,
        run.session.requests,
    )


def _all() -> Iterator[Conditions]:
    for algorithm, throttle, latency_ms, is_loaded, in_a_row in itertools.product(
        ALGORITHMS, THROTTLES, (0, 50, 150), (False, True), (1, 3)
    ):
        yield Conditions(algorithm, throttle, latency_ms, is_loaded, in_a_row)


RUNS: Final = tuple(_all())
"""The 120 runs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all, print what was said wrongly, return 1 where anything was failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.field")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default="", help="runs whose name holds all of these words")
    parser.add_argument("--full", action="store_true", help="with the checks of everything else")
    args = parser.parse_args(arguments)
    words = set(args.only.split())
    chosen = [one for one in RUNS if words <= set(one.name.replace(",", " ").split())]
    checks = () if args.full else MEASURING
    failed = most_calm = 0
    began = time.perf_counter()
    # The first of three in a row is a first run: both are played at once.
    rows: dict[Conditions, set[int]] = {}
    for one in chosen:
        rows.setdefault(dataclasses.replace(one, in_a_row=3), set()).add(one.in_a_row)
    last = [dataclasses.replace(one, in_a_row=max(wanted)) for one, wanted in rows.items()]
    with ProcessPoolExecutor(args.processes) as pool:
        for row in pool.map(_Play(checks), last):
            wanted = rows[dataclasses.replace(row[0].conditions, in_a_row=3)]
            for played in row:
                if played.conditions.in_a_row not in wanted:
                    continue
                failed += bool(played.failed)
                if not played.conditions.is_loaded:
                    most_calm = max(most_calm, played.unsaid_clauses)
                _say_of(played)
    _say(
        f"{failed} of {len(chosen)} conforming runs failed; calm ones leave at most {most_calm} "
        f"clauses inconclusive; {time.perf_counter() - began:.0f} s"
    )
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _say_of(played: Played) -> None:
    took = f"{played.took_ns / 1e9:.0f} s virtual, {played.requests} requests"
    line = f"{played.conditions.name}: {len(played.failed)} failed, "
    _say(f"{line}{played.unsaid_clauses} inconclusive, {took}")
    for clause, check, says in (*played.failed, *played.unsaid):
        mark = "FAIL" if (clause, check, says) in played.failed else "inconclusive"
        _say(f"    {mark} {clause} {check}: {says}")


class _Play:
    """`play_each` with some checks, for processes of their own."""

    def __init__(self, checks: Sequence[str]) -> None:
        self._checks = checks

    def __call__(self, conditions: Conditions) -> list[Played]:
        return list(play_each(conditions, checks=self._checks))


if __name__ == "__main__":
    sys.exit(main())

"""Paces: from when on a client may begin its next attempt, whatever waits for it.

The forms are `simulator.scenario`'s pacing classes, whose docstrings say what each means. Whoever
runs the client says when an attempt begins and what the answer was, and keeps the queue of waiting
attempts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.files import Rate
from simulator.scenario.clients import AimdPacing, Pacing
from simulator.traffic.draws import nearest_ns

_MILLI_NS: Final = 1_000_000_000_000
"""Between attempts at a thousandth of a request a second."""
_FASTEST_MILLI: Final = 1 << 55
"""No pace is faster, so that a hundredfold one fits into 64 bits; its gap is 0 all the same."""


@dataclass(slots=True)
class TokenBucketPace:
    """A bucket of tokens, kept as the instant at which it is full again.

    That instant has an exact fraction, in N-ths of a nanosecond where the rate is N per W. There is
    a token at t when (full - t) · N <= (burst - 1) · W.
    """

    rate: Rate
    burst: int
    next_attempt_ns: int
    full_ns: int
    full_part: int = 0

    def begin(self, now_ns: int) -> None:
        """Take the token of an attempt that begins."""
        limit, window_ns = self.rate
        if self.full_ns < now_ns:
            self.full_ns, self.full_part = now_ns, 0
        whole_ns, self.full_part = divmod(self.full_part + window_ns, limit)
        self.full_ns += whole_ns
        ahead_ns = ((self.burst - 1) * window_ns - self.full_part) // limit
        self.next_attempt_ns = max(now_ns, self.full_ns - ahead_ns)

    def accept(self, *, limited: bool) -> bool:
        """Ignore an answer; return False, as the next attempt stays where it is."""
        del limited
        return False


@dataclass(slots=True)
class AimdPace:
    """A pace in thousandths of a request a second: more with each answer, less with each 429."""

    milli: int
    least_milli: int
    most_milli: int
    increase_milli: int
    kept_percent: int
    next_attempt_ns: int
    began_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        """Note that an attempt begins."""
        self.began_ns = now_ns
        self.next_attempt_ns = now_ns + _MILLI_NS // self.milli

    def accept(self, *, limited: bool) -> bool:
        """Change the pace after an answer; return whether the next attempt moved."""
        if limited:
            self.milli = max(self.least_milli, self.milli * self.kept_percent // 100)
        else:
            self.milli = min(self.most_milli, self.milli + self.increase_milli)
        if self.began_ns is None:
            return False
        before_ns = self.next_attempt_ns
        self.next_attempt_ns = self.began_ns + _MILLI_NS // self.milli
        return self.next_attempt_ns != before_ns


Pace: TypeAlias = TokenBucketPace | AimdPace


def pace_of(pacing: Pacing, start_ns: int) -> Pace:
    """Return the fresh pace of a client that starts then."""
    if not isinstance(pacing, AimdPacing):
        return TokenBucketPace(pacing.rate, pacing.burst, start_ns, start_ns)
    least = _milli(pacing.minimum)
    most = max(least, _milli(pacing.maximum))
    return AimdPace(
        min(max(_milli(pacing.start), least), most),
        least,
        most,
        increase_milli=nearest_ns(pacing.increase * 1_000),
        kept_percent=100 - pacing.decrease_percent,
        next_attempt_ns=start_ns,
    )


def _milli(rate: Rate) -> int:
    return min(max(1, rate.limit_requests * _MILLI_NS // rate.window_ns), _FASTEST_MILLI)

"""When a client makes its next attempt: retries of what was refused, and paces.

The forms are `simulator.scenario`'s retry and pacing classes, whose docstrings say what each means;
the backoffs follow Brooker, "Exponential backoff and jitter" (2015). A pace says from when on a
client may begin its next attempt, whatever waits for it. Whoever runs the client says when an
attempt begins and what the answer was, and keeps the queue of waiting attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from engine.files import Rate
from simulator.scenario.clients import AimdPacing, FixedRetry, NoRetry, Pacing, Retry
from simulator.traffic.draws import nearest_ns, uniform_ns

_SECOND_NS: Final = 1_000_000_000

RetryKind: TypeAlias = Literal["none", "fixed", "exponential", "full-jitter", "decorrelated-jitter"]
"""How a policy's own delay follows from the attempts before: the `kind` of the scenario's form."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a client tries again.

    attempts: at a request, at most. statuses: of answers that are retried. base_ns, cap_ns: bounds
    of the policy's own delay. honours: whether it waits for `Retry-After` where that is longer.
    """

    kind: RetryKind
    attempts: int
    statuses: tuple[int, ...]
    base_ns: int
    cap_ns: int
    honours: bool

    def retries(self, status: int, attempt: int) -> bool:
        """Return whether another attempt follows the answer to attempt number `attempt`."""
        return attempt < self.attempts and status in self.statuses

    def delay_ns(self, attempt: int, last_ns: int, uniform: Callable[[], float]) -> int:
        """Return the policy's own delay after an attempt.

        last_ns: that after the one before. uniform: the client's stream of numbers for its delays.
        """
        if self.kind == "fixed":
            return self.base_ns
        if self.kind == "decorrelated-jitter":
            before_ns = last_ns if attempt > 1 else self.base_ns
            return min(self.cap_ns, uniform_ns(uniform(), self.base_ns, 3 * before_ns))
        full_ns = min(self.cap_ns, self.base_ns << attempt - 1)
        return full_ns if self.kind == "exponential" else uniform_ns(uniform(), 0, full_ns)

    def next_attempt_ns(self, now_ns: int, delay_ns: int, wait_ns: int | None) -> int:
        """Return when the next attempt is due.

        delay_ns: the policy's own. wait_ns: what a refusal announced, None for other answers.
        """
        if self.honours and wait_ns is not None:
            delay_ns = max(delay_ns, retry_after_ns(wait_ns))
        return now_ns + delay_ns


def retry_policy(retry: Retry, *, retry_after_enabled: bool = True) -> RetryPolicy:
    """Return the policy of a group's clients. retry_after_enabled: refusals carry `Retry-After`."""
    if isinstance(retry, NoRetry):
        return RetryPolicy(retry.kind, 1, (), 0, 0, honours=False)
    honours = retry_after_enabled and retry.honour_retry_after
    if isinstance(retry, FixedRetry):
        bounds = retry.delay_ns, retry.delay_ns
    else:
        bounds = retry.base_ns, retry.cap_ns
    return RetryPolicy(retry.kind, retry.attempts, retry.statuses, *bounds, honours)


def retry_after_ns(wait_ns: int) -> int:
    """Return what the `Retry-After` header says of a wait: whole seconds, rounded up, at least 1.

    >>> retry_after_ns(1), retry_after_ns(1_000_000_001)
    (1000000000, 2000000000)
    """
    return max(1, -(-wait_ns // _SECOND_NS)) * _SECOND_NS


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

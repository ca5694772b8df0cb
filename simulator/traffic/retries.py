"""Retry policies: when a client makes the next attempt at a request that was refused.

The forms are `simulator.scenario`'s retry classes, whose docstrings say what each means; the
backoffs follow Brooker, "Exponential backoff and jitter" (2015).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simulator.scenario.clients import (
    DecorrelatedJitter,
    ExponentialRetry,
    FixedRetry,
    FullJitter,
    NoRetry,
    Retry,
)
from simulator.scenario.draws import Drawn
from simulator.traffic.draws import uniform_ns
from simulator.traffic.population import Client

_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RetryPolicy(ABC):
    """When a client tries again.

    attempts: at a request, at most. statuses: of answers that are retried. base_ns, cap_ns: bounds
    of the policy's own delay. honours: whether it waits for `Retry-After` where that is longer.
    uniform: the client's stream of numbers for its delays.
    """

    attempts: int
    statuses: tuple[int, ...]
    base_ns: int
    cap_ns: int
    honours: bool
    uniform: Callable[[], float]

    def retries(self, status: int, attempt: int) -> bool:
        """Return whether another attempt follows the answer to attempt number `attempt`."""
        return attempt < self.attempts and status in self.statuses

    @abstractmethod
    def delay_ns(self, attempt: int, last_ns: int) -> int:
        """Return the policy's own delay after an attempt. last_ns: that after the one before."""

    def next_attempt_ns(self, now_ns: int, delay_ns: int, wait_ns: int | None) -> int:
        """Return when the next attempt is due.

        delay_ns: the policy's own. wait_ns: what a refusal announced, None for other answers.
        """
        if self.honours and wait_ns is not None:
            delay_ns = max(delay_ns, retry_after_ns(wait_ns))
        return now_ns + delay_ns


class FixedDelay(RetryPolicy):
    """The same delay before every retry."""

    __slots__ = ()

    def delay_ns(self, attempt: int, last_ns: int) -> int:
        """Return the delay."""
        del attempt, last_ns
        return self.base_ns


class ExponentialBackoff(RetryPolicy):
    """min(cap, base · 2^n) before retry n = 0, 1 and on."""

    __slots__ = ()

    def delay_ns(self, attempt: int, last_ns: int) -> int:
        """Return the delay."""
        del last_ns
        return min(self.cap_ns, self.base_ns << attempt - 1)


class FullJitterBackoff(ExponentialBackoff):
    """Uniform in [0, min(cap, base · 2^n)] before retry n."""

    __slots__ = ()

    def delay_ns(self, attempt: int, last_ns: int) -> int:
        """Draw the delay."""
        return uniform_ns(self.uniform(), 0, super().delay_ns(attempt, last_ns))


class DecorrelatedJitterBackoff(RetryPolicy):
    """min(cap, uniform in [base, 3 · last delay]), where the first retry's last delay is base."""

    __slots__ = ()

    def delay_ns(self, attempt: int, last_ns: int) -> int:
        """Draw the delay."""
        before_ns = last_ns if attempt > 1 else self.base_ns
        return min(self.cap_ns, uniform_ns(self.uniform(), self.base_ns, 3 * before_ns))


_POLICIES: Final[dict[type, type[RetryPolicy]]] = {
    ExponentialRetry: ExponentialBackoff,
    FullJitter: FullJitterBackoff,
    DecorrelatedJitter: DecorrelatedJitterBackoff,
}


def retry_policy(retry: Retry, client: Client, *, retry_after_enabled: bool = True) -> RetryPolicy:
    """Return a client's policy. retry_after_enabled: refusals carry `Retry-After`."""
    if isinstance(retry, NoRetry):
        return FixedDelay(1, (), 0, 0, honours=False, uniform=float)
    honours = retry_after_enabled and retry.honour_retry_after
    if isinstance(retry, FixedRetry):
        delay_ns = retry.delay_ns
        return FixedDelay(retry.attempts, retry.statuses, delay_ns, delay_ns, honours, float)
    uniform = client.stream("retry").uniform if isinstance(retry, Drawn) else float
    bounds = retry.base_ns, retry.cap_ns
    return _POLICIES[type(retry)](retry.attempts, retry.statuses, *bounds, honours, uniform)


def retry_after_ns(wait_ns: int) -> int:
    """Return what the `Retry-After` header says of a wait: whole seconds, rounded up, at least 1.

    >>> retry_after_ns(1), retry_after_ns(1_000_000_001)
    (1000000000, 2000000000)
    """
    return max(1, -(-wait_ns // _SECOND_NS)) * _SECOND_NS

"""Retry policies: when a client makes the next attempt at a request that was refused.

The forms are `simulator.scenario`'s retry classes, whose docstrings say what each means; the
backoffs follow Brooker, "Exponential backoff and jitter" (2015).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from simulator.scenario.clients import FixedRetry, NoRetry, Retry
from simulator.traffic.draws import uniform_ns

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

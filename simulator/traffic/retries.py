"""What a client does with an answer that asks for patience: how long it waits, if it asks again.

The forms are `simulator.scenario`'s retry classes, whose docstrings say what each means; the
backoffs are those of the field (Brooker, "Exponential backoff and jitter", 2015). A delay is a
function of the retry's number, the formula's last value and a number in (0, 1); nothing is kept.
"""

from __future__ import annotations

from typing import Final

from simulator.scenario.clients import (
    DecorrelatedJitter,
    ExponentialRetry,
    FixedRetry,
    FullJitter,
    NoRetry,
    Retry,
)
from simulator.traffic.draws import uniform_ns

__all__ = ["attempts_of", "draws", "own_delay_ns", "retry_after_ns"]

_SECOND_NS: Final = 1_000_000_000
_MOST_DOUBLINGS: Final = 62


def attempts_of(retry: Retry) -> int:
    """Return how many attempts a request may have, the first included."""
    return 1 if isinstance(retry, NoRetry) else retry.attempts


def draws(retry: Retry) -> bool:
    """Return whether each delay takes a number from the client's stream."""
    return isinstance(retry, FullJitter | DecorrelatedJitter)


def own_delay_ns(retry: Retry, number: int, last_ns: int, u: float) -> int:
    """Return the delay before retry `number` (0 is the first), without `Retry-After`.

    last_ns: the formula's last value within the request, ignored for the first retry.

    >>> policy = ExponentialRetry(base_ns=100, cap_ns=350)
    >>> [own_delay_ns(policy, n, 0, 0.5) for n in range(4)]
    [100, 200, 350, 350]
    """
    if isinstance(retry, FixedRetry):
        return retry.delay_ns
    assert not isinstance(retry, NoRetry), "who never retries never waits"
    if isinstance(retry, DecorrelatedJitter):
        before_ns = last_ns if number else retry.base_ns
        return min(retry.cap_ns, uniform_ns(u, retry.base_ns, 3 * before_ns))
    doublings = min(number, _MOST_DOUBLINGS)
    full_ns = min(retry.cap_ns, retry.base_ns << doublings)
    return full_ns if isinstance(retry, ExponentialRetry) else uniform_ns(u, 0, full_ns)


def retry_after_ns(wait_ns: int) -> int:
    """Return what the `Retry-After` header says of a wait: whole seconds, rounded up, at least 1.

    >>> retry_after_ns(1), retry_after_ns(1_000_000_001)
    (1000000000, 2000000000)
    """
    return max(1, -(-wait_ns // _SECOND_NS)) * _SECOND_NS

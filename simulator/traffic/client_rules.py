"""What a client does with answers: when it tries again, or gives up, and how it paces itself.

The forms are `simulator.scenario`'s retry and pacing classes, whose docstrings say what each means;
the backoffs follow Brooker, "Exponential backoff and jitter" (2015). All of it is plain functions
over integers and rows of integers, and both drivers use the same functions.

The driver tells a pace when an attempt begins and what the answer was; the pace returns the
earliest instant of the next attempt. The driver keeps the queue of waiting attempts.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Final

from engine.files import Rate
from simulator.scenario.clients import (
    AimdPacing,
    DecorrelatedJitter,
    ExponentialRetry,
    FixedRetry,
    FullJitter,
    NoRetry,
    Pacing,
    Retry,
)
from simulator.traffic.arrivals import NEVER_NS
from simulator.traffic.draws import nearest_ns, uniform_ns

_SECOND_NS: Final = 1_000_000_000
_MOST_DOUBLINGS: Final = 62

FIXED, EXPONENTIAL, FULL, DECORRELATED = range(4)
DRAWN: Final = FULL
"""From this kind on, each delay takes a number from the client's stream."""

_DELAYS: Final[dict[type, int]] = {
    FixedRetry: FIXED,
    ExponentialRetry: EXPONENTIAL,
    FullJitter: FULL,
    DecorrelatedJitter: DECORRELATED,
}


# A retry's rule: attempts in all, the kind, base and cap of its delays, whether it honours
# `Retry-After`. Of a request: the number of its attempt, and the last value of the delays' formula.
ATTEMPTS, KIND, BASE, CAP, HONOURS = range(5)
ATTEMPT, DELAY = range(2)


def retry_row(retry: Retry, *, told_to_wait: bool = True) -> list[int]:
    """Return a retry's rule. told_to_wait: refusals carry `Retry-After` (D-429-HEADERS)."""
    if isinstance(retry, NoRetry):
        return [1, FIXED, 0, 0, 0]
    honours = int(told_to_wait and retry.honour_retry_after)
    if isinstance(retry, FixedRetry):
        return [retry.attempts, FIXED, retry.delay_ns, retry.delay_ns, honours]
    return [retry.attempts, _DELAYS[type(retry)], retry.base_ns, retry.cap_ns, honours]


def goes_on_ns(
    rule: Sequence[int],
    tries: MutableSequence[int],
    wait_ns: int,
    now_ns: int,
    until_ns: int,
    stop_ns: int,
    u: float,
) -> int:
    """Return when a request goes on after an answer that it retries.

    Before `until_ns` its next attempt begins, and is noted in `tries`. Else it fails at `until_ns`,
    its deadline, or now where that is over; `NEVER_NS` where neither comes before the stop.
    wait_ns: what the limits announced, −1 where they did not refuse. u: of the client's stream,
    where delays are drawn.

    >>> rule = retry_row(FixedRetry(delay_ns=5))
    >>> [goes_on_ns(rule, [1, 0], -1, 100, until_ns, 200, 0.5) for until_ns in (106, 105, 95)]
    [105, 105, 95]
    """
    own_ns = own_delay_ns(rule[KIND], rule[BASE], rule[CAP], tries[ATTEMPT] - 1, tries[DELAY], u)
    tries[DELAY] = own_ns
    at_ns = now_ns + own_ns
    if rule[HONOURS] and wait_ns >= 0:
        at_ns = now_ns + max(own_ns, retry_after_ns(wait_ns))
    if at_ns < until_ns and at_ns < stop_ns:
        tries[ATTEMPT] += 1
        return at_ns
    return until_ns if until_ns < stop_ns or until_ns <= now_ns else NEVER_NS


def own_delay_ns(kind: int, base_ns: int, cap_ns: int, number: int, last_ns: int, u: float) -> int:
    """Return the delay before retry `number` (0 is the first), without `Retry-After`.

    last_ns: the formula's last value within the request, ignored for the first retry. No value on
    the way is above 3 × cap, so that nothing overflows where it is compiled.

    >>> [own_delay_ns(EXPONENTIAL, 100, 350, n, 0, 0.5) for n in range(4)]
    [100, 200, 350, 350]
    """
    if kind == FIXED:
        return base_ns
    if kind == DECORRELATED:
        before_ns = last_ns if number else base_ns
        return min(cap_ns, uniform_ns(u, base_ns, 3 * before_ns))
    doublings = min(number, _MOST_DOUBLINGS)
    full_ns = cap_ns if base_ns > cap_ns >> doublings else base_ns << doublings
    return full_ns if kind == EXPONENTIAL else uniform_ns(u, 0, full_ns)


def retry_after_ns(wait_ns: int) -> int:
    """Return what the `Retry-After` header says of a wait: whole seconds, rounded up, at least 1.

    >>> retry_after_ns(1), retry_after_ns(1_000_000_001)
    (1000000000, 2000000000)
    """
    return max(1, -(-wait_ns // _SECOND_NS)) * _SECOND_NS


# --- pacing --------------------------------------------------------------------------------------

UNPACED, BUCKET, AIMD = range(3)

_MILLI_NS: Final = 1_000_000_000_000
"""Between attempts at a thousandth of a request a second."""
_FASTEST: Final = 1 << 55
"""No pace is faster, so that a hundredfold one fits into 64 bits; its gap is 0 all the same."""

# A pace's line and rule; DUE is the same in both kinds.
DUE: Final = 0  # the instant from which the next attempt may begin
PACE: Final = 1  # AIMD: thousandths of a request a second
LAST: Final = 2  # AIMD: when the last attempt began, -1 = none yet
TAT: Final = 3  # bucket: when it is full again, in whole nanoseconds
PART: Final = 4  # bucket: and the fraction, in N-ths of a nanosecond
LINE_SIZE: Final = 5
LIMIT, STEP, REST, SLACK = range(4)  # bucket: N, W / N, W mod N, (burst - 1) · W, of the rule
FLOOR, TOP, GROWTH, KEPT_PERCENT = range(4)  # AIMD: of the rule


def pace_rows(pacing: Pacing, start_ns: int) -> tuple[int, list[int], list[int]]:
    """Return the kind, the line and the rule of a fresh pace of a client that starts then."""
    line, rule = [-1] * LINE_SIZE, [0] * 4
    line[DUE], line[TAT], line[PART] = start_ns, start_ns, 0
    if isinstance(pacing, AimdPacing):
        floor = _milli(pacing.minimum)
        top = max(floor, _milli(pacing.maximum))
        line[PACE] = min(max(_milli(pacing.start), floor), top)
        growth = nearest_ns(pacing.increase * 1_000)
        rule[:] = floor, top, growth, 100 - pacing.decrease_percent
        return AIMD, line, rule
    limit, window_ns = pacing.rate
    rule[:] = limit, *divmod(window_ns, limit), (pacing.burst - 1) * window_ns
    return BUCKET, line, rule


def begin_attempt(kind: int, line: MutableSequence[int], rule: Sequence[int], now_ns: int) -> None:
    """Note that an attempt begins; a bucket gives a token for it."""
    if kind == AIMD:
        line[LAST] = now_ns
        line[DUE] = now_ns + _MILLI_NS // line[PACE]
    else:
        _take_token(line, rule, now_ns)


def _take_token(line: MutableSequence[int], rule: Sequence[int], now_ns: int) -> None:
    """Take a token; the bucket holds one at t when (TAT - t) · N <= (burst - 1) · W."""
    if line[TAT] < now_ns:
        line[TAT], line[PART] = now_ns, 0
    line[TAT] += rule[STEP]
    line[PART] += rule[REST]
    if line[PART] >= rule[LIMIT]:
        line[PART] -= rule[LIMIT]
        line[TAT] += 1
    line[DUE] = max(now_ns, line[TAT] - (rule[SLACK] - line[PART]) // rule[LIMIT])


def take_answer(kind: int, line: MutableSequence[int], rule: Sequence[int], limited: int) -> bool:
    """Increase an AIMD pace, or decrease it after a 429; return whether `DUE` changed.

    A bucket ignores answers.
    """
    if kind != AIMD:
        return False
    if limited:
        line[PACE] = max(rule[FLOOR], line[PACE] * rule[KEPT_PERCENT] // 100)
    else:
        line[PACE] = min(rule[TOP], line[PACE] + rule[GROWTH])
    if line[LAST] < 0:
        return False
    before_ns = line[DUE]
    line[DUE] = line[LAST] + _MILLI_NS // line[PACE]
    return line[DUE] != before_ns


def _milli(rate: Rate) -> int:
    return min(max(1, rate[0] * _MILLI_NS // rate[1]), _FASTEST)

"""How "N requests per W" are counted (D-ALGORITHM): a class an algorithm, in exact integers.

The main idea: between two charges, a counter that admits a request also admits it later. So each
charge returns the earliest instant at which the next request would be admitted. To test a counter
is then one comparison, `counter.ready_ns > now_ns`; the exact wait is the difference; and only a
charge runs an algorithm.

A `Counter` adds what is the same for all algorithms: the block in force, the releases that were
promised to delayed requests, and charges that an answer takes back.

Instants are nanoseconds, not negative, and those charged to one counter never decrease.
Which requests are counted where is `engine.limits.rules`; several counters at once are
`engine.limits.limiter`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self

from engine.profile import Algorithm

FAR_NS: Final = 1 << 62
"""No instant is later: 146 years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSettings:
    """How the counters of a rule count.

    name: what decisions call the rule. in_shadow: it counts and never refuses.
    tick_ns: 1 where edges are closed (D-EDGES). is_anchored: fixed windows start at the first
    charge. offset_ns: how long before instant 0 a multiple of the window since the Unix epoch was
    (D-ALIGN). block_ns: 0 of a throttle. clears, extends: D-BLOCK-RESET, D-BLOCK-START.
    longest_delay_ns: 0 where throttles refuse. takes_back: answers other than 2xx take their
    charges back (D-COUNTED).
    """

    algorithm: Algorithm
    limit_requests: int
    window_ns: int
    burst_requests: int
    name: str = ""
    in_shadow: bool = False
    tick_ns: int = 0
    is_anchored: bool = False
    offset_ns: int = 0
    block_ns: int = 0
    clears: bool = False
    extends: bool = False
    longest_delay_ns: int = 0
    takes_back: bool = False

    def window_start_ns(self, t_ns: int) -> int:
        """Return when the aligned window of an instant starts."""
        return t_ns - (t_ns + self.offset_ns) % self.window_ns


class CounterState(ABC):
    """What one counter has counted under one algorithm; a fresh one has counted nothing.

    most_windows: in any window at most so many times N are admitted; has_burst: and a burst beside
    them. takes_burst: the burst is a rule's own. has_windows: of fixed edges; takes_anchor: the
    first charge can be one. refills: room comes back between two edges.
    """

    __slots__ = ()
    most_windows: ClassVar[int] = 1
    has_burst: ClassVar[bool] = False
    takes_burst: ClassVar[bool] = False
    has_windows: ClassVar[bool] = False
    takes_anchor: ClassVar[bool] = False
    refills: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, settings: CounterSettings) -> None: ...

    @abstractmethod
    def charge(self, t_ns: int) -> int:
        """Count one request; return from when on the next one would be admitted, `t_ns` or later.

        Blocks apart.
        """

    @abstractmethod
    def remaining(self, now_ns: int) -> int:
        """Return how many requests it would admit now, one after another; blocks apart."""

    @abstractmethod
    def idle_ns(self) -> int:
        """Return from when on it decides as a fresh one does; blocks apart."""

    def copy(self) -> Self:
        """Return a window that has counted the same."""
        return copy.copy(self)


class SlidingLog(CounterState):
    """Admit when fewer than N charges lie in (t - W, t]; closed edges: in [t - W, t].

    The log holds at most the last N charges. When it is full, there is room as soon as the oldest
    leaves the window.
    """

    __slots__ = ("limit_requests", "log", "span_ns")

    def __init__(self, settings: CounterSettings) -> None:
        self.limit_requests = settings.limit_requests
        self.span_ns = settings.window_ns + settings.tick_ns
        self.log: deque[int] = deque(maxlen=settings.limit_requests)

    def charge(self, t_ns: int) -> int:
        """Add to the log; where it is full, wait until its oldest charge leaves the window."""
        log = self.log
        log.append(t_ns)
        if len(log) == self.limit_requests:
            return max(t_ns, log[0] + self.span_ns)
        return t_ns

    def remaining(self, now_ns: int) -> int:
        """Return N less the charges in (t - W, t]."""
        log, gone_ns = self.log, now_ns - self.span_ns
        while log and log[0] <= gone_ns:
            log.popleft()
        return self.limit_requests - len(log)

    def idle_ns(self) -> int:
        """Return when the last charge leaves the window."""
        return self.log[-1] + self.span_ns if self.log else 0

    def copy(self) -> Self:
        """Return a log of its own that holds the same."""
        copied = copy.copy(self)
        copied.log = self.log.copy()
        return copied


class FixedWindow(CounterState):
    """Admit when fewer than N charges lie in the window of t.

    Windows start at multiples of W since the Unix epoch (D-ALIGN); or, anchored, at the first
    charge that finds none open (closed edges: such a window ends one tick later).
    """

    __slots__ = ("count", "end_ns", "settings")
    most_windows = 2
    has_windows = True
    takes_anchor = True

    def __init__(self, settings: CounterSettings) -> None:
        self.settings = settings
        self.end_ns = self.count = 0

    def charge(self, t_ns: int) -> int:
        """Count it in the window of t; where that is full, wait until it ends."""
        settings = self.settings
        if t_ns >= self.end_ns:
            if settings.is_anchored:
                self.end_ns = t_ns + settings.window_ns + settings.tick_ns
            else:
                self.end_ns = settings.window_start_ns(t_ns) + settings.window_ns
            self.count = 0
        self.count += 1
        return self.end_ns if self.count >= settings.limit_requests else t_ns

    def remaining(self, now_ns: int) -> int:
        """Return N less the charges in the window of t."""
        limit_requests = self.settings.limit_requests
        return limit_requests if now_ns >= self.end_ns else max(0, limit_requests - self.count)

    def idle_ns(self) -> int:
        """Return when the window of the last charge ends."""
        return self.end_ns


class SlidingCounter(CounterState):
    """Admit when floor(previous * (W - e) / W) + current + 1 <= N, with e = t - start.

    `current` counts the charges in the window of the last charge, `previous` those in the one
    before. With `free` places beside `current` that says previous * (W - e) <= free * W - 1, which
    is solved for e; with none free it is solved in the next window, where `current` has become
    `previous`.
    """

    __slots__ = ("current", "previous", "settings", "start_ns")
    most_windows = 2
    has_windows = True
    refills = True

    def __init__(self, settings: CounterSettings) -> None:
        self.settings = settings
        self.start_ns = -settings.offset_ns
        self.previous = self.current = 0

    def charge(self, t_ns: int) -> int:
        """Count it in the window of t, and solve the condition for e."""
        settings, start_ns = self.settings, self.start_ns
        window_ns = settings.window_ns
        if not start_ns <= t_ns < start_ns + window_ns:  # a division only where a window begins
            before_ns, start_ns = start_ns, settings.window_start_ns(t_ns)
            self.previous = self.current if start_ns == before_ns + window_ns else 0
            self.current, self.start_ns = 0, start_ns
        self.current += 1
        free = settings.limit_requests - self.current
        if free <= 0:
            ready_ns = start_ns + 2 * window_ns
            ready_ns -= (settings.limit_requests * window_ns - 1) // self.current
        elif self.previous:
            ready_ns = start_ns + window_ns - (free * window_ns - 1) // self.previous
        else:
            return t_ns
        return max(t_ns, ready_ns)

    def remaining(self, now_ns: int) -> int:
        """Return N - current - floor(previous * (W - e) / W)."""
        window_ns = self.settings.window_ns
        start_ns = self.settings.window_start_ns(now_ns)
        previous, current = self.previous, self.current
        if start_ns > self.start_ns:
            follows = start_ns == self.start_ns + window_ns
            previous, current = (current if follows else 0), 0
        weighed = previous * (window_ns - (now_ns - start_ns)) // window_ns
        return max(0, self.settings.limit_requests - current - weighed)

    def idle_ns(self) -> int:
        """Return when the window after that of the last charge ends."""
        return self.start_ns + 2 * self.settings.window_ns if self.current else 0


class Gcra(CounterState):
    """Admit when (TAT - t) * N <= (burst - 1) * W; a charge sets TAT = max(TAT, t) + W / N.

    The theoretical arrival time is kept times N, so that nothing is rounded. A debt (refused
    requests that count) stops growing at `FAR_NS`.
    """

    __slots__ = ("arrival", "limit_requests", "slack", "window_ns")
    has_burst = True
    takes_burst = True
    refills = True

    def __init__(self, settings: CounterSettings) -> None:
        self.limit_requests = settings.limit_requests
        self.window_ns = settings.window_ns
        self.slack = (settings.burst_requests - 1) * settings.window_ns
        self.arrival = 0  # TAT * N

    def charge(self, t_ns: int) -> int:
        """Move TAT by W / N, and solve the condition for t."""
        limit_requests = self.limit_requests
        arrival = max(self.arrival, t_ns * limit_requests)
        if arrival < FAR_NS * limit_requests:
            arrival += self.window_ns
        self.arrival = arrival
        return max(t_ns, -((self.slack - arrival) // limit_requests))

    def remaining(self, now_ns: int) -> int:
        """Return how many requests the burst still admits: free steps of W / N."""
        debt = max(0, self.arrival - now_ns * self.limit_requests)
        return max(0, (self.slack - debt) // self.window_ns + 1)

    def idle_ns(self) -> int:
        """Return TAT, rounded up."""
        return -(-self.arrival // self.limit_requests)


class TokenBucket(Gcra):
    """GCRA with a burst of N.

    The bucket is full again at TAT, so it holds a token at t exactly when
    (TAT - t) * N <= (N - 1) * W.
    """

    __slots__ = ()
    takes_burst = False


ALGORITHMS: Final[dict[Algorithm, type[CounterState]]] = {
    "sliding-log": SlidingLog,
    "fixed-window": FixedWindow,
    "sliding-counter": SlidingCounter,
    "token-bucket": TokenBucket,
    "gcra": Gcra,
}
"""The algorithms of D-ALGORITHM."""


class Counter:
    """One counter: its window, the block in force, and the last release that was promised.

    ready_ns: from when on the next request would be admitted; never before the block's end.
    """

    __slots__ = ("blocked_until_ns", "ready_ns", "reserved_ns", "settings", "undo_log", "window")

    def __init__(self, settings: CounterSettings) -> None:
        self.settings = settings
        self.window = ALGORITHMS[settings.algorithm](settings)
        self.ready_ns = 0
        self.blocked_until_ns = 0
        self.reserved_ns = 0
        self.undo_log = UndoLog(self) if settings.takes_back else None

    def charge(self, t_ns: int) -> None:
        """Count one request."""
        self.ready_ns = max(self.window.charge(t_ns), self.blocked_until_ns)

    def admit(self, t_ns: int) -> Charge | None:
        """Count an admitted request at its release; return what may be taken back."""
        self.charge(t_ns)
        self.reserved_ns = t_ns
        return None if self.undo_log is None else self.undo_log.record(t_ns)

    def charge_refused(self, now_ns: int) -> None:
        """Count a refused request (D-COUNT all), but in no block that ends with a fresh window."""
        if self.blocked_until_ns <= now_ns or not self.settings.clears:
            self.charge(max(now_ns, self.reserved_ns))

    def release_ns(self, now_ns: int) -> int | None:
        """Return when a request would be let go, None where it is refused.

        First come, first served: not before the last promised release (D-THROTTLE). A delaying
        throttle holds a request until there is room, up to the bound. A block rule holds it only
        until the last promised release, and refuses it if it exceeds the rate then.
        """
        settings, ready_ns = self.settings, self.ready_ns
        if ready_ns <= now_ns:
            return now_ns
        if not settings.block_ns:
            # obeys LIM-THROTTLE
            return ready_ns if ready_ns - now_ns <= settings.longest_delay_ns else None
        if self.blocked_until_ns <= now_ns and ready_ns <= self.reserved_ns:
            return self.reserved_ns
        self.block(now_ns)
        return None

    def block(self, now_ns: int) -> None:
        """Refuse one request by a block rule that is beyond its rate.

        The first one begins a block, which refuses it and all later ones before its end (LIM-BLOCK,
        D-BLOCK-START); refusals inside it move its end only where they extend it. A block that
        clears (D-BLOCK-RESET) makes the window fresh, and nothing is charged before its end.
        """
        settings = self.settings
        if self.blocked_until_ns <= now_ns:
            if settings.clears:
                self.window = ALGORITHMS[settings.algorithm](settings)
                self.ready_ns = self.reserved_ns = 0
                if self.undo_log is not None:
                    self.undo_log = UndoLog(self)
        elif not settings.extends:
            return
        # obeys LIM-BLOCK
        self.blocked_until_ns = now_ns + settings.block_ns
        self.ready_ns = max(self.ready_ns, self.blocked_until_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Return how long until this counter alone would no longer refuse."""
        wait_ns = self.ready_ns - now_ns
        return wait_ns if self.settings.block_ns else wait_ns - self.settings.longest_delay_ns

    def refuses_for_ns(self, now_ns: int) -> int:
        """Return how long it refuses from now on, 0 when it does not."""
        is_blocked = self.blocked_until_ns > now_ns
        if self.settings.block_ns and not is_blocked and self.ready_ns <= self.reserved_ns:
            return 0  # there is room after the last promised release
        return max(0, self.wait_ns(now_ns))

    def is_idle(self, now_ns: int) -> bool:
        """Whether it decides like a fresh counter from now on."""
        if self.blocked_until_ns > now_ns or self.undo_log:
            return False
        return self.window.idle_ns() <= now_ns

    def assign(self, other: Counter) -> None:
        """Take over the state of another counter of the same rule, and its window itself."""
        self.window = other.window
        self.ready_ns = other.ready_ns
        self.blocked_until_ns = other.blocked_until_ns
        self.reserved_ns = other.reserved_ns


def charge_all(counters: Iterable[Counter], t_ns: int) -> None:
    """Count one request in several counters, none of which is in a block."""
    for counter in counters:
        counter.ready_ns = counter.window.charge(t_ns)


class RateLimitStatus(NamedTuple):
    """The state of the rule with the least room left (D-429-HEADERS).

    rule: its name as in `Decision.rule`. remaining_requests: how many it would admit now.
    reset_ns: how long until all of `limit_requests` are available again, if no request comes.
    wait_ns: how long until no rule would refuse the same subject, if no other request comes; 0 when
        none refuses now. Where refused requests count (D-COUNT), a refused request may exhaust a
        counter that did not refuse it. Then this is longer than the decision's `wait_ns`, which
        covers only the rules that refused.
    """

    rule: str
    limit_requests: int
    remaining_requests: int
    window_ns: int
    reset_ns: int
    wait_ns: int

    @property
    def retry_after_s(self) -> int:
        """`wait_ns` in whole seconds, rounded up, at least 1: the `Retry-After` of a refusal."""
        return max(1, -(-self.wait_ns // 1_000_000_000))


def status_of(counters: Iterable[Counter], now_ns: int) -> RateLimitStatus | None:
    """Return what the one with the smallest remaining ÷ limit has left (D-429-HEADERS).

    Of equal ones the one with the longest wait, then the first. The wait is the longest of all.
    """
    scarcest: Counter | None = None
    remaining, limit, its_wait_ns, longest_wait_ns = 1, 0, 0, 0  # more than any counter has
    for counter in counters:
        left, wait_ns = 0, 0
        if counter.blocked_until_ns <= now_ns:
            left = counter.window.remaining(now_ns)
        if counter.ready_ns > now_ns:
            wait_ns = counter.refuses_for_ns(now_ns)
            longest_wait_ns = max(longest_wait_ns, wait_ns)
        own_limit = counter.settings.limit_requests
        difference = left * limit - remaining * own_limit
        if difference < 0 or (not difference and wait_ns > its_wait_ns):
            scarcest, remaining, limit, its_wait_ns = counter, left, own_limit, wait_ns
    if scarcest is None:
        return None
    name, window_ns = scarcest.settings.name, scarcest.settings.window_ns
    idle_at_ns = max(scarcest.window.idle_ns(), scarcest.blocked_until_ns, now_ns)
    return RateLimitStatus(name, limit, remaining, window_ns, idle_at_ns - now_ns, longest_wait_ns)


class Charge:
    """One charge whose answer is not known: its instant, and whether it is to stay."""

    __slots__ = ("stays", "t_ns")

    def __init__(self, t_ns: int) -> None:
        self.t_ns = t_ns
        self.stays = False


class UndoLog:
    """The charges of one counter from its oldest one without an answer on, and what was before.

    A request is decided at its arrival, before its answer is known, so it is charged then; an
    answer other than 2xx takes the charge back. From that moment on the counter is as if the
    request had never been made: the later charges are made again without it. Decisions about other
    requests meanwhile are not revised, nor are the blocks that they began.
    """

    __slots__ = ("_charges", "_counter", "_ready_ns", "_reserved_ns", "_window")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._charges: deque[Charge] = deque()
        self._window = counter.window.copy()
        self._ready_ns = self._reserved_ns = 0

    def __len__(self) -> int:
        return len(self._charges)

    def record(self, t_ns: int) -> Charge:
        """Note a charge that was made."""
        charge = Charge(t_ns)
        self._charges.append(charge)
        return charge

    def commit(self, charge: Charge) -> None:
        """The answer was a success: the charge stays."""
        charge.stays = True
        self._forget()

    def refund(self, charge: Charge) -> None:
        """The answer was no success: take the charge back."""
        if charge not in self._charges:
            return  # the counter was cleared since
        self._charges.remove(charge)
        counter = self._counter
        counter.window = self._window.copy()
        counter.ready_ns = max(self._ready_ns, counter.blocked_until_ns)
        counter.reserved_ns = self._reserved_ns
        for later in self._charges:
            counter.charge(later.t_ns)
            counter.reserved_ns = later.t_ns
        self._forget()

    def _forget(self) -> None:
        """Forget the oldest charges as far as all of them stay."""
        while self._charges and self._charges[0].stays:
            t_ns = self._charges.popleft().t_ns
            self._ready_ns = self._window.charge(t_ns)
            self._reserved_ns = t_ns

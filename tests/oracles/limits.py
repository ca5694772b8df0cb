"""The limits by brute force: every request re-reads the whole history of every counter it meets.

Written from the decisions list alone, and shares nothing with `engine.limits` but the records that
go in (`LimitTable`, `Subject`, `LimitsProfile`). It keeps no state but histories: the instants
charged to a counter and the blocks that began. Windows are counted, buckets are refilled in
fractions, and waits are found by search, not by formula. Slow, and easy to believe.

    oracle = Oracle({"Default": table}, profile)
    verdict = oracle.decide(now_ns, subject)      # compare with Decision, field by field
    oracle.status(now_ns, subject)                # compare with RateLimitStatus
    oracle.settle(verdict, status)                # where only 2xx count
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

from engine.limits import LimitTable, Rule, Subject
from engine.profile import LimitsProfile

History = list[int]


@dataclass
class Verdict:
    """What the oracle decided; the fields of `Decision`, and what to give back."""

    outcome: str
    rule: str | None = None
    refusing: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    shadow: tuple[str, ...] = ()
    wait_ns: int = 0
    number: int = field(default=-1, compare=False)

    @property
    def parts(self) -> tuple[object, ...]:
        """The fields that a decision has too, in its order."""
        return (
            self.outcome,
            self.rule,
            self.refusing,
            self.counted,
            self.shadow,
            self.wait_ns,
        )


# --- the algorithms, each re-reading a history (D-ALGORITHM, D-EDGES) ----------------------------


def sliding_log(history: History, t: int, rule: Rule, profile: LimitsProfile) -> bool:
    """Fewer than N admitted in (t − W, t]."""
    if profile.edges == "closed":
        inside = [x for x in history if t - rule.window_ns <= x <= t]
    else:
        inside = [x for x in history if t - rule.window_ns < x <= t]
    return len(inside) < rule.limit_requests


def fixed_window(history: History, t: int, rule: Rule, profile: LimitsProfile) -> bool:
    """Fewer than N in the window of t: a multiple of W, or anchored at the first admission."""
    if profile.fixed_anchor == "aligned":
        inside = [x for x in history if x // rule.window_ns == t // rule.window_ns]
        return len(inside) < rule.limit_requests
    windows: list[tuple[int, int]] = []  # start, charges
    for x in history:
        if windows and _open(windows[-1][0], x, rule, profile):
            windows[-1] = (windows[-1][0], windows[-1][1] + 1)
        else:
            windows.append((x, 1))
    if not windows or not _open(windows[-1][0], t, rule, profile):
        return True
    return windows[-1][1] < rule.limit_requests


def _open(start: int, t: int, rule: Rule, profile: LimitsProfile) -> bool:
    if profile.edges == "closed":
        return t <= start + rule.window_ns
    return t < start + rule.window_ns


def sliding_counter(history: History, t: int, rule: Rule, profile: LimitsProfile) -> bool:
    """⌊prev·(W−e)/W⌋ + cur + 1 ≤ N."""
    window_ns = rule.window_ns
    prev = sum(x // window_ns == t // window_ns - 1 for x in history)
    cur = sum(x // window_ns == t // window_ns for x in history)
    weighted = int(Fraction(prev * (window_ns - t % window_ns), window_ns))
    return weighted + cur + 1 <= rule.limit_requests


def token_bucket(history: History, t: int, rule: Rule, profile: LimitsProfile) -> bool:
    """Capacity N, starts full, refills N per W continuously; a request takes a token."""
    level = Fraction(rule.limit_requests)
    refill = Fraction(rule.limit_requests, rule.window_ns)
    last = 0
    for x in history:
        level = min(Fraction(rule.limit_requests), level + (x - last) * refill) - 1
        last = x
    return min(Fraction(rule.limit_requests), level + (t - last) * refill) >= 1


def gcra(history: History, t: int, rule: Rule, profile: LimitsProfile) -> bool:
    """Admit when (TAT − t)·N ≤ (burst − 1)·W."""
    burst = rule.burst_requests or profile.burst_requests or rule.limit_requests
    tat = Fraction(0)
    for x in history:
        tat = max(tat, Fraction(x)) + Fraction(rule.window_ns, rule.limit_requests)
    return (tat - t) * rule.limit_requests <= (burst - 1) * rule.window_ns


Admits = Callable[[History, int, Rule, LimitsProfile], bool]
ALGORITHMS: dict[str, Admits] = {
    "sliding-log": sliding_log,
    "fixed-window": fixed_window,
    "sliding-counter": sliding_counter,
    "token-bucket": token_bucket,
    "gcra": gcra,
}


class Counter:
    """One counter: what was charged to it, by request number, and its latest block."""

    def __init__(self, name: str, rule: Rule, profile: LimitsProfile, origin: int) -> None:
        self.name = name
        self.rule = rule
        self.origin = origin
        self.profile = profile
        self.charged: list[tuple[int, int]] = []
        self.block_until = 0
        self.is_block = rule.action == "block"

    @property
    def history(self) -> History:
        """The instants charged, in order."""
        return [t for t, _ in self.charged]

    @property
    def last(self) -> int:
        """The last reserved release."""
        return max(self.history, default=0)

    def admits(self, t: int, more: int = 0) -> bool:
        """Whether the rate alone admits at t, after so many more charges at t.

        Windows are aligned to the Unix epoch (D-ALIGN), so all instants are counted from there.
        """
        algorithm = self.rule.algorithm or self.profile.algorithm
        history = [x + self.origin for x in (*self.history, *[t] * more)]
        return ALGORITHMS[algorithm](history, t + self.origin, self.rule, self.profile)

    def remaining(self, now: int) -> int:
        """How many requests at one instant it would admit."""
        if now < self.block_until:
            return 0
        return next(more for more in count() if not self.admits(now, more))

    def refuses_for(self, now: int) -> int:
        """How long it refuses from now on, if nothing comes."""
        return self.wait(now) if now < self.block_until or not self.admits(now) else 0

    def earliest(self, start: int) -> int:
        """The first instant from `start` on at which the rate alone admits, by search."""
        if self.admits(start):
            return start
        low, high = start, start + 1
        while not self.admits(high):
            low, high = high, start + 2 * (high - start)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.admits(middle) else (middle, high)
        return high

    def judge(self, now: int) -> int | None:
        """The release that this rule asks for, or None when it refuses; begins its block."""
        place = max(now, self.last)
        delays = self.profile.throttle == "delay"
        if not self.is_block:
            release = self.earliest(place if delays else now)
            return release if release - now <= self._bound else None
        assert self.rule.block_ns is not None
        tick = 1 if self.profile.edges == "closed" else 0
        if now < self.block_until:
            if self.profile.block_extends:
                self.block_until = now + self.rule.block_ns + tick
            return None
        if self.admits(place):
            return place
        self.block_until = now + self.rule.block_ns + tick
        if self.profile.block_reset == "clear":
            self.charged.clear()
        return None

    @property
    def _bound(self) -> int:
        return self.profile.delay_bound_ns if self.profile.throttle == "delay" else 0

    def wait(self, now: int) -> int:
        """How long until this rule, which refuses now, would not refuse, if nothing came."""
        if self.is_block:
            return self.earliest(max(now, self.block_until, self.last)) - now
        return self.earliest(max(now, self.last)) - self._bound - now

    def charge(self, t: int, number: int) -> None:
        """Count a request; a block that clears counts nothing while it lasts."""
        self.charged.append((t, number))
        assert self.history == sorted(self.history)

    def charge_refused(self, now: int, number: int) -> None:
        """Count a request that was refused (D-COUNT all)."""
        if self.profile.block_reset == "clear" and now < self.block_until:
            return
        self.charge(max(now, self.last), number)


class Oracle:
    """The limiter by brute force; `decide` and `settle` as `engine.limits.Limiter` has them."""

    def __init__(
        self, tables: Mapping[str, LimitTable], profile: LimitsProfile, *, origin_ns: int = 0
    ) -> None:
        self.tables = tables
        self.profile = profile
        self.origin = origin_ns
        self.counters: dict[object, Counter] = {}
        self._numbers = count()

    def decide(self, now: int, subject: Subject) -> Verdict:
        """Decide about one request."""
        profile = self.profile
        success = profile.counted_statuses == "success"
        counts_refused = profile.count_refused and not success
        met = self._met(subject)
        number = next(self._numbers)
        judged = [(counter, counter.judge(now)) for counter in met]
        refusing = [c for c, release in judged if release is None and not c.rule.shadow]
        shadow = [c for c, release in judged if release is None and c.rule.shadow]
        shadow_names = tuple(c.name for c in shadow)
        if refusing:
            counted = met if counts_refused else []
            for counter in counted:
                counter.charge_refused(now, number)
            decider = max(refusing, key=lambda c: (c.wait(now), c.is_block))
            return Verdict(
                "blocked" if decider.is_block else "refused",
                decider.name,
                tuple(c.name for c in refusing),
                tuple(c.name for c in counted),
                shadow_names,
                decider.wait(now),
            )
        releases = [(r, c) for c, r in judged if r is not None and not c.rule.shadow]
        release = max((r for r, _ in releases), default=now)
        rule = None
        if release > now:
            rule = max(releases, key=lambda each: (each[0], each[1].is_block))[1].name
        counted = []
        for counter, own in judged:
            if own is None:
                if not counts_refused:
                    continue
                counter.charge_refused(now, number)
            else:
                counter.charge(max(release, own) if counter.rule.shadow else release, number)
            counted.append(counter)
        return Verdict(
            "delayed" if rule else "admitted",
            rule,
            (),
            tuple(c.name for c in counted),
            shadow_names,
            release - now,
            number,
        )

    def status(self, now: int, subject: Subject) -> tuple[str, int, int] | None:
        """The rule with the least room left, how much, and the wait; where nothing is delayed."""
        met = [counter for counter in self._met(subject) if not counter.rule.shadow]
        if not met:
            return None
        scarcest = min(
            met,
            key=lambda c: (
                Fraction(c.remaining(now), c.rule.limit_requests),
                -c.refuses_for(now),
            ),
        )
        wait = max(counter.refuses_for(now) for counter in met)
        return scarcest.name, scarcest.remaining(now), wait

    def settle(self, verdict: Verdict, status: int) -> None:
        """Forget a request whose answer was no 2xx, where only those count."""
        if self.profile.counted_statuses == "success" and not 200 <= status < 300:
            for counter in self.counters.values():
                counter.charged = [each for each in counter.charged if each[1] != verdict.number]

    def _met(self, subject: Subject) -> list[Counter]:
        """The counters that a request meets, in table order."""
        everybody = [r for r in self.tables["Default"] if r.counter == "ip" and _asks_nothing(r)]
        own = list(self.tables[subject.table])
        rules = own + [rule for rule in everybody if rule not in own]
        met = [
            (rule, name, identity)
            for rule in rules
            if self._matches(rule, subject)
            for name, identity in self._identities(rule, subject)
        ]
        if self.profile.compose == "lowest":
            rates = [Fraction(r.limit_requests, r.window_ns) for r, _, _ in met if not r.shadow]
            rates = rates or [Fraction(r.limit_requests, r.window_ns) for r, _, _ in met]
            met = [
                each
                for each in met
                if Fraction(each[0].limit_requests, each[0].window_ns) <= min(rates)
            ]
        return [
            self.counters.setdefault(identity, Counter(name, rule, self.profile, self.origin))
            for rule, name, identity in met
        ]

    def _matches(self, rule: Rule, subject: Subject) -> bool:
        match = rule.match
        exclusive = self.profile.legacy_class == "exclusive"
        if exclusive and subject.legacy and match.application and not match.legacy:
            return False
        unkeyed = self.profile.proxy_rules == "all" or subject.key_id is None
        return (
            match.tenant in {None, subject.tenant_kind}
            and match.application in {None, subject.application_kind}
            and match.legacy in {None, subject.legacy}
            and (not match.resource or self._resource(rule, subject) is not None)
            and (match.proxy != "key" or (unkeyed and subject.proxy_key_id is not None))
            and (match.proxy != "host" or (unkeyed and subject.host_id is not None))
        )

    def _resource(self, rule: Rule, subject: Subject) -> str | None:
        for pattern in rule.match.resource:
            if matches_resource(pattern, subject.method, subject.path, self.profile):
                return pattern
        return None

    def _identities(self, rule: Rule, subject: Subject) -> list[tuple[str, object]]:
        """The names and identities of the counters that a rule has for a request."""
        key, ip = subject.key_id, subject.ip
        by: dict[str, tuple[str | None, ...]] = {}
        pairs: dict[str, dict[str, tuple[str | None, ...]]] = {
            "pair": {"": ("pair", ip, key)},
            "each": {".key": ("key", key), ".ip": ("ip", ip)},
            "key": {"": ("key", key)},
            "ip": {"": ("ip", ip)},
        }
        if rule.counter == "ip":
            by[""] = ("ip", ip)
        elif rule.counter == "key|ip":
            if key is not None:
                by[".key"] = ("key", key)
            if key is None or self.profile.or_counter == "both":
                by[".ip"] = ("ip", ip)
        elif rule.counter == "proxy-key+ip" and subject.proxy_key_id is not None:
            by[""] = ("proxy", subject.proxy_key_id, ip)
        elif rule.counter == "host+ip" and subject.host_id is not None:
            by[""] = ("host", subject.host_id, ip)
        elif rule.counter == "key" and key is not None:
            by[""] = ("key", key)
        elif rule.counter == "ip+key" and key is not None:
            by = pairs[self.profile.and_counter]
        apart = self._resource(rule, subject) if self.profile.or_resource == "separate" else None
        return [(rule.id + suffix, (rule, suffix, apart, who)) for suffix, who in by.items()]


def _asks_nothing(rule: Rule) -> bool:
    match = rule.match
    asked = (match.tenant, match.application, match.legacy, match.proxy)
    return asked == (None,) * 4 and not match.resource


def matches_resource(pattern: str, method: str, path: str, profile: LimitsProfile) -> bool:
    """Whether a request falls under a row's resource, segment by segment (D-COUNTED)."""
    wanted_method, wanted_path = pattern.split(" ")
    if wanted_method not in {"ANY", "GET" if method == "HEAD" else method}:
        return False
    wanted, got = wanted_path.split("/"), path.partition("?")[0].split("/")
    if pattern == "GET /tokens" and profile.get_tokens == "prefix":
        return got[: len(wanted)] == wanted
    if wanted[-1] == "*":
        wanted.pop()
        if len(got) <= len(wanted):
            return False
        got = got[: len(wanted)]
    return len(wanted) == len(got) and all(
        (w.startswith("{") and g != "") or w == g for w, g in zip(wanted, got, strict=True)
    )

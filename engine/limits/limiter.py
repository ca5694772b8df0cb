"""The limiter: one request in, one decision out, for every rule of the table at once.

All applicable counters are tested first, and only then charged, or none is (LIM-LOWEST, D-COUNT):
a request that any rule refuses consumes nothing anywhere, so it is subject to the lowest rate that
is available for it. Each rule judges alone, so a request beyond a block rule's rate begins that
rule's block whichever other rule refuses it too (D-BLOCK-OWN).

A rule in shadow is applied as if it were in force, except that it never refuses: it begins its
blocks, and it is charged when neither it nor the rules in force refuse. So it reports what it would
refuse.

For speed, the counters of a subject are looked up once, as a *lane*; after that a decision is one
comparison per counter and, when admitted, one charge per counter. A *plan* is what all subjects of
one class share. Each loop has its own list of only the fields that it reads, made on first use.

Instants are handed in and never decrease; requests at one instant are decided in order of arrival
(D-CLOCK). Counters live here and nowhere else (D-COUNTERS-LIFE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from engine.errors import TollgateError, wrong_type
from engine.files import as_ns
from engine.limits.compiled.algorithms import (
    BLOCK,
    FAR_NS,
    FULL,
    LAST,
    LIMIT,
    OLDEST,
    PLACE,
    READY,
    SPAN,
    Charge,
    Remaining,
    begin_or_extend_block,
    grow_ring,
    remaining_sliding_log,
)
from engine.limits.legs import (
    Counted,
    Entry,
    Leg,
    Legs,
    PendingDecision,
    carried,
    class_of,
    make_charge,
)
from engine.limits.subject import Block, Headroom, Subject
from engine.limits.table import LimitTable
from engine.messages import Decision, Outcome
from engine.profile import LimitsProfile

_LANES_LIMIT = 1 << 17
_SWEEP_NS = 1_000_000_000
_SWEPT_AT_ONCE = 5_000
"""How many counters one call checks in a sweep, which takes a few milliseconds."""

_SLICE_NS = 20_000_000
"""The time between two steps of a sweep."""


class CountersFull(TollgateError):
    """A subject needs a new counter but the bound is reached (D-COUNTERS-BOUND)."""


class Limiter:
    """Decides about requests. `now_ns` never decreases from call to call.

    tables: limit tables by name; a tenant's `Rate Limit` quota names its own (QUO-RATE), and
    `Default` must be among them. A rule of `Default` by IP alone with no match (LIM-IP) counts
    everybody. profile: how the tables are played. is_bounded: whether the profile's bound on the
    number of counters holds (D-COUNTERS-BOUND); below it all decisions are the same. keeps_idle:
    never forget a counter, for who keeps something beside it. Raises `InputError` when they do not
    fit.

    >>> limiter = Limiter({"Default": LimitTable.default()}, LimitsProfile())
    >>> ada = Subject("POST", "/tokenize", "192.0.2.1", key_id="k", application_kind="public")
    >>> [limiter.decide(0, ada).outcome for _ in range(51)][49:]
    ['admitted', 'blocked']
    >>> limiter.decide(5_000_000_000, ada).rule, limiter.headroom(5_000_000_000, ada).retry_after_s
    ('LIM-PUBLIC', 55)
    """

    def __init__(
        self,
        tables: Mapping[str, LimitTable],
        profile: LimitsProfile,
        *,
        is_bounded: bool = False,
        keeps_idle: bool = False,
    ) -> None:
        if not isinstance(tables, Mapping):
            raise wrong_type(
                "tables", tables, 'a mapping such as {"Default": LimitTable.default()}'
            )
        for name, table in tables.items():
            if not isinstance(table, LimitTable):
                raise wrong_type(f"tables[{name!r}]", table, "a LimitTable")
        if not isinstance(profile, LimitsProfile):
            raise wrong_type("profile", profile, "a LimitsProfile; give Profile().limits")
        self.profile = profile
        self._legs = Legs(tables, profile)
        self._bound_ns = profile.delay_bound_ns if profile.throttle == "delay" else 0
        self._extends = profile.block_extends
        self._settles = profile.counted_statuses == "success"
        self._counts_refused = profile.count_refused and not self._settles
        self._clears = profile.block_reset == "clear"
        self._lanes: dict[object, Lane] = {}
        self._stale: dict[object, Lane] = {}
        self._plans: dict[object, Plan] = {}
        self._epoch = object()
        self._now_ns = 0
        self._sweep_at_ns = FAR_NS if keeps_idle else 0
        self._counters_limit = profile.counters_limit if is_bounded else None
        self._full_until_ns = 0

    def decide(self, now_ns: int, subject: Subject) -> Decision:
        """Decide about one request that arrives at `now_ns`, and charge it where it counts.

        Raises `InputError` when the subject's table is unknown, `CountersFull` where it would need
        a counter beyond the bound, AssertionError when time decreases.
        """
        try:  # reason: free unless the arguments are of other types
            assert now_ns >= self._now_ns, "now_ns never decreases"
            self._now_ns = now_ns
            if now_ns >= self._sweep_at_ns:
                self._sweep(now_ns)
            lane = subject._lane if subject._epoch is self._epoch else self.lane(subject)  # noqa: SLF001 # reason: a subject remembers its lane
        except (AttributeError, TypeError):
            if _is_asked_well(now_ns, subject):
                raise
            return self.decide(*_asked(now_ns, subject))
        for line in lane.lines:
            if line[0] > now_ns:  # READY; a literal is faster
                return self._beyond(now_ns, lane)
        if not lane.plain:
            return self._admit(now_ns, now_ns, lane)
        for charge, line, ring, row in lane.charges:
            try:
                charge(line, ring, row, now_ns)
            except IndexError:  # reason: free until a ring must grow
                grow_ring(ring, row[0])
                charge(line, ring, row, now_ns)
        return lane.admitted

    def judge(self, now_ns: int, subject: Subject) -> tuple[Decision, Headroom | None]:
        """Return what `decide` and then `headroom` would return; the service calls it per request.

        Where every counter is ready, both are found in one walk over the counters.
        """
        assert now_ns >= self._now_ns, "now_ns never decreases"
        self._now_ns = now_ns
        if now_ns >= self._sweep_at_ns:
            self._sweep(now_ns)
        lane = subject._lane if subject._epoch is self._epoch else self.lane(subject)  # noqa: SLF001 # reason: a subject remembers its lane
        for line in lane.lines:
            if line[0] > now_ns:  # READY; a literal is faster
                # obeys LIM-LOWEST
                return self._beyond(now_ns, lane), self._headroom(now_ns, lane)
        if not lane.plain:
            return self._admit(now_ns, now_ns, lane), self._headroom(now_ns, lane)
        best: Counted | None = None
        best_left, best_limit = 1, 0  # more than any counter has
        for _, take, line, ring, row, limit, counted in lane.measures or lane.measured():
            left = take(line, ring, row, now_ns)
            if left * best_limit < best_left * limit:
                best, best_left, best_limit = counted, left, limit
        if best is None:
            return lane.admitted, None
        if not best_left:  # of several that are used up, the one with the longest wait
            return lane.admitted, self._headroom(now_ns, lane)
        return lane.admitted, _room_after_charge(now_ns, best, best_left)

    # --- beyond a rate -------------------------------------------------------------------------

    def _beyond(self, now_ns: int, lane: Lane) -> Decision:
        """Decide where at least one counter is not ready: delay or refuse."""
        release_ns = now_ns
        refusing = []
        for counted in lane.real:
            line = counted.line
            if line[0] <= now_ns:  # READY; a literal is faster
                continue
            if line[1] > now_ns and not self._extends:  # BLOCK; nothing changes
                refusing.append(counted)
                continue
            ready_ns = self._release_ns(now_ns, counted)  # obeys LIM-THROTTLE
            if ready_ns is None:
                refusing.append(counted)
            elif ready_ns > release_ns:
                release_ns = ready_ns
        if refusing:
            return self._refuse(now_ns, lane, refusing)
        return self._admit(now_ns, release_ns, lane)

    def _release_ns(self, now_ns: int, counted: Counted) -> int | None:
        """Return when a counter would let the request go, None when its rule refuses it.

        First come, first served: not before the counter's last reserved release (D-THROTTLE). A
        delaying throttle holds a request until there is room, up to the bound. A block rule holds
        it only until the last reserved release, and refuses it if it exceeds the rate then.
        """
        line, leg = counted.line, counted.leg
        ready_ns = line[READY]
        if not leg.block_ns:
            return ready_ns if ready_ns - now_ns <= self._bound_ns else None
        begins = line[BLOCK] <= now_ns
        if begins and ready_ns <= max(now_ns, line[LAST]):
            return max(now_ns, line[LAST])
        if begins or self._extends:
            # obeys LIM-BLOCK
            begin_or_extend_block(line, now_ns, leg.block_ns, self._extends, self._clears)
            if self._clears and begins and counted.journal is not None:
                counted.journal.clear()
        return None

    def _refuse(self, now_ns: int, lane: Lane, refusing: list[Counted]) -> Decision:
        shadowed = self._judge_shadow(now_ns, lane) if lane.shadow else ()
        counted: Sequence[Counted] = ()
        if self._counts_refused:
            counted = lane.counters
            for each in counted:
                self._charge_refused(now_ns, each)
        if len(refusing) == 1:
            leg = refusing[0].leg
            return Decision(
                "blocked" if leg.block_ns else "refused",
                leg.name,
                leg.names,
                _names(counted) if counted else (),
                _names(shadowed) if shadowed else (),
                self._wait_ns(now_ns, refusing[0]),
            )
        waits = [(self._wait_ns(now_ns, each), each.leg) for each in refusing]
        wait_ns, decider = max(waits, key=lambda wait: (wait[0], wait[1].block_ns > 0))
        outcome: Outcome = "blocked" if decider.block_ns else "refused"
        return Decision(
            outcome, decider.name, _names(refusing), _names(counted), _names(shadowed), wait_ns
        )

    def _charge_refused(self, now_ns: int, counted: Counted) -> None:
        """Charge a request that was refused (D-COUNT all)."""
        line = counted.line
        if self._clears and line[BLOCK] > now_ns:
            return  # cleared at the block's end, whatever is charged before
        counted.charge(max(now_ns, line[LAST]))
        line[READY] = max(line[READY], line[BLOCK])

    def _wait_ns(self, now_ns: int, counted: Counted) -> int:
        """Return how long until this counter alone would no longer refuse."""
        wait_ns = counted.line[READY] - now_ns
        return wait_ns if counted.leg.block_ns else wait_ns - self._bound_ns

    # --- admitted --------------------------------------------------------------------------------

    def _admit(self, now_ns: int, release_ns: int, lane: Lane) -> Decision:
        """Charge an admitted request at its release: the general form of what `decide` inlines."""
        outcome: Outcome = "admitted"
        rule = None
        if release_ns > now_ns:
            outcome, rule = "delayed", self._delayer(now_ns, lane.real)
        shadowed = self._judge_shadow(now_ns, lane)
        counted, entries = [], []
        for each in lane.counters:
            if each not in shadowed:
                at_ns = max(release_ns, each.line[READY]) if each.leg.rule.shadow else release_ns
                entries.append((each, self._charge(at_ns, each)))
            elif self._counts_refused:
                self._charge_refused(now_ns, each)
            else:
                continue
            counted.append(each)
        parts = (outcome, rule, (), _names(counted), _names(shadowed), release_ns - now_ns)
        if not self._settles:
            return Decision(*parts)
        charged = tuple((each, entry) for each, entry in entries if entry is not None)
        return PendingDecision(*parts, settle_with=charged)

    def _charge(self, t_ns: int, counted: Counted) -> Entry | None:
        if counted.journal is not None:
            return counted.journal.charge(t_ns)
        counted.charge(t_ns)
        counted.line[LAST] = t_ns
        return None

    def _judge_shadow(self, now_ns: int, lane: Lane) -> list[Counted]:
        """Return the counters in shadow that would refuse, and begin their blocks."""
        return [each for each in lane.shadow if self._release_ns(now_ns, each) is None]

    def _delayer(self, now_ns: int, real: list[Counted]) -> str:
        """Return the rule that delays the most (D-DECIDER)."""
        places = [
            (max(now_ns, each.line[LAST if each.leg.block_ns else READY]), each.leg)
            for each in real
        ]
        return max(places, key=lambda place: (place[0], place[1].block_ns > 0))[1].name

    def settle(self, decision: Decision, status: int) -> None:
        """Say how an admitted request was answered; call it once an answer, where only 2xx count.

        A status other than 2xx gives the charges back: from then on every counter is as if the
        request had never been (`engine.limits.legs`). Where every answer counts, and for
        refusals, it does nothing (D-COUNTED).
        """
        if not isinstance(decision, PendingDecision):
            return
        for counted, entry in decision.settle_with:
            assert counted.journal is not None
            if 200 <= status < 300:
                counted.journal.keep(entry)
            else:
                counted.journal.give_back(entry)

    # --- what is left, and what is active --------------------------------------------------------

    def headroom(self, now_ns: int, subject: Subject) -> Headroom | None:
        """Return what the rule with the smallest remaining ÷ limit has left (D-429-HEADERS).

        Of equal ones the one with the longest wait, then in table order; None where no rule
        applies. After a refusal its `wait_ns` is the latest over all refusing rules.
        """
        now_ns, subject = _asked(now_ns, subject)
        return self._headroom(now_ns, self.lane(subject))

    def _headroom(self, now_ns: int, lane: Lane) -> Headroom | None:
        best: Counted | None = None
        best_left, best_limit, best_wait_ns, wait_ns = 1, 0, 0, 0  # more than any counter has
        for remaining_of, _, line, ring, row, limit, counted in lane.measures or lane.measured():
            if line[0] <= now_ns:  # READY, as most are; a literal is faster
                left = remaining_of(line, ring, row, now_ns)
                if left * best_limit < best_left * limit:
                    best, best_left, best_limit, best_wait_ns = counted, left, limit, 0
                continue
            left = 0 if line[BLOCK] > now_ns else remaining_of(line, ring, row, now_ns)
            own_wait_ns = self._refuses_for_ns(now_ns, counted)
            wait_ns = max(wait_ns, own_wait_ns)
            if (left * best_limit, -own_wait_ns) < (best_left * limit, -best_wait_ns):
                best, best_left, best_limit, best_wait_ns = counted, left, limit, own_wait_ns
        if best is None:
            return None
        return _room(now_ns, best, best_left, wait_ns)

    def _refuses_for_ns(self, now_ns: int, counted: Counted) -> int:
        """Return how long a counter refuses from now on, 0 when it does not."""
        line = counted.line
        if counted.leg.block_ns and line[BLOCK] <= now_ns and line[READY] <= line[LAST]:
            return 0  # room in its place in line
        return max(0, self._wait_ns(now_ns, counted))

    def applicable(self, subject: Subject) -> tuple[str, ...]:
        """Return the names of all rules that count such a request, shadows too, in table order."""
        _, subject = _asked(0, subject)
        return _names(self.lane(subject).counters)

    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks in force at the last decision's instant."""
        return tuple(
            Block(leg.name, key, counted.line[BLOCK])
            for leg in self._legs.all()
            for key, counted in leg.counters.items()
            if counted.line[BLOCK] > self._now_ns
        )

    @property
    def counter_count(self) -> int:
        """How many counters are held; idle ones are forgotten within two horizons of their rule."""
        return sum(len(leg.counters) for leg in self._legs.all())

    # --- finding counters, and forgetting them ---------------------------------------------------

    def lane(self, subject: Subject) -> Lane:
        """Find the counters of a subject, and let it remember them."""
        classifier = self._legs.classifier
        kinds = (
            classifier.group(subject.method, subject.path),
            subject.tenant_kind,
            subject.application_kind,
            subject.legacy,
            subject.table,
        )
        parts = subject.parts
        lane = self._lanes.get((kinds, parts))
        if lane is None:
            known = kinds, carried(parts)
            plan = self._plans.get(known)
            if plan is None:
                asked = class_of(subject, classifier.matching(subject.method, subject.path))
                plan = self._plans[known] = Plan(self._legs.of_class(asked))
            if self._counters_limit is not None:
                self._check_room(plan, subject, self._counters_limit)
            lane = Lane(plan, subject)
            if len(self._lanes) >= _LANES_LIMIT:
                self._lanes.clear()
            self._lanes[kinds, parts] = lane
        subject._lane, subject._epoch = lane, self._epoch  # noqa: SLF001 # reason: a subject remembers its lane
        return lane

    def _check_room(self, plan: Plan, subject: Subject, limit: int) -> None:
        """Raise `CountersFull` where a subject needs counters beyond the bound.

        The bound never admits a request beyond a rate: subjects with counters go on, those without
        wait until other counters are idle. Idle ones are searched at once, and again each second.
        """
        parts = subject.parts
        missing = sum(key_of(parts) not in leg.counters for leg, key_of in plan.legs)
        if self.counter_count + missing <= limit:
            return
        if self._now_ns >= self._full_until_ns:
            self._full_until_ns = self._now_ns + _SWEEP_NS
            for leg in self._legs.all():
                leg.sweep_at_ns = 0
            self._sweep(self._now_ns)
        if self.counter_count + missing > limit:
            raise CountersFull

    def _sweep(self, now_ns: int) -> None:
        """Forget idle counters, so that memory follows the active keys; some thousands at a time.

        Lanes refer to counters, so all lanes are dropped when a counter was forgotten. No decision
        changes: an idle counter decides like the fresh one that replaces it.
        """
        legs = self._legs.all()
        left, has_forgotten = _SWEPT_AT_ONCE, False
        for leg in legs:
            if leg.sweep_at_ns <= now_ns and left > 0:
                looked_at = min(left, len(leg.unswept) or len(leg.counters))
                has_forgotten |= leg.sweep(now_ns, left)
                left -= looked_at
        for _ in range(min(len(self._stale), _SWEPT_AT_ONCE)):
            self._stale.popitem()
        if has_forgotten:
            if not self._stale:  # freeing a hundred thousand at once takes a tenth of a second
                self._stale, self._lanes = self._lanes, {}
            self._lanes.clear()
            self._epoch = object()
        first_ns = min((leg.sweep_at_ns for leg in legs), default=0)
        self._sweep_at_ns = max(
            now_ns + (_SLICE_NS if self._stale or left <= 0 else _SWEEP_NS),
            0 if self._stale else first_ns,
        )


def _room(now_ns: int, counted: Counted, left: int, wait_ns: int) -> Headroom:
    """Return what one counter says about its room."""
    line, leg = counted.line, counted.leg
    idle_at_ns = leg.idle_ns(line, counted.ring, leg.row)
    reset_ns = max(idle_at_ns, line[BLOCK], now_ns) - now_ns
    rule = leg.rule
    return Headroom(leg.name, rule.limit_requests, left, rule.window_ns, reset_ns, wait_ns)


def _is_asked_well(now_ns: object, subject: object) -> bool:
    return isinstance(now_ns, int) and isinstance(subject, Subject)


def _asked(now_ns: object, subject: object) -> tuple[int, Subject]:
    """Return the checked instant, which may be given as a text, and the subject; `InputError`."""
    if not isinstance(subject, Subject):
        raise wrong_type("subject", subject, 'a Subject, such as Subject("GET", "/tokens", ip)')
    return as_ns("now_ns", now_ns), subject


def _room_after_charge(now_ns: int, counted: Counted, left: int) -> Headroom:
    """Return what one counter says just after a charge that left some room."""
    rooms = counted.leg.rooms
    if rooms is None:
        return _room(now_ns, counted, left, 0)
    room = rooms.get(left)
    if room is None:
        room = rooms[left] = _room(now_ns, counted, left, 0)
    return room


def _names(counters: Iterable[Counted]) -> tuple[str, ...]:
    return tuple(counted.leg.name for counted in counters)


Take: TypeAlias = Callable[[list[int], list[int], tuple[int, ...], int], int]
"""`take(line, ring, rule, t_ns)`: charge one request at `t_ns`, return how many remain then."""

_Measure: TypeAlias = tuple[Remaining, Take, list[int], list[int], tuple[int, ...], int, Counted]


class Plan:
    """What all subjects of one class share: the legs that count them, in table order."""

    __slots__ = ("admitted", "legs", "plain")

    def __init__(self, legs: tuple[Leg, ...]) -> None:
        self.legs = tuple((leg, leg.key_of) for leg in legs)
        self.plain = not any(leg.rule.shadow or leg.settles for leg in legs)
        self.admitted = Decision("admitted", counted=tuple(leg.name for leg in legs))


class Lane:
    """The counters that one subject meets, in table order, ready to be walked."""

    __slots__ = (
        "admitted",
        "charges",
        "counters",
        "lines",
        "measures",
        "plain",
        "real",
        "shadow",
    )

    def __init__(self, plan: Plan, subject: Subject) -> None:
        parts = subject.parts
        counters = []
        for leg, key_of in plan.legs:
            key = key_of(parts)
            counted = leg.counters.get(key)
            if counted is None:
                counted = leg.counters[key] = Counted(leg)
            counters.append(counted)
        self.admitted = plan.admitted
        self.plain = plan.plain
        self.counters = self.real = counters
        self.shadow: list[Counted] = []
        if not plan.plain:
            self.real = [each for each in counters if not each.leg.rule.shadow]
            self.shadow = [each for each in counters if each.leg.rule.shadow]
        self.lines = [each.line for each in self.real]
        self.charges = [each.charging for each in self.real]
        self.measures: list[_Measure] | None = None

    def measured(self) -> list[_Measure]:
        """Make the list that `judge` and `headroom` read, on first use."""
        self.measures = [
            (c.leg.remaining, taker(c.leg), c.line, c.ring, c.leg.row, c.leg.rule.limit_requests, c)
            for c in self.real
        ]
        return self.measures


def take_sliding_log(line: list[int], ring: list[int], rule: tuple[int, ...], t_ns: int) -> int:
    """Charge a sliding log as `charge_sliding_log`, and return what `remaining_sliding_log` would.

    One call, because every admitted request makes it for each rule. BASE is 0 in a list's ring.
    """
    place, limit = line[PLACE], rule[LIMIT]
    try:
        ring[place] = t_ns
    except IndexError:  # reason: free until a ring must grow
        grow_ring(ring, limit)
        ring[place] = t_ns
    place += 1
    if place == limit:
        place = 0
        line[FULL] = 1
    line[PLACE] = place
    gone_ns = t_ns - rule[SPAN]
    oldest = line[OLDEST]
    if ring[oldest - 1] > gone_ns:  # the look before this one does not help
        left = remaining_sliding_log(line, ring, rule, t_ns)
    else:
        while ring[oldest] <= gone_ns:
            oldest += 1
            if oldest == limit:
                oldest = 0
        line[OLDEST] = oldest
        left = oldest - place if oldest >= place else limit + oldest - place
    line[READY] = t_ns if left else ring[place] + rule[SPAN]
    return left


def taker(leg: Leg) -> Take:
    """Return the function that charges a leg's counter and returns what remains."""
    return take_sliding_log if leg.algorithm == "sliding-log" else _taker(leg.charge, leg.remaining)


def _taker(charge: Charge, remaining: Remaining) -> Take:
    def take(line: list[int], ring: list[int], rule: tuple[int, ...], t_ns: int) -> int:
        make_charge(charge, line, ring, rule, t_ns)
        return remaining(line, ring, rule, t_ns)

    return take

"""The limiter: one request in, one decision out, for every rule of the table at once.

All applicable counters are tested first, and only then charged, or none is (LIM-LOWEST, D-COUNT):
a request that any rule refuses consumes nothing anywhere, so it is subject to the lowest rate that
is available for it. Each rule judges alone, so a request beyond a block rule's rate begins that
rule's block whichever other rule refuses it too (D-BLOCK-OWN).

A rule in shadow is applied as if it were in force, except that it never refuses: it begins its
blocks, and it is charged when neither it nor the rules in force refuse. So it reports what it would
refuse.

The counters of a subject are looked up once and remembered; after that a decision is one comparison
per counter and, when admitted, one charge per counter.

Instants are handed in and never decrease; requests at one instant are decided in order of arrival
(D-CLOCK). Counters live here and nowhere else (D-COUNTERS-LIFE).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.errors import TollgateError, wrong_type
from engine.files import as_ns
from engine.limits.counters import FAR_NS, Charge, Counter, RateLimitStatus, charge_all, status_of
from engine.limits.rules import CounterFamily, RequestClass, RuleSet, Subject
from engine.limits.table import LimitTable
from engine.messages import Decision, Outcome
from engine.profile import LimitsProfile

_MATCHES_LIMIT: Final = 1 << 17
_SWEEP_NS: Final = 1_000_000_000
_SWEPT_AT_ONCE: Final = 5_000
"""How many counters one call checks in a sweep, which takes a few milliseconds."""

_SLICE_NS: Final = 20_000_000
"""The time between two steps of a sweep."""


class CountersFull(TollgateError):
    """A subject needs a new counter but the bound is reached (D-COUNTERS-BOUND)."""


@dataclass(frozen=True, slots=True)
class PendingDecision(Decision):
    """A decision whose charges may still be taken back: hand it to `Limiter.settle`."""

    charges: tuple[tuple[Counter, Charge], ...] = field(default=(), repr=False, compare=False)


class MatchedCounters:
    """The counters that one subject meets, in table order.

    is_plain: each is in force, and keeps every charge. admitted: the decision where all admit.
    """

    __slots__ = ("admitted", "counters", "in_force", "is_plain", "shadow")

    def __init__(
        self, families: tuple[CounterFamily, ...], admitted: Decision, subject: Subject
    ) -> None:
        values = subject.key_values
        self.counters = [family.counter(family.key_of(values)) for family in families]
        self.in_force = self.counters
        self.shadow: list[Counter] = []
        settings = [family.settings for family in families]
        self.is_plain = not any(own.in_shadow or own.takes_back for own in settings)
        self.admitted = admitted
        if not self.is_plain:
            self.in_force = [counter for counter in self.counters if not counter.settings.in_shadow]
            self.shadow = [counter for counter in self.counters if counter.settings.in_shadow]


class Limiter:
    """Decides about requests. `now_ns` never decreases from call to call.

    tables: limit tables by name; a tenant's `Rate Limit` quota names its own (QUO-RATE), and
    `Default` must be among them. A rule of `Default` by IP alone with no match (LIM-IP) counts
    everybody. profile: how the tables are applied. origin_ns: instant 0 in nanoseconds since the
    Unix epoch, from which windows are aligned (D-ALIGN). is_bounded: whether the profile's bound on
    the number of counters holds (D-COUNTERS-BOUND); below it all decisions are the same.
    keeps_idle: never forget a counter, for who keeps something beside it. Raises `InputError` when
    they do not fit.

    >>> limiter = Limiter({"Default": LimitTable.default()}, LimitsProfile())
    >>> ada = Subject("POST", "/tokenize", "192.0.2.1", key_id="k", application_kind="public")
    >>> [limiter.decide(0, ada).outcome for _ in range(51)][49:]
    ['admitted', 'blocked']
    >>> decision, status = limiter.decide_with_status(5_000_000_000, ada)
    >>> decision.rule, status.retry_after_s
    ('LIM-PUBLIC', 55)
    """

    def __init__(
        self,
        tables: Mapping[str, LimitTable],
        profile: LimitsProfile,
        *,
        origin_ns: int = 0,
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
        self.origin_ns = origin_ns
        self._rules = RuleSet(tables, profile, origin_ns)
        self._takes_back = profile.counted_statuses == "success"
        self._counts_refused = profile.count_refused and not self._takes_back
        self._counters: dict[object, MatchedCounters] = {}
        self._stale: dict[object, MatchedCounters] = {}
        self._families: dict[RequestClass, tuple[tuple[CounterFamily, ...], Decision]] = {}
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
            matched = (
                subject._counters  # noqa: SLF001 # reason: a subject remembers its counters
                if subject._epoch is self._epoch  # noqa: SLF001 # reason: as above
                else self.match(subject)
            )
        except (AttributeError, TypeError):
            if _is_checked(now_ns, subject):
                raise
            return self.decide(*_checked(now_ns, subject))
        for counter in matched.in_force:
            if counter.ready_ns > now_ns:
                # obeys LIM-LOWEST
                return self._over_limit(now_ns, matched)
        if not matched.is_plain:
            return self._admit(now_ns, now_ns, matched)
        charge_all(matched.in_force, now_ns)
        admitted: Decision = matched.admitted
        return admitted

    def decide_with_status(
        self, now_ns: int, subject: Subject
    ) -> tuple[Decision, RateLimitStatus | None]:
        """Decide, and return beside it what the limits leave then (`status`)."""
        decision = self.decide(now_ns, subject)
        matched: MatchedCounters = subject._counters  # noqa: SLF001 # reason: just found
        return decision, status_of(matched.in_force, self._now_ns)

    # --- beyond a rate -------------------------------------------------------------------------

    def _over_limit(self, now_ns: int, matched: MatchedCounters) -> Decision:
        """Decide where at least one counter is not ready: delay or refuse."""
        release_ns = now_ns
        refusing = []
        for counter in matched.in_force:
            own_release_ns = counter.release_ns(now_ns)
            if own_release_ns is None:
                refusing.append(counter)
            elif own_release_ns > release_ns:
                release_ns = own_release_ns
        if refusing:
            return self._refuse(now_ns, matched, refusing)
        return self._admit(now_ns, release_ns, matched)

    def _refuse(self, now_ns: int, matched: MatchedCounters, refusing: list[Counter]) -> Decision:
        shadow = _refusing(now_ns, matched.shadow)
        counted: Sequence[Counter] = ()
        if self._counts_refused:
            counted = matched.counters
            for counter in counted:
                counter.charge_refused(now_ns)
        waits = [(counter.wait_ns(now_ns), counter.settings) for counter in refusing]
        wait_ns, decider = waits[0]
        if len(waits) > 1:  # D-DECIDER
            wait_ns, decider = max(waits, key=lambda wait: (wait[0], wait[1].block_ns > 0))
        outcome: Outcome = "blocked" if decider.block_ns else "refused"
        return Decision(
            outcome, decider.name, _names(refusing), _names(counted), _names(shadow), wait_ns
        )

    # --- admitted ------------------------------------------------------------------------------

    def _admit(self, now_ns: int, release_ns: int, matched: MatchedCounters) -> Decision:
        """Charge an admitted request at its release: the general form of what `decide` does."""
        outcome: Outcome = "admitted"
        rule = None
        if release_ns > now_ns:
            outcome, rule = "delayed", _delayer(now_ns, matched.in_force)
        shadow = _refusing(now_ns, matched.shadow)
        counted, charges = [], []
        for counter in matched.counters:
            if counter not in shadow:
                at_ns = release_ns
                if counter.settings.in_shadow:
                    at_ns = max(release_ns, counter.ready_ns)
                charge = counter.admit(at_ns)
                if charge is not None:
                    charges.append((counter, charge))
            elif self._counts_refused:
                counter.charge_refused(now_ns)
            else:
                continue
            counted.append(counter)
        parts = (outcome, rule, (), _names(counted), _names(shadow), release_ns - now_ns)
        if not self._takes_back:
            return Decision(*parts)
        return PendingDecision(*parts, charges=tuple(charges))

    def settle(self, decision: Decision, status: int) -> None:
        """Say how an admitted request was answered; call it once an answer, where only 2xx count.

        A status other than 2xx takes the charges back: from then on every counter is as if the
        request had never been (`engine.limits.counters`). Where every answer counts, and for
        refusals, it does nothing (D-COUNTED).
        """
        if not isinstance(decision, PendingDecision):
            return
        for counter, charge in decision.charges:
            assert counter.undo_log is not None
            if 200 <= status < 300:
                counter.undo_log.commit(charge)
            else:
                counter.undo_log.refund(charge)

    # --- what is left ----------------------------------------------------------------------------

    def status(self, now_ns: int, subject: Subject) -> RateLimitStatus | None:
        """Return what the rule with the smallest remaining ÷ limit has left (D-429-HEADERS).

        Of equal ones the one with the longest wait, then in table order; None where no rule
        applies. After a refusal its `wait_ns` is the latest over all refusing rules.
        """
        now_ns, subject = _checked(now_ns, subject)
        return status_of(self.match(subject).in_force, now_ns)

    @property
    def counter_count(self) -> int:
        """How many counters are held; idle ones are forgotten within two horizons of their rule."""
        return sum(len(family.counters) for family in self._rules.families())

    # --- finding counters, and forgetting them ---------------------------------------------------

    def match(self, subject: Subject) -> MatchedCounters:
        """Find the counters of a subject, and let it remember them."""
        resources = self._rules.classifier.matching(subject.method, subject.path)
        asked, values = RequestClass.of(subject, resources), subject.key_values
        matched = self._counters.get((asked, values))
        if matched is None:
            if asked not in self._families:
                families = self._rules.of_class(asked)
                counted = tuple(family.name for family in families)
                self._families[asked] = families, Decision("admitted", counted=counted)
            families, admitted = self._families[asked]
            if self._counters_limit is not None:
                self._check_room(families, values, self._counters_limit)
            matched = MatchedCounters(families, admitted, subject)
            if len(self._counters) >= _MATCHES_LIMIT:
                self._counters.clear()
            self._counters[asked, values] = matched
        subject._counters, subject._epoch = matched, self._epoch  # noqa: SLF001 # reason: a subject remembers its counters
        return matched

    def _check_room(
        self, families: tuple[CounterFamily, ...], values: tuple[str | None, ...], limit: int
    ) -> None:
        """Raise `CountersFull` where a subject needs counters beyond the bound.

        The bound never admits a request beyond a rate: subjects with counters go on, those without
        wait until other counters are idle. Idle ones are searched at once, and again each second.
        """
        missing = sum(family.key_of(values) not in family.counters for family in families)
        if self.counter_count + missing <= limit:
            return
        if self._now_ns >= self._full_until_ns:
            self._full_until_ns = self._now_ns + _SWEEP_NS
            for family in self._rules.families():
                family.sweep_at_ns = 0
            self._sweep(self._now_ns)
        if self.counter_count + missing > limit:
            raise CountersFull

    def _sweep(self, now_ns: int) -> None:
        """Forget idle counters, so that memory follows the active keys; some thousands at a time.

        Matches refer to counters, so all are dropped when a counter was forgotten. No decision
        changes: an idle counter decides like the fresh one that replaces it.
        """
        families = self._rules.families()
        left, has_forgotten = _SWEPT_AT_ONCE, False
        for family in families:
            if family.sweep_at_ns <= now_ns and left > 0:
                checked = min(left, len(family.unswept) or len(family.counters))
                has_forgotten |= family.sweep(now_ns, left)
                left -= checked
        for _ in range(min(len(self._stale), _SWEPT_AT_ONCE)):
            self._stale.popitem()
        if has_forgotten:
            if not self._stale:  # freeing a hundred thousand at once takes a tenth of a second
                self._stale, self._counters = self._counters, {}
            self._counters.clear()
            self._epoch = object()
        first_ns = min((family.sweep_at_ns for family in families), default=0)
        self._sweep_at_ns = max(
            now_ns + (_SLICE_NS if self._stale or left <= 0 else _SWEEP_NS),
            0 if self._stale else first_ns,
        )


def _is_checked(now_ns: object, subject: object) -> bool:
    return isinstance(now_ns, int) and isinstance(subject, Subject)


def _checked(now_ns: object, subject: object) -> tuple[int, Subject]:
    """Return the instant, which may be given as a text, and the subject; `InputError`."""
    if not isinstance(subject, Subject):
        raise wrong_type("subject", subject, 'a Subject, such as Subject("GET", "/tokens", ip)')
    return as_ns("now_ns", now_ns), subject


def _refusing(now_ns: int, counters: Iterable[Counter]) -> list[Counter]:
    """Return the counters that refuse, and begin their blocks."""
    return [counter for counter in counters if counter.release_ns(now_ns) is None]


def _delayer(now_ns: int, counters: Iterable[Counter]) -> str:
    """Return the rule that delays the most (D-DECIDER)."""
    releases = [
        (
            max(now_ns, counter.reserved_ns if counter.settings.block_ns else counter.ready_ns),
            counter.settings,
        )
        for counter in counters
    ]
    return max(releases, key=lambda release: (release[0], release[1].block_ns > 0))[1].name


def _names(counters: Iterable[Counter]) -> tuple[str, ...]:
    return tuple([counter.settings.name for counter in counters])

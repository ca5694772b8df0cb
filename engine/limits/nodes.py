"""Several nodes behind a balancer, and how they share the counters (D-COUNTERS-LIFE).

A balancer gives each request to one node, which decides about it alone. `NodesProfile` says how:

- *balance*. `round-robin`: one node after the other. `random`: drawn from the run's own stream.
  `address`: by the client's address, as HAProxy's `balance source` (`home_of`). `key`: by the API
  key; a request without one goes by its address. `least-busy`: the node with the fewest requests
  in flight, the lowest of several; a request is in flight from its arrival to its answer.
- *sharing*. `exact`: one counter, whatever the node; the decisions of one node. `none`: each node
  has counters of its own under the full limits. `split`: the same under a share of each limit; the
  first nodes get one more where a limit cannot be divided, so that the shares sum up to it.
- `synced`: each node has counters of its own. At every multiple of `every` all nodes publish what
  they have counted before; after the `lag` the others know it. A node decides by all the charges
  and blocks that it knows: its own, and what the others have published.
- `shared-slow`: one counter, but a decision reads it `race` before it writes it. So an attempt at t
  sees what attempts up to t − `race` have charged and blocked, and nothing later.

What `synced` and `shared-slow` know is exact for every algorithm, because a counter has a history
of *events*: a charge, or a refusal that began (or extended) a block, each with its instant. The
state of a counter is what the algorithm makes of the known events in order of time, those of one
instant in order of arrival. At t everybody knows the events before `known_before_ns`: they are
charged to one common counter and forgotten. Under `synced` a node's own counter is a copy of the
common one to which its own later events are charged too.

Both need instants that never decrease, which a reserved release may do; so they refuse requests
beyond a rate and never delay them. Under `none` and `split` all choices of the limits are played.

The simulator's kernel knows one node only.
"""

from __future__ import annotations

import copy
import dataclasses
import heapq
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from engine.errors import InputError
from engine.files import Rate
from engine.hosts import read_address
from engine.limits.counters import Counter
from engine.limits.limiter import Limiter
from engine.limits.rules import Subject
from engine.limits.table import LimitTable, Rule
from engine.messages import Decision
from engine.profile import LimitsProfile, NodesProfile

_WORD_BITS: Final = 32

Event: TypeAlias = Literal["charge", "block"]


# --- rules ---------------------------------------------------------------------------------------


def known_before_ns(now_ns: int, every_ns: int, lag_ns: int) -> int:
    """Return the instant before which the events of all nodes are known.

    It is the latest publication that has been heard of: a multiple of `every_ns`, at least
    `lag_ns` ago.

    >>> known_before_ns(2_700, 1_000, 600), known_before_ns(2_500, 1_000, 600)
    (2000, 1000)
    """
    if now_ns < lag_ns:
        return 0
    heard_ns = now_ns - lag_ns
    return heard_ns - heard_ns % every_ns


def publication(nodes: NodesProfile) -> tuple[int, int]:
    """Return how often events are published, and the lag until all know them.

    A counter that is written `race_ns` after it was read is one that publishes all the time.

    >>> every_ns, lag_ns = publication(NodesProfile(sharing="shared-slow", race_ns=5))
    >>> known_before_ns(100, every_ns, lag_ns)  # so that the event at 95 is known
    96
    """
    if nodes.sharing == "shared-slow":
        return 1, nodes.race_ns - 1
    return nodes.every_ns, nodes.lag_ns


def home_of(name: str, count: int) -> int:
    """Return the node that an address or a key is sent to.

    An address goes by its 32-bit words, XORed, modulo the count, as HAProxy's `balance source`
    does with servers of equal weight; a key, or a name that is no address, by its CRC-32.

    >>> home_of("10.0.0.1", 2), home_of("10.0.0.2", 2)
    (1, 0)
    """
    address = read_address(name)
    if address is None:
        return zlib.crc32(name.encode()) % count
    number, node = int(address), 0
    while number:
        node ^= number % (1 << _WORD_BITS)
        number >>= _WORD_BITS
    return node % count


def sets_of_counters(
    tables: Mapping[str, LimitTable], profile: LimitsProfile, nodes: NodesProfile
) -> list[tuple[Mapping[str, LimitTable], LimitsProfile]]:
    """Return the limits of every set of counters that a simulation of nodes holds.

    First those of the nodes (of `exact` and `shared-slow` one, which all use), then under `synced`
    the common ones, and last the exact ones, by which the nodes are judged.

    Raises `InputError` where a limit is too low to be split among so many nodes, or the profile
    delays requests and the sharing cannot.
    """
    if nodes.sharing in {"synced", "shared-slow"} and profile.throttle == "delay":
        raise InputError(
            f"nodes.sharing = {nodes.sharing!r} must stand with limits.throttle = 'refuse'; "
            "with 'delay' choose 'none', 'split' or 'exact'"
        )
    whole = (tables, profile)
    if nodes.sharing in {"exact", "shared-slow"}:
        return [whole, whole]
    if nodes.sharing == "split":
        return [*(_share(tables, profile, nodes, node) for node in range(nodes.count)), whole]
    return [whole] * (nodes.count + (2 if nodes.sharing == "synced" else 1))


def _share(
    tables: Mapping[str, LimitTable], profile: LimitsProfile, nodes: NodesProfile, node: int
) -> tuple[Mapping[str, LimitTable], LimitsProfile]:
    """Return a node's share of all limits and bursts."""
    burst = profile.burst_requests
    if burst is not None:
        burst = _part(burst, nodes, node, "limits.burst_requests")
    own = {
        name: LimitTable(tuple(_share_of_rule(rule, nodes, node) for rule in table))
        for name, table in tables.items()
    }
    return own, dataclasses.replace(profile, burst_requests=burst)


def _share_of_rule(rule: Rule, nodes: NodesProfile, node: int) -> Rule:
    burst = rule.burst_requests
    if burst is not None:
        burst = _part(burst, nodes, node, f"the burst of {rule.id}")
    limit_requests = _part(rule.limit_requests, nodes, node, f"the limit of {rule.id}")
    return dataclasses.replace(
        rule, rate=Rate(limit_requests, rule.window_ns), burst_requests=burst
    )


def _part(whole: int, nodes: NodesProfile, node: int, what: str) -> int:
    """Return a node's part of a whole number; the first nodes have one more."""
    if whole < nodes.count:
        raise InputError(
            f"nodes.count = {nodes.count} must be at most {whole}, {what}, where "
            "nodes.sharing = 'split'; take fewer nodes or a higher limit"
        )
    return whole // nodes.count + (node < whole % nodes.count)


# --- a balancer ----------------------------------------------------------------------------------


class Balancer:
    """Chooses the node of each request, and knows how many requests each node has in flight.

    draw: returns numbers in (0, 1). Raises `InputError` where `random` has none.
    """

    def __init__(self, nodes: NodesProfile, draw: Callable[[], float] | None = None) -> None:
        if nodes.balance == "random" and draw is None:
            raise InputError(
                "nodes.balance = 'random' must go with draw, a function that returns numbers in"
                " (0, 1), such as random.Random(7).random"
            )
        self._count = nodes.count
        self._balance = nodes.balance
        self._draw = draw
        self._turn = 0
        self._homes: dict[str, int] = {}
        self._in_flight = [0] * nodes.count
        self._ends: list[tuple[int, int]] = []

    def choose(self, now_ns: int, subject: Subject) -> int:
        """Return the node of a request that arrives now."""
        if self._balance in {"address", "key"}:
            name = (subject.key_id if self._balance == "key" else None) or subject.ip
            if name not in self._homes:
                self._homes[name] = home_of(name, self._count)
            return self._homes[name]
        if self._balance == "round-robin":
            self._turn += 1
            return (self._turn - 1) % self._count
        if self._draw is not None and self._balance == "random":
            return int(self._draw() * self._count)
        while self._ends and self._ends[0][0] <= now_ns:
            self._in_flight[heapq.heappop(self._ends)[1]] -= 1
        return self._in_flight.index(min(self._in_flight))

    def begin(self, node: int) -> None:
        """Note that a node lets a request in, which is in flight from now on."""
        self._in_flight[node] += 1

    def end(self, node: int, at_ns: int) -> None:
        """Say when a request that began is answered; from then on it is not in flight."""
        if self._balance == "least-busy":
            heapq.heappush(self._ends, (at_ns, node))


# --- counters with a history ---------------------------------------------------------------------


class _History:
    """One counter of a rule on all nodes: the common one, each node's own, and the events.

    own: empty where all use the common one. merged_ns: of each node, before which instant its own
    counter holds the events of all nodes.
    """

    __slots__ = ("_events", "common", "merged_ns", "own")

    def __init__(self, common: Counter, own: list[Counter]) -> None:
        self.common = common
        self.own = own
        self.merged_ns = [0] * len(own)
        self._events: deque[tuple[int, int, Event]] = deque()

    def record(self, now_ns: int, node: int, event: Event) -> None:
        """Add an event."""
        self._events.append((now_ns, node, event))

    def apply(self, before_ns: int) -> None:
        """Put the events before an instant into the common counter, and forget them."""
        events = self._events
        while events and events[0][0] < before_ns:
            t_ns, _, event = events.popleft()
            _apply(self.common, t_ns, event)

    def merge(self, node: int, before_ns: int) -> None:
        """Make a node's own counter from the common one and its own later events."""
        if self.merged_ns[node] == before_ns:
            return
        self.merged_ns[node] = before_ns
        self.apply(before_ns)
        counter = self.own[node]
        counter.assign(self.common)
        counter.window = counter.window.copy()
        for t_ns, by_node, event in self._events:
            if by_node == node:
                _apply(counter, t_ns, event)


def _apply(counter: Counter, t_ns: int, event: Event) -> None:
    """Charge an event to a counter."""
    if event == "block":
        counter.block(t_ns)
    elif counter.blocked_until_ns <= t_ns or not counter.settings.clears:
        counter.charge(t_ns)


class NodesLimiter:
    """Decides about requests as nodes do whose balancer gives each request to one of them.

    tables, profile, origin_ns: as `Limiter` takes them. draw: returns numbers in (0, 1); `random`
    balance needs it.
    decision, node: the last one, and who made it. exact: what one exact counter for all nodes has
    decided about the same request.

    Raises `InputError` as `Limiter`, `Balancer` and `sets_of_counters` do.

    >>> nodes = NodesProfile(count=2, sharing="none")
    >>> limiter = NodesLimiter({"Default": LimitTable.default()}, LimitsProfile(), nodes)
    >>> ada = Subject("POST", "/tokenize", "192.0.2.1", key_id="k", application_kind="public")
    >>> [limiter.decide(0, ada).admitted for _ in range(120)].count(True)
    100
    >>> limiter.node, limiter.exact.rule
    (1, 'LIM-PUBLIC')
    """

    def __init__(
        self,
        tables: Mapping[str, LimitTable],
        profile: LimitsProfile,
        nodes: NodesProfile,
        draw: Callable[[], float] | None = None,
        *,
        origin_ns: int = 0,
    ) -> None:
        sets = sets_of_counters(tables, profile, nodes)
        self.balancer = Balancer(nodes, draw)
        self.node = 0
        self.decision = self.exact = Decision("admitted")
        self._limiters = [Limiter(*limits, origin_ns=origin_ns, keeps_idle=True) for limits in sets]
        self._judge = self._limiters.pop()
        self._every_ns, self._lag_ns = publication(nodes)
        self._sharing = nodes.sharing
        self._own_subjects: dict[Subject, list[Subject]] = {}
        self._histories: dict[Counter, _History] = {}
        self._of_subject: dict[Subject, list[_History]] = {}

    def decide(self, now_ns: int, subject: Subject) -> Decision:
        """Decide about one request that arrives at `now_ns`; see `Limiter.decide`."""
        self.node = node = self.balancer.choose(now_ns, subject)
        self.exact = self._judge.decide(now_ns, subject)
        own = self._own_subjects.get(subject)
        if own is None:
            own = [copy.copy(subject) for _ in self._limiters]
            self._own_subjects[subject] = own
        if self._sharing in {"synced", "shared-slow"}:
            self.decision = self._decide_with_others(now_ns, subject, node, own)
        else:
            place = min(node, len(own) - 1)  # of exact ones there is one for all
            self.decision = self._limiters[place].decide(now_ns, own[place])
        return self.decision

    def _decide_with_others(
        self, now_ns: int, subject: Subject, node: int, own: list[Subject]
    ) -> Decision:
        """Decide by what a node knows of the events of all, and note the new ones."""
        before_ns = known_before_ns(now_ns, self._every_ns, self._lag_ns)
        is_synced = self._sharing == "synced"
        histories = self._histories_of(subject, own)
        for history in histories:
            if is_synced:
                history.merge(node, before_ns)
            else:
                history.apply(before_ns)
        counters = [history.own[node] if is_synced else history.common for history in histories]
        known = [copy.copy(counter) for counter in counters]
        if not is_synced:  # what is read is written later: it decides about copies
            for counter in counters:
                counter.window = counter.window.copy()
        place = node if is_synced else 0
        decision = self._limiters[place].decide(now_ns, own[place])
        for history, counter, before in zip(histories, counters, known, strict=True):
            if counter.blocked_until_ns != before.blocked_until_ns:
                history.record(now_ns, node, "block")
            if counter.settings.name in decision.counted:
                history.record(now_ns, node, "charge")
            if not is_synced:
                counter.assign(before)
        return decision

    def _histories_of(self, subject: Subject, own: list[Subject]) -> list[_History]:
        """Return the histories of a subject's counters; the last limiter has the common ones."""
        histories = self._of_subject.get(subject)
        if histories is None:
            *nodes, common = (
                limiter.match(own_subject).counters
                for limiter, own_subject in zip(self._limiters, own, strict=True)
            )
            histories = self._of_subject[subject] = [
                self._history(counter, [counters[place] for counters in nodes])
                for place, counter in enumerate(common)
            ]
        return histories

    def _history(self, common: Counter, own: list[Counter]) -> _History:
        history = self._histories.get(common)
        if history is None:
            history = self._histories[common] = _History(common, own)
        return history

"""The session: what all checks of one run share.

It numbers and keeps every exchange, enforces what the target allows (forbidden operations, budget,
pacing), records what was created, and holds the deployment's choices known so far.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from conformance.context.check import CLEANING, Inconclusive, OutOfBudget, Skip
from conformance.context.choices import line_of, read_profile, told_by
from conformance.context.cooldown import Cooldown
from conformance.context.created import Created
from conformance.context.history import HistoryWriter
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.target import Target
from conformance.wire.pace import Pacer, Traffic
from conformance.wire.redaction import Redactor, made_key
from conformance.wire.transport import Answer, Place, Transport
from engine import InputError, LimitTable, Profile

_MINUTE_NS: Final = 60 * 1_000_000_000
_CLEANING_NS: Final = 30 * 1_000_000_000
"""How long after the budget's minutes a run may still delete what it has created."""
_LOST_AFTER: Final = 6
"""Requests in a row without an answer, after which the target counts as gone."""


class Wait(NamedTuple):
    """A wait of a check: until when, and what ends then; empty where that is not known."""

    check: str
    until_ns: int
    why: str


class Rest(NamedTuple):
    """How much longer a check takes, because its keys had to rest or it measured further.

    is_warm: they were in use before the run; else the first measurement did not decide.
    """

    more_ns: int = 0
    is_warm: bool = False

    @property
    def why(self) -> str:
        """The reason in words."""
        return "keys still warm from an earlier run" if self.is_warm else "further measurements"


class Session:
    """The state of one run against one deployment.

    profile: the choices told, and those discovered during the run; `known` names them. nonce: makes
    the values of this run unique, because a repeated seed must not find the tokens of an earlier
    run; empty on virtual time. exchanges: by number. requests: how many were sent. cleanings:
    number of cleanings so far. ended: sequential checks that have ended. doubts: role → what is
    uncertain about its keys. is_misshapen: whether the preflight found accepted answers of another
    form. waits: what checks wait for now. reserved: how many requests of the budget are for each
    check alone until it ends, by its id; all share the others. rests: by the id of the check whose
    keys had to rest. traffic: of the probes. cooldown: the counters that earlier runs have used.
    made: by check and name, the texts that no seed determines.
    """

    def __init__(
        self,
        target: Target,
        transport: Transport,
        *,
        seed: int,
        profile: Profile | None = None,
        limits: LimitTable | None = None,
    ) -> None:
        self.target = target
        self.transport = transport
        self.seed = seed
        self.nonce = ""
        self.profile, self.known = _told(target, profile)
        self.given_profile, self.given = self.profile, frozenset(self.known)
        if limits is None and target.limits is not None:
            limits = LimitTable.from_toml(target.limits.file)
        self.limits = LimitTable.default() if limits is None else limits
        self.pacer = Pacer(target, self.limits)
        self.traffic = Traffic(self.limits)
        self.redactor = Redactor(target.key_texts)
        self.history = HistoryWriter(None, self.redactor)
        self.created = Created(target.spelling)
        self.cooldown = Cooldown()
        self.exchanges: dict[int, Exchange] = {}
        self.cleanings = 0
        self.waits: list[Wait] = []
        self.rests: dict[str, Rest] = {}
        self.ended: list[str] = []
        self.unanswered = 0
        self.latency_ns = 0
        self.wall_start_ns = transport.wall_start_ns
        self.doubts: Mapping[str, str] = {}
        self.is_misshapen = False
        self.deadline_ns = transport.now_ns + target.budget.minutes * _MINUTE_NS
        self._cleaning_end_ns = self.deadline_ns + _CLEANING_NS
        self._forbidden = tuple(_pattern(operation) for operation in target.forbidden)
        self.reserved: dict[str, int] = {}
        self._sent_by: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._last: dict[str, int] = {}
        self.made: dict[tuple[str, str], str] = {}
        self.requests = 0
        self._next_slot_ns = 0

    def __repr__(self) -> str:
        return f"<Session with {self.target.base_url}: {self.requests} requests>"

    def last_of(self, check_id: str) -> tuple[int, ...]:
        """Return the number of a check's last exchange; empty where it has sent nothing.

        Other checks add exchanges meanwhile, so `exchanges` must not be searched for it.
        """
        with self._lock:
            return (self._last[check_id],) if check_id in self._last else ()

    def settled_exchanges(self) -> list[Exchange]:
        """Return the exchanges of the sequential checks that have ended, in order of numbers."""
        with self._lock:
            exchanges = list(self.exchanges.values())
        ended = set(self.ended)
        return [exchange for exchange in exchanges if exchange.check in ended]

    @property
    def patience_ns(self) -> int:
        """The longest time that a refusal may last, by the limit table."""
        return max(max(rule.window_ns, rule.block_ns or 0) for rule in self.limits)

    async def admit(self, place: Place, ask: HttpRequest) -> None:
        """Wait until a request may be sent.

        Raises `Skip` for an operation that the target forbids and where the budget is spent, and
        `Inconclusive` where the target no longer answers.
        """
        self._check_allowed(place, ask)
        await self._wait_for_slot(place)

    def record(self, place: Place, ask: HttpRequest, answer: Answer) -> Exchange:
        """Number an answer and keep it; returns the exchange."""
        heard = self.target.dialect.heard(ask, answer.status, answer.body)
        with self._lock:
            number = answer.number or len(self.exchanges) + 1
            exchange = Exchange(
                number,
                *place,
                ask,
                answer.sent_ns,
                answer.received_ns,
                heard.status,
                answer.headers,
                answer.body,
                answer.error,
                heard.body,
                heard.is_ok,
            )
            self.exchanges[number] = exchange
            self._last[exchange.check] = number
            self.unanswered = self.unanswered + 1 if exchange.status is None else 0
            secret = made_key(self.target.spelling, ask, exchange.status, exchange.content)
            if secret is not None:
                self.redactor.learn(f"made.{number}", secret)
            self.created.note(exchange)
            self.history.exchange(exchange)
        return exchange

    def _check_allowed(self, place: Place, ask: HttpRequest) -> None:
        operation = self.forbids(ask.method, ask.path)
        if operation is not None:
            raise Skip(f"the target forbids {operation}")
        budget, sent = self.target.budget, self._sent_by
        if sent[place.check] >= self.reserved.get(place.check, 0):
            others = (most - sent[check] for check, most in self.reserved.items())
            if self.requests + sum(max(0, left) for left in others) >= budget.requests:
                part = f"leaves this check {sent[place.check]} requests, and they are spent"
                raise OutOfBudget(f"budget.requests = {budget.requests} {part}; raise it")
        self.check_time(self.transport.now_ns, place.check)
        if place.check != CLEANING.id and self.unanswered >= _LOST_AFTER:
            raise Inconclusive("the target no longer answers")

    def check_time(self, at_ns: int, check_id: str) -> None:
        """Raise `Skip` where an instant is beyond the budget's minutes for a check."""
        end_ns = self._cleaning_end_ns if check_id == CLEANING.id else self.deadline_ns
        if at_ns > end_ns:
            minutes = self.target.budget.minutes
            raise OutOfBudget(f"the budget of {minutes} min is spent; raise budget.minutes")

    def note_rest(self, check_id: str, more_ns: int, *, is_warm: bool = False) -> None:
        """Record that a check takes longer, because its keys rest or it measures further."""
        before = self.rests.get(check_id, Rest())
        self.rests[check_id] = Rest(before.more_ns + more_ns, before.is_warm or is_warm)

    def begin_last_cleaning(self) -> None:
        """Allow the time of cleaning from now on, where checks have outlasted their budget."""
        end_ns = self.transport.now_ns + _CLEANING_NS
        self._cleaning_end_ns = max(self._cleaning_end_ns, end_ns)

    @contextlib.contextmanager
    def waiting(self, check_id: str, until_ns: int, why: str) -> Iterator[None]:
        """Show what a check waits for, during the block."""
        wait = Wait(check_id, until_ns, why)
        self.waits.append(wait)
        try:
            yield
        finally:
            self.waits.remove(wait)

    def forbids(self, method: str, path: str) -> str | None:
        """Return the line of the target that forbids a request, None where none does."""
        asked = f"{method} {path.partition('?')[0]}"
        pairs = zip(self.target.forbidden, self._forbidden, strict=True)
        return next((forbidden for forbidden, pattern in pairs if pattern.fullmatch(asked)), None)

    async def _wait_for_slot(self, place: Place) -> None:
        with self._lock:
            self.requests += 1
            self._sent_by[place.check] += 1
            pacing = self.target.pacing
            if pacing is None:
                return
            slot_ns = max(self._next_slot_ns, self.transport.now_ns)
            self._next_slot_ns = slot_ns + pacing.window_ns // pacing.limit_requests
        await self.transport.sleep_until_ns(slot_ns)

    def make(self, check_id: str, name: str, maker: Callable[[], str]) -> str:
        """Return a text that no seed determines, such as an encrypted one; `judge` needs it.

        A name gets its text once: asked for again, it is the same.
        """
        if (check_id, name) not in self.made:
            text = self.made[check_id, name] = maker()
            self.history.write("made", {"check": check_id, "name": name, "text": text})
        return self.made[check_id, name]

    def learn(self, reading: tuple[str, object]) -> str | None:
        """Record a discovered choice; returns what is wrong with it, None when nothing is."""
        path, value = reading
        section, _, name = path.partition(".")
        now = getattr(getattr(self.profile, section, None), name, None)
        if path in self.known and now != value:
            return f"{line_of(path, now)} and {line_of(path, value)} were both seen"
        try:
            self.profile = self.profile.replace(**{section: {name: value}})
        except InputError as error:
            return str(error)
        self.known.add(path)
        return None


def _told(target: Target, profile: Profile | None) -> tuple[Profile, set[str]]:
    """Return the profile that was given, and the fields that it names."""
    if profile is not None:
        return profile, told_by(profile)
    choices, known = Profile(), set[str]()
    if target.profile is not None:
        choices, known = read_profile(target.profile.file)
    for kind, name in (target.default_containers or {}).items():
        choice = f"container_default_{kind}"
        choices = choices.replace(tokens={choice: target.dialect.path_of(name)})
        known.add(f"tokens.{choice}")
    return choices, known


def _pattern(operation: str) -> re.Pattern[str]:
    """Return the pattern of an operation: `{id}` stands for one segment, `*` for any text."""
    method, _, path = operation.partition(" ")
    parts = re.split(r"(\{[^/{}]*\}|\*)", path)
    steps = [
        ".*" if part == "*" else "[^/]+" if part.startswith("{") else re.escape(part)
        for part in parts
    ]
    return re.compile(("[A-Z]+" if method == "ANY" else method) + " " + "".join(steps))

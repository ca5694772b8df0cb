"""Judging: the verdicts of a recorded run, computed again from its history, offline.

Every check runs on a virtual clock that starts when the check began. Each request is answered by
the exchange that the history holds for the same (check, lane, turn), at the same times. Texts that
no seed determines come from the history. The profile holds what was known at that instant. A check
is a function of all this and the seed: an unchanged check gives the same findings, and a changed
check gives what it would have found. A check that now sends other requests cannot be judged: its
recorded findings are kept, and a note says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.context.check import Check, Inconclusive, all_checks
from conformance.context.context import CheckContext
from conformance.context.cooldown import Cooldown
from conformance.context.history import exchange_of, finding_of, kept_body, read_history
from conformance.context.session import Session
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, HttpRequest, KeyLabel
from conformance.report.report import Report
from conformance.runner.outcome import judge as judge_check
from conformance.runner.runner import learn, report_of
from conformance.target import Source, Target
from conformance.wire.pace import Pacer
from conformance.wire.redaction import Redactor
from conformance.wire.transport import Answer, Place, VirtualTransport
from engine import InputError, LimitTable, ManualClock, Profile
from engine.files import Document, from_document, parse_toml


class _HistoryTransport(VirtualTransport):
    """Answers from a history."""

    def __init__(
        self, exchanges: Mapping[Place, Exchange], began_ns: int, redactor: Redactor
    ) -> None:
        super().__init__(ManualClock(began_ns))
        self._exchanges = exchanges
        self._redactor = redactor
        self.is_missing = False

    @property
    def wall_start_ns(self) -> int:
        return 0  # the history's head says what it was

    async def send(self, ask: HttpRequest, place: Place) -> Answer:
        exchange = self._exchanges.get(place)
        if exchange is None or not self._is_same(exchange.ask, ask):
            self.is_missing = True
            raise Inconclusive(f"the history holds no {ask.method} {ask.path} of {place.lane}")
        await self.sleep_until_ns(exchange.sent_ns)
        await self.sleep_until_ns(exchange.received_ns)
        return Answer(
            exchange.sent_ns,
            exchange.received_ns,
            exchange.status,
            exchange.headers,
            exchange.body,
            exchange.error,
            exchange.number,
        )

    def _is_same(self, then: HttpRequest, now: HttpRequest) -> bool:
        """Whether two requests are the same, as far as the history keeps them."""
        return (then.method, then.path, then.key) == (
            now.method,
            now.path,
            now.key,
        ) and then.body == kept_body(now.body, self._redactor)

    def learn_key(self, label: KeyLabel, text: str) -> None:
        """Do nothing: no request is sent."""


class _NoPacer(Pacer):
    """Admits everything: the recorded times already include the pacing."""

    def admit(self, now_ns: int, ask: HttpRequest, sources: Sequence[Source]) -> tuple[Source, int]:  # noqa: ARG002 # reason: the pacer's form
        return sources[0], 0


class _Past:
    """What a history holds. began, ended: by check; made: by check and name."""

    def __init__(self, folder: Path) -> None:
        records: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in read_history(folder):
            records[record["record"]].append(record)
        self.head = next(iter(records["run"]), None)
        self.tail = next(iter(records["end"]), None)
        self.began = {entry["id"]: entry for entry in records["check"]}
        self.ended = {entry["id"]: entry["at_ns"] for entry in records["ended"]}
        self.made = {(entry["check"], entry["name"]): entry["text"] for entry in records["made"]}
        self.said = [finding_of(entry) for entry in records["said"]]
        self.found = [finding_of(entry) for entry in records["found"]]
        exchanges = [exchange_of(entry) for entry in records["exchange"]]
        self.exchanges = {exchange.number: exchange for exchange in exchanges}

    @property
    def order(self) -> list[str]:
        """The checks in the order in which they ended: later ones knew what earlier ones found."""
        return [*self.ended, *(check_id for check_id in self.began if check_id not in self.ended)]


class _PastContext(CheckContext):
    """A ctx whose profile is what was known at each instant of the recorded run.

    known: (instant, profile, choices told or discovered), in order of time.
    """

    def __init__(
        self, check: Check, session: Session, record: Mapping[str, Any], last_ns: int
    ) -> None:
        super().__init__(check, session, keys=record["keys"], sources=record["sources"])
        self.known: Sequence[tuple[int, Profile, frozenset[str]]] = ()
        self._last_ns = last_ns

    def _then(self) -> tuple[Profile, frozenset[str] | set[str]]:
        now_ns = self.transport.now_ns
        if now_ns < self._last_ns:
            for at_ns, profile, known in reversed(self.known):
                if at_ns <= now_ns:
                    return profile, known
        return self.session.profile, self.session.known

    @property
    def profile(self) -> Profile:
        return self._then()[0]

    def knows(self, choice: str) -> bool:
        return choice in self._then()[1]


def judge(folder: str | Path) -> Report:
    """Return the report of a run's folder; raises `InputError` where it holds no whole history."""
    folder = Path(folder)
    try:
        return _judged(folder)
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{folder} holds records that this version cannot read; run it again"
        ) from error


def _judged(folder: Path) -> Report:
    past = _Past(folder)
    if past.head is None or past.head.get("format") != 1:
        raise InputError(f"{folder} holds no run that this version can read; run it again")
    if past.tail is None:
        raise InputError(f"{folder} holds a run that was cut off; run it again")
    head = {**past.head, **past.tail}
    target = Target.from_document(Document(head["target"], name="history"))
    session = _session(head, past, target)
    findings = list(past.said)
    notes: list[str] = []
    known = [(0, session.profile, frozenset(session.known))]
    for check_id in past.order:
        of_check, is_kept = _played(check_id, past, session, known)
        if is_kept:
            notes.append(f"{check_id} asks otherwise now: what it found then is kept")
        findings += of_check
        notes += learn(session, of_check)
        if not all_checks()[check_id].is_concurrent:
            session.ended.append(check_id)
        known.append((past.ended.get(check_id, 0), session.profile, frozenset(session.known)))
    spans = {name: (past.began[name]["began_ns"], at_ns) for name, at_ns in past.ended.items()}
    session.exchanges = past.exchanges  # as the history keeps them
    return report_of(head, session, findings, notes, spans=spans)


def _session(head: Mapping[str, Any], past: _Past, target: Target) -> Session:
    profile: Profile = from_document(Profile, parse_toml(head["profile"], "history"))
    limits = LimitTable.from_text(head["limits"], "history")
    nowhere = _HistoryTransport({}, 0, Redactor(target.key_texts))
    session = Session(target, nowhere, seed=head["seed"], profile=profile, limits=limits)
    session.made = past.made
    session.nonce = head.get("nonce", "")
    session.cooldown = Cooldown(head.get("recently_used", ()))
    session.exchanges = dict(sorted(past.exchanges.items()))
    session.wall_start_ns = head.get("wall_start_ns", 0)
    session.known = set(head["known"])
    session.pacer = _NoPacer(target, limits)
    session.deadline_ns = 1 << 62
    session.latency_ns = head["latency_ns"]
    session.doubts = head["preflight"].get("doubts", {})
    session.is_misshapen = head["preflight"].get("misshapen") is not None
    return session


def _played(
    check_id: str,
    past: _Past,
    session: Session,
    known: Sequence[tuple[int, Profile, frozenset[str]]],
) -> tuple[list[Finding], bool]:
    """Return what a check finds, and whether that had to be taken from the history."""
    check = all_checks().get(check_id)
    if check is None:
        raise InputError(f"check = {check_id!r} is not known to this version; run it again")
    record = past.began[check_id]
    own = [exchange for exchange in past.exchanges.values() if exchange.check == check_id]
    by_place = {Place(exchange.check, exchange.lane, exchange.turn): exchange for exchange in own}
    played = _HistoryTransport(by_place, record["began_ns"], session.redactor)
    session.transport = played
    session.unanswered = 0
    ctx = _PastContext(
        check, session, record, max((exchange.received_ns for exchange in own), default=0)
    )
    ctx.known = known
    findings: list[Finding] = played.run([judge_check(ctx)])[0]
    if played.is_missing:
        findings = [finding for finding in past.found if finding.check == check.id] or findings
    return findings, played.is_missing

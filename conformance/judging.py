"""Judging: the verdicts of a recorded run, computed again from its history, offline.

Every check runs on a virtual clock that starts when it began; what it asks is answered by the
exchange that the history holds for the same (check, lane, turn), at the same times. A check is a
function of answers, times and seed, so it comes to the same findings, and a changed check to what
it would have found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.bench import Bench
from conformance.exchanges import Ask, Exchange, KeyLabel
from conformance.history import LONGEST_SENT, exchange_of, finding_of, read_history
from conformance.judgement import judge_one, judge_side_by_side, settled
from conformance.pacing import Pacer
from conformance.registry import Inconclusive, all_checks
from conformance.report.report import Report
from conformance.results import assemble
from conformance.running import learn
from conformance.session import Session
from conformance.target import Source, Target
from conformance.transport import Answer, Place, gather_virtually, run_virtually
from conformance.verdicts import Finding
from engine import InputError, LimitTable, ManualClock, Profile, VirtualLoop
from engine.clauses import select
from engine.files import Document, from_document, parse_toml
from engine.world import Sleep

__all__ = ["judge"]


class _HistoryTransport:
    """Answers from a history."""

    def __init__(self, exchanges: Mapping[Place, Exchange], began_ns: int) -> None:
        self._exchanges = exchanges
        self._clock = ManualClock(began_ns)
        self._loop: VirtualLoop | None = None
        self.is_missing = False

    @property
    def now_ns(self) -> int:
        return self._clock.now_ns

    async def send(self, ask: Ask, place: Place) -> Answer:
        found = self._exchanges.get(place)
        if found is None or _asked(found.ask) != _asked(ask):
            self.is_missing = True
            raise Inconclusive(f"the history holds no {ask.method} {ask.path} of {place.lane}")
        await self.sleep_until_ns(found.sent_ns)
        await self.sleep_until_ns(found.received_ns)
        return Answer(
            found.sent_ns,
            found.received_ns,
            found.status,
            found.headers,
            found.body,
            found.error,
            found.number,
        )

    async def sleep_until_ns(self, at_ns: int) -> None:
        if at_ns > self._clock.now_ns:
            await Sleep(at_ns - self._clock.now_ns)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        assert self._loop is not None, "gather is awaited by what this transport runs"
        return await gather_virtually(self._loop, coroutines)

    def start(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> Callable[[], list[Any]]:
        return lambda: self.run(coroutines)

    def run(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        self._loop = VirtualLoop(self._clock)
        try:
            return run_virtually(self._loop, coroutines)
        finally:
            self._loop = None

    def learn_key(self, label: KeyLabel, text: str) -> None:
        """Send nothing, so need no key."""

    def close(self) -> None:
        """Hold nothing."""


def _asked(ask: Ask) -> tuple[object, ...]:
    """Return what must be the same, as far as the history keeps it."""
    body = ask.body
    if isinstance(body, bytes) or len(json.dumps(body)) > LONGEST_SENT:
        body = None  # bytes come back redacted, and long bodies not at all
    return ask.method, ask.path, ask.key, body


class _NoPacer(Pacer):
    """What was sent was sent: nothing is held back a second time."""

    def admit(self, now_ns: int, ask: Ask, sources: Sequence[Source]) -> tuple[Source, int]:  # noqa: ARG002 # reason: the pacer's form
        return sources[0], 0


def judge(folder: str | Path) -> Report:
    """Return the report of a run's folder; raises `InputError` where it holds no whole history."""
    folder = Path(folder)
    head: dict[str, Any] | None = None
    began: list[dict[str, Any]] = []
    said: list[Finding] = []
    found: dict[str, list[Finding]] = {}
    exchanges: dict[int, Exchange] = {}
    tail: dict[str, Any] | None = None
    for record in read_history(folder):
        kind = record["record"]
        if kind == "run":
            head = record
        elif kind == "check":
            began.append(record)
        elif kind == "said":
            said.append(finding_of(record))
        elif kind == "found":
            found.setdefault(record["check"], []).append(finding_of(record))
        elif kind == "exchange":
            exchange = exchange_of(record)
            exchanges[exchange.number] = exchange
        elif kind == "end":
            tail = record
    if head is None or head.get("format") != 1:
        raise InputError(f"{folder} holds no run that this version can read; run it again")
    if tail is None:
        raise InputError(f"{folder} holds a run that was cut off; run it again")
    return _judged({**head, **tail}, began, said, found, exchanges)


def _judged(
    head: Mapping[str, Any],
    began: Sequence[Mapping[str, Any]],
    said: Sequence[Finding],
    recorded: Mapping[str, list[Finding]],
    exchanges: Mapping[int, Exchange],
) -> Report:
    target = Target.from_document(Document(head["target"], name="history"))
    profile: Profile = from_document(Profile, parse_toml(head["profile"], "history"))
    limits = LimitTable.from_text(head["limits"], "history")
    by_place = {Place(e.check, e.lane, e.turn): e for e in exchanges.values()}
    transport = _HistoryTransport(by_place, 0)
    session = Session(target, transport, seed=head["seed"], profile=profile, limits=limits)
    session.known = set(head["known"])
    session.pacer = _NoPacer(target, limits)
    session.deadline_ns = 1 << 62
    session.latency_ns = head["latency_ns"]
    findings = list(said)
    notes: list[str] = []
    checks = all_checks()
    for record in began:
        check = checks.get(record["id"])
        if check is None:
            raise InputError(f"check = {record['id']!r} is not known to this version; run it again")
        played = _HistoryTransport(by_place, record["began_ns"])
        session.transport = played
        session.unanswered = 0
        bench = Bench(check, session, keys=record["keys"], sources=record["sources"])
        if check.is_side_by_side:
            found = session.transport.run([judge_side_by_side(bench)])[0]
        else:
            found = judge_one(bench)
        if played.is_missing:
            found = recorded.get(check.id, found)
            notes.append(f"{check.id} asks otherwise now: what it found then is kept")
        findings += found
        notes += learn(session, found)
    clauses = select(list(head["select"]))
    return Report(
        results=assemble(
            clauses,
            settled(findings, checks, head["preflight"]["doubt"]),
            expected=target.expected_failures,
            unseen=head["unseen"],
        ),
        exchanges=exchanges,
        redactor=session.redactor,
        target=target,
        profile=session.profile,
        known=frozenset(session.known),
        notes=tuple(notes),
        seed=head["seed"],
        preflight=head["preflight"],
        aborted=head["aborted"],
        started_at=head["started_at"],
        took_ns=head["took_ns"],
        cleaned=(head["cleaned"][0], head["cleaned"][1]),
        floor_ns=head["floor_ns"],
        requests=head["requests"],
        strict=head["strict"],
        command=tuple(head["command"]),
    )

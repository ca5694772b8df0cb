"""What the conformance harness finds about deployments that do something else than they should.

Each change stands for a kind of deployment: it alters some of the answers of the reference, every
third one for example. A digest is of all findings of all checks about it: verdicts and sentences.
A change of the harness that judges as before leaves them all as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

from rich.console import Console

from conformance.faults.registry import fault_of
from conformance.faults.trial import Trial, try_fault
from conformance.report.report import FORMATS
from conformance.report.terminal import show_report
from conformance.runner.history import HISTORY_FILE
from conformance.runner.runner import Options, Run
from conformance.runner.verdicts import Finding, Verdict
from conformance.wire.exchange import Ask
from conformance.wire.in_process import deploy
from conformance.wire.transport import Answer, EngineTransport, Place
from tests.conformance.checks.changed import clause_checks, judged
from tests.digests._commands import same_everywhere

__all__ = ["CHANGES", "REPORTED", "fault_text", "findings_text", "report_text", "tried"]

_STARTED: Final = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)")
_ENCRYPTED: Final = re.compile(r"eyJ[\w-]+(?:\.[\w-]*)+")
_SECOND_NS: Final = 1_000_000_000
_HEAVY: Final = {"account-updater.file", "authentication.grants"}
"""Checks that take seconds; they have their own tests."""

Body = Callable[[Any], Any]


def _with_status(status: int | None, body: bytes = b"{}") -> Callable[[Answer], None]:
    def change(answer: Answer) -> None:
        answer.status, answer.body = status, body
        answer.error = "cut off" if status is None else None

    return change


def _with_body(change_body: Body) -> Callable[[Answer], None]:
    """Change the JSON of an answer; what is no JSON stays."""

    def change(answer: Answer) -> None:
        try:
            found = json.loads(answer.body)
        except ValueError:
            return
        answer.body = json.dumps(change_body(found)).encode()

    return change


def _late(seconds: float) -> Callable[[Answer], None]:
    def change(answer: Answer) -> None:
        answer.received_ns += int(seconds * _SECOND_NS)

    return change


def _mapped(of_text: Callable[[str], Any]) -> Body:
    """Change every text of a body."""

    def change(body: Any) -> Any:
        if isinstance(body, dict):
            return {name: change(value) for name, value in body.items()}
        if isinstance(body, list):
            return [change(value) for value in body]
        return of_text(body) if isinstance(body, str) else body

    return change


def _without(name: str) -> Body:
    """Leave a field out of every object."""

    def change(body: Any) -> Any:
        if isinstance(body, dict):
            return {key: change(value) for key, value in body.items() if key != name}
        return [change(value) for value in body] if isinstance(body, list) else body

    return change


def _with(name: str, value: Any) -> Body:
    """Give a field of every object that has it another value."""

    def change(body: Any) -> Any:
        if isinstance(body, dict):
            return {key: value if key == name else change(one) for key, one in body.items()}
        return [change(one) for one in body] if isinstance(body, list) else body

    return change


def _turned(body: Any) -> Any:
    return body[::-1] if isinstance(body, list) else body


def _shorter(body: Any) -> Any:
    return body[:-1] if isinstance(body, list) else body


def _longer(body: Any) -> Any:
    return [*body, *body[:1]] if isinstance(body, list) else body


_FIELDS: Final = (
    *("id", "type", "tenant_id", "data", "metadata", "mask", "containers", "fingerprint"),
    *("created_at", "created_by", "expires_at", "_extras", "status", "title", "detail", "errors"),
)
_BODIES: Final[dict[str, Body]] = {
    "turned": _turned,
    "shorter": _shorter,
    "longer": _longer,
    "wrapped": lambda body: {"data": body},
    "first alone": lambda body: body[0] if isinstance(body, list) and body else body,
    "upper case": _mapped(str.upper),
    "cut texts": _mapped(lambda text: text[:-1]),
    "no texts": _mapped(lambda text: None),
    "one text": _mapped(lambda text: "0b0c8f34-6f0e-4a52-9f3a-2f2f6c1f7f10"),
    "not deduplicated": _with("deduplicated", value=False),
    "deduplicated": _with("deduplicated", value=True),
    **{f"without {name}": _without(name) for name in _FIELDS},
    **{f"{name} null": _with(name, None) for name in _FIELDS[:9]},
    **{f"{name} a number": _with(name, 7) for name in _FIELDS[:9]},
}
_EVERY: Final[dict[str, Callable[[Answer], None]]] = {
    **{f"status {status}": _with_status(status) for status in (200, 201, 400, 401, 403, 404)},
    **{f"status {status}": _with_status(status) for status in (408, 409, 413, 422, 429, 500, 503)},
    "cut off": _with_status(None, b""),
    "no JSON": _with_status(200, b"<html>"),
    "late": _late(3.0),
    "very late": _late(31.0),
    **{name: _with_body(change) for name, change in _BODIES.items()},
}
_WHICH: Final = {"all": (1, 0), "every second": (2, 1), "every fifth": (5, 2)}
_SWAPPED: Final = ((200, 201), (400, 422), (401, 403), (403, 404), (404, 200), (400, 200))


def _places(change: Callable[[Answer], None], step: int, first: int) -> Callable[[], Any]:
    def made() -> Callable[[Ask, Answer], Answer]:
        count = itertools.count()

        def changed(ask: Ask, answer: Answer) -> Answer:
            if next(count) % step == first:
                change(answer)
            return answer

        return changed

    return made


def swapped(old: int, new: int | None) -> Callable[[], Any]:
    """Answer with another status; None: no answer at all."""

    def changed(ask: Ask, answer: Answer) -> Answer:
        if answer.status == old:
            answer.status = new
        return answer

    return lambda: changed


def _changes() -> Iterator[tuple[str, Callable[[], Any]]]:
    for (name, change), (which, (step, first)) in itertools.product(_EVERY.items(), _WHICH.items()):
        yield f"{name}, {which}", _places(change, step, first)
    for old, new in _SWAPPED:
        yield f"{new} for {old}", swapped(old, new)


CHANGES: Final = dict(_changes())
"""Name → what makes the change of one check's answers."""


class _Sent:
    """The requests to engines of this process: when, by whom, and what was answered."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.count = 0

    async def send(self, transport: EngineTransport, ask: Ask, place: Place) -> Answer:
        at_ns = transport.now_ns
        answer = await _SEND(transport, ask, place)
        self.count += 1
        asked = _ENCRYPTED.sub("…", str(ask))
        self.digest.update(f"{at_ns} {place} {asked} {answer.status}\n".encode())
        return answer

    def __str__(self) -> str:
        return f"{self.count} requests, {self.digest.hexdigest()}"


_SEND: Final = EngineTransport.send


@contextlib.contextmanager
def recorded() -> Iterator[_Sent]:
    """Note every request while the block runs: the same seed sends the same requests."""
    sent = _Sent()

    async def send(transport: EngineTransport, ask: Ask, place: Place) -> Answer:
        return await sent.send(transport, ask, place)

    with mock.patch.object(EngineTransport, "send", send):
        yield sent


def fault_text(name: str) -> str:
    """Return what a trial of the self-test finds, and what it sent for it."""
    return tried(name)[1]


def tried(name: str) -> tuple[Trial, str]:
    """Return a trial of the self-test, and it as text with what it sent."""
    with recorded() as sent:
        trial = try_fault(name)
    found = (trial.killers, trial.failed, trial.crashed, trial.unsaid, trial.says, trial.causes)
    return trial, f"{found!r} {sent}"


def findings_text(name: str) -> str:
    """Return what all checks find about a deployment that is changed so, a finding a line.

    No answer may make the harness itself fail.
    """
    with recorded() as sent:
        lines = _finding_lines(name)
    return "\n".join([*lines, str(sent)])


def _finding_lines(name: str) -> list[str]:
    lines: list[str] = []
    for check_id in sorted(clause_checks().keys() - _HEAVY):
        found: list[Finding] = judged(check_id, CHANGES[name]())
        assert Verdict.ERROR not in {one.verdict for one in found}, (check_id, name)
        lines += map(finding_line, found)
    return lines


def finding_line(one: Finding) -> str:
    """Return what a finding says, in one line."""
    return f"{one.check} {one.clause} {one.verdict.word} {one.says} {one.accepts} {one.reading}"


REPORTED: Final = {
    "mask-last-four-first": ("REC-CARD-MASK", "TOK-PLAIN", "QUO-RATE"),
    "one-less-LIM-MANAGEMENT": ("LIM-MANAGEMENT", "ERR-429"),
    "array-reversed": ("TOK-ARRAY", "TOK-OBJECT", "TOK-PLAIN", "REC-ID"),
}
"""Fault → the clauses that a run is asked for, whose report is then written in every format."""


def report_text(name: str) -> str:
    """Return what a run against a known-bad deployment prints, and its report in every format."""
    bad = deploy(engine=fault_of(name).engine)
    asked = Options(seed=1, select=REPORTED[name])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        report = Run(bad.target, asked, transport=bad.transport, out=out).execute()
        report = dataclasses.replace(report, started_at="2026-01-01T00:00:00+00:00")
        written = report.save(out, FORMATS)
        shown = io.StringIO()
        show_report(Console(file=shown, width=100, no_color=True), report, written)
        files = {path.name: path.read_text("utf-8") for path in sorted(out.iterdir())}
    for other in ("profile.schema.json", HISTORY_FILE):
        files.pop(other)
    said = [shown.getvalue(), *(f"+ {file}\n{text}" for file, text in files.items())]
    return plain_text("\n".join(said).replace(folder, "…"))


def plain_text(text: str) -> str:
    """Return a text without the instants at which runs began, and without encrypted values."""
    return same_everywhere(_STARTED.sub("…", _ENCRYPTED.sub("…", text)))

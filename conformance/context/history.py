"""The history: `history.ndjson`, every exchange of a run in order, one JSON object per line.

Besides `exchange` records it holds what is needed to judge again offline: how the run was set up
(`run`), when each check began and on which keys and addresses (`check`), the texts that it made and
no seed determines (`made`), what it found (`found`), when it ended (`ended`), findings that come
from no check (`said`), and how the run ended (`end`). Every line passes through the redactor, so it
holds no key text.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from conformance.context.verdicts import Finding, Moment, Verdict, to_json
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.wire.redaction import Redactor
from engine.errors import InputError, reason_of

HISTORY_FILE: Final = "history.ndjson"
_OTHERS: Final = {"ask", "headers", "body", "read", "is_success"}
_ATTRIBUTES: Final = {"says": "message"}
_PLAIN: Final = [field.name for field in dataclasses.fields(Exchange) if field.name not in _OTHERS]
"""The fields of an exchange that are written as they are."""
LONGEST_SENT: Final = 65_536
"""The longest request body kept whole, in bytes; longer ones are generated and can be recreated."""


class HistoryWriter:
    """Appends records to a file, or keeps none where there is no file."""

    def __init__(self, path: Path | None, redactor: Redactor) -> None:
        self._redactor = redactor
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        if path is not None:
            self._file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """Append a record."""
        if self._file is None:
            return
        # Redact the whole line: a secret inside JSON is found in its escaped form.
        line = self._redactor.text(
            json.dumps({"record": kind, **record}, ensure_ascii=False, default=str)
        )
        with self._lock:
            self._file.write(line + "\n")

    def exchange(self, exchange: Exchange) -> None:
        """Append an exchange."""
        if self._file is not None:
            self.write("exchange", _exchange_record(exchange, self._redactor))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _exchange_record(exchange: Exchange, redactor: Redactor) -> dict[str, Any]:
    ask = exchange.ask
    asked: dict[str, Any] = {"method": ask.method, "path": ask.path}
    for name in ("key", "proxy_key", "host", "source"):
        if getattr(ask, name) is not None:
            asked[name] = getattr(ask, name)
    if ask.headers:
        asked["headers"] = dict(ask.headers)
    if ask.body is not None:
        asked["body"] = _sent(ask.body, redactor)
    plain = {name: getattr(exchange, name) for name in _PLAIN}
    headers, body = dict(exchange.headers), _bytes(redactor.raw(exchange.body))
    return {**plain, "ask": asked, "headers": headers, "body": body}


def _sent(body: Any, redactor: Redactor) -> dict[str, Any]:  # noqa: ANN401 # reason: JSON or bytes
    if not isinstance(body, bytes):
        text = json.dumps(body, ensure_ascii=True)
        if len(text) <= LONGEST_SENT:
            return {"json": body}
        body = text.encode()
    if len(body) <= LONGEST_SENT:
        return _bytes(redactor.raw(body))
    digest = hashlib.sha256(body).hexdigest()
    start = body[:256].decode(errors="backslashreplace")
    return {"begins": start, "size_bytes": len(body), "sha256": digest}


def kept_body(body: Any, redactor: Redactor) -> Any:  # noqa: ANN401 # reason: JSON or bytes
    """Return a request body as a history keeps it: without secrets, a long one as a summary."""
    return None if body is None else _body_of(_sent(body, redactor))


def _body_of(held: Mapping[str, Any]) -> Any:  # noqa: ANN401 # reason: JSON or bytes
    return held["json"] if "json" in held else _raw(held)


def _bytes(raw: bytes) -> dict[str, Any]:
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def read_history(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a run's folder; raises `InputError` where it holds none."""
    path = folder / HISTORY_FILE
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    record = json.loads(line)
                    record["record"] = str(record["record"])
                except (ValueError, TypeError, KeyError):
                    raise InputError(f"{path}:{number}:1: the line must be a record") from None
                yield record
    except OSError as error:
        raise InputError(f"{path}: {reason_of(error)}; give the folder of a run") from None


def exchange_of(record: Mapping[str, Any]) -> Exchange:
    """Return the exchange of a record; a body that was too long to keep is a summary."""
    asked = dict(record["ask"])
    body = asked.pop("body", None)
    if body is not None:
        body = _body_of(body)
    plain = {name: record[name] for name in _PLAIN}
    ask, answer = HttpRequest(body=body, **asked), _raw(record["body"])
    return Exchange(**plain, ask=ask, headers=record["headers"], body=answer)


def _raw(held: Mapping[str, Any]) -> bytes:
    if "base64" in held:
        return base64.b64decode(held["base64"])
    if "text" in held:
        return str(held["text"]).encode()
    return f"{held['begins']}… ({held['size_bytes']} bytes)".encode()


def finding_record(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON."""
    timeline = [to_json(moment) for moment in finding.timeline]
    return {**to_json(finding), "verdict": finding.verdict.word, "timeline": timeline}


def _moment_of(record: Mapping[str, Any]) -> Moment:
    return Moment(**{_ATTRIBUTES.get(name, name): value for name, value in record.items()})


def finding_of(record: Mapping[str, Any]) -> Finding:
    """Return the finding of a record."""
    reading = record.get("reading")
    return Finding(
        record["clause"],
        record["check"],
        Verdict[record["verdict"].upper().replace("-", "_")],
        record["says"],
        tuple(record["evidence"]),
        record["accepts"],
        None if reading is None else (reading[0], reading[1]),
        record.get("follows"),
        tuple(map(_moment_of, record.get("timeline", ()))),
        record.get("is_cut", False),
        record.get("is_absent", False),
        tuple(record.get("symptoms", ())),
        record.get("place", ""),
    )

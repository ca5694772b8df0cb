"""The access log, one line per answered request for `python -m simulator replay`, and the counts.

`combined` is the log of nginx and Apache, with the key's label after the user agent. `json` has a
line of JSON per request, with the instant in nanoseconds, the tenant, the application and the
decision of the limits.

No line holds a secret: a key stands as its id, the query of a target and of a referrer is left out,
and no body is logged. The service's own pages, which count in no limit (D-COUNTED), are not logged.
A client that goes away before its answer has status 499, as in nginx.

The file is opened for appending: `logrotate` needs `copytruncate`.

`Metrics` counts the same requests since the start, for nanoseconds per request; when somebody reads
`/metrics`, `engine.http.exposition` makes Prometheus' families of the counts. None names a tenant,
a key or an address.
"""

from __future__ import annotations

import logging
import re
import time
from bisect import bisect_left
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import orjson

from engine.errors import InputError, StoreError, reason_of
from engine.identity import Caller
from engine.messages import Decision, Request, Response
from engine.service import Engine

Format: TypeAlias = Literal["combined", "json"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

CLIENT_CLOSED: Final = 499
"""The status of a request whose client went away."""

_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_UNSAFE_CHARACTER: Final = re.compile(r"[^ !#-\[\]-~]")
_log: Final = logging.getLogger("tollgate")


class AccessLog:
    """A file of one line per request. Raises `InputError` if it cannot be written."""

    def __init__(self, path: Path, form: Format, engine: Engine) -> None:
        self._engine = engine
        self._is_json = form == "json"
        self._is_failing = False
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            reason = reason_of(error)
            raise InputError(f"--access-log = {path} must be a file to write: {reason}") from None

    def write(
        self,
        request: Request,
        response: Response | None,
        request_id: bytes,
        *,
        size: int,
        started_ns: int,
    ) -> None:
        """Write the line of a request; None: its client went away before the response.

        started_ns: when it arrived, on the clock of `time.perf_counter_ns`. A full disk delays no
        answer: the first failure is logged, and lines are lost until the file can be written again.
        """
        latency_ns = time.perf_counter_ns() - started_ns
        arrival_ns = time.time_ns() - latency_ns
        try:
            caller = self._engine.caller_of(request)
        except StoreError:
            caller = None
        entry: dict[str, str | int | None] = {
            "time": _iso_time(arrival_ns),
            "ip": request.ip,
            "method": request.method,
            "path": request.path.partition("?")[0],
            "status": CLIENT_CLOSED if response is None else response.status,
            "size": size,
        }
        if self._is_json:
            entry |= _details(request, response, caller)
            entry |= {"latency_ns": latency_ns, "request_id": request_id.decode("ascii")}
            line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
        else:
            entry |= {"time": _log_time(arrival_ns), "key": _label(caller)}
            line = _combined_line(request, entry)
        try:
            self._file.write(line)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                _log.error("the access log cannot be written: %s", reason_of(error))
            self._is_failing = True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _iso_time(instant_ns: int) -> str:
    seconds, rest_ns = divmod(instant_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns:09d}Z"


def _log_time(instant_ns: int) -> str:
    """Return an instant as nginx and Apache write it, whatever the locale."""
    moment = datetime.fromtimestamp(instant_ns // 1_000_000_000, UTC)
    return f"{moment:%d}/{_MONTHS[moment.month - 1]}/{moment:%Y:%H:%M:%S} +0000"


def _details(
    request: Request, response: Response | None, caller: Caller | None
) -> dict[str, str | int | None]:
    """Return what JSON has beyond the combined format."""
    entry: dict[str, str | int | None] = {}
    if caller is not None:
        entry |= {
            "key": _label(caller),
            "tenant": caller.tenant.name,
            "tenant_kind": caller.tenant.kind,
            "application": caller.application.name,
            "application_kind": caller.application.kind,
            "legacy": caller.key.legacy,
        }
    if response is not None:
        decision = response.decision
        entry |= {"outcome": decision.outcome, "rule": decision.rule, "wait_ns": decision.wait_ns}
    return entry | {"user_agent": _header(request, "user-agent")}


def _combined_line(request: Request, entry: Mapping[str, str | int | None]) -> bytes:
    target = _quoted(f"{entry['method']} {entry['path']} HTTP/1.1")
    referrer = _quoted((_header(request, "referer") or "-").partition("?")[0])
    agent = _quoted(_header(request, "user-agent") or "-")
    return (
        f'{entry["ip"]} - - [{entry["time"]}] "{target}" {entry["status"]} {entry["size"]} '
        f'"{referrer}" "{agent}" "{entry["key"]}"\n'
    ).encode("ascii")


def _header(request: Request, name: str) -> str | None:
    """Return a field as the client wrote it; the server decodes every byte as one character."""
    value = None if request.headers is None else request.headers.get(name)
    return None if value is None else value.encode("latin-1", "replace").decode("utf-8", "replace")


def _label(caller: Caller | None) -> str:
    """Return the label of a key: its id, which identifies it and opens nothing."""
    return "-" if caller is None else f"key_{caller.key.id}"


def _quoted(text: str) -> str:
    r"""Return text for a quoted field: what is not printable ASCII, `"` and `\` as `\xHH`."""
    return _UNSAFE_CHARACTER.sub(
        lambda match: "".join(f"\\x{b:02X}" for b in match[0].encode()), text
    )


BOUNDS_S: Final = (
    *(0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
"""The upper bounds of the latency histogram's buckets."""

_BOUNDS_NS: Final = tuple(int(bound_s * 1e9) for bound_s in BOUNDS_S)


class Metrics:
    """The counts of one server.

    responses: (operation, status, outcome, rule) → requests. shadows: rule → requests that it would
    have refused. buckets: requests up to each of `BOUNDS_S`, and those beyond. in_flight: requests
    that have no response yet.
    """

    def __init__(self) -> None:
        self.responses: dict[tuple[str, int, str, str | None], int] = {}
        self.shadows: dict[str, int] = {}
        self.buckets = [0] * (len(_BOUNDS_NS) + 1)
        self.sum_ns = 0
        self.in_flight = 0

    def count(self, operation: str, status: int, decision: Decision, latency_ns: int) -> None:
        """Count one answered request."""
        response = (operation, status, decision.outcome, decision.rule)
        self.responses[response] = self.responses.get(response, 0) + 1
        for rule in decision.shadow:
            self.shadows[rule] = self.shadows.get(rule, 0) + 1
        self.buckets[bisect_left(_BOUNDS_NS, latency_ns)] += 1
        self.sum_ns += latency_ns

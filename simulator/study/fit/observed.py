"""What a log shows: its requests in order of time, who sent each, and whether it was refused.

The log is read once, and its rows wait in a `Spill`, as those of a replay do. Paths are read as
templates: what looks like an identifier becomes `{id}`, a query is dropped. So memory follows the
clients and their kinds of requests, and not the lines.

A *client* is what the log's `client` column tells apart; without one it is a key at an address.
Whether a request was refused is its status 429, or the `outcome` of a run's own rows.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.errors import InputError
from engine.files import format_duration
from engine.limits import Classifier, LimitTable
from simulator.logs import (
    Field,
    Log,
    LogBatch,
    LogStream,
    stream_log,
)
from simulator.logs.arrivals import BLOCK_ROWS, Arrivals, Block, Spill
from simulator.logs.parties import Parties, PartyTable, name_parties
from simulator.options import FitOptions
from simulator.rows.record import distinct

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

_EXTRA: Final = {
    "status": (
        "status",
        "statuscode",
        "httpstatus",
        "scstatus",
        "responsestatus",
        "code",
    ),
    "outcome": ("outcome",),
    "attempt": ("attempt",),
    "client": ("client", "clientid"),
    "tenant": ("tenant",),
    "application": ("application", "app", "applicationname"),
}
_FLAG_TARGETS: Final = ("status", "outcome", "attempt")
_REFUSALS: Final = frozenset({"refused", "blocked"})
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_ID: Final = re.compile(
    r"[0-9]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{12,}"
    r"|(?=[^/]*[0-9])[A-Za-z0-9_-]{20,}"
)
_UPLOAD: Final = re.compile(r"/batch-files/.*")
_PLAIN_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~{}%+@:,;=&!$'()*-]*)+")
_LONGEST_PATH: Final = 80
_KINDS: Final = 24
"""The most kinds of requests kept apart; rarer ones join the commonest under the same limits."""

UNKNOWN: Final = -1
PROXIED: Final = "/proxied"
"""In the place of `/proxy`: a scenario must name the proxy, which a log does not."""
MOST_ATTEMPTS: Final = 32
"""The most attempts of one request that are distinguished."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a log: instants from its start, [from_ns, to_ns)."""

    from_ns: int
    to_ns: int

    @property
    def span_ns(self) -> int:
        """How long it is."""
        return self.to_ns - self.from_ns


@dataclass(slots=True)
class Observed:
    """A log that was read. A party is a number into all of its columns.

    counts: each party's requests. client: each party's client, from 0. request: each party's kind
    of request, into `requests`. refused: whether each party's requests were refused: 1 yes, 0 no,
    −1 unknown. attempt: which attempt they were, 0 where the log does not tell.
    limit_class: of each kind of request, equal for those that the limits treat alike. merged: how
    many kinds of requests were too rare to be kept apart. says: what the log tells beside time,
    address, method and path. tick_ns: the step of its clock.
    """

    log: LogStream
    start_ns: int
    span_ns: int
    rows: int
    arrivals: Arrivals
    counts: Numbers
    client: Numbers
    clients: int
    request: Numbers
    requests: list[str]
    limit_class: Numbers
    refused: Numbers
    attempt: Numbers
    says: frozenset[str]
    tick_ns: int
    merged: int = 0

    @property
    def parties(self) -> Parties:
        """Who asks for what, by names."""
        return self.arrivals.parties

    @property
    def whole(self) -> Window:
        """All of the log."""
        return Window(0, self.span_ns)

    def blocks(self, window: Window | None = None) -> Iterator[Block]:
        """Yield the requests of a window in order of time; instants count from the window's start.

        A window without requests has no blocks.
        """
        window = window or self.whole
        for block in self.arrivals.blocks(BLOCK_ROWS):
            low, high = np.searchsorted(block.t_ns, (window.from_ns, window.to_ns)).tolist()
            if high > low:
                yield Block(block.t_ns[low:high] - window.from_ns, block.party[low:high])
            if high < len(block):
                return

    def close(self) -> None:
        """Free the disk space of the requests."""
        self.arrivals.__exit__(None, None, None)


class Part:
    """The arrivals of a window, with the interface of `Arrivals`."""

    def __init__(self, observed: Observed, window: Window) -> None:
        self.parties = observed.parties
        self.start_ns = observed.start_ns + window.from_ns
        self.end_ns = observed.start_ns + window.to_ns
        self._observed, self._window = observed, window
        self.last = Block(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Block]:
        """Yield the arrivals, about `rows` at a time."""
        del rows
        for block in self._observed.blocks(self._window):
            self.last = block
            yield block


def observe(options: FitOptions, folder: Path) -> Observed:
    """Read a log to its end. folder: for what does not stay in memory.

    Raises `InputError` when it cannot be read, or has too little to be fitted.
    """
    log = stream_log(
        options.source,
        format=options.format,
        map=options.read_map(),
        time_column=options.time_column,
        progress=options.stage("reading"),
        extra=_EXTRA,
    )
    reading = _Reading(log, folder)
    try:
        return reading.observed(options)
    except BaseException:
        reading.rows.close()
        raise


class _Reading:
    """A log that is being read."""

    def __init__(self, log: LogStream, folder: Path) -> None:
        self.log = log
        self.rows = Spill(folder)
        self.table = PartyTable()
        self._paths = _Templates()
        self._tick_ns = 0

    def observed(self, options: FitOptions) -> Observed:
        """Read all rows, and name who sent them."""
        for batch in self.log.batches():
            self._tick_ns = int(np.gcd.reduce(batch.t_ns, initial=self._tick_ns))
            found = self._coded(batch)
            self.rows.add(found.t_ns, self.table.number(found))
        _refuse_little(self.log.name, len(self.rows), self.table.end_ns - self.table.start_ns)
        codes = self.table.ordered()
        flags = codes.columns.pop("flags")
        client = codes.columns.pop("client", None)
        prefix_bits = options.read_profile.http.ipv6_prefix_bits
        kind, tenant_kind = options.kind, options.tenant_kind
        parties = name_parties(codes, self._named(), kind, tenant_kind, None, prefix_bits)
        arrivals = Arrivals(self.rows, self.table, parties, Fraction(1))
        who = [parties.key.codes, parties.ip.codes] if client is None else [client]
        numbers, first = distinct(who)
        counts = self._counts(arrivals)
        requests, request, classes, merged = _kinds_of(parties, options.table, counts)
        return Observed(
            log=self.log,
            start_ns=arrivals.start_ns,
            span_ns=arrivals.end_ns - arrivals.start_ns + max(1, self._tick_ns),
            rows=len(arrivals),
            arrivals=arrivals,
            counts=counts,
            client=numbers,
            clients=len(first),
            request=request,
            requests=requests,
            limit_class=classes,
            refused=flags.astype(np.int64) // (MOST_ATTEMPTS + 1) - 1,
            attempt=flags.astype(np.int64) % (MOST_ATTEMPTS + 1),
            says=self._says(),
            tick_ns=max(1, self._tick_ns),
            merged=merged,
        )

    def _says(self) -> frozenset[str]:
        """Return which optional fields the log has."""
        said = {name for name, texts in self.log.names.items() if any(texts)}
        if "key" in said and not self.log.says_keys:
            said.discard("key")
        return frozenset(said)

    def _coded(self, batch: LogBatch) -> LogBatch:
        """Return a batch with templates in the place of paths, and flags in that of texts."""
        codes = {name: code for name, code in batch.codes.items() if name not in _FLAG_TARGETS}
        codes["path"] = self._paths.of(batch.codes["path"], self.log.names["path"])
        codes["flags"] = _flags(batch, self.log)
        return LogBatch(batch.t_ns, batch.line, codes)

    def _named(self) -> Log:
        """Return the names of the log, as `name_parties` takes them."""
        none: Numbers = np.empty(0, dtype=np.int64)
        left_out = {"path", "client", *_FLAG_TARGETS}
        names = {name: texts for name, texts in self.log.names.items() if name not in left_out}
        names["path"] = self._paths.names
        if "key" in names and not (self.log.says_keys or any(names["key"])):
            del names["key"]
        fields = {name: Field(none.astype(np.int32), tuple(texts)) for name, texts in names.items()}
        return Log(self.log.name, self.log.format, none, none, fields, 0, ())

    def _counts(self, arrivals: Arrivals) -> Numbers:
        counts = np.zeros(len(arrivals.parties), dtype=np.int64)
        for block in arrivals.blocks():
            counts += np.bincount(block.party, minlength=len(counts))
        return counts


def _refuse_little(name: str, rows: int, span_ns: int) -> None:
    """Raise `InputError` for a log that is too short to fit."""
    if rows < _FEWEST:
        raise InputError(
            f"log = '{name}' must hold at least {_FEWEST} requests to be fitted; it has {rows}, "
            "take a longer one"
        )
    if span_ns < _SHORTEST_NS:
        raise InputError(
            f"log = '{name}' must span at least {format_duration(_SHORTEST_NS)} to be fitted; all "
            f"its times lie within {format_duration(max(span_ns, 1))}"
        )


_FEWEST: Final = 20
_SHORTEST_NS: Final = 5_000_000_000


class _Templates:
    """Paths as templates: one number for all paths that differ in identifiers alone."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._known = array("i")

    def of(self, codes: Codes, paths: Sequence[str]) -> Codes:
        """Return each row's template. paths: the texts that `codes` point into, so far."""
        for place in range(len(self._known), len(paths)):
            path = paths[place]
            text = template_of(path)
            number = self._numbers.setdefault(text, len(self.names))
            if number == len(self.names):
                self.names.append(text)
            self._known.append(number)
        return np.asarray(np.frombuffer(self._known, dtype=np.int32)[codes])


def template_of(path: str) -> str:
    """Return a path without its query, identifiers as `{id}`, in a form that a scenario can say.

    >>> template_of("/tokens/3f2a9c1d-0000-4000-8000-000000000000?size=3")
    '/tokens/{id}'
    """
    plain = path.partition("?")[0].partition("#")[0]
    if plain == "/proxy" or plain.startswith("/proxy/"):
        plain = PROXIED + plain.removeprefix("/proxy")
    if _UPLOAD.fullmatch(plain):
        return "/batch-files/{id}"
    text = "/".join("{id}" if _ID.fullmatch(part) else part for part in plain.split("/"))
    if len(text) <= _LONGEST_PATH and _PLAIN_PATH.fullmatch(text):
        return text
    kept: list[str] = []
    for part in text.split("/")[1:3]:
        if not _PLAIN_PATH.fullmatch("/" + part) or len(part) > _LONGEST_PATH // 2:
            break
        kept.append(part)
    return "/" + "/".join([*kept, "other"])


def _flags(batch: LogBatch, log: LogStream) -> Codes:
    """Return what each row's status, outcome and attempt say, as one number.

    (refused + 1) · (`MOST_ATTEMPTS` + 1) + attempt; attempt 0 is unknown.
    """
    refused = np.full(len(batch), UNKNOWN, dtype=np.int32)
    attempt = np.zeros(len(batch), dtype=np.int32)
    for target, into, meaning in (
        ("status", refused, _refused_by_status),
        ("outcome", refused, _refused_by_outcome),
        ("attempt", attempt, _attempt),
    ):
        if target in batch.codes:
            said = np.array([meaning(text) for text in log.names[target]] or [UNKNOWN])
            found = said[batch.codes[target]].astype(np.int32)
            known = found != UNKNOWN
            into[known] = found[known]
    return np.asarray((refused + 1) * (MOST_ATTEMPTS + 1) + attempt, dtype=np.int32)


def _refused_by_status(text: str) -> int:
    return UNKNOWN if not text[:3].isdigit() else int(text[:3] == "429")


def _refused_by_outcome(text: str) -> int:
    return UNKNOWN if not text else int(text in _REFUSALS)


def _attempt(text: str) -> int:
    return min(int(text), MOST_ATTEMPTS) if text.isdigit() else UNKNOWN


def _kinds_of(
    parties: Parties, table: LimitTable, counts: Numbers
) -> tuple[list[str], Numbers, Numbers, int]:
    """Return the kinds of requests, each party's, what limits treat alike, and how many merged."""
    classifier = Classifier(pattern for rule in table for pattern in rule.match.resource)
    pair, first = distinct([parties.method.codes, parties.path.codes])
    texts, classes = [], []
    for place in first.tolist():
        method, path = parties.method.name(place) or "", parties.path.name(place) or "/"
        method = method if method in _METHODS else "OPTIONS"
        texts.append(f"{method} {path}")
        classes.append((method, classifier.group(method, path)))
    weights = np.bincount(pair, counts, minlength=len(first))
    numbers: dict[str, int] = {}
    kept: dict[tuple[str, int], int] = {}
    to = np.zeros(len(first), dtype=np.int64)
    merged = 0
    for place in np.argsort(-weights, kind="stable").tolist():
        text, alike = texts[place], classes[place]
        if text not in numbers and len(numbers) >= _KINDS and alike in kept:
            to[place] = kept[alike]
            merged += 1
            continue
        to[place] = numbers.setdefault(text, len(numbers))
        kept.setdefault(alike, int(to[place]))
    places = {text: place for place, text in reversed(list(enumerate(texts)))}
    alike_numbers: dict[tuple[str, int], int] = {}
    limit_class = [
        alike_numbers.setdefault(classes[places[text]], len(alike_numbers)) for text in numbers
    ]
    return list(numbers), to[pair], np.array(limit_class, dtype=np.int64), merged

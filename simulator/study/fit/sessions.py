"""Cut the requests of a log into sessions, for traffic that is as bursty as the log.

1. A caller is a key at an address: what limits count by.
2. An operation whose counts do not correlate with the caller's other requests is a stream of its
   own, such as a job beside interactive requests.
3. A session ends where a gap exceeds a threshold. The threshold is the shortest one with which
   session starts look Poisson: the index of dispersion of their counts in 10 s and in 60 s is
   near 1. It is multiplied by `SAFETY`: sessions alternate with pauses, so cutting too little does
   no harm. Callers with few requests share a threshold. A caller whose requests are Poisson has
   threshold 0: each request is a session.

`simulator.traffic.sessions` samples new traffic from the result.
"""

from __future__ import annotations

import atexit
import dataclasses
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.files import Include
from simulator.options import FitOptions
from simulator.rows.record import Numbers
from simulator.scenario import loads
from simulator.scenario.clients import NoRetry
from simulator.scenario.draws import SessionArrivals
from simulator.study.fit.model import (
    SESSIONS_FILE,
    FittedGroup,
    FittedPool,
    Model,
    scenario_text,
)
from simulator.study.fit.observed import Observed
from simulator.study.fit.traffic import Estimate, Pace
from simulator.traffic.sessions import (
    SECOND_NS,
    Floats,
    Identities,
    RateShape,
    SessionCaller,
    SessionLog,
    SessionStream,
    stream_of,
    write_sessions,
)
from simulator.views.text import counted_text

THRESHOLDS_NS: Final[tuple[int, ...]] = (0, *(SECOND_NS * 2**k // 10 for k in range(16)))
"""0, 0.1 s and on to 55 min."""
SAFETY: Final = 4
FEW_REQUESTS: Final = 20
MIN_OWN_REQUESTS: Final = 100
"""A caller with fewer requests shares its threshold with all such callers."""
DISPERSION_WINDOWS_NS: Final = (10 * SECOND_NS, 60 * SECOND_NS)
CORRELATION_WINDOW_NS: Final = 60 * SECOND_NS


@dataclass(frozen=True, slots=True)
class CallerRequests:
    """The requests of one caller in order of time. request: the kind of each, by number.

    owner: number of the application. key: number of the key within it, −1 for none. address:
    number of the address.
    """

    owner: int
    key: int
    address: int
    t_ns: Numbers
    request: Numbers

    def __len__(self) -> int:
        return len(self.t_ns)

    def part(self, rows: npt.NDArray[np.bool_]) -> CallerRequests:
        """Return some of the requests."""
        return replace(self, t_ns=self.t_ns[rows], request=self.request[rows])


def cut_sessions(
    callers: Sequence[CallerRequests], requests: Sequence[str], span_ns: int
) -> SessionLog:
    """Return the sessions of some callers. requests: the text of each kind of request.

    The shape of the rate over time decides what is Poisson, and it is that of session starts; so
    requests are cut twice, first with the shape of all requests.
    """
    shape = RateShape(np.concatenate([caller.t_ns for caller in callers]).tolist(), span_ns)
    log = _cut(callers, requests, span_ns, shape)
    return _cut(callers, requests, span_ns, log.shape)


def _cut(
    callers: Sequence[CallerRequests], requests: Sequence[str], span_ns: int, shape: RateShape
) -> SessionLog:
    windows = _Windows(shape)
    common_ns = _threshold_ns([c.t_ns for c in callers if len(c) < MIN_OWN_REQUESTS], windows)
    return SessionLog.of(
        (
            SessionCaller(*_identity(caller), tuple(_streams(caller, windows, common_ns)))
            for caller in callers
        ),
        requests,
        span_ns,
    )


def _identity(caller: CallerRequests) -> tuple[str, int, int]:
    return str(caller.owner), caller.key, caller.address


def _streams(caller: CallerRequests, windows: _Windows, common_ns: int) -> Iterator[SessionStream]:
    for part in _independent(caller, windows):
        few = len(part) < MIN_OWN_REQUESTS
        threshold_ns = common_ns if few else _threshold_ns([part.t_ns], windows)
        cuts = np.flatnonzero(_begins(part.t_ns, threshold_ns))[1:]
        pieces = zip(np.split(part.t_ns, cuts), np.split(part.request, cuts), strict=True)
        yield stream_of(
            list(zip(times.tolist(), kinds.tolist(), strict=True)) for times, kinds in pieces
        )


def _begins(t_ns: Numbers, threshold_ns: int) -> npt.NDArray[np.bool_]:
    return np.concatenate([[True], np.diff(t_ns) > threshold_ns])


class _Windows:
    """Counts in windows of a log, and the counts that a shape of the rate makes one expect."""

    def __init__(self, shape: RateShape) -> None:
        self._shape = shape
        self._edges: dict[int, tuple[Numbers, Floats]] = {}

    def counts(self, t_ns: Numbers, window_ns: int) -> tuple[Floats, Floats]:
        """Return the counts in each whole window, and what is expected of as many requests."""
        if window_ns not in self._edges:
            edges = np.arange(0, self._shape.span_ns + 1, window_ns)
            share = np.diff([self._shape.busy(edge) for edge in edges.tolist()])
            self._edges[window_ns] = edges, share
        edges, share = self._edges[window_ns]
        return np.histogram(t_ns, edges)[0].astype(np.float64), len(t_ns) * share


def _looks_poisson(starts: Iterable[Numbers], windows: _Windows) -> bool:
    """Whether the index of dispersion is near 1: within two standard errors, or 0.1."""
    starts = list(starts)
    for window_ns in DISPERSION_WINDOWS_NS:
        squares = expected = cells = 0.0
        for t_ns in starts:
            counts, means = windows.counts(t_ns, window_ns)
            squares += float(((counts - means) ** 2).sum())
            expected += float(means.sum())
            cells += len(counts)
        if not expected:
            continue  # the log is shorter than a window
        error = ((2 + cells / expected) / cells) ** 0.5
        if squares / expected > 1 + max(0.1, 2 * error):
            return False
    return True


def _threshold_ns(t_ns: Sequence[Numbers], windows: _Windows) -> int:
    """Return the gap that ends a session of these callers."""
    for threshold_ns in THRESHOLDS_NS if t_ns else ():
        if _looks_poisson((t[_begins(t, threshold_ns)] for t in t_ns), windows):
            return SAFETY * threshold_ns
    return THRESHOLDS_NS[-1]


def _independent(caller: CallerRequests, windows: _Windows) -> Iterator[CallerRequests]:
    """Yield the requests of a caller by independent streams.

    An operation is one if the correlation of its counts with those of the other requests is below
    three standard errors.
    """
    rest = caller
    if len(caller) >= MIN_OWN_REQUESTS:
        for kind in np.unique(caller.request).tolist():
            mine = rest.request == kind
            if mine.all():
                break
            own, others = rest.part(mine), rest.part(~mine)
            a, b = (
                np.subtract(*windows.counts(part.t_ns, CORRELATION_WINDOW_NS))
                for part in (own, others)
            )
            if len(a) > 1 and (a * b).mean() < 3 / len(a) ** 0.5 * a.std() * b.std():
                yield own
                rest = others
    yield rest


# --- the callers of a log ----------------------------------------------------------------------


def callers_of(
    observed: Observed, window: range, of_client: Numbers, request_of: Numbers
) -> dict[int, list[CallerRequests]]:
    """Return the callers of each group in a window of a log, without retries that it states.

    request_of: by group and kind of request, the kind that it counts as; −1 for none.
    """
    parties = observed.parties
    t_ns, party = _first_attempts(observed, window)
    group = of_client[observed.client[party]]
    key, address = (column.codes[party].astype(np.int64) for column in (parties.key, parties.ip))
    address = np.unique(address, return_inverse=True)[1]
    request = request_of[group, observed.request[party]]
    owner = parties.owner[party].astype(np.int64)
    key_in_owner = _numbered_within(owner, key)
    order = np.lexsort((t_ns, address, key, group))
    order = order[(group[order] >= 0) & (request[order] >= 0)]
    changes = [np.diff(column[order]) != 0 for column in (group, key, address)]
    cuts = np.flatnonzero(np.logical_or.reduce(changes)) + 1
    callers: dict[int, list[CallerRequests]] = {}
    for rows in np.split(order, cuts) if len(order) else ():
        first = rows[0]
        caller = CallerRequests(
            *(int(owner[first]), int(key_in_owner[first]), int(address[first])),
            *(t_ns[rows], request[rows]),
        )
        callers.setdefault(int(group[first]), []).append(caller)
    return callers


def _first_attempts(observed: Observed, window: range) -> tuple[Numbers, Numbers]:
    """Return the instants in a window, since its start, and the parties of its first attempts."""
    blocks = list(observed.arrivals.part(window.start, window.stop).blocks())
    t_ns, party = (np.concatenate(column) for column in zip(*blocks, strict=True))
    first = observed.attempt[party] <= 1
    return t_ns[first], party[first]


def _numbered_within(owner: Numbers, key: Numbers) -> Numbers:
    """Return the number of each key among the keys of its owner, −1 where there is none."""
    numbers = np.full(len(key), -1, dtype=np.int64)
    for place in np.unique(owner).tolist():
        rows = (owner == place) & (key >= 0)
        numbers[rows] = np.unique(key[rows], return_inverse=True)[1]
    return numbers


def arrive_together(callers: Sequence[CallerRequests], span_ns: int) -> bool:
    """Whether callers at one address send at the same times more often than by chance.

    The sum of independent counts has the sum of their variances; three standard errors more is a
    dependence, which sessions sampled by caller do not have.
    """
    edges = np.arange(0, span_ns + 1, CORRELATION_WINDOW_NS)
    if len(edges) < FEW_REQUESTS:
        return False
    counts: dict[int, list[Floats]] = {}
    for caller in callers:
        if len(caller) >= FEW_REQUESTS:
            row = np.histogram(caller.t_ns, edges)[0].astype(np.float64)
            counts.setdefault(caller.address, []).append(row)
    together = apart = cells = 0.0
    for rows in counts.values():
        if len(rows) > 1:
            together += float(np.sum(rows, axis=0).var())
            apart += float(np.sum([row.var() for row in rows]))
            cells += len(edges)
    return cells > 0 and together > apart * (1.1 + 3 * (2 / cells) ** 0.5)


# --- the model of sessions -----------------------------------------------------------------------


def with_sessions(
    model: Model, observed: Observed, window: range, options: FitOptions
) -> Model | None:
    """Return the model with sessions of the log in the place of parametric arrivals.

    Groups that retry stay as they are: what their clients send depends on the answers. None where
    all of them do.
    """
    kinds = np.full((len(model.groups), len(observed.requests)), -1, dtype=np.int64)
    for number, group in enumerate(model.groups):
        if isinstance(group.retry.retry, NoRetry):
            kinds[number, list(group.counted_as)] = list(group.counted_as.values())
    callers = callers_of(observed, window, model.of_client, kinds)
    if not callers:
        return None
    logs = {
        model.groups[number].name: cut_sessions(of_group, observed.requests, len(window))
        for number, of_group in callers.items()
    }
    everybody = [caller for log in logs.values() for caller in log.callers]
    identities = Identities.of(everybody)
    logs = {name: dataclasses.replace(log, identities=identities) for name, log in logs.items()}
    name = model.scenario.name
    pool = FittedPool("log-addresses", identities.addresses, evidence="of the log, by its callers")
    folder = Path(mkdtemp(dir=_folder()))
    file = Include(f"{name}{SESSIONS_FILE}", folder)
    write_sessions(logs, file.file)
    groups = [
        _session_group(group, logs[group.name], file, pool) if group.name in logs else group
        for group in model.groups
    ]
    lost = list(model.lost)
    if arrive_together([c for of_group in callers.values() for c in of_group], len(window)):
        lost.append(
            "callers at one address that send at the same times: each is sampled by itself, so "
            "limits by address refuse less than in the log"
        )
    made = dataclasses.replace(model, groups=groups, text="", lost=lost, sessions=logs)
    made.text = scenario_text(observed, window, made, name, options)
    made.scenario = loads(made.text, f"{name}.toml", folder=folder)
    return made


@cache
def _folder() -> Path:
    """Return a folder that lasts as long as the process: scenarios name files in it."""
    folder = Path(mkdtemp(prefix="simulator-fit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _session_group(
    group: FittedGroup, log: SessionLog, file: Include, pool: FittedPool
) -> FittedGroup:
    """Return a group that sends sessions of the log."""
    callers, requests = len(log.callers), log.size / log.sessions
    arrivals = SessionArrivals(file=file, group=group.name, span_ns=log.span_ns)
    rate = dataclasses.replace(group.pace.rate)
    pace = Pace(
        *("open", "sessions", rate, 0.0, arrivals),
        evidence=f"{counted_text(log.sessions, 'session')} of {counted_text(callers, 'caller')}, "
        f"{requests:.3g} requests each; twice the count, with twice the keys and addresses, is"
        " twice the traffic",
    )
    return dataclasses.replace(
        group,
        count=Estimate(callers, callers, callers),
        pace=pace,
        pool=pool,
        keys_per="client",
        keys_zipf=None,
    )

"""Sessions of a log: a session bootstrap, which sends new traffic that is as bursty as the log.

A *caller* is a key at an address. Its requests are cut into *sessions*; a session is replayed as it
was, with its inner times and its requests. Which session comes next, and when, is sampled:

- *Free* streams alternate sessions with pauses. A pause is sampled from the caller's own pauses (or
  is exponential where there are fewer than `FEW_SESSIONS`), in operational time: it is stretched by
  the shape of the rate over time, which all callers share. Beyond the log the shape repeats. Where
  the rate varies, so do sessions and pauses: both are sampled from those near in time.
- *Scheduled* streams, whose starts are evenly spaced, keep their period. The deviations from it are
  sampled from those of the log.

A caller may have several independent streams, such as an hourly job beside interactive requests.
After the idea of Hernández-Campos et al. (source-level replay) and of the stationary bootstrap.

`write_sessions` and `read_sessions` handle the file: CSV, one row per request, with the columns
`FILE_COLUMNS`. One file has all client groups of a scenario. `key` is an application and a number,
such as `checkout/3`, or empty; addresses are numbers; `at_s` counts from the log's start.
"""

from __future__ import annotations

import csv
import heapq
import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from engine.errors import InputError

SECOND_NS: Final = 1_000_000_000
FILE_COLUMNS: Final = (
    *("group", "caller", "key", "address", "stream", "session", "at_s", "request"),
)
FEW_SESSIONS: Final = 20
"""A caller with fewer sessions samples from those of all such callers."""
REQUESTS_PER_BIN: Final = 100
MAX_BINS: Final = 48
SCHEDULED_VARIATION: Final = 0.3
"""Starts are scheduled if the coefficient of variation of their intervals is below this."""
MIN_SCHEDULED_STARTS: Final = 5
_FINE_STEPS: Final = 4_000
NEARBY_SHARE: Final = 3
"""Where the rate varies, one in so many sessions of a caller is near in time; a smaller part would
repeat what was chance in the log."""
_MIN_PAUSED: Final = 0.5
"""The share of operational time in pauses from which on a caller samples sessions of others."""
_LEAST_PAUSE: Final = 0.01
"""The shortest pause, as a share of the mean distance of session starts."""
_WHOLE: Final = re.compile(r"[0-9]{1,9}")

Arrival: TypeAlias = tuple[int, int]
"""An instant in ns since the run's start, and the number of the request."""
Floats: TypeAlias = npt.NDArray[np.float64]
Uniform: TypeAlias = Callable[[], float]
_T = TypeVar("_T")


class LogSession(NamedTuple):
    """Consecutive requests. offsets_ns: since the session's start, from 0. requests: numbers."""

    offsets_ns: tuple[int, ...]
    requests: tuple[int, ...]

    @property
    def length_ns(self) -> int:
        """Time from the first request to the last one."""
        return self.offsets_ns[-1]


@dataclass(frozen=True, slots=True)
class SessionStream:
    """Sessions of one caller. starts_ns: when each begins, since the log's start, ascending."""

    starts_ns: tuple[int, ...]
    sessions: tuple[LogSession, ...]

    def period_ns(self) -> float | None:
        """Return the mean interval of evenly spaced starts; None if they are not."""
        if len(self.starts_ns) < MIN_SCHEDULED_STARTS:
            return None
        steps = np.diff(np.array(self.starts_ns, dtype=np.float64))
        if steps.std() >= SCHEDULED_VARIATION * steps.mean():
            return None
        return float(np.median(steps))


@dataclass(frozen=True, slots=True)
class SessionCaller:
    """A key at an address, by numbers from 0. key: of those of its application; −1 for none."""

    application: str
    key: int
    address: int
    streams: tuple[SessionStream, ...]


class RateShape:
    """The relative rate over time: smoothed counts of session starts; flat unless they vary.

    The counts are flat if they vary no more than those of a Poisson process (three standard
    deviations of the chi-square statistic). `busy` is the share of all starts before an instant,
    operational time; `instant` is its inverse. Both go on beyond the span, which repeats. `varies`
    tells whether the rate is not flat.
    """

    def __init__(self, starts_ns: Sequence[int], span_ns: int) -> None:
        self.span_ns = span_ns
        bins = int(np.clip(len(starts_ns) // REQUESTS_PER_BIN, 1, MAX_BINS))
        counts, edges = np.histogram(starts_ns, bins, (0, span_ns))
        rates = counts.astype(np.float64)
        mean = max(float(rates.mean()), 1e-9)
        statistic = float(((rates - mean) ** 2 / mean).sum())
        self.varies = bins > 1 and statistic >= bins - 1 + 3 * math.sqrt(2 * (bins - 1))
        if not self.varies:
            rates = np.full(bins, mean)
        fine = np.linspace(0, span_ns, _FINE_STEPS + 1)
        middles = (edges[1:] + edges[:-1]) / 2
        mass = np.concatenate([[0.0], np.cumsum(_interpolated(fine[:-1], middles, rates / mean))])
        self._instants, self._mass = fine.tolist(), (mass / mass[-1]).tolist()

    def busy(self, at_ns: float) -> float:
        """Return the share of all starts before an instant; it exceeds 1 beyond the span."""
        rounds, rest = divmod(at_ns, self.span_ns)
        return rounds + _piecewise(rest, self._instants, self._mass)

    def instant_ns(self, busy: float) -> float:
        """Return the instant before which a share of all starts lies."""
        rounds, rest = divmod(busy, 1.0)
        return rounds * self.span_ns + _piecewise(rest, self._mass, self._instants)


def _interpolated(at: Floats, middles: Floats, rates: Floats) -> Floats:
    """Interpolate rates linearly between the middles of bins, and beyond the outer ones."""
    if len(middles) == 1:
        return np.ones_like(at)
    step = middles[1] - middles[0]
    values = np.interp(at, middles, rates)
    before = rates[0] + (at - middles[0]) / step * (rates[1] - rates[0])
    after = rates[-1] + (at - middles[-1]) / step * (rates[-1] - rates[-2])
    values = np.where(at < middles[0], before, np.where(at > middles[-1], after, values))
    return np.asarray(np.maximum(values, 1e-9))


def _piecewise(x: float, xs: list[float], ys: list[float]) -> float:
    place = bisect_right(xs, x, 1, len(xs) - 1) - 1
    low, high = xs[place], xs[place + 1]
    share = (x - low) / (high - low) if high > low else 0.0
    return ys[place] + share * (ys[place + 1] - ys[place])


@dataclass(frozen=True, slots=True)
class Identities:
    """The keys and addresses of a whole log. keys: how many each application has.

    shared: the addresses at which there are several keys.
    """

    keys: Counter[str]
    addresses: int
    shared: frozenset[int]

    @classmethod
    def of(cls, callers: Iterable[SessionCaller]) -> Identities:
        """Return the keys and addresses of some callers."""
        pairs = {(caller.application, caller.key, caller.address) for caller in callers}
        keys: Counter[str] = Counter()
        for application, key, _ in pairs:
            keys[application] = max(keys[application], key + 1)
        at_address = Counter(address for _, _, address in pairs)
        shared = frozenset(address for address, count in at_address.items() if count > 1)
        return cls(keys, 1 + max(at_address, default=-1), shared)


@dataclass(frozen=True, slots=True)
class SessionLog:
    """The callers of a client group. requests: texts such as "POST /tokenize", by number.

    pool: the sessions of callers that have few of them. identities: of the whole log. pauses: of
    each stream of each caller, after each of its sessions (`_pauses`).
    """

    callers: tuple[SessionCaller, ...]
    requests: tuple[str, ...]
    span_ns: int
    shape: RateShape
    pool: tuple[LogSession, ...]
    identities: Identities
    pauses: tuple[tuple[Sequence[float], ...], ...]

    @classmethod
    def of(
        cls,
        callers: Iterable[SessionCaller],
        requests: Iterable[str],
        span_ns: int,
        identities: Identities | None = None,
    ) -> SessionLog:
        """Return the log of a group's callers, with the shape of the rate of their starts.

        identities: of the callers, unless given.
        """
        callers = tuple(callers)
        free = [
            stream for caller in callers for stream in caller.streams if stream.period_ns() is None
        ]
        starts_ns = [start for stream in free for start in stream.starts_ns]
        pool = tuple(
            session
            for stream in free
            if len(stream.sessions) < FEW_SESSIONS
            for session in stream.sessions
        )
        shape = RateShape(starts_ns, span_ns)
        pauses = tuple(
            tuple(_pauses(stream, shape) for stream in caller.streams) for caller in callers
        )
        identities = identities or Identities.of(callers)
        return cls(callers, tuple(requests), span_ns, shape, pool, identities, pauses)

    @property
    def sessions(self) -> int:
        """How many sessions the log has."""
        return sum(len(stream.sessions) for caller in self.callers for stream in caller.streams)

    @property
    def size(self) -> int:
        """How many requests the log has."""
        return sum(
            len(session.requests)
            for caller in self.callers
            for stream in caller.streams
            for session in stream.sessions
        )

    def identity(self, client: int) -> tuple[int, int]:
        """Return the numbers of the key and the address of a client.

        Clients beyond the group's callers are copies of them: each round of copies has new keys,
        and new addresses but those that several keys of the log share.
        """
        copy, place = divmod(client, len(self.callers))
        caller, known = self.callers[place], self.identities
        key = caller.key + copy * known.keys[caller.application] if caller.key >= 0 else -1
        address = caller.address if caller.address in known.shared else None
        return key, caller.address + copy * known.addresses if address is None else address

    def arrivals(self, client: int, until_ns: int, uniform: Uniform) -> Iterator[Arrival]:
        """Yield the requests of a client before an instant, in order of time."""
        place = client % len(self.callers)
        # Each stream samples in turn, so it has numbers of its own only if they are all sampled.
        streams = [
            self._scheduled(stream, period_ns, until_ns, uniform)
            if (period_ns := stream.period_ns()) is not None
            else self._free(stream, pauses, until_ns, uniform)
            for stream, pauses in zip(self.callers[place].streams, self.pauses[place], strict=True)
        ]
        return heapq.merge(*streams) if len(streams) > 1 else iter(streams[0])

    def _scheduled(
        self, stream: SessionStream, period_ns: float, until_ns: int, uniform: Uniform
    ) -> Iterator[Arrival]:
        """Return the arrivals of a job: its period stays, deviations and sessions are sampled."""
        starts = np.array(stream.starts_ns, dtype=np.float64)
        slots = np.round((starts - starts[0]) / period_ns)
        period_ns, origin_ns = np.polyfit(slots, starts, 1).tolist()
        deviations = (starts - origin_ns - slots * period_ns).tolist()
        first = -math.ceil(origin_ns / period_ns) - 1
        arrivals: list[Arrival] = []
        for slot in range(first, math.ceil((until_ns - origin_ns) / period_ns) + 1):
            start_ns = origin_ns + slot * period_ns + _sampled(deviations, uniform)
            session = _sampled(stream.sessions, uniform)
            arrivals += _placed(session, round(start_ns), until_ns)
        return iter(sorted(arrivals))

    def _free(
        self, stream: SessionStream, pauses: Sequence[float], until_ns: int, uniform: Uniform
    ) -> Iterator[Arrival]:
        """Yield the arrivals of sessions that alternate with pauses."""
        shape, few = self.shape, len(stream.sessions) < FEW_SESSIONS
        mean = sum(pauses) / len(pauses)
        # A caller that hardly pauses keeps its own sessions: short ones would follow without end.
        pauses_often = sum(pauses) > _MIN_PAUSED
        pool = self.pool if few and pauses_often else ()
        least = _LEAST_PAUSE / len(pauses)
        at_ns, pause = 0.0, None if few else _rest_of_pause(pauses, uniform)
        while True:
            if few:
                pause = -math.log(1.0 - uniform()) * mean
            elif pause is None:
                pause = pauses[self._nearby(stream, at_ns, uniform())]
            at_ns = shape.instant_ns(shape.busy(at_ns) + max(pause, least))
            if at_ns >= until_ns:
                return
            if pool:
                session = _sampled(pool, uniform)
            else:
                session = stream.sessions[self._nearby(stream, at_ns, uniform())]
            start_ns = round(at_ns)
            yield from _placed(session, start_ns, until_ns)
            at_ns, pause = max(at_ns, start_ns) + session.length_ns, None

    def _nearby(self, stream: SessionStream, at_ns: float, u: float) -> int:
        """Return the place of a session near an instant, of any if the rate is flat; u: uniform."""
        low, size = 0, len(stream.sessions)
        if self.shape.varies:
            count = size
            size = min(count, max(FEW_SESSIONS, count // NEARBY_SHARE))
            place = bisect_right(stream.starts_ns, at_ns % self.shape.span_ns)
            low = (place - size // 2) % count - count  # the log repeats: −1 is the last session
        return low + min(int(u * size), size - 1)


def _pauses(stream: SessionStream, shape: RateShape) -> list[float]:
    """Return the pauses after each session in operational time; the last goes on to the first."""
    ends = [
        start + session.length_ns
        for start, session in zip(stream.starts_ns, stream.sessions, strict=True)
    ]
    begins = [*stream.starts_ns[1:], stream.starts_ns[0] + shape.span_ns]
    return [
        max(0.0, shape.busy(begin) - shape.busy(end))
        for begin, end in zip(begins, ends, strict=True)
    ]


def _rest_of_pause(pauses: Sequence[float], uniform: Uniform) -> float:
    """Return what is left of the pause in which a random instant lies; long pauses hold more."""
    ends = list(accumulate(pauses))
    instant = uniform() * ends[-1]
    return ends[min(bisect_right(ends, instant), len(ends) - 1)] - instant


def _sampled(values: Sequence[_T], uniform: Uniform) -> _T:
    return values[min(int(uniform() * len(values)), len(values) - 1)]


def _placed(session: LogSession, start_ns: int, until_ns: int) -> Iterator[Arrival]:
    for offset_ns, request in zip(session.offsets_ns, session.requests, strict=True):
        if 0 <= start_ns + offset_ns < until_ns:
            yield start_ns + offset_ns, request


# --- the file ------------------------------------------------------------------------------------


def write_sessions(groups: Mapping[str, SessionLog], path: Path) -> None:
    """Write the sessions of client groups. Raises `OSError`."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FILE_COLUMNS)
        for group, log in groups.items():
            for place, caller in enumerate(log.callers):
                key = f"{caller.application}/{caller.key}" if caller.key >= 0 else ""
                for cells in _cells(caller, log.requests):
                    writer.writerow([group, place, key, caller.address, *cells])


def _cells(caller: SessionCaller, requests: Sequence[str]) -> Iterator[tuple[int, int, str, str]]:
    """Yield stream, session, instant and request of each request of a caller."""
    for number, stream in enumerate(caller.streams):
        pairs = zip(stream.starts_ns, stream.sessions, strict=True)
        for session, (start_ns, content) in enumerate(pairs):
            for offset_ns, request in zip(*content, strict=True):
                yield number, session, seconds_text(start_ns + offset_ns), requests[request]


def seconds_text(at_ns: int) -> str:
    """Return an instant in decimal seconds.

    >>> seconds_text(1_500_000_000), seconds_text(2_000_000_001)
    ('1.5', '2.000000001')
    """
    whole, rest = divmod(at_ns, SECOND_NS)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")


def read_sessions(path: Path, group: str, span_ns: int) -> SessionLog:
    """Read the sessions of a client group. span_ns: how long the log is.

    Raises `InputError` with file:line for a file that cannot be read.
    """
    groups = _read(path, span_ns, path.stat().st_mtime_ns if path.exists() else 0)
    if group not in groups:
        raise InputError(f"group = {group!r} must be a group of {path}; it has {', '.join(groups)}")
    return groups[group]


_Row: TypeAlias = tuple[str, str, int, int, int, int, int, int, str]
"""Group, application, key, caller, address, stream, session, instant and request of a row."""
_Streams: TypeAlias = dict[int, dict[int, list[Arrival]]]


@lru_cache(maxsize=8)
def _read(path: Path, span_ns: int, _changed_ns: int) -> dict[str, SessionLog]:
    requests: dict[str, dict[str, int]] = {}
    callers: dict[str, dict[tuple[int, str, int, int], _Streams]] = {}
    for group, application, key, caller, address, stream, session, at_ns, text in _rows(
        path, span_ns
    ):
        numbers = requests.setdefault(group, {})
        request = numbers.setdefault(text, len(numbers))
        identity = caller, application, key, address
        streams = callers.setdefault(group, {}).setdefault(identity, {})
        streams.setdefault(stream, defaultdict(list))[session].append((at_ns, request))
    if not callers:
        raise InputError(f"{path} must hold at least one request; it holds none")
    made = {
        group: [
            SessionCaller(
                *identity[1:], tuple(stream_of(fields.values()) for fields in streams.values())
            )
            for identity, streams in of_group.items()
        ]
        for group, of_group in callers.items()
    }
    identities = Identities.of(caller for of_group in made.values() for caller in of_group)
    return {
        group: SessionLog.of(of_group, requests[group], span_ns, identities)
        for group, of_group in made.items()
    }


def _rows(path: Path, span_ns: int) -> Iterator[_Row]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            if tuple(next(reader, ())) != FILE_COLUMNS:
                raise InputError(f"{path}:1:1: the columns must be {', '.join(FILE_COLUMNS)}")
            for cells in reader:
                row = _row(cells, span_ns)
                if row is None:
                    raise InputError(
                        f"{path}:{reader.line_num}:1: a row must have numbers, seconds within the "
                        "span, and a request; fit the log again"
                    )
                yield row
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        reason = getattr(fault, "strerror", None) or "it is not a CSV file in UTF-8"
        raise InputError(f"{path} must be a readable file of sessions; {reason}") from None


def _row(cells: list[str], span_ns: int) -> _Row | None:
    """Return a row; None if it is not in its form, or beyond the span."""
    if len(cells) != len(FILE_COLUMNS):
        return None
    group, caller, key, address, stream, session, at_s, request = cells
    application, _, number = key.rpartition("/")
    whole, _, fraction = at_s.partition(".")
    numbers = [number or "0", caller, address, stream, session, whole, fraction or "0"]
    if not all(_WHOLE.fullmatch(text) for text in numbers):
        return None
    at_ns = int(whole) * SECOND_NS + int(fraction[:9].ljust(9, "0"))
    if at_ns >= span_ns:
        return None
    place = int(number) if key else -1
    who = group, application, place, int(caller), int(address)
    return *who, int(stream), int(session), at_ns, request


def stream_of(sessions: Iterable[list[Arrival]]) -> SessionStream:
    """Return the stream of some sessions, each a list of arrivals in order of time."""
    ordered = sorted(sessions, key=lambda session: session[0][0])
    starts = tuple(session[0][0] for session in ordered)
    contents = [
        LogSession(
            tuple(at_ns - session[0][0] for at_ns, _ in session),
            tuple(request for _, request in session),
        )
        for session in ordered
    ]
    assert all(a <= b for a, b in pairwise(starts)), "sessions are in order of time"
    return SessionStream(starts, tuple(contents))

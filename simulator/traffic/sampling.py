"""From a scenario's distributions and arrivals to what samples them.

The formulas are in `simulator.traffic.draws`; this module makes a sampling function once a client,
and what yields the arrivals of an open loop once a group: instants in whole nanoseconds, one after
the other, never decreasing. Each client has streams of its own, so it has the same instants whoever
asks for them and however fast answers come.

- constant: exactly N per W, in exact integers; the k-th at ⌊k · W / N⌋ after the start.
- poisson: independent exponential gaps.
- on-off: a Poisson process that is switched on and off after exponential times (an interrupted, or
  with a rate in both phases a two-state Markov-modulated, Poisson process).
- steps, ramp, daily: a Poisson process whose rate follows straight pieces, by inverting the
  cumulative rate: the area between two arrivals is exponential with mean 1.
- replay: instants of a file, of which only the instants matter; the scenario says who sends what.
  (An access log through the limits is `simulator.study.replay`.)

Closed loops, whose next request waits for the last answer, are in `simulator.play`.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, cycle, islice
from typing import Final, TypeAlias

from engine.errors import InputError
from engine.files import Rate
from simulator.scenario import Scenario, draws
from simulator.scenario.clients import ClientGroup
from simulator.traffic.draws import (
    Stream,
    categorical,
    cumulative_weights,
    exponential_area,
    exponential_ns,
    lognormal_ns,
    nearest_ns,
    pareto_ns,
    requests_within,
    time_until,
    uniform_ns,
)
from simulator.traffic.population import Client, session_log


def replayed_ns(replay: draws.ReplayArrivals) -> list[int]:
    """Return floor((t − t₀) / speed) of each line of a file of arrivals, sorted.

    Raises `InputError` with file:line for a file that cannot be read.
    """
    path = replay.file.file
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            stamps = sorted(_read(replay, lines))
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or "it is no UTF-8 text"
        raise InputError(f"{path} must be a readable file of arrival times; {reason}") from None
    if not stamps:
        raise InputError(f"{path} must hold at least one arrival time; it holds none")
    return [(at_ns - stamps[0]) // replay.speed for at_ns in stamps]


def _read(replay: draws.ReplayArrivals, lines: Iterable[str]) -> Iterator[int]:
    from simulator.logs._log_map import ValueRejected  # noqa: PLC0415 # reason: logs read scenarios' values
    from simulator.logs._values import epoch_unit, read_instant  # noqa: PLC0415 # reason: it brings all of Arrow

    for number, text in _texts(replay, lines):
        try:
            yield read_instant(text, "iso" if epoch_unit(text) is None else "s")[0]
        except ValueRejected as fault:
            raise InputError(f"{replay.file.file}:{number}:1: {fault}") from None


def _texts(replay: draws.ReplayArrivals, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    if replay.column is None:
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if text and not text.startswith("#"):
                yield number, text
        return
    rows = csv.DictReader(lines)
    if replay.column not in (rows.fieldnames or ()):
        known = ", ".join(rows.fieldnames or ())
        raise InputError(
            f"{replay.file.file}:1:1: column = {replay.column!r} must be in the header; "
            f"it has {known}"
        )
    for row in rows:
        yield rows.line_num, (row[replay.column] or "").strip()


_HOURS: Final = 24
_FOREVER_NS: Final = 1 << 60
_MOST_PIECES: Final = 1_000_000


Duration: TypeAlias = int | Callable[[], int]
"""A duration in ns, or a function that draws the next one."""


def drawn_ns(duration: Duration) -> int:
    """Return the next duration."""
    return duration if isinstance(duration, int) else duration()


def duration_of(draw: draws.Draw, stream: Callable[[], Stream]) -> Duration:
    """Return the constant duration, or a function that draws the next one from `stream`.

    `stream` is called only where something is drawn, so that constants cost no stream.
    """
    if isinstance(draw, draws.Constant):
        return draw.value_ns
    uniform = stream().uniform
    if isinstance(draw, draws.Uniform):
        low_ns, high_ns = draw.low_ns, draw.high_ns
        return lambda: uniform_ns(uniform(), low_ns, high_ns)
    if isinstance(draw, draws.Exponential):
        mean_ns = draw.mean_ns
        return lambda: exponential_ns(uniform(), mean_ns)
    if isinstance(draw, draws.Lognormal):
        median_ns, sigma = draw.median_ns, draw.sigma
        return lambda: lognormal_ns(uniform(), median_ns, sigma)
    if isinstance(draw, draws.Discrete):
        values_ns = draw.values_ns
        table = cumulative_weights(draw.weights or (1.0,) * len(values_ns))
        return lambda: values_ns[categorical(uniform(), table)]
    least_ns, alpha = draw.least_ns, draw.alpha
    return lambda: pareto_ns(uniform(), least_ns, alpha)


Piece: TypeAlias = tuple[int, float, float]
"""A straight piece of a rate: its length in ns, its first and last value in requests a ns."""


def instants_of(group: ClientGroup, scenario: Scenario) -> Callable[[Client], Iterator[int]]:
    """Return what yields the instants at which the requests of an open group's client begin.

    Sessions of a log are `SessionRequests`. Raises `InputError` for a bad file.
    """
    form = group.arrivals
    if isinstance(form, draws.ConstantArrivals):
        return partial(_even, form.rate)
    if isinstance(form, draws.PoissonArrivals):
        return partial(_independent, gap_ns(form.rate))
    if isinstance(form, draws.OnOffArrivals):
        return partial(_bursts, form, scenario.stop_of(group))
    if isinstance(form, draws.ReplayArrivals):
        return partial(_replayed, replayed_ns(form))
    assert form is not None, "an open loop has arrivals"
    assert not isinstance(form, draws.SessionArrivals), "sessions are no process"
    return partial(_varying, pieces_within(form, group.start_ns, scenario))


def _even(rate: Rate, client: Client) -> Iterator[int]:
    for number in count():
        yield client.group.start_ns + number * rate.window_ns // rate.limit_requests


def _independent(mean_ns: float, client: Client) -> Iterator[int]:
    uniform, at_ns = client.stream("arrivals").uniform, client.group.start_ns
    while True:
        at_ns += exponential_ns(uniform(), mean_ns)
        yield at_ns


def begins_on(form: draws.OnOffArrivals, client: Client) -> bool:
    """Return whether a client's first phase is on; if drawn, from a stream of its own."""
    if form.begin == "on":
        return True
    return client.stream("phase").uniform() < form.on_ns / (form.on_ns + form.off_ns)


def _bursts(form: draws.OnOffArrivals, stop_ns: int, client: Client) -> Iterator[int]:
    """Exponential gaps have no memory, so at a switch the gap is drawn anew."""
    phases = cycle([(form.on_ns, gap_ns(form.on_rate)), (form.off_ns, gap_ns(form.off_rate))])
    arrivals, switches = (client.stream(name).uniform for name in ("arrivals", "switches"))
    if not begins_on(form, client):
        next(phases)
    begin_ns = client.group.start_ns
    while begin_ns < stop_ns:
        mean_ns, gap = next(phases)
        end_ns = begin_ns + max(1, exponential_ns(switches(), mean_ns))
        at_ns = begin_ns + exponential_ns(arrivals(), gap) if gap else end_ns
        while at_ns < end_ns:
            yield at_ns
            at_ns += exponential_ns(arrivals(), gap)
        begin_ns = end_ns


def _varying(pieces: Sequence[Piece], client: Client) -> Iterator[int]:
    uniform, begin_ns = client.stream("arrivals").uniform, client.group.start_ns
    due = exponential_area(uniform())
    for piece in pieces:
        into_ns = 0.0
        while (at_ns := time_until(due, *piece, into_ns)) is not None:
            yield begin_ns + nearest_ns(at_ns)
            due, into_ns = exponential_area(uniform()), at_ns
        due = max(due - requests_within(*piece, into_ns), 0.0)
        begin_ns += piece[0]


def _replayed(offsets_ns: Sequence[int], client: Client) -> Iterator[int]:
    return (client.group.start_ns + offset_ns for offset_ns in offsets_ns)


def gap_ns(rate: Rate) -> float:
    """Return the mean gap between requests; 0 where there are none."""
    return rate.window_ns / rate.limit_requests if rate.limit_requests else 0.0


VaryingArrivals: TypeAlias = draws.StepArrivals | draws.RampArrivals | draws.DailyArrivals


def pieces_within(form: VaryingArrivals, start_ns: int, scenario: Scenario) -> list[Piece]:
    """Return the straight pieces of a rate from the client's start to the run's end."""
    pieces: list[Piece] = []
    end_ns = start_ns
    for piece in islice(pieces_of(form, start_ns, scenario.start_time_ns), _MOST_PIECES):
        if end_ns >= scenario.duration_ns:
            break
        pieces.append(piece)
        end_ns += piece[0]
    return pieces


def pieces_of(form: VaryingArrivals, start_ns: int, start_time_ns: int) -> Iterator[Piece]:
    """Yield the straight pieces of a rate from the client's start on, without end."""
    if isinstance(form, draws.RampArrivals):
        low, high = _rate(form.from_rate), _rate(form.to_rate)
        yield form.over_ns, low, high
        yield _FOREVER_NS, high, high
    elif isinstance(form, draws.StepArrivals):
        steps = form.steps
        yield steps[0].at_ns, 0.0, 0.0
        ends_ns = [step.at_ns for step in steps[1:]] + [_FOREVER_NS]
        for step, end_ns in zip(steps, ends_ns, strict=True):
            yield end_ns - step.at_ns, _rate(step.rate), _rate(step.rate)
    else:
        yield from _days(form, start_ns, start_time_ns)


def _days(form: draws.DailyArrivals, start_ns: int, start_time_ns: int) -> Iterator[Piece]:
    """Yield hourly pieces from the client's start; a day of 24 h follows the UTC clock."""
    mean = _rate(form.rate) * _HOURS / sum(form.hours)
    borders_ns = [hour * form.day_ns // _HOURS for hour in range(_HOURS + 1)]
    hours = [
        (borders_ns[hour + 1] - borders_ns[hour], mean * weight, mean * weight)
        for hour, weight in enumerate(form.hours)
    ]
    is_day = form.day_ns == _HOURS * 3_600 * 1_000_000_000
    into_ns = (start_time_ns + start_ns) % form.day_ns if is_day else 0
    for hour in count():
        (length_ns, low, high), begins_ns = hours[hour % _HOURS], borders_ns[hour % _HOURS]
        if hour < _HOURS and begins_ns + length_ns <= into_ns:
            continue
        gone_ns = max(0, into_ns - begins_ns) if hour < _HOURS else 0
        yield length_ns - gone_ns, low, high


def _rate(rate: Rate) -> float:
    return rate.limit_requests / rate.window_ns


class SessionRequests:
    """The requests of a client that sends sessions: their instants, then their mix entries.

    An entry is taken when its request begins; requests begin in order of their instants.
    Raises `InputError` where a request of the sessions is no entry of the group's mix.
    """

    def __init__(self, client: Client, form: draws.SessionArrivals, stop_ns: int) -> None:
        log, group = session_log(form), client.group
        entries = {ask.request: place for place, ask in reversed(list(enumerate(group.mix)))}
        for request in log.requests:
            if request not in entries:
                raise InputError(
                    f"clients {group.name!r}: mix must have an entry for {request!r}, which "
                    f"{form.file.path} holds; add {{ request = {request!r} }}"
                )
        self._entries = [entries[request] for request in log.requests]
        self._waiting: deque[int] = deque()
        self._start_ns = group.start_ns
        self._arrivals = log.arrivals(
            client.place, stop_ns - group.start_ns, client.stream("arrivals").uniform
        )

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the instant of each request, from the group's start, and its mix entry."""
        return ((at_ns, self._entries[request]) for at_ns, request in self._arrivals)

    def instants(self) -> Iterator[int]:
        """Yield the instants at which requests begin."""
        for at_ns, entry in self.pairs():
            self._waiting.append(entry)
            yield self._start_ns + at_ns

    def entry(self) -> int:
        """Return the mix entry of the next request."""
        return self._waiting.popleft()

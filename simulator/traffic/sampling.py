"""From a scenario's distributions and arrivals to what samples them.

The formulas are in `simulator.traffic.draws`, the processes in `simulator.traffic.arrivals`; this
module makes those that a scenario's class names: a sampling function once a client, an arrival
process once a group. It reads files of arrivals too; of those only the instants matter, and the
scenario says who sends what. (An access log through the limits is `simulator.study.replay`.)
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Final, TypeAlias

from engine.errors import InputError
from engine.files import Rate
from simulator.scenario import Scenario, draws
from simulator.scenario.clients import ClientGroup
from simulator.traffic import arrivals
from simulator.traffic.arrivals import ArrivalProcess, Piece
from simulator.traffic.draws import (
    Stream,
    categorical,
    cumulative_weights,
    exponential_from,
    lognormal_ns,
    pareto_ns,
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
        return exponential_from(uniform, draw.mean_ns)
    if isinstance(draw, draws.Lognormal):
        median_ns, sigma = draw.median_ns, draw.sigma
        return lambda: lognormal_ns(uniform(), median_ns, sigma)
    if isinstance(draw, draws.Discrete):
        values_ns = draw.values_ns
        table = cumulative_weights(draw.weights or (1.0,) * len(values_ns))
        return lambda: values_ns[categorical(uniform(), table)]
    least_ns, alpha = draw.least_ns, draw.alpha
    return lambda: pareto_ns(uniform(), least_ns, alpha)


def processes_of(scenario: Scenario) -> dict[str, ArrivalProcess]:
    """Return the arrival process of each open group, but for sessions of a log.

    Raises `InputError` for a bad file.
    """
    return {
        group.name: _process_of(group, group.arrivals, scenario)
        for group in scenario.clients
        if group.arrivals is not None and not isinstance(group.arrivals, draws.SessionArrivals)
    }


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


def _process_of(group: ClientGroup, form: draws.Arrivals, scenario: Scenario) -> ArrivalProcess:
    if isinstance(form, draws.ConstantArrivals):
        return arrivals.ConstantProcess(form.rate)
    if isinstance(form, draws.PoissonArrivals):
        return arrivals.PoissonProcess(_gap_ns(form.rate))
    if isinstance(form, draws.OnOffArrivals):
        return arrivals.OnOffProcess(
            (form.on_ns, form.off_ns),
            (_gap_ns(form.on_rate), _gap_ns(form.off_rate)),
            begins_either=form.begin == "either",
            stop_ns=scenario.stop_of(group),
        )
    if isinstance(form, draws.ReplayArrivals):
        return arrivals.ReplayedProcess(replayed_ns(form))
    assert not isinstance(form, draws.SessionArrivals), "sessions are no process"
    pieces: list[Piece] = []
    end_ns = group.start_ns
    for piece in islice(pieces_of(form, end_ns, scenario.start_time_ns), _MOST_PIECES):
        if end_ns >= scenario.duration_ns:
            break
        pieces.append(piece)
        end_ns += piece.length_ns
    return arrivals.VaryingProcess(pieces)


def _gap_ns(rate: Rate) -> float:
    return rate.window_ns / rate.limit_requests if rate.limit_requests else 0.0


def pieces_of(
    form: draws.StepArrivals | draws.RampArrivals | draws.DailyArrivals,
    start_ns: int,
    start_time_ns: int,
) -> Iterator[Piece]:
    """Yield the straight pieces of a rate from the client's start on, without end."""
    if isinstance(form, draws.RampArrivals):
        low, high = _rate(form.from_rate), _rate(form.to_rate)
        yield Piece(form.over_ns, low, high)
        yield Piece(_FOREVER_NS, high, high)
    elif isinstance(form, draws.StepArrivals):
        steps = form.steps
        yield Piece(steps[0].at_ns, 0.0, 0.0)
        ends_ns = [step.at_ns for step in steps[1:]] + [_FOREVER_NS]
        for step, end_ns in zip(steps, ends_ns, strict=True):
            yield Piece(end_ns - step.at_ns, _rate(step.rate), _rate(step.rate))
    else:
        yield from _days(form, start_ns, start_time_ns)


def _days(form: draws.DailyArrivals, start_ns: int, start_time_ns: int) -> Iterator[Piece]:
    """Yield hourly pieces from the client's start; a day of 24 h follows the UTC clock."""
    mean = _rate(form.rate) * _HOURS / sum(form.hours)
    borders_ns = [hour * form.day_ns // _HOURS for hour in range(_HOURS + 1)]
    hours = [
        Piece(borders_ns[hour + 1] - borders_ns[hour], mean * weight, mean * weight)
        for hour, weight in enumerate(form.hours)
    ]
    is_day = form.day_ns == _HOURS * 3_600 * 1_000_000_000
    into_ns = (start_time_ns + start_ns) % form.day_ns if is_day else 0
    for hour in count():
        piece, begins_ns = hours[hour % _HOURS], borders_ns[hour % _HOURS]
        if hour < _HOURS and begins_ns + piece.length_ns <= into_ns:
            continue
        gone_ns = max(0, into_ns - begins_ns) if hour < _HOURS else 0
        yield piece._replace(length_ns=piece.length_ns - gone_ns)


def _rate(rate: Rate) -> float:
    return rate.limit_requests / rate.window_ns

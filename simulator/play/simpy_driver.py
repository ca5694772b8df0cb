"""The reference simulation: clients as SimPy processes, in whole nanoseconds.

One process a loop of a closed client, one a client of an open loop; a request of an open loop gets
a process of its own only where something waits for its answer. What a client does, step by step,
is said in `simulator.scenario.clients`; this module plays it, for every fidelity, and leaves the
decision to a gate (`simulator.play.gates`).

Nothing begins at the run's end T or later, so what is played before T does not depend on the
length of the run. (Answers after T are the exception: they come as if no more requests were sent.)
A request that would retry after T is counted as pending.

An open loop with `concurrency` holds back requests that have arrived until one that is under way
ends: each counts from its arrival, in its deadline and in its first attempt's latency too.

A paced client's attempts wait in a line and begin one after the other, as its pace allows. The pace
(`simulator.traffic.client_rules`) gives the instant from which the next attempt may begin. The line
holds the waiting attempts, first come first served, and wakes the first one then. An answer that
changes the pace moves that instant. An attempt whose deadline passes leaves the line.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import simpy

from engine.limits import Limiter, NodesLimiter
from engine.messages import Json, Request
from simulator.play.events import ANSWER, FILE, FIRST, At, order_of, spawn
from simulator.play.gates import (
    LIMITED,
    Gate,
    LimitsGate,
    NodesGate,
    RequestSpec,
    RunOutput,
    SimulatedAnswer,
)
from simulator.play.request_mix import Asker, Numbering
from simulator.progress import Progress
from simulator.rows import RunBook
from simulator.rows.record import NO_STATUS
from simulator.rows.tally import Tally
from simulator.scenario.clients import Pacing
from simulator.scenario.draws import SessionArrivals
from simulator.traffic.arrivals import NEVER_NS
from simulator.traffic.client_rules import (
    ATTEMPT,
    ATTEMPTS,
    DRAWN,
    DUE,
    KIND,
    begin_attempt,
    goes_on_ns,
    pace_rows,
    retry_row,
    take_answer,
)
from simulator.traffic.draws import BALANCE_STREAM, Stream
from simulator.traffic.population import Client, Setup
from simulator.traffic.sampling import (
    Duration,
    SessionRequests,
    duration_of,
    instants_of,
    processes_of,
)

_Process: TypeAlias = Generator[simpy.Event, object, None]


@dataclass(slots=True)
class QueuedRequest:
    """A request from its arrival on. expired: its deadline came before it was sent."""

    asked: RequestSpec
    arrival_ns: int
    serial: int
    sent: bool = False
    expired: bool = False


class ClientRun:
    """One client on its way through a run."""

    def __init__(
        self,
        env: simpy.Environment,
        client: Client,
        asker: Asker,
        gate: Gate,
        tally: Tally,
        stop_ns: int,
        *,
        told_to_wait: bool,
    ) -> None:
        """told_to_wait: refusals carry `Retry-After` (D-429-HEADERS)."""
        group = client.group
        self._env = env
        self._client = client
        self._gate = gate
        self._next, self._only = asker.next, asker.only
        self._content_of = gate.begin
        self._began = tally.request_began
        self._ended = tally.request_ended
        self._never = env.event()
        self._retry = group.retry
        self._rule = retry_row(group.retry, told_to_wait=told_to_wait)
        draws = self._rule[KIND] >= DRAWN
        self._retry_draws = client.stream("retry").uniform if draws else float
        self._service = duration_of(group.service, lambda: client.stream("service"))
        self._stop_ns = stop_ns
        self._deadline_ns = group.deadline_ns
        self._line: PacingLine | None = None
        if group.pacing is not None:
            self._line = PacingLine(env, group.pacing, group.start_ns)
        self._under_way = 0
        self._files = 0
        self._answer_order = order_of(client.number, ANSWER, 0)
        self._first_order = order_of(client.number, FIRST, 0)
        in_line = group.concurrency is not None or group.pacing is not None
        self._wants_answer = in_line or group.loop == "closed"

    # --- loops -----------------------------------------------------------------------------------

    def closed_loop(self, lane: int) -> _Process:
        """Think, ask, wait for the answer, and again."""
        env, stop_ns = self._env, self._stop_ns
        group = self._client.group
        suffix = f"-{lane}" if lane else ""
        think: Duration = 0
        if group.think is not None:
            think = duration_of(group.think, lambda: self._client.stream(f"think{suffix}"))
        first = self._first_order + lane
        now_ns, at_ns = 0, group.start_ns
        while True:
            at_ns += think if isinstance(think, int) else think()
            if at_ns >= stop_ns:
                return
            yield At(env, at_ns - now_ns, first)
            yield from self._request(at_ns, lane)
            now_ns = at_ns = env.now  # type: ignore[assignment] # reason: time is whole here

    def open_loop(self, arrivals: Iterator[int]) -> _Process:
        """Ask at the instants of `arrivals`, whatever became of earlier requests."""
        env, stop_ns = self._env, self._stop_ns
        most = self._client.group.concurrency
        queue: deque[QueuedRequest] = deque()
        now_ns = 0
        for serial, at_ns in enumerate(arrivals):
            if at_ns >= stop_ns:
                return
            yield At(env, at_ns - now_ns, self._first_order + serial)
            now_ns = at_ns
            if most is None:
                spawn(env, self._request(now_ns, serial))
            elif self._under_way < most:
                self._under_way += 1
                spawn(env, self._serve_queue(self._arrive(now_ns, serial), queue))
            else:
                queue.append(self._arrive(now_ns, serial))
                self._await_deadline(queue[-1])

    def _serve_queue(self, request: QueuedRequest, queue: deque[QueuedRequest]) -> _Process:
        """Send a request, and after its end those that wait, first come first served."""
        yield from self._send(self._now_ns(), request)
        while queue and self._now_ns() < self._stop_ns:
            request = queue.popleft()
            if request.expired:
                continue
            yield At(self._env, 0, self._first_order + request.serial)
            if not request.expired:
                yield from self._send(self._now_ns(), request)
        self._under_way -= 1

    def _await_deadline(self, request: QueuedRequest) -> None:
        """End a request that still waits at its deadline."""
        if self._deadline_ns is None:
            return
        until_ns = request.arrival_ns + self._deadline_ns
        if until_ns < self._stop_ns:
            order = self._answer_order + request.serial
            late = At(self._env, until_ns - request.arrival_ns, order)
            late.callbacks.append(lambda _: self._expire(request, until_ns))

    def _expire(self, request: QueuedRequest, now_ns: int) -> None:
        if request.sent:
            return
        request.expired = True
        for _ in range(request.asked.parts):
            self._ended(request.arrival_ns, now_ns, well=False)

    # --- a request -------------------------------------------------------------------------------

    def _request(self, now_ns: int, serial: int) -> _Process:
        """Return the play of a request that is sent as it arrives."""
        return self._send(now_ns, self._arrive(now_ns, serial))

    def _arrive(self, now_ns: int, serial: int) -> QueuedRequest:
        """Draw a request; it begins now, whenever it is sent."""
        asked = self._only or self._next()
        for _ in range(asked.parts):
            self._began(now_ns)
        return QueuedRequest(asked, now_ns, serial)

    def _send(self, now_ns: int, request: QueuedRequest) -> _Process:
        """Return the play of one request; where it stands for several, send the others with it."""
        request.sent = True
        asked, arrival_ns = request.asked, request.arrival_ns
        for _ in range(1, asked.parts):
            spawn(self._env, self._one(arrival_ns, now_ns, asked, FILE + self._files, None))
            self._files += 1
        return self._one(arrival_ns, now_ns, asked, request.serial, None)

    def _one(
        self, arrival_ns: int, now_ns: int, asked: RequestSpec, serial: int, given: Json
    ) -> _Process:
        """Play one request, up to its end; and the upload that may follow."""
        content_of = self._content_of
        content = None if content_of is None else content_of(asked, self._client, given)
        answer: SimulatedAnswer | int | None = None
        if self._line is None:
            waited_ns = now_ns - arrival_ns
            answer = self._gate.put(now_ns, asked, content, 1, self._service, waited_ns)
            if type(answer) is int:
                # The usual case, kept short: it was admitted, and nothing can fail any more.
                if answer and self._awaits(asked):
                    yield At(self._env, answer, self._answer_order + serial)
                self._end(arrival_ns, now_ns + answer, NO_STATUS)
                return
        yield from self._attempts(arrival_ns, now_ns, asked, content, serial, answer)

    def _attempts(
        self,
        began_ns: int,
        now_ns: int,
        asked: RequestSpec,
        content: Request | None,
        serial: int,
        answer: SimulatedAnswer | int | None,
    ) -> _Process:
        """Play the attempts of a request, up to its end; `answer` is the first one's, if made."""
        env, line, awaits = self._env, self._line, self._awaits(asked)
        stop_ns, waited_ns = self._stop_ns, now_ns - began_ns if answer is None else 0
        until_ns = NEVER_NS if self._deadline_ns is None else began_ns + self._deadline_ns
        tries = [1, 0]
        while True:
            attempt = tries[ATTEMPT]
            if line is not None:
                in_time = yield from self._turn(line, attempt, serial, until_ns)
                now_ns = self._now_ns()
                if not in_time:
                    break
            if answer is None:
                answer = self._gate.put(now_ns, asked, content, attempt, self._service, waited_ns)
                waited_ns = 0
            if isinstance(answer, int):
                answer = SimulatedAnswer(NO_STATUS, answer)
            # A retry is counted from the answer, so that is waited for too.
            retried = answer.latency_ns > 0 and self._again(answer, attempt)
            if answer.later is not None or awaits or retried:
                answer = yield from self._awaited(answer, serial)
                now_ns = self._now_ns()
            if not self._again(answer, attempt):
                self._end(began_ns, now_ns + answer.latency_ns, answer.status)
                yield from self._follow(asked.follow, serial, answer.body)
                return
            wait_ns = answer.wait_ns if answer.status == LIMITED else -1
            u = self._retry_draws()
            at_ns = goes_on_ns(self._rule, tries, wait_ns, now_ns, until_ns, stop_ns, u)
            if at_ns >= until_ns:
                yield from self._to_deadline(now_ns, at_ns, serial)
                break
            yield At(env, at_ns - now_ns, order_of(self._client.number, tries[ATTEMPT], serial))
            now_ns, answer = at_ns, None
        self._ended(began_ns, self._now_ns(), well=False)

    def _turn(
        self, line: PacingLine, attempt: int, serial: int, until_ns: int
    ) -> Generator[simpy.Event, object, object]:
        """Wait for the turn of an attempt; false where the request's deadline came first."""
        order = order_of(self._client.number, attempt, serial)
        deadline_ns = until_ns if until_ns < self._stop_ns else None
        in_time = yield from line.turn(order, deadline_ns, self._answer_order + serial)
        if self._now_ns() >= self._stop_ns:
            yield self._never
        return in_time

    def _to_deadline(self, now_ns: int, at_ns: int, serial: int) -> _Process:
        """Wait until the deadline of a request without further attempts, as `goes_on_ns` says."""
        if at_ns == NEVER_NS:
            yield self._never
        if at_ns > now_ns:
            yield At(self._env, at_ns - now_ns, self._answer_order + serial)

    def _awaited(
        self, answer: SimulatedAnswer, serial: int
    ) -> Generator[simpy.Event, object, SimulatedAnswer]:
        """Wait for an answer; returns it with nothing left to wait for."""
        is_late = answer.later is not None
        if answer.later is not None:
            answer = yield from answer.later
        if is_late or answer.latency_ns:
            yield At(self._env, answer.latency_ns, self._answer_order + serial)
            answer = answer._replace(latency_ns=0)
        if self._line is not None:
            self._line.answered(limited=answer.status == LIMITED)
        return answer

    def _follow(self, upload: RequestSpec | None, serial: int, given: Json) -> _Process:
        """Play the upload that follows an answer, if any."""
        if upload is None or given is None:
            return
        yield At(self._env, 0, self._first_order + serial)
        now_ns = self._now_ns()
        if now_ns < self._stop_ns:
            self._began(now_ns)
            yield from self._one(now_ns, now_ns, upload, serial, given)

    def _awaits(self, asked: RequestSpec) -> bool:
        return self._wants_answer or asked.follow is not None

    def _again(self, answer: SimulatedAnswer, attempt: int) -> bool:
        if answer.status == NO_STATUS or attempt >= self._rule[ATTEMPTS]:
            return False
        return answer.status in self._retry.statuses  # type: ignore[union-attr] # reason: one attempt without

    def _end(self, began_ns: int, answered_ns: int, status: int) -> None:
        """Count a request that got its last answer; late or an error is not well."""
        well = status == NO_STATUS or 200 <= status < 300
        if self._deadline_ns is not None:
            well = well and answered_ns - began_ns < self._deadline_ns
        self._ended(began_ns, answered_ns, well=well)

    def _now_ns(self) -> int:
        return self._env.now  # type: ignore[return-value] # reason: time is whole here


class PacingLine:
    """Attempts of one client, waiting for their turn."""

    __slots__ = ("_env", "_kind", "_line", "_rule", "_timer", "_timer_ns", "_waiting")

    def __init__(self, env: simpy.Environment, pacing: Pacing, start_ns: int) -> None:
        self._env = env
        self._kind, self._line, self._rule = pace_rows(pacing, start_ns)
        self._waiting: OrderedDict[simpy.Event, int] = OrderedDict()  # with the order of each
        self._timer: simpy.Event | None = None
        self._timer_ns = -1

    def turn(
        self, order: int, deadline_ns: int | None, late_order: int
    ) -> Generator[simpy.Event, object, object]:
        """Wait until an attempt may begin, and begin it; false where its deadline came first.

        order, late_order: of the attempt and of its end at the deadline (`order_of`).
        """
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        if not self._waiting and self._line[DUE] <= now_ns:
            begin_attempt(self._kind, self._line, self._rule, now_ns)
            return True
        go = self._env.event()
        self._waiting[go] = order
        self._arm()
        if deadline_ns is not None:
            late = At(self._env, deadline_ns - now_ns, late_order)
            late.callbacks.append(lambda _: self._leave(go))
        yield go
        return go.value

    def answered(self, *, limited: bool) -> None:
        """Take in an answer; the first in the line may begin earlier, or later, than before."""
        if take_answer(self._kind, self._line, self._rule, limited) and self._waiting:
            self._arm()

    def _arm(self) -> None:
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        due_ns = max(self._line[DUE], now_ns)
        if due_ns != self._timer_ns:
            self._timer_ns = due_ns
            order = self._waiting[self._first()]
            self._timer = timer = At(self._env, due_ns - now_ns, order)
            timer.callbacks.append(self._fire)

    def _first(self) -> simpy.Event:
        return next(iter(self._waiting))

    def _leave(self, go: simpy.Event) -> None:
        """Remove an attempt that has waited until its deadline, if it still waits."""
        if go not in self._waiting:
            return
        was_first = go is self._first()
        del self._waiting[go]
        if was_first:
            self._timer, self._timer_ns = None, -1
            if self._waiting:
                self._arm()
        go.succeed(value=False)

    def _fire(self, timer: simpy.Event) -> None:
        if timer is not self._timer:
            return  # the pace or the first in the line has changed; another timer stands for it
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        self._timer, self._timer_ns = None, -1
        go, _ = self._waiting.popitem(last=False)
        begin_attempt(self._kind, self._line, self._rule, now_ns)
        go.succeed(value=True)
        if self._waiting:
            self._arm()


_PROGRESS_STEPS: Final = 200
_LAST: Final = 1 << 200


def simulate_simpy(
    setup: Setup, book: RunBook, fidelity: str, progress: Progress | None = None
) -> Gate:
    """Play a scenario, write every row to `book`, and return the gate that decided."""
    env = simpy.Environment()
    scenario, profile = setup.scenario, setup.profile
    gate = _gate(env, setup, book, fidelity)
    processes = processes_of(scenario)
    numbering = Numbering(scenario, book.recorder.subjects, book.view)
    for client in setup.population.clients:
        stop_ns, arrivals = scenario.stop_of(client.group), client.group.arrivals
        sessions = None
        if isinstance(arrivals, SessionArrivals):
            sessions = SessionRequests(client, arrivals, stop_ns)
        asker = Asker(
            scenario,
            client,
            numbering,
            profile.account_updater.file_limit_bytes,
            None if sessions is None else sessions.entry,
        )
        run = ClientRun(
            env,
            client,
            asker,
            gate,
            book.tally,
            stop_ns,
            told_to_wait=profile.http.retry_after,
        )
        group = client.group
        if sessions is not None:
            env.process(run.open_loop(sessions.instants()))
        elif group.arrivals is not None:
            env.process(run.open_loop(instants_of(processes[group.name], client)))
        else:
            for lane in range(group.concurrency or 1):
                env.process(run.closed_loop(lane))
    if progress is not None:
        env.process(_ticks(env, scenario.duration_ns, progress))
    env.run()
    return gate


def _gate(env: simpy.Environment, setup: Setup, book: RunBook, fidelity: str) -> Gate:
    """Return the gate of a fidelity: the engine's, or the limits' on one node or on several."""
    rows = RunOutput(book.recorder, book.tally)
    start_time_ns, profile, tables = setup.scenario.start_time_ns, setup.profile, setup.tables
    if fidelity == "engine":
        from simulator.play.engine_gate import EngineGate, ScenarioTraffic  # noqa: PLC0415 # reason: the limits alone need no store and no vault

        traffic = ScenarioTraffic(setup.scenario, setup.population)
        return EngineGate(env, start_time_ns, profile, tables, setup.seed, rows, traffic)
    if book.nodes is None:
        limits_alone = Limiter(tables, profile.limits, origin_ns=start_time_ns)
        return LimitsGate(env, start_time_ns, profile, limits_alone, rows)
    draw = Stream(setup.seed, BALANCE_STREAM).uniform
    limiter = NodesLimiter(tables, profile.limits, profile.nodes, draw, origin_ns=start_time_ns)
    return NodesGate(env, start_time_ns, profile, limiter, rows, book.nodes)


def _ticks(
    env: simpy.Environment, end_ns: int, progress: Progress
) -> Generator[simpy.Event, object, None]:
    told_ns = 0
    for step in range(1, _PROGRESS_STEPS):
        now_ns = end_ns * step // _PROGRESS_STEPS
        yield At(env, now_ns - told_ns, _LAST)
        progress(now_ns)
        told_ns = now_ns

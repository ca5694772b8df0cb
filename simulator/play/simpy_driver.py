"""The reference simulation: clients as SimPy processes, in whole nanoseconds.

One process per loop of a closed client, one per client of an open loop; a request of an open loop
gets a process of its own only where something waits for its answer. What a client does, step by
step, is said in `simulator.scenario.clients`; this module simulates it, for every fidelity, and
leaves the decision to a backend (`simulator.play.backends`).

Nothing begins at the run's end T or later, so what happens before T does not depend on the length
of the run. (Answers after T are the exception: they come as if no more requests were sent.) A
request that would retry after T is counted as pending.

An open loop with `concurrency` is a queue with that many servers: an arrival that finds them busy
waits until a request that is under way ends. It counts from its arrival, in its deadline and in its
first attempt's latency too.

The attempts of a paced client wait in one queue (`PacedQueue`) and begin one after the other, first
come first served, from the instant that the pace allows (`simulator.traffic.attempts`). An answer
that changes the pace moves that instant. An attempt whose deadline passes leaves the queue.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import simpy

from engine.limits import Limiter, LimitTable, NodesLimiter
from engine.messages import Json
from engine.profile import Profile
from simulator.play.backends import (
    LIMITED,
    Backend,
    LimitsBackend,
    NodesBackend,
    RequestGenerator,
    RequestSpec,
    SubjectRegistry,
)
from simulator.play.outside import ANSWER, FILE, FIRST, NEVER_NS, At, order_of, spawn
from simulator.progress import Progress
from simulator.rows import RunRecorder
from simulator.rows.record import NO_STATUS, Recorder
from simulator.rows.statistics import NodesStatistics, RunStatistics
from simulator.scenario.clients import Pacing
from simulator.scenario.draws import Drawn, SessionArrivals
from simulator.traffic.attempts import pace_of, retry_policy
from simulator.traffic.draws import BALANCE_STREAM, Stream
from simulator.traffic.population import Client, Setup
from simulator.traffic.sampling import (
    Duration,
    SessionRequests,
    drawn_ns,
    duration_of,
    instants_of,
)

if TYPE_CHECKING:
    from simulator.play.engine_backend import Traffic

_Process: TypeAlias = Generator[simpy.Event, object, None]


@dataclass(slots=True)
class QueuedRequest:
    """A request from its arrival on. serial: its number within its client.

    sent: its first attempt was under way; expired: its deadline came before that.
    """

    spec: RequestSpec
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
        asker: RequestGenerator,
        backend: Backend,
        tally: RunStatistics,
        stop_ns: int,
        *,
        retry_after_enabled: bool,
    ) -> None:
        """retry_after_enabled: refusals carry `Retry-After` (D-429-HEADERS)."""
        group = client.group
        self._env = env
        self._client = client
        self._backend = backend
        self._next, self._only = asker.next, asker.only
        self._content_of = backend.begin
        self._began = tally.request_began
        self._ended = tally.request_ended
        self._never = env.event()
        self._retry = retry_policy(group.retry, retry_after_enabled=retry_after_enabled)
        self._jitter = client.stream("retry").uniform if isinstance(group.retry, Drawn) else float
        self._service = duration_of(group.service, lambda: client.stream("service"))
        self._stop_ns = stop_ns
        self._deadline_ns = group.deadline_ns
        self._paced: PacedQueue | None = None
        if group.pacing is not None:
            self._paced = PacedQueue(env, group.pacing, group.start_ns)
        self._waiting: deque[QueuedRequest] = deque()
        self._under_way = 0
        self._files = 0
        self._answer_order = order_of(client.number, ANSWER, 0)
        self._first_order = order_of(client.number, FIRST, 0)
        bounded = group.concurrency is not None or group.pacing is not None
        self._wants_answer = bounded or group.loop == "closed"

    # --- loops -----------------------------------------------------------------------------------

    def closed_loop(self, loop: int) -> _Process:
        """Think, send a request, wait for its end, and again."""
        env, group = self._env, self._client.group
        think_time: Duration = 0
        if group.think is not None:
            stream = f"think-{loop}" if loop else "think"
            think_time = duration_of(group.think, lambda: self._client.stream(stream))
        order = self._first_order + loop
        now_ns, at_ns = 0, group.start_ns
        while (at_ns := at_ns + drawn_ns(think_time)) < self._stop_ns:
            yield At(env, at_ns - now_ns, order)
            yield from self._send(at_ns, self._arrive(at_ns, loop))
            now_ns = at_ns = self._now_ns()

    def open_loop(self, arrivals: Iterator[int]) -> _Process:
        """Accept a request at each of the instants, whatever became of earlier ones."""
        now_ns = 0
        for serial, at_ns in enumerate(arrivals):
            if at_ns >= self._stop_ns:
                return
            yield At(self._env, at_ns - now_ns, self._first_order + serial)
            now_ns = at_ns
            self._accept(self._arrive(now_ns, serial))

    def _arrive(self, now_ns: int, serial: int) -> QueuedRequest:
        """Draw a request; it begins now, whenever it is sent."""
        spec = self._only or self._next()
        for _ in range(spec.parts):
            self._began(now_ns)
        return QueuedRequest(spec, now_ns, serial)

    def _accept(self, request: QueuedRequest) -> None:
        """Send a request that has arrived, or let it wait until one under way ends."""
        most = self._client.group.concurrency
        if most is None:
            spawn(self._env, self._send(request.arrival_ns, request))
        elif self._under_way < most:
            self._under_way += 1
            spawn(self._env, self._serve(request))
        else:
            self._waiting.append(request)
            self._expire_at_deadline(request)

    def _serve(self, request: QueuedRequest) -> _Process:
        """Send a request, and after its end those that wait, first come first served."""
        yield from self._send(self._now_ns(), request)
        while self._waiting and self._now_ns() < self._stop_ns:
            request = self._waiting.popleft()
            if request.expired:
                continue
            yield At(self._env, 0, self._first_order + request.serial)
            if not request.expired:
                yield from self._send(self._now_ns(), request)
        self._under_way -= 1

    def _expire_at_deadline(self, request: QueuedRequest) -> None:
        """End a request that still waits at its deadline."""
        if self._deadline_ns is None:
            return
        until_ns = request.arrival_ns + self._deadline_ns
        if until_ns < self._stop_ns:
            order = self._answer_order + request.serial
            deadline = At(self._env, self._deadline_ns, order)
            deadline.callbacks.append(lambda _: self._expire(request, until_ns))

    def _expire(self, request: QueuedRequest, now_ns: int) -> None:
        if request.sent:
            return
        request.expired = True
        for _ in range(request.spec.parts):
            self._ended(request.arrival_ns, now_ns, well=False)

    # --- a request -------------------------------------------------------------------------------

    def _send(self, now_ns: int, request: QueuedRequest) -> _Process:
        """Return the process of a request; where it stands for several, send the others with it."""
        request.sent = True
        spec, arrival_ns = request.spec, request.arrival_ns
        for _ in range(1, spec.parts):
            spawn(self._env, self._to_its_end(arrival_ns, now_ns, spec, FILE + self._files))
            self._files += 1
        return self._to_its_end(arrival_ns, now_ns, spec, request.serial)

    def _to_its_end(
        self, arrival_ns: int, now_ns: int, spec: RequestSpec, serial: int, given: Json = None
    ) -> _Process:
        """Run the attempts of one request up to its end; and the upload that may follow.

        given: the answer that an upload follows.
        """
        content_of, paced, retry = self._content_of, self._paced, self._retry
        content = None if content_of is None else content_of(spec, self._client, given)
        awaits = self._wants_answer or spec.follow is not None
        until_ns = NEVER_NS if self._deadline_ns is None else arrival_ns + self._deadline_ns
        waited_ns, attempt, delay_ns = now_ns - arrival_ns, 1, 0
        while True:
            if paced is not None:
                in_time = yield from self._wait_for_turn(paced, attempt, serial, until_ns)
                now_ns = self._now_ns()
                if not in_time:
                    break
            answer = self._backend.submit(now_ns, spec, content, attempt, self._service, waited_ns)
            is_late = answer.later is not None
            if answer.later is not None:
                answer = yield from answer.later
                now_ns = self._now_ns()
            latency_ns, retries = answer.latency_ns, retry.retries(answer.status, attempt)
            # A retry is counted from the answer, so that is waited for too.
            if is_late or (latency_ns and (awaits or retries)):
                yield At(self._env, latency_ns, self._answer_order + serial)
            now_ns += latency_ns
            if paced is not None:
                paced.on_answer(limited=answer.status == LIMITED)
            if not retries:
                self._end(arrival_ns, now_ns, answer.status)
                if spec.follow is not None and answer.body is not None:
                    yield from self._follow(spec.follow, serial, answer.body)
                return
            wait_ns = answer.wait_ns if answer.status == LIMITED else None
            delay_ns = retry.delay_ns(attempt, delay_ns, self._jitter)
            at_ns = retry.next_attempt_ns(now_ns, delay_ns, wait_ns)
            if at_ns >= until_ns or at_ns >= self._stop_ns:
                yield from self._wait_for_deadline(now_ns, until_ns, serial)
                break
            attempt += 1
            yield At(self._env, at_ns - now_ns, order_of(self._client.number, attempt, serial))
            now_ns, waited_ns = at_ns, 0
        self._ended(arrival_ns, self._now_ns(), well=False)

    def _wait_for_turn(
        self, paced: PacedQueue, attempt: int, serial: int, until_ns: int
    ) -> Generator[simpy.Event, object, object]:
        """Wait for the turn of an attempt; false where the request's deadline came first."""
        order = order_of(self._client.number, attempt, serial)
        deadline_ns = until_ns if until_ns < self._stop_ns else None
        in_time = yield from paced.wait_for_turn(order, deadline_ns, self._answer_order + serial)
        if self._now_ns() >= self._stop_ns:
            yield self._never
        return in_time

    def _wait_for_deadline(self, now_ns: int, until_ns: int, serial: int) -> _Process:
        """Wait for the deadline of a request without further attempts; its stop may come first."""
        if until_ns <= now_ns:
            return
        if until_ns >= self._stop_ns:
            yield self._never
        yield At(self._env, until_ns - now_ns, self._answer_order + serial)

    def _follow(self, upload: RequestSpec, serial: int, given: Json) -> _Process:
        """Run the upload that follows an answer."""
        yield At(self._env, 0, self._first_order + serial)
        now_ns = self._now_ns()
        if now_ns < self._stop_ns:
            self._began(now_ns)
            yield from self._to_its_end(now_ns, now_ns, upload, serial, given)

    def _end(self, began_ns: int, answered_ns: int, status: int) -> None:
        """Count a request that got its last answer; late or an error is not well."""
        well = status == NO_STATUS or 200 <= status < 300
        if self._deadline_ns is not None:
            well = well and answered_ns - began_ns < self._deadline_ns
        self._ended(began_ns, answered_ns, well=well)

    def _now_ns(self) -> int:
        return self._env.now  # type: ignore[return-value] # reason: time is whole here


class PacedQueue:
    """The attempts of one client that wait for their turn, first come first served.

    A timer is set for the first of them. Where the pace or the first one changes, it gets another
    timer, and the old one does nothing.
    """

    __slots__ = ("_env", "_pace", "_timer", "_timer_ns", "_waiting")

    def __init__(self, env: simpy.Environment, pacing: Pacing, start_ns: int) -> None:
        self._env = env
        self._pace = pace_of(pacing, start_ns)
        self._waiting: OrderedDict[simpy.Event, int] = OrderedDict()  # with the order of each
        self._timer: simpy.Event | None = None
        self._timer_ns = -1

    def wait_for_turn(
        self, order: int, deadline_ns: int | None, deadline_order: int
    ) -> Generator[simpy.Event, object, object]:
        """Wait until an attempt may begin, and begin it; false where its deadline came first.

        order, deadline_order: of the attempt and of its end at the deadline (`order_of`).
        """
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        if not self._waiting and self._pace.next_attempt_ns <= now_ns:
            self._pace.begin(now_ns)
            return True
        turn = self._env.event()
        self._waiting[turn] = order
        self._set_timer()
        if deadline_ns is not None:
            deadline = At(self._env, deadline_ns - now_ns, deadline_order)
            deadline.callbacks.append(lambda _: self._leave(turn))
        yield turn
        return turn.value

    def on_answer(self, *, limited: bool) -> None:
        """Take in an answer; the first in the queue may begin earlier, or later, than before."""
        if self._pace.accept(limited=limited) and self._waiting:
            self._set_timer()

    def _set_timer(self) -> None:
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        due_ns = max(self._pace.next_attempt_ns, now_ns)
        if due_ns != self._timer_ns:
            self._timer_ns = due_ns
            self._timer = At(self._env, due_ns - now_ns, self._waiting[self._first()])
            self._timer.callbacks.append(self._on_timer)

    def _first(self) -> simpy.Event:
        return next(iter(self._waiting))

    def _leave(self, turn: simpy.Event) -> None:
        """Remove an attempt that has waited until its deadline, if it still waits."""
        if turn not in self._waiting:
            return
        was_first = turn is self._first()
        del self._waiting[turn]
        if was_first:
            self._timer, self._timer_ns = None, -1
            if self._waiting:
                self._set_timer()
        turn.succeed(value=False)

    def _on_timer(self, timer: simpy.Event) -> None:
        if timer is not self._timer:
            return
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        self._timer, self._timer_ns = None, -1
        turn, _ = self._waiting.popitem(last=False)
        self._pace.begin(now_ns)
        turn.succeed(value=True)
        if self._waiting:
            self._set_timer()


_PROGRESS_STEPS: Final = 200
_LAST: Final = 1 << 200


def simulate_simpy(
    setup: Setup, book: RunRecorder, fidelity: str, progress: Progress | None = None
) -> Backend:
    """Play a scenario, write every row to `book`, and return the backend that decided."""
    env = simpy.Environment()
    scenario, profile = setup.scenario, setup.profile
    traffic = None
    if fidelity == "engine":
        from simulator.play.engine_backend import ScenarioTraffic  # noqa: PLC0415 # reason: the limits alone need no store and no vault

        traffic = ScenarioTraffic(scenario, setup.population)
    run = scenario.start_time_ns, profile, setup.tables, setup.seed
    backend = backend_of(env, *run, book.recorder, book.nodes, traffic)
    instants = {
        group.name: instants_of(group, scenario)
        for group in scenario.clients
        if group.arrivals is not None and not isinstance(group.arrivals, SessionArrivals)
    }
    numbering = SubjectRegistry(scenario, book.recorder.subjects, book.view)
    for client in setup.population.clients:
        stop_ns, arrivals = scenario.stop_of(client.group), client.group.arrivals
        sessions = None
        if isinstance(arrivals, SessionArrivals):
            sessions = SessionRequests(client, arrivals, stop_ns)
        asker = RequestGenerator(
            scenario,
            client,
            numbering,
            profile.account_updater.file_limit_bytes,
            None if sessions is None else sessions.entry,
        )
        client_run = ClientRun(
            env,
            client,
            asker,
            backend,
            book.tally,
            stop_ns,
            retry_after_enabled=profile.http.retry_after,
        )
        group = client.group
        if sessions is not None:
            env.process(client_run.open_loop(sessions.instants()))
        elif group.arrivals is not None:
            env.process(client_run.open_loop(instants[group.name](client)))
        else:
            for loop in range(group.concurrency or 1):
                env.process(client_run.closed_loop(loop))
    if progress is not None:
        env.process(_ticks(env, scenario.duration_ns, progress))
    env.run()
    return backend


def backend_of(  # reason: the parts of a run
    env: simpy.Environment,
    start_time_ns: int,
    profile: Profile,
    tables: Mapping[str, LimitTable],
    seed: int,
    recorder: Recorder,
    nodes: NodesStatistics | None,
    traffic: Traffic | None,
) -> Backend:
    """Return the backend of a run: an engine's, or the limits' on one node or on several.

    traffic: whose requests an engine is asked; None where no bodies are run.
    """
    if traffic is not None:
        from simulator.play.engine_backend import EngineBackend  # noqa: PLC0415 # reason: the limits alone need no store and no vault

        return EngineBackend(env, start_time_ns, profile, tables, seed, recorder, traffic)
    if nodes is None:
        limiter = Limiter(tables, profile.limits, origin_ns=start_time_ns)
        return LimitsBackend(env, start_time_ns, profile, limiter, recorder)
    draw = Stream(seed, BALANCE_STREAM).uniform
    shared = NodesLimiter(tables, profile.limits, profile.nodes, draw, origin_ns=start_time_ns)
    return NodesBackend(env, start_time_ns, profile, shared, recorder, nodes)


def _ticks(
    env: simpy.Environment, end_ns: int, progress: Progress
) -> Generator[simpy.Event, object, None]:
    reported_ns = 0
    for step in range(1, _PROGRESS_STEPS):
        now_ns = end_ns * step // _PROGRESS_STEPS
        yield At(env, now_ns - reported_ns, _LAST)
        progress(now_ns)
        reported_ns = now_ns

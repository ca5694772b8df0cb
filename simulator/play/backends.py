"""The backend: where an attempt meets the service, in a run of clients and in a replay of a log.

`LimitsBackend` asks the limiter and nothing else; `EngineBackend`, in
`simulator.play.engine_backend`, runs the whole engine. The third one decides in compiled code:
attempt by attempt in a run (`simulator.kernel`), block by block in a replay
(`simulator.play.replay`). All decide alike, bit for bit: draws of service times are the client's
own, one an admitted attempt, whatever the fidelity.

`begin` makes what the attempts of one request share; it is None where bodies are not run. `submit`
records an attempt and returns what became of it. When the answer is not known yet,
`SimulatedAnswer.later` is a generator of SimPy events that returns it. `violations` returns the
invariants of the service that are broken at the run's end, None where nobody looked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import simpy

from engine.limits import Limiter, NodesLimiter, Subject
from engine.messages import Json, Request
from engine.profile import Profile
from engine.world import Task
from simulator.play.outside import (
    OutsideTiming,
    OutsideWorld,
    SimpyClock,
    go_on,
    outside_services,
    play_outside,
    step,
)
from simulator.rows.invariants import Violation
from simulator.rows.record import NO_STATUS, Recorder
from simulator.rows.statistics import NodesStatistics
from simulator.scenario.clients import Ask
from simulator.scenario.model import Proxy
from simulator.traffic.population import Client, KeyHolder
from simulator.traffic.sampling import Duration

if TYPE_CHECKING:
    from engine.resources.operation import Services
    from simulator.play.engine_backend import EngineBackend

LIMITED: Final = 429
_JOB: Final[Json] = {}
_NOTHING: Final = Ask(request="")
"""In the place of an entry of a mix, which a log's requests have none of."""

Waiting: TypeAlias = Generator[simpy.Event, object, "SimulatedAnswer"]


@dataclass(eq=False, slots=True)
class RequestSpec:
    """Who asks for what: everything about a request that its attempts share.

    subject: the limits' own; row: the number of the rows' subject. The rest is of a scenario's
    requests: the entry of the mix, the key, the proxy. plan: draws what the outside does to an
    attempt, None where it meets none. follow: the upload that follows its answer. parts: how many
    such requests begin together (ACC-SPLIT). size_bytes: of an upload's file.
    """

    subject: Subject
    row: int = -1
    ask: Ask = _NOTHING
    key: KeyHolder | None = None
    proxy: Proxy | None = None
    plan: Callable[[], OutsideTiming] | None = None
    follow: RequestSpec | None = None
    parts: int = 1
    size_bytes: int = 0


class SimulatedAnswer(NamedTuple):
    """What became of an attempt.

    status: `NO_STATUS` where no body was run and the attempt was admitted. latency_ns: from now to
    the answer. wait_ns: of the limits' decision. later: see the module's text. body: of the answer
    that an upload follows, else None.
    """

    status: int
    latency_ns: int = 0
    wait_ns: int = 0
    later: Waiting | None = None
    body: Json = None


Backend: TypeAlias = "LimitsBackend | EngineBackend"
"""Where attempts meet the service."""


class LimitsBackend:
    """Decides by the limits alone: bodies are not run, so nothing else can fail at the service.

    What lies behind a proxy or a reactor is played without its body: `simulator.play.outside`.
    """

    begin: Callable[[RequestSpec, Client | None, Json], Request] | None = None

    def __init__(
        self,
        env: simpy.Environment,
        start_time_ns: int,
        profile: Profile,
        limiter: Limiter | NodesLimiter,
        recorder: Recorder,
    ) -> None:
        self._env = env
        self._decide = limiter.decide
        self._recorder = recorder
        self._add = recorder.add
        self._verdict = recorder.verdict
        self._profile = profile
        self._world = OutsideWorld(SimpyClock(env, start_time_ns), 0)
        self._outside: Services | None = None

    def submit(  # reason: the parts of an attempt
        self,
        now_ns: int,
        asked: RequestSpec,
        content: Request | None,
        attempt: int,
        service: Duration,
        waited_ns: int = 0,
    ) -> SimulatedAnswer:
        """Decide about an attempt that is sent now, and record it.

        waited_ns: how long ago it arrived at its client; its recorded latency counts from there.
        """
        del content
        decision = self._decide(now_ns, asked.subject)
        rule, wait_ns = decision.rule, decision.wait_ns
        plan = None if asked.plan is None else asked.plan()
        verdict = 0
        if rule is not None or decision.shadow:
            verdict = self._verdict(now_ns, decision)
            if not decision.admitted:
                self._add(now_ns, asked.row, attempt, verdict, wait_ns, waited_ns)
                return SimulatedAnswer(LIMITED, 0, wait_ns)
        service_ns = service if isinstance(service, int) else service()
        if plan is not None:
            row = self._add(now_ns, asked.row, attempt, verdict, wait_ns, None)
            arrival_ns = now_ns - waited_ns
            later = self._later(arrival_ns, asked, row, plan, wait_ns, service_ns)
            return SimulatedAnswer(0, 0, wait_ns, later)
        latency_ns = wait_ns + service_ns
        self._add(now_ns, asked.row, attempt, verdict, wait_ns, waited_ns + latency_ns)
        body = None if asked.follow is None else _JOB
        return SimulatedAnswer(NO_STATUS, latency_ns, wait_ns, None, body)

    def violations(self) -> list[Violation] | None:
        """Return None: no body was run, so nothing was created."""
        return None

    def _later(
        self,
        arrival_ns: int,
        asked: RequestSpec,
        row: int,
        plan: OutsideTiming,
        wait_ns: int,
        service_ns: int,
    ) -> Waiting:
        """Play what lies behind a proxy or a reactor, then answer."""
        world = self._world
        if self._outside is None:
            self._outside = outside_services(self._profile, world)
        playing = Task(play_outside(asked.ask, asked.proxy, self._outside, wait_ns))
        yield from go_on(self._env, playing, world, plan, step(playing, world, plan))
        latency_ns = world.clock.now_ns + service_ns - arrival_ns
        self._recorder.answer(row, latency_ns, playing.result)
        return SimulatedAnswer(playing.result, service_ns, wait_ns)


class NodesBackend(LimitsBackend):
    """Decides by the limits as several nodes do, and counts what one node would decide otherwise.

    It tells the balancer how long requests are in flight.
    """

    def __init__(  # reason: the parts of a backend
        self,
        env: simpy.Environment,
        start_time_ns: int,
        profile: Profile,
        limiter: NodesLimiter,
        recorder: Recorder,
        nodes: NodesStatistics,
    ) -> None:
        super().__init__(env, start_time_ns, profile, limiter, recorder)
        self._limiter = limiter
        self._nodes = nodes

    def submit(  # reason: the parts of an attempt
        self,
        now_ns: int,
        asked: RequestSpec,
        content: Request | None,
        attempt: int,
        service: Duration,
        waited_ns: int = 0,
    ) -> SimulatedAnswer:
        """Decide about an attempt that is sent now, and record it."""
        answer = super().submit(now_ns, asked, content, attempt, service, waited_ns)
        limiter = self._limiter
        node, decided = limiter.node, limiter.decision
        self._nodes.take(now_ns, asked.row, decided, limiter.exact)
        if not decided.admitted:
            return answer
        limiter.balancer.begin(node)
        if answer.later is None:
            limiter.balancer.end(node, now_ns + answer.latency_ns)
        else:
            answer = answer._replace(later=self._to_its_end(node, answer.later))
        return answer

    def _to_its_end(self, node: int, later: Waiting) -> Waiting:
        """Play what lies behind a node, and tell the balancer when it is answered."""
        answer = yield from later
        self._limiter.balancer.end(node, self._env.now + answer.latency_ns)  # type: ignore[arg-type] # reason: time is whole here
        return answer

"""What a client asks for, and the backend: where an attempt meets the service.

A request is an entry of the client's mix, a key and an address for each. Equal requests of a client
are one `RequestSpec`, so that a subject is looked up once per client and not once per request.

A run of clients and a replay of a log use the same backends. `LimitsBackend` asks the limiter and
nothing else; `EngineBackend`, in `simulator.play.engine_backend`, runs the whole engine. The third
one decides in compiled code: attempt by attempt in a run (`simulator.kernel`), block by block in a
replay (`simulator.play.replay`). All decide alike, bit for bit: draws of service times are the
client's own, one an admitted attempt, whatever the fidelity.

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

from engine.limits import KeyIdentity, Limiter, NodesLimiter, Subject, TenantIdentity
from engine.messages import Json, Request
from engine.profile import Profile
from engine.world import Task
from simulator.play.outside import (
    OutsideTiming,
    OutsideWorld,
    SimpyClock,
    go_on,
    outside_services,
    plan_maker,
    play_outside,
    step,
)
from simulator.rows.invariants import Violation
from simulator.rows.record import NO_STATUS, Recorder, RequestIdentity, SubjectTable
from simulator.rows.run_recorder import CounterIndex
from simulator.rows.statistics import NodesStatistics
from simulator.scenario.clients import Ask
from simulator.scenario.model import Proxy, Scenario
from simulator.traffic.draws import categorical, cumulative_weights
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


class RequestGenerator:
    """Draws one client's requests. only: the one that it asks for, None where they differ."""

    def __init__(
        self,
        scenario: Scenario,
        client: Client,
        numbering: SubjectRegistry,
        file_limit_bytes: int,
        entry: Callable[[], int] | None = None,
    ) -> None:
        """entry: returns the mix entry of the next request; None samples one by weight."""
        self._client = client
        self._known: dict[tuple[int, int, int], RequestSpec] = {}
        mix = client.group.mix
        self._pick = entry
        if entry is None and len(mix) > 1:
            table = cumulative_weights([ask.weight for ask in mix])
            uniform = client.stream("mix").uniform
            self._pick = lambda: categorical(uniform(), table)
        self._numbering = numbering
        self._file_limit_bytes = file_limit_bytes
        self._plan_of = [plan_maker(scenario, client, ask) for ask in mix]
        # Dealt once per client, or per request: in the first case the dealer is called once.
        deals = any(dealing.per == "request" for dealing in scenario.dealings_of(client.group))
        self._dealt = None if deals else (client.deal_key(), client.deal_address())
        self.only = None if deals or self._pick is not None else self.next()

    def next(self) -> RequestSpec:
        """Draw the next request."""
        client = self._client
        entry = self._pick() if self._pick is not None else 0
        key, address = self._dealt or (client.deal_key(), client.deal_address())
        place = (entry, key, address)
        spec = self._known.get(place)
        if spec is None:
            spec = self._known[place] = self._numbering.asked(client, entry, key, address)
            spec.plan = self._plan_of[entry]
            if spec.follow is not None:
                spec.parts = spec.ask.files(self._file_limit_bytes)
                spec.follow.size_bytes = -(-spec.ask.size_bytes // spec.parts)
        return spec


class SubjectRegistry:
    """Numbers the subjects of a scenario's requests in the rows."""

    def __init__(self, scenario: Scenario, subjects: SubjectTable, view: CounterIndex) -> None:
        self._scenario = scenario
        self._subjects = subjects
        self._view = view

    def asked(self, client: Client, entry: int, key: int, address: int) -> RequestSpec:
        """Return what a client asks for by an entry of its mix, with its upload where it is a job.

        key, address: places in the client's pools.
        """
        ask = client.group.mix[entry]
        holder = client.keys[key] if client.keys else None
        ip = client.addresses[address]
        spec = self._numbered(client, asked_by(self._scenario, ask, holder, ip))
        if ask.is_job:
            spec.follow = self._numbered(client, RequestSpec(upload_subject(ip), ask=ask))
        return spec

    def _numbered(self, client: Client, asked: RequestSpec) -> RequestSpec:
        key, proxy = asked.key, asked.proxy
        asked.row = self._subjects.number(
            RequestIdentity(
                client.number,
                key.tenant if key else proxy.tenant if proxy else None,
                key.application if key else None,
                key.label if key else None,
                asked.subject.ip,
                asked.subject.method,
                asked.subject.path,
            ),
            *self._view.counted(asked.subject),
        )
        return asked


def upload_subject(ip: str) -> Subject:
    """Return the subject of the upload of a job's file: no key, an address."""
    return Subject.of(
        "PUT", "/batch-files/{id}", ip, key=None, tenant=None, proxy_key_id=None, host_id=None
    )


def asked_by(scenario: Scenario, ask: Ask, key: KeyHolder | None, ip: str) -> RequestSpec:
    """Return what an entry of a mix asks, with this key, from this address."""
    method, _, path = ask.request.partition(" ")
    proxy = scenario.proxy_of(ask)
    by_key = proxy is not None and ask.via == "key" and not proxy.require_auth
    by_host = proxy is not None and ask.via == "host"
    identity = tenant = None
    if key is not None:
        identity = KeyIdentity(key.label, key.legacy, key.application, key.application_kind)
        tenant = TenantIdentity(key.tenant, key.tenant_kind, key.table)
    elif proxy is not None:
        owner = next(candidate for candidate in scenario.tenants if candidate.name == proxy.tenant)
        table = owner.quotas.rate_limit or "Default"
        tenant = TenantIdentity(owner.name, owner.kind, table)
    subject = Subject.of(
        method,
        path,
        ip,
        key=identity,
        tenant=tenant,
        proxy_key_id=proxy.name if proxy and by_key else None,
        host_id=proxy.name if proxy and by_host else None,
    )
    return RequestSpec(subject, ask=ask, key=key, proxy=proxy)

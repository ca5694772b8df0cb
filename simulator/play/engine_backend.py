"""The backend of fidelity `engine`: every attempt runs the whole engine, bodies and all.

Before the run the scenario's tenants, applications, keys, proxies and reactors are made, on an
engine whose limits are not yet in force, so that the set-up is not counted. A decision is recorded
when the limiter makes it, before the answer is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import simpy

from engine import Engine, Limiter, LimitTable, Request, Response, Subject
from engine.identity import ASKABLE
from engine.limits import RateLimitStatus
from engine.messages import ADMITTED, Decision, Json
from engine.profile import Profile
from engine.world import Sleep, Task
from simulator.play.backends import RequestSpec, SimulatedAnswer, Waiting
from simulator.play.outside import (
    REACT,
    REQUEST,
    RESPONSE,
    OutsideTiming,
    OutsideWorld,
    SimpyClock,
    go_on,
    step,
)
from simulator.rows.invariants import Violation
from simulator.rows.record import Recorder
from simulator.scenario import Scenario
from simulator.scenario.clients import Ask
from simulator.traffic.bodies import (
    GroupValues,
    Known,
    batch_file,
    body_of,
    ids_of,
    resource_of,
)
from simulator.traffic.population import Client, Population
from simulator.traffic.sampling import Duration, drawn_ns

if TYPE_CHECKING:
    from simulator.play.replay import LogTraffic

_NO_PLAN: Final = OutsideTiming()
_UPLOAD: Final = "/batch-files/"


class _Listener:
    """A wrapper of the limiter that keeps its last decision for the backend."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self.last = ADMITTED

    def decide_with_status(
        self, now_ns: int, subject: Subject
    ) -> tuple[Decision, RateLimitStatus | None]:
        self.last, status = self._limiter.decide_with_status(now_ns, subject)
        return self.last, status

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 # reason: whatever the limiter has
        return getattr(self._limiter, name)


Traffic: TypeAlias = "ScenarioTraffic | LogTraffic"
"""Whose requests an engine is asked: those of a scenario's clients, or of a log."""


class EngineBackend:
    """Runs every attempt through an engine on SimPy's clock."""

    def __init__(
        self,
        env: simpy.Environment,
        start_time_ns: int,
        profile: Profile,
        tables: Mapping[str, LimitTable],
        seed: int,
        recorder: Recorder,
        traffic: Traffic,
    ) -> None:
        self._env = env
        self._recorder = recorder
        self._world = OutsideWorld(SimpyClock(env, start_time_ns), seed)
        self._engine = engine = Engine(profile=profile, limits=tables, world=self._world)
        limiter = engine.limiter
        engine.limiter = Limiter(dict.fromkeys(tables, LimitTable(())), profile.limits)
        traffic.enter(engine)
        self._listener = _Listener(limiter)
        engine.limiter = self._listener  # type: ignore[assignment] # reason: it is a limiter that tells
        self._traffic = traffic
        self.begin = traffic.request

    def submit(  # reason: the parts of an attempt
        self,
        now_ns: int,
        asked: RequestSpec,
        content: Request | None,
        attempt: int,
        service: Duration,
        waited_ns: int = 0,
    ) -> SimulatedAnswer:
        """Decide about an attempt that is sent now, and record it; as `LimitsBackend.submit`."""
        assert content is not None, "the engine is asked with a body"
        plan = _NO_PLAN if asked.plan is None else asked.plan()
        answering = Task(self._engine.submit(content))
        sleep = step(answering, self._world, plan)
        decision = self._listener.last
        verdict = 0
        if decision.rule is not None or decision.shadow:
            verdict = self._recorder.verdict(now_ns, decision)
        add, wait_ns = self._recorder.add, decision.wait_ns
        service_ns = drawn_ns(service) if decision.admitted else 0
        if sleep is not None:
            row = add(now_ns, asked.row, attempt, verdict, wait_ns, None)
            answer = SimulatedAnswer(0, service_ns, wait_ns)
            arrival_ns = now_ns - waited_ns
            later = self._later(arrival_ns, asked, content, row, answering, plan, sleep, answer)
            return SimulatedAnswer(0, wait_ns=wait_ns, later=later)
        response: Response = answering.result
        add(now_ns, asked.row, attempt, verdict, wait_ns, waited_ns + service_ns, response.status)
        self._traffic.learn(asked, content, response)
        job = None if asked.follow is None else _job(response)
        answer = SimulatedAnswer(response.status, service_ns, wait_ns, None, job)
        if asked.plan is not None and decision.admitted:
            return answer._replace(later=_at_once(answer))  # as if the outside had taken time
        return answer

    def _later(  # reason: all that an answer on its way needs
        self,
        arrival_ns: int,
        asked: RequestSpec,
        content: Request,
        row: int,
        answering: Task,
        plan: OutsideTiming,
        sleep: Sleep,
        answer: SimulatedAnswer,
    ) -> Waiting:
        yield from go_on(self._env, answering, self._world, plan, sleep)
        response: Response = answering.result
        latency_ns = self._world.clock.now_ns + answer.latency_ns - arrival_ns
        self._recorder.answer(row, latency_ns, response.status)
        self._traffic.learn(asked, content, response)
        return answer._replace(status=response.status, body=_job(response))

    def violations(self) -> list[Violation] | None:
        """Compare the store with the answers: tokens created = distinct identifiers returned.

        (TOK-ATOMIC: what failed has created nothing.)
        """
        counts = self._traffic.created(self._engine)
        if counts is None:
            return None
        created, returned = counts
        if created == returned:
            return []
        return [Violation("tokens", f"{created} tokens created, {returned} identifiers returned")]


def _job(response: Response) -> Json:
    """Return the record of a fresh account-updater job, which an upload follows; else None."""
    body = response.body
    return body if isinstance(body, dict) and response.ok and "upload_url" in body else None


def _at_once(answer: SimulatedAnswer) -> Waiting:
    """Answer after no time."""
    yield from ()
    return answer


class ScenarioTraffic:
    """What a scenario's clients send, and what they learn from the answers."""

    def __init__(self, scenario: Scenario, population: Population) -> None:
        self._scenario = scenario
        self._population = population
        self._key_texts: dict[str, str] = {}
        self._proxy_keys: dict[str, tuple[str, str | None]] = {}
        self._reactor_ids: dict[str, str] = {}
        self._returned: set[str] = set()
        self._deleted = 0
        self._values = {group.name: GroupValues() for group in scenario.clients}
        self._known: dict[str | None, Known] = {None: Known()}
        self._known |= {app.name: Known() for app in scenario.applications}

    def enter(self, engine: Engine) -> None:
        """Create the scenario's population as records of an engine."""
        scenario = self._scenario
        tenants = {
            tenant.name: engine.create_tenant(
                tenant.name,
                tenant.kind,
                quotas=tenant.quotas.by_name(),
                settings=tenant.settings,
                host_suffixes=[
                    proxy.host
                    for proxy in scenario.proxies
                    if proxy.host is not None and proxy.tenant == tenant.name
                ],
            )
            for tenant in scenario.tenants
        }
        applications = {
            app.name: engine.create_application(
                tenants[app.tenant],
                app.name,
                app.kind,
                grants=[("/", ASKABLE[app.kind])]
                if app.grants is None
                else [(grant.container, grant.permissions) for grant in app.grants],
            )
            for app in scenario.applications
        }
        self._key_texts = {
            holder.label: engine.create_key(applications[holder.application], legacy=holder.legacy)
            for holder in self._population.keys
        }
        builders: dict[str, str] = {}
        holders = [proxy.tenant for proxy in scenario.proxies]
        holders += [reactor.tenant for reactor in scenario.reactors]
        for tenant in dict.fromkeys(holders):
            rights = ASKABLE["private"]
            builder = engine.create_application(
                tenants[tenant], "scenario", "private", grants=[("/", rights)]
            )
            builders[tenant] = engine.create_key(builder)
        for proxy in scenario.proxies:
            made = _created(
                engine,
                builders[proxy.tenant],
                "/proxies",
                {
                    "name": proxy.name,
                    "destination_url": "https://destination.example/",
                    "require_auth": proxy.require_auth,
                    "host": proxy.host,
                    "request_transform": proxy.request_transform and {"code": REQUEST},
                    "response_transform": proxy.response_transform and {"code": RESPONSE},
                },
            )
            self._proxy_keys[proxy.name] = (made["key"], proxy.host)
        for reactor in scenario.reactors:
            made = _created(
                engine, builders[reactor.tenant], "/reactors", {"name": reactor.name, "code": REACT}
            )
            self._reactor_ids[reactor.name] = made["id"]

    def request(self, asked: RequestSpec, client: Client | None, given: Json) -> Request:
        """Return what a request sends. given: the answer that it follows, for an upload."""
        assert client is not None, "a scenario's requests are of clients"
        ask, key = asked.ask, asked.key
        proxy = self._proxy_keys.get(ask.proxy) if ask.proxy is not None else None
        body: Json | bytes
        if given is not None:
            assert isinstance(given, dict), "a job's record says where to upload"
            path, body = str(given["upload_url"]), batch_file(asked.size_bytes)
        else:
            known = self._known[key.application if key else None]
            uniform = client.stream("body").uniform
            path = self._path(ask, known, client)
            body = body_of(ask, self._values[client.group.name], known, uniform)
        return Request(
            asked.subject.method,
            path,
            key=self._key_texts[key.label] if key else None,
            ip=asked.subject.ip,
            body=body,
            host=proxy[1] if proxy and ask.via == "host" else None,
            proxy_key=proxy[0] if proxy and ask.via == "key" else None,
        )

    def _path(self, ask: Ask, known: Known, client: Client) -> str:
        """Return the path with `{id}` replaced."""
        path = ask.request.partition(" ")[2]
        if "{id}" not in path:
            return path
        if ask.reactor is not None:
            return path.replace("{id}", self._reactor_ids[ask.reactor])
        picked = known.pick(resource_of(path), ask.pick, client.stream("body").uniform)
        return path.replace("{id}", picked)

    def learn(self, asked: RequestSpec, content: Request, response: Response) -> None:
        """Note the records that an answer created or deleted."""
        method, path = asked.subject.method, asked.subject.path
        known = self._known[asked.key.application if asked.key else None]
        if method == "POST" and response.ok and isinstance(response.body, dict | list):
            if path == "/tokenize":
                ids = tuple(ids_of(response.body))
                self._returned.update(ids)
                known.add("tokens", iter(ids))
            elif isinstance(response.body, dict) and "id" in response.body and "{" not in path:
                if path == "/tokens":
                    self._returned.add(response.body["id"])
                known.add(resource_of(path), iter((str(response.body["id"]),)))
        elif method == "DELETE" and response.status in {204, 404} and "/{id}" in path:
            self._deleted += path.startswith("/tokens/") and response.status == 204
            known.forget(resource_of(path), content.path.rpartition("/")[2])

    def created(self, engine: Engine) -> tuple[int, int]:
        """Return how many tokens were created (those deleted since, too), and returned."""
        store = engine.services.store
        with store.transaction(write=False):
            held = sum(store.count_tokens(tenant.id) for tenant in store.tenants())
        return held + self._deleted, len(self._returned)


def _created(engine: Engine, key: str, path: str, body: Json) -> dict[str, Any]:
    answer = engine.handle(Request("POST", path, key=key, ip="192.0.2.0", body=body))
    assert answer.status == 201, "the scenario was checked"
    assert isinstance(answer.body, dict), "what was created comes back"
    return answer.body

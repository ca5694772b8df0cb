"""The gate of fidelity `engine`: every attempt runs the whole engine, bodies and all.

Before the run the scenario's tenants, applications, keys, proxies and reactors are made, on an
engine whose limits are not yet in force, so that the set-up is not counted. A decision is recorded
when the limiter makes it, before the answer is known.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final

import simpy

from engine import Engine, Limiter, LimitTable, Request, Response, Subject
from engine.identity import ASKABLE
from engine.limits import Headroom
from engine.messages import ADMITTED, Decision, Json
from engine.profile import Profile
from engine.world import Sleep
from simulator.play.coroutines import (
    REACT,
    REQUEST,
    RESPONSE,
    OutsideWorld,
    Plan,
    SimpyClock,
    go_on,
    step,
)
from simulator.play.gates import Answer, Service, Verdicts, Waiting, drawn_ns
from simulator.play.request_mix import Asked
from simulator.rows import RunBook
from simulator.rows.invariants import Violation
from simulator.scenario import Scenario
from simulator.traffic.bodies import (
    NOTHING,
    GroupValues,
    Known,
    batch_file,
    body_of,
    ids_of,
    resource_of,
)
from simulator.traffic.population import Client, Population

__all__ = ["EngineGate"]

_NO_PLAN: Final = Plan()
_UPLOAD: Final = "/batch-files/"


class _Listener:
    """A wrapper of the limiter that keeps its last decision for the gate."""

    __slots__ = ("_limiter", "last")

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self.last = ADMITTED

    def decide(self, now_ns: int, subject: Subject) -> Decision:
        self.last = self._limiter.decide(now_ns, subject)
        return self.last

    def judge(self, now_ns: int, subject: Subject) -> tuple[Decision, Headroom | None]:
        self.last, room = self._limiter.judge(now_ns, subject)
        return self.last, room

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 # reason: whatever the limiter has
        return getattr(self._limiter, name)


class EngineGate:
    """Runs every attempt through an engine on SimPy's clock."""

    def __init__(
        self,
        env: simpy.Environment,
        scenario: Scenario,
        population: Population,
        profile: Profile,
        tables: Mapping[str, LimitTable],
        seed: int,
        book: RunBook,
    ) -> None:
        self._env = env
        self._recorder = book.recorder
        self._verdicts = Verdicts(book.recorder, book.tally)
        self._world = OutsideWorld(SimpyClock(env, scenario.start_time_ns), seed)
        self._engine = Engine(profile=profile, limits=tables, world=self._world)
        made = _Made(self._engine, scenario, population)
        self._key_texts = made.key_texts
        self._proxy_keys = made.proxy_keys
        self._reactor_ids = made.reactor_ids
        self._listener = _Listener(self._engine.limiter)
        self._engine.limiter = self._listener  # type: ignore[assignment] # reason: it is a limiter that tells
        self._returned: set[str] = set()
        self._deleted = 0
        self._values = {group.name: GroupValues() for group in scenario.clients}
        self._known: dict[str | None, Known] = {None: Known()}
        self._known |= {app.name: Known() for app in scenario.applications}

    def begin(self, asked: Asked, client: Client, given: Json) -> Request:
        """Return the request that all attempts of one request send.

        given: the answer that this request follows, for an upload.
        """
        ask, key = asked.ask, asked.key
        proxy = self._proxy_keys.get(ask.proxy) if ask.proxy is not None else None
        body: Json | bytes
        if given is not None:
            assert isinstance(given, dict), "a job's record says where to upload"
            path, body = str(given["upload_url"]), batch_file(asked.size_bytes)
        else:
            known = self._known[key.application if key else None]
            uniform = client.stream("body").uniform
            path = self._path(asked, known, client)
            body = body_of(ask, self._values[client.group.name], known, uniform)
        return Request(
            asked.method,
            path,
            key=self._key_texts[key.label] if key else None,
            ip=asked.ip,
            body=body,
            host=proxy[1] if proxy and ask.via == "host" else None,
            proxy_key=proxy[0] if proxy and ask.via == "key" else None,
        )

    def put(
        self, now_ns: int, asked: Asked, content: Request | None, attempt: int, service: Service
    ) -> Answer:
        """Decide about an attempt that arrives now, and record it."""
        assert content is not None, "the engine is asked with a body"
        plan = _NO_PLAN if asked.plan is None else asked.plan()
        answering = self._engine.submit(content)
        found = step(answering, self._world, plan)
        decision = self._listener.last
        verdict = 0
        if decision.rule is not None or decision.shadow:
            verdict = self._verdicts.number(now_ns, decision)
        add, wait_ns = self._recorder.add, decision.wait_ns
        service_ns = drawn_ns(service) if decision.admitted else 0
        if not isinstance(found, tuple):
            row = add(now_ns, asked.row, attempt, verdict, wait_ns, None)
            later = self._later(now_ns, asked, content, row, answering, plan, found, service_ns)
            return Answer(0, wait_ns=wait_ns, later=later)
        response = found[0]
        add(now_ns, asked.row, attempt, verdict, wait_ns, service_ns, response.status)
        self._learn(asked, content, response)
        answer = Answer(response.status, service_ns, wait_ns, body=_job(response))
        if asked.plan is not None and decision.admitted:
            return answer._replace(later=_at_once(answer))  # as if the outside had taken time
        return answer

    def _later(  # reason: all that an answer on its way needs
        self,
        began_ns: int,
        asked: Asked,
        content: Request,
        row: int,
        answering: Coroutine[Any, Any, Response],
        plan: Plan,
        sleep: Sleep,
        service_ns: int,
    ) -> Waiting:
        wait_ns = self._listener.last.wait_ns
        response = yield from go_on(self._env, answering, self._world, plan, sleep)
        now_ns = self._world.clock.now_ns
        self._recorder.answer(row, now_ns + service_ns - began_ns, response.status)
        self._learn(asked, content, response)
        return Answer(response.status, service_ns, wait_ns, body=_job(response))

    def violations(self) -> list[Violation]:
        """Compare the store with the answers: tokens created = distinct identifiers returned.

        Deleted ones were created too. (TOK-ATOMIC: what failed has created nothing.)
        """
        store = self._engine.services.store
        with store.transaction(write=False):
            held = sum(store.count_tokens(tenant.id) for tenant in store.tenants())
        created, returned = held + self._deleted, len(self._returned)
        if created == returned:
            return []
        return [Violation("tokens", f"{created} tokens created, {returned} identifiers returned")]

    def _path(self, asked: Asked, known: Known, client: Client) -> str:
        """Return the path with `{id}` replaced."""
        ask = asked.ask
        path = ask.request.partition(" ")[2]
        if "{id}" not in path:
            return path
        if ask.reactor is not None:
            return path.replace("{id}", self._reactor_ids[ask.reactor])
        picked = known.pick(resource_of(path), ask.pick, client.stream("body").uniform)
        return path.replace("{id}", picked or NOTHING)

    def _learn(self, asked: Asked, content: Request, response: Response) -> None:
        """Note the records that an answer created or deleted."""
        method, path = asked.method, asked.ask.request.partition(" ")[2]
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


def _job(response: Response) -> Json:
    """Return the record of a fresh account-updater job, which an upload follows; else None."""
    body = response.body
    return body if isinstance(body, dict) and response.ok and "upload_url" in body else None


def _at_once(answer: Answer) -> Waiting:
    """Answer after no time."""
    yield from ()
    return answer


class _Made:
    """A scenario's population as records of an engine: made once, outside all limits."""

    def __init__(self, engine: Engine, scenario: Scenario, population: Population) -> None:
        limiter = engine.limiter
        free = dict.fromkeys(engine.tables, LimitTable(()))
        engine.limiter = Limiter(free, engine.profile.limits)
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
        self.key_texts = {
            holder.label: engine.create_key(applications[holder.application], legacy=holder.legacy)
            for holder in population.keys
        }
        self.proxy_keys: dict[str, tuple[str, str | None]] = {}
        self.reactor_ids: dict[str, str] = {}
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
                    "request_transform": None
                    if proxy.request_transform is None
                    else {"code": REQUEST},
                    "response_transform": None
                    if proxy.response_transform is None
                    else {"code": RESPONSE},
                },
            )
            self.proxy_keys[proxy.name] = (made["key"], proxy.host)
        for reactor in scenario.reactors:
            made = _created(
                engine, builders[reactor.tenant], "/reactors", {"name": reactor.name, "code": REACT}
            )
            self.reactor_ids[reactor.name] = made["id"]
        engine.limiter = limiter


def _created(engine: Engine, key: str, path: str, body: Json) -> dict[str, Any]:
    answer = engine.handle(Request("POST", path, key=key, ip="192.0.2.0", body=body))
    assert answer.status == 201, "the scenario was checked"
    assert isinstance(answer.body, dict), "what was created comes back"
    return answer.body

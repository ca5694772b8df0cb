"""The backend of fidelity `engine`: every attempt runs the whole engine, bodies and all.

Before the run the scenario's tenants, applications, keys, proxies and reactors are made, on an
engine whose limits are not yet in force, so that the set-up is not counted. A decision is recorded
when the limiter makes it, before the answer is known.

*Bodies*: each element's value is made from a number: a group counts its values up, and a duplicate
is the value of a number that was used before. So bodies need no memory of what was sent, and the
same seed sends the same bodies. Draws come from the client's stream `body`, which nothing else
uses. Answers are read only for the ids that later requests need (`Known`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
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
from simulator.traffic.population import Client, Population
from simulator.traffic.sampling import Duration, drawn_ns

if TYPE_CHECKING:
    from simulator.play.replay import LogTraffic


NOTHING: Final = "00000000-0000-4000-8000-000000000000"
"""The UUID of no object; used while no id is known."""

_INVALID: Final[dict[str, str]] = {"type": "no-such-type", "data": "x"}
_DOUBLED: Final = str.maketrans("0123456789", "0246813579")
"""Twice a digit, by the sum of its digits (Luhn)."""
_ROWS_BYTES: Final = 1_000_000
_HEADER: Final = b"token,expiration_year,expiration_month\n"


class Known:
    """The ids that one application has received, by resource, oldest first."""

    def __init__(self) -> None:
        self._ids: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def add(self, resource: str, ids: Iterator[str]) -> None:
        """Remember ids."""
        self._ids[resource].update(dict.fromkeys(ids))

    def forget(self, resource: str, gone: str) -> None:
        """Remove the id of a deleted object."""
        self._ids[resource].pop(gone, None)

    def pick(self, resource: str, which: str, uniform: Callable[[], float]) -> str:
        """Return an id, or `NOTHING`; `which` as `Ask.pick` says."""
        ids = self._ids[resource]
        if not ids:
            return NOTHING
        if which == "newest":
            return next(reversed(ids))
        if which == "oldest":
            return next(iter(ids))
        return list(ids)[math.floor(uniform() * len(ids))]


def _number(sent: Counter[str], kind: str, old: float | None) -> int:
    """Return the number of a new value; with `old` in (0, 1), of one that was sent before."""
    count = sent[kind]
    if old is not None and count:
        return math.floor(old * count)
    sent[kind] += 1
    return count


def card_number(number: int) -> str:
    """Return the 16-digit test card of a number, Luhn-valid (D-CARD).

    >>> card_number(242424242424)
    '4002424242424242'
    """
    digits = f"4{number % 10**14:014d}"
    total = sum(map(int, digits[::2].translate(_DOUBLED) + digits[1::2]))
    return digits + str(-total % 10)


def resource_of(path: str) -> str:
    """Return the resource whose object `{id}` stands for in a path.

    >>> resource_of("/tokens/{id}"), resource_of("/account-updater/jobs/{id}")
    ('tokens', 'account-updater/jobs')
    """
    return path.partition("/{id}")[0].strip("/")


def ids_of(body: Any) -> Iterator[str]:  # noqa: ANN401 # reason: any answer
    """Yield the token ids that a tokenize answer holds: identifier strings and records' ids."""
    if isinstance(body, str):
        yield body
    elif isinstance(body, list):
        for part in body:
            yield from ids_of(part)
    elif isinstance(body, dict):
        if "tenant_id" in body:
            yield body["id"]
        else:
            for part in body.values():
                yield from ids_of(part)


def body_of(
    ask: Ask, sent: Counter[str], known: Known, uniform: Callable[[], float]
) -> Json | bytes:
    """Return the body of one request of a mix; None where it has none.

    sent: how many values of each kind, `token` or `card`, its client group has sent.
    """
    method, _, path = ask.request.partition(" ")
    path = path.partition("?")[0]
    if path.startswith("/proxy"):
        return b"x" * ask.size_bytes if method in {"POST", "PUT", "PATCH"} else None
    if method == "PATCH":
        return {"metadata": {"touched": "yes"}} if path.startswith("/tokens") else {"name": "n"}
    if method != "POST":
        return None
    if path == "/tokenize":
        return _tokenize(ask, sent, uniform)
    if path in {"/tokens", "/token-intents"}:
        return _record(ask, sent, uniform, indexed=path == "/tokens")
    if path == "/detokenize":
        picked = [known.pick("tokens", ask.pick, uniform) for _ in range(_count(ask, uniform))]
        return {f"v{place}": f"{{{{ {token} }}}}" for place, token in enumerate(picked)}
    if path == "/tokens/search":
        last = max(sent["token"] - 1, 0)
        number = {"newest": last, "oldest": 0}.get(ask.pick, math.floor(uniform() * (last + 1)))
        return {"query": f"data:value-{number}"}
    return _other(path, ask)


def _other(path: str, ask: Ask) -> Json:
    if path == "/reactors":
        return {"name": "simulated", "code": "x" * max(1, ask.size_bytes)}
    if path.endswith("/react"):
        return {"args": {"pad": "x" * max(0, ask.size_bytes - len('{"args":{"pad":""}}'))}}
    if path == "/proxies":
        return {"name": "simulated", "destination_url": "https://destination.example/"}
    if path == "/applications":
        return {"name": "simulated", "kind": "private"}
    return None


def _tokenize(ask: Ask, sent: Counter[str], uniform: Callable[[], float]) -> Json:
    shape = ask.shape or ("plain" if ask.types.card == 0 else "array")
    count = _count(ask, uniform)
    if shape == "object":
        return _record(ask, sent, uniform, indexed=True)
    elements = [_element(ask, sent, uniform) for _ in range(count)]
    if elements and ask.invalid_share and uniform() < ask.invalid_share:
        elements[math.floor(uniform() * len(elements))] = _INVALID
    if shape == "array":
        return elements
    if shape == "plain":
        return {f"f{place}": element for place, element in enumerate(elements)}
    half = len(elements) // 2
    return {"list": elements[:half], "nested": {"rest": elements[half:]}}


def _count(ask: Ask, uniform: Callable[[], float]) -> int:
    most = ask.tokens if ask.tokens_max is None else ask.tokens_max
    if most == ask.tokens:
        return most
    return ask.tokens + math.floor(uniform() * (most - ask.tokens + 1))


def _element(ask: Ask, sent: Counter[str], uniform: Callable[[], float]) -> Json:
    """Return a plain string, or a card's token request object."""
    is_card = _is_card(ask, uniform)
    old = _old(ask, uniform)
    return _card(ask, sent, old) if is_card else _token(sent, old)


def _record(
    ask: Ask, sent: Counter[str], uniform: Callable[[], float], *, indexed: bool
) -> dict[str, Json]:
    """Return one token request object."""
    is_card = _is_card(ask, uniform)
    old = _old(ask, uniform)
    if ask.invalid_share and uniform() < ask.invalid_share:
        return dict(_INVALID)
    if is_card:
        return _card(ask, sent, old)
    record: dict[str, Json] = {"type": "token", "data": _token(sent, old)}
    if indexed:
        record["search_indexes"] = ["{{ data }}"]
    return record


def _is_card(ask: Ask, uniform: Callable[[], float]) -> bool:
    weights = ask.types
    if weights.card == 0:
        return False
    return weights.token == 0 or uniform() * (weights.token + weights.card) < weights.card


def _old(ask: Ask, uniform: Callable[[], float]) -> float | None:
    if not ask.duplicate_share or uniform() >= ask.duplicate_share:
        return None
    return uniform()


def _token(sent: Counter[str], old: float | None) -> str:
    return f"value-{_number(sent, 'token', old)}"


def _card(ask: Ask, sent: Counter[str], old: float | None) -> dict[str, Json]:
    number = card_number(_number(sent, "card", old))
    data: dict[str, Json] = {"number": number, "expiration_month": 12, "expiration_year": 2030}
    if ask.cvc:
        data["cvc"] = "123"
    return {"type": "card", "data": data}


@lru_cache(maxsize=4)
def batch_file(size_bytes: int) -> bytes:
    """Return an account-updater batch file of at most `size_bytes`, exactly so if it is large.

    Up to `_ROWS_BYTES` it is whole rows of tokens, which the service looks up. What is larger goes
    on as one line that is no row, so that its job fails after the rows before: a simulation is
    about when and how much is uploaded (ACC-FILE, ACC-SPLIT), and looking up and keeping
    hundreds of thousands of rows a file would cost seconds and as much memory as all files
    together.
    """
    line = f"{NOTHING},2030,12\n".encode()
    rows_bytes = min(size_bytes, _ROWS_BYTES) - len(_HEADER)
    file = _HEADER + line * max(0, rows_bytes // len(line))
    return file + b"-" * (size_bytes - len(file)) if size_bytes > _ROWS_BYTES else file


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
        self._sent = {group.name: Counter[str]() for group in scenario.clients}
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
            body = body_of(ask, self._sent[client.group.name], known, uniform)
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

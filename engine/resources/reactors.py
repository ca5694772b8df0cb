"""Reactors: code that is kept under an id and invoked with arguments (section 8.9, D-REACTOR).

`POST /reactors/{id}/react` takes `{"args": …}` and answers 200 `{"tokens": …, "raw": …}`:

1. The payload is `args` as compact JSON, at most 1 MB (RCT-PAYLOAD). It is measured before token
   expressions are replaced, and spaces in the body do not count.
2. Expressions `{{ id }}` in `args` are replaced by the plaintext of their tokens, as
   POST /detokenize does, where the caller and the application that configured the reactor last
   hold token:use where each token is (403 else, D-RIGHTS), within the tenant's Detokenize Limit.
3. The code runs, within 30 s including its start (RCT-HOT, RCT-TIMEOUT).
4. If the result is an object with only `tokenize`, `raw` or both, the value of `tokenize` is
   tokenized as POST /tokenize would, with the same rights and the caller's limits; the outcome is
   `tokens` in the answer; the value of `raw` is `raw`. Any other result is `raw` as a whole. A
   missing part is null.

An invocation that fails at step 4 has run its code and created nothing.

Code and configuration are sealed in the store; no answer holds a value of the configuration.

Transforms of proxies run here too. The world runs the code (`World.run_code`); the engine evaluates
no caller's code. Code must not:

- take longer than `reactor_timeout_ns`, its cold start and its wait in a queue included
  (D-REACTOR-TIMEOUT): the answer is then `reactor_timeout_status`, sent at that time; taking
  exactly that time is allowed;
- fail, or return what is not JSON: 502, as for a destination with an invalid answer. Its error
  message is not passed on, because it may quote a token's data.

Code runs in an instance, which is hot or needs a cold start (RCT-HOT, D-HOT). An `InstancePool`
only assigns instances; `invoke` waits for them. They live in the process and are lost on restart.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from engine.errors import DestinationTimeout, DriverError
from engine.messages import Json, Problem, Response
from engine.model import Reactor
from engine.profile import OutsideProfile, Profile
from engine.resources.documents import Collection
from engine.resources.identification import configurer_of, taken_over
from engine.resources.operation import (
    FAILED_STATUS,
    MADE,
    NAME,
    OWNED,
    TEXT,
    TEXTS,
    BodySchema,
    Context,
    Operation,
    Services,
    View,
    carry_out,
    object_schema,
)
from engine.resources.tokenize import create_all, validated
from engine.resources.tokens import reveal
from engine.tokens.shapes import TokenizeBody, walk
from engine.tokens.stored import answer_of
from engine.tokens.strict_json import bytes_as_values, check_value, dumps, parse, too_large
from engine.world import Bell


class Claim:
    """One invocation's hold on an instance, or its place in the queue.

    is_held: whether it has an instance. is_lasting: whether that is one of the hot ones that never
    die. is_started: false until a cold instance has started; its holder sets it then.
    bell: rings when a queued claim gets an instance.
    """

    __slots__ = ("bell", "is_held", "is_lasting", "is_started")

    def __init__(self) -> None:
        self.bell = Bell()
        self.is_held = self.is_lasting = self.is_started = False


class InstancePool:
    """The instances of one reactor or transform; safe among threads (RCT-HOT, D-HOT).

    `hot_instances` of them (1 by default) are hot from the start and stay. A claim takes an idle
    instance; without one it starts another, cold; beyond `instances_cap` it queues, first come
    first served. A released instance goes to the first in the queue. Without a queue a hot instance
    becomes idle, and a cold-started one dies or stays idle for `keep_hot_ns`: in [t, t + keep), end
    excluded. With a cap and no cold start this is a first-come-first-served queue with c servers
    (M/M/c for exponential times).
    """

    __slots__ = ("_busy", "_cap", "_idle_hot", "_idle_until_ns", "_keep_hot_ns", "_lock", "_queue")

    def __init__(self, outside: OutsideProfile) -> None:
        self._cap = outside.instances_cap
        self._keep_hot_ns = outside.keep_hot_ns
        self._idle_hot = outside.hot_instances
        self._busy = 0
        self._idle_until_ns: deque[int] = deque()  # of cold-started ones, in increasing order
        self._queue: deque[Claim] = deque()
        self._lock = threading.Lock()

    def claim(self, now_ns: int) -> Claim:
        """Ask for an instance: the claim holds one, or stands in the queue."""
        claim = Claim()
        with self._lock:
            while self._idle_until_ns and self._idle_until_ns[0] <= now_ns:
                self._idle_until_ns.popleft()
            if self._idle_hot:
                self._idle_hot -= 1
                claim.is_lasting = claim.is_started = True
            elif self._idle_until_ns:
                self._idle_until_ns.pop()  # the one that would live longest
                claim.is_started = True
            elif self._cap is not None and self._busy >= self._cap:
                self._queue.append(claim)
                return claim
            claim.is_held = True
            self._busy += 1
        return claim

    def release(self, claim: Claim, now_ns: int) -> None:
        """Give the instance back, or leave the queue.

        One that has not started is not passed on: the first in the queue starts its own.
        """
        with self._lock:
            if not claim.is_held:
                self._queue.remove(claim)
            elif self._queue:
                following = self._queue.popleft()
                following.is_held = True
                following.is_lasting, following.is_started = claim.is_lasting, claim.is_started
                following.bell.ring()
            else:
                self._busy -= 1
                if claim.is_lasting:
                    self._idle_hot += 1
                elif claim.is_started and self._keep_hot_ns:
                    self._idle_until_ns.append(now_ns + self._keep_hot_ns)


_NAME_START: Final = "instances/"


def pool_of(services: Services, name: str) -> InstancePool:
    """Return the pool of that name; the first call creates it, with its hot instances idle."""
    pool: InstancePool = services.running.get(_NAME_START + name) or services.running.setdefault(
        _NAME_START + name, InstancePool(services.profile.outside)
    )
    return pool


def drop_pool(services: Services, name: str) -> None:
    """Forget the pool of what was deleted; running invocations go on."""
    services.running.pop(_NAME_START + name, None)


def check_code(code: str, place: str, profile: Profile) -> None:
    """Raise `Problem` 400 for more characters than code may have (RCT-CODE, D-UNITS).

    Characters are code points. `place`: the JSON Pointer of the code.
    """
    limit = profile.outside.reactor_code_limit
    if len(code) > limit:  # obeys RCT-CODE
        raise Problem(
            400,
            "The code is too long.",
            errors={place: [f"must hold at most {limit} characters"]},
            clause="RCT-CODE",
        )


def seal_code(
    services: Services, tenant_id: str, record_id: str, text: str, purpose: str = "code"
) -> bytes:
    """Return code, or the configuration of code, as it is stored: it may hold passwords."""
    return services.vault.of(tenant_id).seal("/code/", record_id, text.encode(), purpose)


def open_code(
    services: Services, tenant_id: str, record_id: str, sealed: bytes, purpose: str = "code"
) -> str:
    """Return what `seal_code` was given for the same place."""
    return services.vault.of(tenant_id).open("/code/", record_id, sealed, purpose).decode()


def code_fault(what: str) -> Problem:
    """Return the answer to code that failed: 502."""
    return Problem(502, f"The code {what}.", clause="D-STATUSES")


async def invoke(
    services: Services, name: str, code: str, args: Json, configuration: Mapping[str, str]
) -> Json:
    """Return what the code returns; `name` is its pool's. No transaction is open meanwhile.

    Raises `Problem`: `reactor_timeout_status` over the time (RCT-TIMEOUT), 502 where it fails.
    """
    world = services.world
    pool = pool_of(services, name)
    until_ns = world.clock.now_ns + services.profile.outside.reactor_timeout_ns  # obeys RCT-TIMEOUT
    claim = pool.claim(world.clock.now_ns)  # obeys RCT-HOT
    try:
        left_ns = await _instance(services, claim, until_ns)
        result = await world.run_code(code, args, dict(configuration), left_ns, name)
    except DestinationTimeout:
        raise _timeout(services.profile) from None
    except DriverError:
        raise
    except (Exception, SystemExit):  # noqa: BLE001 # reason: whatever code raises is its own fault
        raise code_fault("failed") from None
    finally:
        pool.release(claim, world.clock.now_ns)

    def checked() -> Json:  # apart, since nobody knows yet how large it is
        try:
            value = check_value(result)
        except Problem:
            raise code_fault("returned what is no JSON") from None
        world.reserve(bytes_as_values(dumps(value)))
        return value

    return await world.apart(checked, name)


async def _instance(services: Services, claim: Claim, until_ns: int) -> int:
    """Return how many ns are left when the claim's instance is ready.

    Raises `DestinationTimeout` at `until_ns`.
    """
    world = services.world
    if not claim.is_held:
        await world.sleep_ns(until_ns - world.clock.now_ns, claim.bell)
        if not claim.is_held:
            raise DestinationTimeout("no instance was free in time")
    if not claim.is_started:
        cold_start_ns = services.profile.outside.cold_start_ns
        left_ns = until_ns - world.clock.now_ns
        await world.sleep_ns(min(cold_start_ns, left_ns))
        if cold_start_ns > left_ns:
            raise DestinationTimeout("the instance did not start in time")
        claim.is_started = True
    left_ns = until_ns - world.clock.now_ns
    if left_ns < 0:  # a real clock may oversleep
        raise DestinationTimeout("the instance came too late")
    return left_ns


def _timeout(profile: Profile) -> Problem:
    limit_ns = profile.outside.reactor_timeout_ns
    return Problem(
        profile.outside.reactor_timeout_status,
        f"The code took longer than {limit_ns / 1_000_000_000:g} s.",
        clause="RCT-TIMEOUT",
    )


_CODE = {"type": "string", "minLength": 1}


def _form(value_type: str | list[str], required: tuple[str, ...] = ()) -> BodySchema:
    """Return the form of a reactor whose configuration has values of that type."""
    values = {"type": "object", "additionalProperties": {"type": value_type}}
    fields = {"name": NAME, "code": _CODE, "configuration": values}
    return BodySchema(object_schema(fields, required), "D-REACTOR")


_CREATE = _form("string", ("name", "code"))
_PATCH = _form(["string", "null"])
_REACT = BodySchema(object_schema({"args": {}}), "D-REACTOR")
_CONFIGURATION: Final = "configuration"
_PARTS: Final = frozenset({"tokenize", "raw"})


def _code(reactor: Reactor, context: Context) -> str:
    return open_code(context.services, reactor.tenant_id, reactor.id, reactor.sealed_code)


def _configuration(reactor: Reactor, context: Context) -> dict[str, str]:
    sealed = reactor.sealed_configuration
    text = open_code(context.services, reactor.tenant_id, reactor.id, sealed, _CONFIGURATION)
    configuration: Any = parse(text.encode())
    return dict(configuration)


VIEW: Final = View({**OWNED, "name": TEXT, "code": TEXT, "configuration_names": TEXTS, **MADE})


def _to_json(reactor: Reactor, context: Context) -> dict[str, Any]:
    names = sorted(_configuration(reactor, context))
    return VIEW.of(reactor, code=_code(reactor, context), configuration_names=names)


def _remove(context: Context, reactor: Reactor) -> None:
    context.services.store.delete(Reactor, reactor.id)
    drop_pool(context.services, _pool_name(reactor))


_REACTORS: Final = Collection(
    kind=Reactor,
    name="reactor",
    path="/reactors",
    right="reactor",
    to_json=_to_json,
    remove=_remove,
)


def _create(context: Context) -> Response:
    context.require("reactor:create")
    body = _CREATE.check(context.json)
    services = context.services
    check_code(body["code"], "/code", services.profile)
    id_, tenant_id = services.new_id(), context.tenant.id
    configuration = dumps(body.get("configuration", {})).decode()
    reactor = Reactor(
        id_,
        tenant_id,
        body["name"],
        seal_code(services, tenant_id, id_, body["code"]),
        seal_code(services, tenant_id, id_, configuration, _CONFIGURATION),
        context.caller.application.id,
        context.wall_ns,
        context.caller.application.id,
    )
    return _REACTORS.created(context, reactor)


def _patch(context: Context) -> Response:
    """Change a reactor: a merge patch, in which a null member of `configuration` removes it."""
    context.require("reactor:update")
    body = _PATCH.check(context.json)
    if "code" in body:
        check_code(body["code"], "/code", context.services.profile)
    reactor = _REACTORS.requested(context)
    services, place = context.services, (context.tenant.id, reactor.id)
    changes: dict[str, Any] = {"name": body["name"]} if "name" in body else {}
    changes |= taken_over(context, reactor, body)
    if "code" in body:
        changes["sealed_code"] = seal_code(services, *place, body["code"])
    if "configuration" in body:
        merged = {**_configuration(reactor, context), **body["configuration"]}
        text = dumps({n: v for n, v in merged.items() if v is not None}).decode()
        changes["sealed_configuration"] = seal_code(services, *place, text, _CONFIGURATION)
    return _REACTORS.changed(context, dataclasses.replace(reactor, **changes))


def _pool_name(reactor: Reactor) -> str:
    return f"reactor/{reactor.id}"


async def _react(context: Context) -> Response:
    """Invoke a reactor, in the steps that the module's docstring lists."""
    services = context.services
    entry = context.entry("reactor:invoke", "reactor", context.params["id"], FAILED_STATUS)

    def read_args() -> Json:
        body = context.json
        args = body.get("args") if isinstance(body, dict) else None
        limit_bytes = services.profile.outside.reactor_payload_limit_bytes
        payload = dumps(args)
        if len(payload) > limit_bytes:  # obeys RCT-PAYLOAD
            raise too_large(limit_bytes, "RCT-PAYLOAD")
        context.require("reactor:invoke")  # 413, then 403, then what is wrong (D-ORDER)
        _REACT.check(body)
        with services.store.transaction(write=False):
            # 404 before what is wrong with the arguments
            context.configurer = configurer_of(context, _REACTORS.requested(context))
        try:
            revealed, _ = reveal(args, context, "token:use")
        except Problem as problem:
            problem.errors = {
                f"/args{place}": said for place, said in (problem.errors or {}).items()
            }
            raise
        assert not isinstance(revealed, bytes), "a value came"
        services.world.reserve(bytes_as_values(payload))
        context.body = context.raw = None  # the code may take long
        return revealed

    def begin() -> tuple[str, str, dict[str, str]]:
        reactor = _REACTORS.requested(context)
        return _pool_name(reactor), _code(reactor, context), _configuration(reactor, context)

    async def run(plan: tuple[str, str, dict[str, str]]) -> tuple[Json, TokenizeBody | None]:
        name, code, configuration = plan
        result = await invoke(services, name, code, args, configuration)
        if not (isinstance(result, dict) and result and result.keys() <= _PARTS):
            return result, None
        if "tokenize" not in result:
            return result.get("raw"), None
        part = result["tokenize"]
        walked = await services.world.apart(
            lambda: validated(walk(part, services.rules), context), context.known_caller
        )
        return result.get("raw"), walked

    def finish(result: tuple[Json, TokenizeBody | None]) -> Response:
        raw, walked = result
        tokens = None
        if walked is not None:
            tokens = answer_of(walked, create_all(walked, context), services.rules, context.may)
        return Response(200, {"tokens": tokens, "raw": raw})

    args = await services.world.apart(read_args, context.known_caller)
    return await carry_out(context, entry, begin, run, finish)


OPERATIONS = (
    _REACTORS.creation("Create a reactor.", _create, _CREATE, ("RCT-CODE",)),
    _REACTORS.listing("list_reactors", "List the tenant's reactors."),
    _REACTORS.view("Show a reactor."),
    _REACTORS.change(
        "Change a reactor's name, code or configuration.", _patch, _PATCH, ("RCT-CODE",)
    ),
    _REACTORS.deletion("Delete a reactor."),
    Operation(
        name="invoke_reactor",
        method="POST",
        path="/reactors/{id}/react",
        summary="Invoke a reactor and wait for its result.",
        run_async=_react,
        clauses=("RCT-PAYLOAD", "RCT-HOT", "RCT-TIMEOUT"),
        permission="reactor:invoke",
        body="json",
        form=_REACT,
    ),
)

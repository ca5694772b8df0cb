"""Reactors: code that is kept under an id and invoked with arguments (section 8.9, D-REACTOR).

`POST /reactors/{id}/react` takes `{"args": …}` and answers 200 `{"tokens": …, "raw": …}`:

1. The payload is `args` as compact JSON, at most 1 MB (RCT-PAYLOAD). It is measured before token
   expressions are replaced, and spaces in the body do not count.
2. Expressions `{{ id }}` in `args` are replaced by the plaintext of their tokens, as
   POST /detokenize does, where the caller and the application that configured the reactor last
   hold token:use where each token is (403 else, D-RIGHTS), within the tenant's Detokenize Limit.
3. The code runs (`engine.resources.invocation`: RCT-HOT, RCT-TIMEOUT).
4. If the result is an object with only `tokenize`, `raw` or both, the value of `tokenize` is
   tokenized as POST /tokenize would, with the same rights and the caller's limits; the outcome is
   `tokens` in the answer; the value of `raw` is `raw`. Any other result is `raw` as a whole. A
   missing part is null.

An invocation that fails at step 4 has run its code and created nothing.

Code and configuration are sealed in the store; no answer holds a value of the configuration.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Final

from engine.messages import Json, Problem, Response
from engine.model import Reactor
from engine.resources.authority import configurer_of, taken_over
from engine.resources.context import Context
from engine.resources.detokenize import reveal
from engine.resources.documents import Collection
from engine.resources.forms import MADE, NAME, OWNED, TEXT, TEXTS, BodySchema, View, object_schema
from engine.resources.invocation import check_code, drop_pool, invoke, open_code, seal_code
from engine.resources.operation import Operation
from engine.resources.tokenize import answer_of, create_all, validated
from engine.resources.work import FAILED_STATUS, carry_out
from engine.tokens.shapes import TokenizeBody, walk
from engine.tokens.strict_json import bytes_as_values, dumps, parse, too_large

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
        part = partial(_read_part, result["tokenize"], context)
        return result.get("raw"), await services.world.apart(part, context.known_caller)

    def finish(result: tuple[Json, TokenizeBody | None]) -> Response:
        raw, walked = result
        tokens = None
        if walked is not None:
            tokens = answer_of(walked, create_all(walked, context), context)
        return Response(200, {"tokens": tokens, "raw": raw})

    args = await services.world.apart(read_args, context.known_caller)
    return await carry_out(context, entry, begin, run, finish)


def _read_part(part: Json, context: Context) -> TokenizeBody:
    """Return what the `tokenize` part of a result asks for, made without a transaction."""
    return validated(walk(part, context.services.rules), context)


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

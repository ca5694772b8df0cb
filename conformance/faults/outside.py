"""Faults of proxies, reactors and the account updater (seed 8.5, 8.9, 8.10)."""

from __future__ import annotations

import dataclasses

from conformance.faults.registry import (
    FaultyEngine,
    Submit,
    fault,
    fault_of_profile,
    json_of,
)
from engine import Profile, Request, Response
from engine.messages import Problem

__all__: list[str] = []

_SECOND_NS = 1_000_000_000


@fault_of_profile("destination-timeout-longer", "PRX-TIMEOUT")
def _destination_timeout_longer(profile: Profile) -> Profile:
    """A destination may take 27 s."""
    return profile.replace(outside={"destination_timeout_ns": 27 * _SECOND_NS})


@fault_of_profile("destination-timeout-shorter", "PRX-TIMEOUT")
def _destination_timeout_shorter(profile: Profile) -> Profile:
    """A destination may take 20 s."""
    return profile.replace(outside={"destination_timeout_ns": 20 * _SECOND_NS})


@fault("timeout-as-bad-gateway", "ERR-408")
async def _timeout_as_bad_gateway(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """A destination that takes too long looks like one that cannot be reached."""
    del engine
    response = await submit(request)
    return dataclasses.replace(response, status=502) if response.status == 408 else response


@fault_of_profile("code-a-tenth-longer", "RCT-CODE")
def _code_longer(profile: Profile) -> Profile:
    """Reactor code may have 55 000 characters."""
    return profile.replace(outside={"reactor_code_limit": 55_000})


@fault("code-counted-in-bytes", "RCT-CODE")
async def _code_in_bytes(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Reactor code may have 50 000 bytes."""
    body = json_of(request) if request.path.startswith("/reactors") else None
    code = body.get("code") if isinstance(body, dict) else None
    limit = engine.profile.outside.reactor_code_limit
    if isinstance(code, str) and len(code.encode()) > limit:
        return Problem(400, "The code is too long.").response()
    return await submit(request)


@fault_of_profile("payload-twice-as-long", "RCT-PAYLOAD")
def _payload_twice(profile: Profile) -> Profile:
    """An invocation may carry 2 MB."""
    return profile.replace(outside={"reactor_payload_limit_bytes": 2_000_000})


@fault_of_profile("payload-a-tenth-less", "RCT-PAYLOAD")
def _payload_less(profile: Profile) -> Profile:
    """An invocation may carry 0.9 MB only."""
    return profile.replace(outside={"reactor_payload_limit_bytes": 900_000})


@fault("one-invocation-at-a-time", "RCT-HOT")
async def _one_at_a_time(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A reactor that is busy refuses further invocations."""
    path = request.path
    if not path.endswith("/react"):
        return await submit(request)
    if path in engine.notes:
        return Problem(409, "The reactor is busy.").response()
    engine.notes[path] = "busy"
    try:
        return await submit(request)
    finally:
        del engine.notes[path]


@fault_of_profile("reactor-timeout-longer", "RCT-TIMEOUT")
def _reactor_timeout_longer(profile: Profile) -> Profile:
    """A reactor may take 60 s."""
    return profile.replace(outside={"reactor_timeout_ns": 60 * _SECOND_NS})


@fault_of_profile("reactor-timeout-shorter", "RCT-TIMEOUT")
def _reactor_timeout_shorter(profile: Profile) -> Profile:
    """A reactor may take 20 s only."""
    return profile.replace(outside={"reactor_timeout_ns": 20 * _SECOND_NS})


@fault_of_profile("file-a-tenth-less", "ACC-FILE")
def _file_less(profile: Profile) -> Profile:
    """A batch file may have 27 MB only."""
    return profile.replace(account_updater={"file_limit_bytes": 27_000_000})


@fault("file-of-any-size", "ACC-FILE")
async def _file_of_any_size(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A batch file over the limit is taken, and nothing comes of it."""
    limit_bytes = engine.profile.account_updater.file_limit_bytes
    is_long = isinstance(request.body, bytes) and len(request.body) > limit_bytes
    if request.method == "PUT" and is_long:
        return Response(204)
    return await submit(request)


@fault("one-job-at-a-time", "ACC-SPLIT")
async def _one_job_at_a_time(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A second job is refused while the first one waits for its file."""
    if request.method != "POST" or request.path != "/account-updater/jobs":
        return await submit(request)
    caller = engine.identify(request)
    if caller is not None and caller.tenant.id in engine.notes:
        return Problem(409, "A job is under way.").response()
    response = await submit(request)
    if response.ok and caller is not None:
        engine.notes[caller.tenant.id] = "job"
    return response

"""Invoke code in an instance, within 30 s including its start (RCT-HOT, RCT-TIMEOUT).

Both reactors and transforms run here. The world runs the code (`World.run_code`); the engine
evaluates no caller's code.

Code must not:

- take longer than `reactor_timeout_ns`, its cold start and its wait in a queue included
  (D-REACTOR-TIMEOUT): the answer is then `reactor_timeout_status`, sent at that time; taking
  exactly that time is allowed;
- fail, or return what is not JSON: 502, as for a destination with an invalid answer. Its error
  message is not passed on, because it may quote a token's data.

Code runs in an instance, which is hot or needs a cold start (RCT-HOT, D-HOT). A pool
(`engine.instances`) only assigns instances; `invoke` waits for them. Instances live in the process
and are lost on restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.errors import DestinationTimeout, DriverError
from engine.instances import Claim, InstancePool
from engine.messages import Json, Problem
from engine.profile import Profile
from engine.resources.context import Services
from engine.tokens.strict_json import bytes_as_values, check_value, dumps

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

"""Destinations, transforms and reactors of requests without bodies.

The engine's own code plays the waiting (`engine.resources.invocation`, the world's timeouts), so
that fidelity `limits` answers a proxy and a reactor at the same instant as fidelity `engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from engine.errors import DestinationTimeout, DestinationUnreachable
from engine.messages import Problem
from engine.profile import Profile
from engine.world import Call
from simulator.play.coroutines import REACT, REQUEST, RESPONSE, OutsideWorld, Plan
from simulator.rows.record import NO_STATUS
from simulator.scenario.clients import Ask
from simulator.scenario.model import Proxy, Scenario
from simulator.traffic.population import Client
from simulator.traffic.sampling import duration_of

if TYPE_CHECKING:
    from engine.resources.context import Services

__all__ = ["outside_services", "plan_maker", "play_outside"]


def plan_maker(scenario: Scenario, client: Client, ask: Ask) -> Callable[[], Plan] | None:
    """Return a function that draws the plan of an attempt at `ask`; None when it needs none."""
    if ask.proxy is not None:
        proxy = next(proxy for proxy in scenario.proxies if proxy.name == ask.proxy)
        return _proxy_plan(client, proxy)
    if ask.reactor is not None:
        reactor = next(each for each in scenario.reactors if each.name == ask.reactor)
        react = duration_of(reactor.service, lambda: client.stream(f"react {reactor.name}"))
        return lambda: Plan(react_ns=_next(react))
    return None


def _proxy_plan(client: Client, proxy: Proxy) -> Callable[[], Plan]:
    destination = duration_of(proxy.destination, lambda: client.stream(f"destination {proxy.name}"))
    transforms = [
        0
        if draw is None
        else duration_of(draw, lambda what=what: client.stream(f"{what} {proxy.name}"))  # type: ignore[misc] # reason: binds this transform's name
        for what, draw in (
            (REQUEST, proxy.request_transform),
            (RESPONSE, proxy.response_transform),
        )
    ]
    share = proxy.unreachable_share
    reach = client.stream(f"reach {proxy.name}").uniform if share else None

    def plan() -> Plan:
        return Plan(
            destination_ns=_next(destination),
            reachable=reach is None or reach() >= share,
            request_ns=_next(transforms[0]),
            response_ns=_next(transforms[1]),
        )

    return plan


def _next(duration: int | Callable[[], int]) -> int:
    return duration if isinstance(duration, int) else duration()


def play_outside(
    ask: Ask, proxy: Proxy | None, services: Services, wait_ns: int
) -> Coroutine[Any, Any, int]:
    """Return the coroutine of what follows an admission, up to the service's answer.

    Its result is the status that the outside caused (408, 502, 504), else `NO_STATUS`.
    """
    from engine.resources.invocation import invoke  # noqa: PLC0415 # reason: most scenarios need none of the engine's resources

    async def play() -> int:
        await services.world.sleep_ns(wait_ns)
        try:
            if proxy is None:
                await invoke(services, f"reactor {ask.reactor}", REACT, None, {})
            else:
                await _exchange(services, services.profile, proxy)
        except Problem as problem:
            return problem.status
        except DestinationTimeout:
            return 408
        except DestinationUnreachable:
            return 502
        return NO_STATUS

    return play()


async def _exchange(services: Services, profile: Profile, proxy: Proxy) -> None:
    from engine.resources.invocation import invoke  # noqa: PLC0415 # reason: most scenarios need none of the engine's resources

    if proxy.request_transform is not None:
        await invoke(services, f"{REQUEST} {proxy.name}", REQUEST, None, {})
    call = Call("POST", "https://destination.example/", {}, b"")
    await services.world.call_destination(call, profile.outside.destination_timeout_ns)
    if proxy.response_transform is not None:
        await invoke(services, f"{RESPONSE} {proxy.name}", RESPONSE, None, {})


def outside_services(profile: Profile, world: OutsideWorld) -> Services:
    """Return as much of the engine's services as waiting needs: profile, world, instances."""
    from engine.resources.context import Services  # noqa: PLC0415 # reason: as above

    unused: Any = None
    return Services(profile, unused, unused, unused, world, unused, "us", {})

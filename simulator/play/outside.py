"""SimPy under the simulator: events in a stated order, and the outside world of the engine.

SimPy's `timeout` carries no priority, so requests at one instant would be decided in the order in
which their timeouts were made. `At` is scheduled with a priority that holds the order of the
simulator: (t_ns, client number, attempt), then the request's serial number within its client. Time
is in whole nanoseconds.

The engine's coroutines, destinations, transforms and reactors run on these events. A `Sleep` of the
engine becomes an event; a bell ends it early. Each step sets the attempt that runs in the world, so
that its models use that attempt's own draws (`OutsideWorld`).

Requests without bodies meet the same outside: the engine's own code plays the waiting
(`engine.resources.reactors`, the world's timeouts), so that fidelity `limits` answers a proxy and
a reactor at the same instant as fidelity `engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import simpy

from engine.errors import DestinationTimeout, DestinationUnreachable
from engine.messages import Json, Problem
from engine.profile import Profile
from engine.world import Call, CallAnswer, ClockReading, ModelWorld, Sleep, Task
from simulator.rows.record import NO_STATUS
from simulator.scenario.clients import Ask
from simulator.scenario.draws import Draw
from simulator.scenario.model import Proxy, Scenario
from simulator.traffic.population import Client
from simulator.traffic.sampling import Duration, drawn_ns, duration_of

if TYPE_CHECKING:
    from engine.resources.operation import Services


SERVICE: Final = 1
"""The service's own business at an instant (an instance falls idle) comes before any client's."""

ANSWER: Final = 0
"""Used as attempt number of an answer: it reaches its client before the client's next attempt."""

FIRST: Final = 1
"""The first attempt's number."""

FILE: Final = 1 << 40
"""The serials of a client's further files of split jobs begin here, above those of its requests."""

FIRST_OF_CLIENT: Final = 2
"""The order of a client's first event at an instant, where there is only one client."""

NEVER_NS: Final = 1 << 62
"""After every instant of a run."""

_SERIAL_BITS: Final = 64
_ATTEMPT_BITS: Final = 16


class At(simpy.Event):
    """Happens `delay_ns` from now, among events of that instant in order of `order`."""

    _value = None
    _ok = True

    def __init__(self, env: simpy.Environment, delay_ns: int, order: int) -> None:
        self.env = env
        self.callbacks = []
        env.schedule(self, order, delay_ns)  # type: ignore[arg-type] # reason: any whole number orders


def order_of(client: int, attempt: int, serial: int) -> int:
    """Return the order, among events of one instant, of a client's attempt.

    attempt: first is 1, `ANSWER` for an answer. serial: of the request within its client.

    >>> order_of(1, 1, 0) < order_of(1, 2, 0) < order_of(2, 1, 0)
    True
    """
    assert 0 <= attempt < 1 << _ATTEMPT_BITS
    place = client << _ATTEMPT_BITS | attempt
    return (place << _SERIAL_BITS | serial) + FIRST_OF_CLIENT


def spawn(env: simpy.Environment, process: Generator[simpy.Event, object, Any]) -> None:
    """Run a process up to its first event now; give it a SimPy process only if it has one."""
    first = next(process, None)
    if first is not None:
        env.process(_from(first, process))


def _from(
    first: simpy.Event, rest: Generator[simpy.Event, object, Any]
) -> Generator[simpy.Event, object, None]:
    yield first
    yield from rest


REQUEST: Final = "request transform"
RESPONSE: Final = "response transform"
REACT: Final = "reactor"


class SimpyClock:
    """SimPy's time as the engine's clock."""

    def __init__(self, env: simpy.Environment, start_time_ns: int) -> None:
        self._env = env
        self._start_time_ns = start_time_ns

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the run's start."""
        return self._env.now  # type: ignore[return-value] # reason: time is whole here

    @property
    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._start_time_ns + self.now_ns

    @property
    def steady_ns(self) -> int:
        """The same: nobody sets this clock back."""
        return self.wall_ns

    def read(self) -> ClockReading:
        """Return all three at one instant."""
        wall_ns = self._start_time_ns + self._env.now
        return ClockReading(self._env.now, wall_ns, wall_ns)  # type: ignore[arg-type] # reason: time is whole here


@dataclass(slots=True)
class OutsideTiming:
    """What the outside world will do to one attempt, drawn for each, refused ones too.

    response_ns: of a response's code, or of a reactor's.
    """

    destination_ns: int = 0
    reachable: bool = True
    request_ns: int = 0
    response_ns: int = 0


class OutsideWorld(ModelWorld):
    """A world of models whose durations come from the plan of the attempt that runs."""

    def __init__(self, clock: SimpyClock, seed: int) -> None:
        super().__init__(
            clock=clock, seed=seed, destination=self._destination, service_ns=self._service_ns
        )
        self.plan = OutsideTiming()

    def _destination(self, call: Call) -> tuple[int, CallAnswer | None]:
        plan = self.plan
        if not plan.reachable:
            return plan.destination_ns, None
        headers = {"Content-Type": "application/octet-stream"}
        return plan.destination_ns, CallAnswer(200, headers, call.body)

    def _service_ns(self, code: str, args: Json) -> int:
        del args
        return self.plan.request_ns if code == REQUEST else self.plan.response_ns


def step(task: Task, world: OutsideWorld, plan: OutsideTiming) -> Sleep | None:
    """Run a coroutine of the engine to its next sleep; returns it, or None when ended."""
    world.plan = plan
    return task.step(world.clock.now_ns)


def go_on(
    env: simpy.Environment,
    task: Task,
    world: OutsideWorld,
    plan: OutsideTiming,
    sleep: Sleep | None,
) -> Generator[simpy.Event, object, None]:
    """Run a coroutine from a sleep to its end, inside a SimPy process."""
    while sleep is not None:
        timer: simpy.Event = At(env, sleep.for_ns, SERVICE)
        if sleep.bell is not None:
            rung = env.event()
            sleep.bell.ring = rung.succeed  # type: ignore[assignment] # reason: what it returns is not read
            timer = timer | rung
        yield timer
        sleep = step(task, world, plan)


def plan_maker(scenario: Scenario, client: Client, ask: Ask) -> Callable[[], OutsideTiming] | None:
    """Return a function that draws the plan of an attempt at `ask`; None when it needs none."""
    reactor, proxy = scenario.reactor_of(ask), scenario.proxy_of(ask)
    if proxy is None:
        if reactor is None:
            return None
        react = _duration(reactor.service, client, f"react {reactor.name}")
        return lambda: OutsideTiming(response_ns=drawn_ns(react))
    share = proxy.unreachable_share
    destination = _duration(proxy.destination, client, f"destination {proxy.name}")
    request = _duration(proxy.request_transform, client, f"{REQUEST} {proxy.name}")
    response = _duration(proxy.response_transform, client, f"{RESPONSE} {proxy.name}")
    reach = client.stream(f"reach {proxy.name}").uniform if share else None

    def plan() -> OutsideTiming:
        return OutsideTiming(
            destination_ns=drawn_ns(destination),
            reachable=reach is None or reach() >= share,
            request_ns=drawn_ns(request),
            response_ns=drawn_ns(response),
        )

    return plan


def _duration(draw: Draw | None, client: Client, stream: str) -> Duration:
    return 0 if draw is None else duration_of(draw, lambda: client.stream(stream))


async def play_outside(ask: Ask, proxy: Proxy | None, services: Services, wait_ns: int) -> int:
    """Play what follows an admission, up to the service's answer.

    Returns the status that the outside caused (408, 502, 504), else `NO_STATUS`.
    """
    await services.world.sleep_ns(wait_ns)
    try:
        if proxy is None:
            await _run(services, f"reactor {ask.reactor}", REACT)
        else:
            await _exchange(services, proxy)
    except Problem as problem:
        return problem.status
    except DestinationTimeout:
        return 408
    except DestinationUnreachable:
        return 502
    return NO_STATUS


async def _exchange(services: Services, proxy: Proxy) -> None:
    if proxy.request_transform is not None:
        await _run(services, f"{REQUEST} {proxy.name}", REQUEST)
    call = Call("POST", "https://destination.example/", {}, b"")
    timeout_ns = services.profile.outside.destination_timeout_ns
    await services.world.call_destination(call, timeout_ns)
    if proxy.response_transform is not None:
        await _run(services, f"{RESPONSE} {proxy.name}", RESPONSE)


async def _run(services: Services, pool: str, code: str) -> None:
    from engine.resources.reactors import invoke  # noqa: PLC0415 # reason: most scenarios need none of the engine's resources

    await invoke(services, pool, code, None, {})


def outside_services(profile: Profile, world: OutsideWorld) -> Services:
    """Return as much of the engine's services as waiting needs: profile, world, instances."""
    from engine.resources.operation import Services  # noqa: PLC0415 # reason: as above

    unused: Any = None
    return Services(profile, unused, unused, unused, world, unused, "us", {})

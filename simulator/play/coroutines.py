"""Run the engine's coroutines under SimPy: a `Sleep` becomes an event, a bell ends it early.

Each step sets the attempt that runs in the world, so that its models use that attempt's own draws
(`OutsideWorld`).
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import simpy

from engine.messages import Json
from engine.world import Call, CallAnswer, ModelWorld, Sleep
from simulator.play.events import SERVICE, At

__all__ = ["REACT", "REQUEST", "RESPONSE", "OutsideWorld", "Plan", "SimpyClock", "go_on", "step"]

REQUEST: Final = "request transform"
RESPONSE: Final = "response transform"
REACT: Final = "reactor"

_Result = TypeVar("_Result")


class SimpyClock:
    """SimPy's time as the engine's clock."""

    __slots__ = ("_env", "_start_time_ns")
    lead_ns = 0

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


@dataclass(slots=True)
class Plan:
    """What the outside world will do to one attempt, drawn for each, refused ones too.

    code_ns: how long each piece of code runs, by its text.
    """

    destination_ns: int = 0
    reachable: bool = True
    request_ns: int = 0
    response_ns: int = 0
    react_ns: int = 0


class OutsideWorld(ModelWorld):
    """A world of models whose durations come from the plan of the attempt that runs."""

    __slots__ = ("plan",)

    def __init__(self, clock: SimpyClock, seed: int) -> None:
        super().__init__(
            clock=clock, seed=seed, destination=self._destination, service_ns=self._service_ns
        )
        self.random = random.Random(seed)
        self.plan = Plan()

    def _destination(self, call: Call) -> tuple[int, CallAnswer | None]:
        plan = self.plan
        if not plan.reachable:
            return plan.destination_ns, None
        headers = {"Content-Type": "application/octet-stream"}
        return plan.destination_ns, CallAnswer(200, headers, call.body)

    def _service_ns(self, code: str, args: Json) -> int:
        del args
        plan = self.plan
        if code == REQUEST:
            return plan.request_ns
        return plan.response_ns if code == RESPONSE else plan.react_ns


def step(
    coroutine: Coroutine[Any, None, _Result], world: OutsideWorld, plan: Plan
) -> Sleep | tuple[_Result]:
    """Run a coroutine to its next sleep, or to its result (as a tuple of one)."""
    world.plan = plan
    try:
        wish = coroutine.send(None)
    except StopIteration as stop:
        return (stop.value,)
    assert isinstance(wish, Sleep), "the engine awaits nothing but its world"
    return wish


def go_on(
    env: simpy.Environment,
    coroutine: Coroutine[Any, None, _Result],
    world: OutsideWorld,
    plan: Plan,
    sleep: Sleep,
) -> Generator[simpy.Event, object, _Result]:
    """Run a coroutine that sleeps to its end, inside a SimPy process; returns its result."""
    while True:
        timer: simpy.Event = At(env, sleep.for_ns, SERVICE)
        if sleep.bell is not None:
            rung = env.event()
            sleep.bell.ring = lambda rung=rung: _ring(rung)  # type: ignore[misc] # reason: binds this sleep's event
            timer = timer | rung
        yield timer
        if sleep.bell is not None:
            sleep.bell.ring = _nobody
        found = step(coroutine, world, plan)
        if isinstance(found, tuple):
            return found[0]
        sleep = found


def _ring(event: simpy.Event) -> None:
    if not event.triggered:
        event.succeed()


def _nobody() -> None:
    """Wake nobody."""

"""The world: the ports through which the engine gets time, randomness and the outside.

The engine's core reads no clock, draws no random numbers and opens no socket; it gets a `World`.
An operation that takes time is a coroutine that awaits this world's methods, and whoever drives
the coroutine decides what time is:

- `engine.service.drive` runs it by hand: a sleep moves a `ManualClock` (notebooks, tests);
- `VirtualLoop` runs many at once on one `ManualClock`, in order of time, then of arrival;
- a SimPy process yields a timeout for each `Sleep` that the coroutine yields (simulator);
- asyncio drives it where the world's methods are asyncio's (`engine.http`).

`random` (identifiers, simulation draws) is separate from `entropy` (keys and nonces). Both come
from the operating system unless a seed is given. With a seed both repeat, and so do key texts and
fingerprints; so a seed is for simulation alone and is refused with a persistent store.
"""

from __future__ import annotations

import heapq
import os
import random
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from engine.errors import (
    DestinationTimeout,
    DestinationUnreachable,
    DriverError,
    InputError,
    wrong_type,
)
from engine.files import as_ns
from engine.messages import Json

EPOCH_2026_NS: Final = 1_767_225_600 * 1_000_000_000
"""2026-01-01T00:00:00Z, where a `ManualClock`'s wall time starts."""

UNCOUNTED_BYTES: Final = 4_096
"""What a request holds below this size is not reserved: it stands in what any request takes."""

Entropy = Callable[[int], bytes]
"""Returns that many bytes fit for keys and nonces."""

_Result = TypeVar("_Result")


class Clock(Protocol):
    """One clock, read once a request (D-CLOCK)."""

    @property
    def now_ns(self) -> int:
        """Monotonic nanoseconds since the engine's start."""

    @property
    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch; follows the wall clock wherever it is set."""

    @property
    def steady_ns(self) -> int:
        """The time by which records expire: that of the epoch, but it never goes back."""

    def read(self) -> ClockReading:
        """Return all three at one instant."""


class ClockReading(NamedTuple):
    """One instant on the monotonic clock, the wall clock and the steady time."""

    now_ns: int
    wall_ns: int
    steady_ns: int

    def later(self, by_ns: int) -> ClockReading:
        """Return the instant that is `by_ns` later."""
        return ClockReading(self.now_ns + by_ns, self.wall_ns + by_ns, self.steady_ns + by_ns)


class ManualClock:
    """A clock that moves only when it is set.

    >>> clock = ManualClock()
    >>> clock.advance_ns(5)
    >>> clock.advance_ns("10s")
    >>> clock.now_ns
    10000000005
    """

    __slots__ = ("_now_ns", "_wall_start_ns")

    def __init__(self, start_ns: int | str = 0, *, wall_start_ns: int = EPOCH_2026_NS) -> None:
        self._now_ns = as_ns("start_ns", start_ns)
        self._wall_start_ns = as_ns("wall_start_ns", wall_start_ns) - self._now_ns

    @property
    def now_ns(self) -> int:
        """Nanoseconds since zero."""
        return self._now_ns

    @property
    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._wall_start_ns + self._now_ns

    @property
    def steady_ns(self) -> int:
        """The same: nobody sets this clock back."""
        return self._wall_start_ns + self._now_ns

    def read(self) -> ClockReading:
        """Return all three at one instant."""
        wall_ns = self._wall_start_ns + self._now_ns
        return ClockReading(self._now_ns, wall_ns, wall_ns)

    def advance_ns(self, by_ns: int | str) -> None:
        """Move forward by nanoseconds or a text such as `"10s"`; `InputError` when negative."""
        if type(by_ns) is not int:
            by_ns = as_ns("by_ns", by_ns)
        if by_ns < 0:
            raise InputError(f"by_ns = {by_ns} must not be negative; time never goes back")
        self._now_ns += by_ns

    def advance_to_ns(self, to_ns: int | str) -> None:
        """Move forward to an instant; raises `InputError` when that is in the past."""
        if type(to_ns) is not int:
            to_ns = as_ns("to_ns", to_ns)
        self.advance_ns(to_ns - self._now_ns)


@dataclass(frozen=True, slots=True)
class Call:
    """A call to the outside: a proxy's request to its destination."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What a destination answered.

    A field that came more than once has its values joined by commas; Set-Cookie, whose values
    cannot be joined (RFC 9110, 5.3), by line feeds.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


Runtime: TypeAlias = Callable[[str, Json, Mapping[str, str]], Json]
"""Runs reactor and transform code: `(code, args, configuration) → result`; it raises where code
fails. No code is evaluated here."""


class World(Protocol):
    """The ports through which the engine reaches the world around it."""

    is_real_time: bool
    """Whether other requests run while one sleeps, so that none may block the others."""

    @property
    def clock(self) -> Clock:
        """The clock."""

    @property
    def random(self) -> random.Random:
        """The source of identifiers and simulation draws."""

    @property
    def entropy(self) -> Entropy:
        """The source of keys and nonces."""

    async def sleep_ns(self, for_ns: int, bell: Bell | None = None) -> None:
        """Return `for_ns` later, or as soon as `bell` rings."""

    async def apart(self, work: Callable[[], _Result], whose: object) -> _Result:
        """Run `work`, if possible while other requests go on.

        whose: the owner of the work; owners that wait get their turns one after another.
        """

    def reserve(self, size_bytes: int) -> None:
        """Reserve memory for the running request until it is answered, before it is taken.

        Raises `Problem` 503 where there is no room.
        """

    async def call_destination(self, call: Call, timeout_ns: int) -> CallAnswer:
        """Return the destination's answer, read to its last byte.

        Raises `DestinationTimeout` after `timeout_ns`, `DestinationUnreachable` when it cannot be
        reached or may not be called.
        """

    async def run_code(
        self,
        code: str,
        args: Json,
        configuration: Mapping[str, str],
        timeout_ns: int,
        owner: str = "",
    ) -> Json:
        """Return what the code returns for `args`; `owner` is whose code it is.

        Raises `DestinationTimeout` after `timeout_ns`; whatever else it raises is the code's fault.
        """


class Bell:
    """Ends one sleep early; rung at most once, by the code that the sleeper waits for.

    The driver, or the world in `sleep_ns`, sets `ring`. Before and after the sleep it has no
    effect. A driver that does not set it lets the sleeper sleep to the end, which is correct when
    nothing else can run meanwhile (`drive`).
    """

    __slots__ = ("ring",)

    def __init__(self) -> None:
        self.ring: Callable[[], None] = _nobody


def _nobody() -> None:
    """Do nothing: there is no sleeper."""


class Sleep:
    """What a coroutine yields to its driver: wake me `for_ns` later, or when `bell` rings."""

    __slots__ = ("bell", "for_ns")

    def __init__(self, for_ns: int, bell: Bell | None = None) -> None:
        self.for_ns = for_ns
        self.bell = bell

    def __await__(self) -> Generator[Sleep, None, None]:
        yield self


_TURNS: Final = 64
"""How many steps other tasks get to ring a bell before model time passes."""


class ModelWorld:
    """A world of models: a manual clock, seeded randomness, destinations and runtimes as functions.

    seed: of all random draws, `entropy` included unless that is given; only for simulation.
    destination: `Call → (duration_ns, CallAnswer | None)`; None means unreachable.
    runtime: a `Runtime`; its duration comes from `service_ns(code, args) → ns`.
    Both durations are nanoseconds or texts such as `"10s"`. They pass on the driver's clock, so the
    same engine code runs under `drive`, `VirtualLoop` and SimPy.
    """

    __slots__ = ("clock", "destination", "entropy", "is_seeded", "random", "runtime", "service_ns")
    is_real_time = False

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        seed: int | None = None,
        entropy: Entropy | None = None,
        destination: Callable[[Call], tuple[int | str, CallAnswer | None]] | None = None,
        runtime: Runtime | None = None,
        service_ns: Callable[[str, Json], int | str] | None = None,
    ) -> None:
        if clock is not None and not hasattr(clock, "read"):
            raise wrong_type("clock", clock, "a clock such as ManualClock()")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise wrong_type("seed", seed, "a whole number")
        self.clock: Clock = clock if clock is not None else ManualClock()
        self.is_seeded = seed is not None
        self.random: random.Random = random.SystemRandom()
        self.entropy: Entropy = os.urandom if entropy is None else entropy
        if seed is not None:
            self.random = random.Random(seed)  # noqa: S311 # reason: a seeded simulation
            if (
                entropy is None
            ):  # a generator of its own, so that one more key changes no identifier
                self.entropy = random.Random(f"entropy of {seed}").randbytes  # noqa: S311 # reason: as above
        self.destination = destination or _echo_destination
        self.runtime: Runtime = runtime or _echo_runtime
        self.service_ns = service_ns or _no_time

    async def sleep_ns(self, for_ns: int, bell: Bell | None = None) -> None:
        """Yield one `Sleep` to the driver; under asyncio, move the manual clock as `drive` does."""
        if for_ns <= 0:
            return
        rung: list[bool] = []
        if bell is not None:
            bell.ring = partial(rung.append, True)  # a driver that can wake us sets its own
        until_ns = self.clock.now_ns + for_ns
        try:
            await Sleep(for_ns, bell)
        except RuntimeError as error:  # asyncio's tasks take no `Sleep`, and throw this in
            if "bad yield" not in str(error):
                raise
            await self._pass(until_ns, rung, _TURNS if bell is not None else 0)

    async def _pass(self, until_ns: int, rung: list[bool], turns: int) -> None:
        """Let model time pass in a task of asyncio: first for others, until the bell, then here."""
        if not isinstance(self.clock, ManualClock):
            raise DriverError("only a ManualClock can wait under asyncio; SystemWorld waits there")
        import asyncio  # noqa: PLC0415 # reason: imported by whoever runs its tasks

        for _ in range(turns):
            if rung:
                return
            await asyncio.sleep(0)
        if not rung:
            self.clock.advance_ns(max(0, until_ns - self.clock.now_ns))

    async def apart(self, work: Callable[[], _Result], whose: object) -> _Result:  # noqa: ARG002 # reason: the port's form
        """Work at once: nobody else waits, and no model time passes."""
        return work()

    def reserve(self, size_bytes: int) -> None:
        """Reserve nothing: a model's requests share no memory with anybody."""

    async def call_destination(self, call: Call, timeout_ns: int) -> CallAnswer:
        """Play the destination's model; exactly `timeout_ns` passes (D-PROXY-TIMEOUT)."""
        took, answer = self.destination(call)
        await self._last("the destination", as_ns("the destination's duration", took), timeout_ns)
        if answer is None:
            raise DestinationUnreachable("the destination cannot be reached")
        return answer

    async def run_code(
        self,
        code: str,
        args: Json,
        configuration: Mapping[str, str],
        timeout_ns: int,
        owner: str = "",  # noqa: ARG002 # reason: the port's form
    ) -> Json:
        """Play the service-time model, then call the runtime; exactly `timeout_ns` passes."""
        took = self.service_ns(code, args)
        await self._last("the code", as_ns("service_ns", took), timeout_ns)
        return self.runtime(code, args, configuration)

    async def _last(self, what: str, duration_ns: int, timeout_ns: int) -> None:
        """Let something last; raises `DestinationTimeout` after `timeout_ns`."""
        await self.sleep_ns(min(duration_ns, timeout_ns))
        if duration_ns > timeout_ns:
            raise DestinationTimeout(f"{what} took longer than it may")


def _echo_destination(call: Call) -> tuple[int, CallAnswer | None]:
    return 0, CallAnswer(200, {"Content-Type": "application/octet-stream"}, call.body)


def _echo_runtime(code: str, args: Json, configuration: Mapping[str, str]) -> Json:  # noqa: ARG001 # reason: the port's form
    return args


def _no_time(code: str, args: Json) -> int:  # noqa: ARG001 # reason: the model's form
    return 0


class VirtualLoop:
    """Runs many coroutines on one `ManualClock`, in order of time, then of arrival.

    >>> loop = VirtualLoop(ManualClock())
    >>> async def nap(ns):
    ...     await Sleep(ns)
    ...     return loop.clock.now_ns
    >>> a, b = loop.at(0, nap(30)), loop.at(10, nap(5))
    >>> loop.run()
    >>> a.result, b.result
    (30, 15)
    """

    __slots__ = ("_count", "_heap", "clock")

    def __init__(self, clock: ManualClock) -> None:
        if not isinstance(clock, ManualClock):
            raise wrong_type("clock", clock, "a ManualClock")
        self.clock = clock
        self._heap: list[tuple[int, int, Task]] = []
        self._count = 0

    def at(self, at_ns: int | str, coroutine: Coroutine[Any, None, Any]) -> Task:
        """Start `coroutine` at `at_ns`; returns the task that will hold its result."""
        if type(at_ns) is not int:
            at_ns = as_ns("at_ns", at_ns)
        if not hasattr(coroutine, "send"):
            raise wrong_type("coroutine", coroutine, "a coroutine, such as engine.submit(request)")
        task = Task(coroutine)
        self._push(at_ns, task)
        return task

    def run(self, until_ns: int | str | None = None) -> None:
        """Run until nothing is left, or up to but excluding `until_ns`."""
        if until_ns is not None:
            until_ns = as_ns("until_ns", until_ns)
        while self._heap and (until_ns is None or self._heap[0][0] < until_ns):
            at_ns, turn, task = heapq.heappop(self._heap)
            if turn != task.turn:
                continue  # a bell woke it before
            self.clock.advance_to_ns(max(at_ns, self.clock.now_ns))
            sleep = task.step(self.clock.now_ns)
            if sleep is not None:
                self._push(self.clock.now_ns + sleep.for_ns, task)
                if sleep.bell is not None:
                    sleep.bell.ring = partial(self._wake, task, task.turn)
        if until_ns is not None:
            self.clock.advance_to_ns(max(until_ns, self.clock.now_ns))

    def _wake(self, task: Task, turn: int) -> None:
        if task.turn == turn:  # not woken since
            self._push(self.clock.now_ns, task)

    def _push(self, at_ns: int, task: Task) -> None:
        self._count += 1
        task.turn = self._count
        heapq.heappush(self._heap, (at_ns, self._count, task))


class Task:
    """A running coroutine of the engine; `result` and `ended_ns` once `done`. turn: its loop's."""

    __slots__ = ("_coroutine", "done", "ended_ns", "result", "turn")

    def __init__(self, coroutine: Coroutine[Any, None, Any]) -> None:
        self._coroutine = coroutine
        self.done = False
        self.turn = 0
        self.ended_ns = 0
        self.result: Any = None

    def step(self, now_ns: int) -> Sleep | None:
        """Run to the next sleep; returns it, or None when ended."""
        try:
            wish = self._coroutine.send(None)
        except StopIteration as stop:
            self.result, self.done, self.ended_ns = stop.value, True, now_ns
            return None
        assert isinstance(wish, Sleep), "a task awaits nothing but its world"
        return wish

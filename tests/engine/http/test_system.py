"""The real world's ports, in process: turns of the worker, sleeps, code, and the clock."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine.errors import DestinationTimeout
from engine.http.system import SystemClock, SystemWorld
from engine.world import Bell

SECOND_NS = 1_000_000_000
HOUR_NS = 3_600 * SECOND_NS


def _in_world(use: Callable[[SystemWorld], Awaitable[Any]], **ports: Any) -> Any:
    async def run() -> Any:
        world = SystemWorld(**ports)
        try:
            return await use(world)
        finally:
            await world.close()

    return asyncio.run(run())


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def _one(world: SystemWorld, caller: str) -> str:
    return await world.apart(lambda: "free again", caller)


class _Queue:
    """Work in the one worker, which stays busy until it is let go on."""

    def __init__(self, world: SystemWorld) -> None:
        self._world = world
        self._go = threading.Event()
        self.done: list[str] = []
        self.tasks: dict[str, asyncio.Task[str]] = {}

    def _work(self, name: str) -> str:
        self._go.wait(100)
        self.done.append(name)
        return name

    async def add(self, *names: str) -> None:
        """Ask for work in this order; the caller is the first letter of a name."""
        for name in names:

            async def ask(name: str = name) -> str:
                return await self._world.apart(lambda: self._work(name), name[0])

            self.tasks[name] = asyncio.create_task(ask())
            await _settle()

    async def finish(self) -> list[str]:
        """Let the worker go on; return the order in which the work was done."""
        self._go.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return self.done


def test_callers_share_the_worker_in_turn() -> None:
    """D-BODY-COST: who has much work delays itself; others wait for one piece of it."""

    async def use(world: SystemWorld) -> list[str]:
        queue = _Queue(world)
        await queue.add("a1", "a2", "a3", "a4", "b1", "b2", "c1")
        return await queue.finish()

    assert _in_world(use) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_a_closed_world_leaves_no_thread_behind() -> None:
    async def work(world: SystemWorld) -> tuple[SystemWorld, threading.Thread]:
        return world, await world.apart(threading.current_thread, "a")

    world, worker = _in_world(work)  # as long as the world is held, its worker is not collected
    assert world is not None
    assert not worker.is_alive()


def test_who_goes_away_while_waiting_is_passed_over() -> None:
    async def use(world: SystemWorld) -> list[str]:
        queue = _Queue(world)
        await queue.add("a1", "b1", "b2", "c1")
        queue.tasks["b1"].cancel()
        await _settle()
        return [*await queue.finish(), *await _Queue(world).finish(), await _one(world, "d")]

    assert _in_world(use) == ["a1", "c1", "b2", "free again"]


def test_who_goes_away_at_its_turn_gives_it_to_the_next() -> None:
    async def use(world: SystemWorld) -> list[str]:
        async with world._turn:
            waiting = [asyncio.create_task(_one(world, name)) for name in "bc"]
            await _settle()
        waiting[0].cancel()  # it is b's turn, who does not know yet
        return [await waiting[1], await _one(world, "d")]

    assert _in_world(use) == ["free again"] * 2


def test_work_that_fails_ends_its_turn() -> None:
    async def use(world: SystemWorld) -> int:
        with pytest.raises(ZeroDivisionError):
            await world.apart(lambda: 1 // 0, "a")
        return await world.apart(lambda: 1, "a")

    assert _in_world(use) == 1


def _ring(bell: Bell) -> None:
    bell.ring()


def test_a_bell_ends_a_sleep_early_and_a_sleep_without_one_lasts() -> None:
    async def use(world: SystemWorld) -> list[int]:
        bell = Bell()
        asyncio.get_running_loop().call_soon(_ring, bell)
        await world.sleep_ns(HOUR_NS, bell)
        rung_ns = time.monotonic_ns()
        await world.sleep_ns(20_000_000, Bell())
        unrung_ns = time.monotonic_ns()
        await world.sleep_ns(20_000_000)
        slept_ns = time.monotonic_ns()
        await world.sleep_ns(-5)
        return [unrung_ns - rung_ns, slept_ns - unrung_ns]

    unrung_ns, slept_ns = _in_world(use)
    assert unrung_ns >= 19_000_000
    assert slept_ns >= 19_000_000


def test_code_goes_to_the_runtime_and_may_take_its_time() -> None:
    """RCT-TIMEOUT: a runtime may be a function or a coroutine function."""

    def function(code: str, args: Any, configuration: Any) -> Any:
        if code == "slow":
            time.sleep(0.05)
        return [code, args, dict(configuration)]

    async def coroutine(code: str, args: Any, configuration: Any) -> Any:
        await asyncio.sleep(3_600 if code == "slow" else 0)
        return [code, args, dict(configuration)]

    async def use(world: SystemWorld) -> Any:
        with pytest.raises(DestinationTimeout):
            await world.run_code("slow", 1, {}, 5_000_000)
        return await world.run_code("quick", 1, {"a": "b"}, HOUR_NS)

    for runtime in (function, coroutine):
        assert _in_world(use, runtime=runtime) == ["quick", 1, {"a": "b"}]

    async def plain(world: SystemWorld) -> Any:
        return await world.run_code("any", [1], {}, HOUR_NS)

    assert _in_world(plain) == [1]


def test_the_steady_time_starts_at_the_wall_clock_or_at_the_last_instant_kept() -> None:
    """D-CLOCK: deadlines never move back, whatever was done to the wall clock between runs."""
    # Within minutes: a machine may pause between two readings.
    clock = SystemClock()
    assert 0 <= clock.now_ns < HOUR_NS // 60
    assert abs(clock.wall_ns - time.time_ns()) < HOUR_NS // 60
    assert abs(clock.lead_ns) < HOUR_NS // 60
    clock.not_before(clock.wall_ns - 100 * HOUR_NS)
    assert abs(clock.lead_ns) < HOUR_NS // 60
    clock.not_before(clock.wall_ns + 100 * HOUR_NS)
    assert abs(clock.lead_ns - 100 * HOUR_NS) < HOUR_NS // 60

"""The real world's ports, in process: turns of the worker, sleeps, code, and the clock."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine import Engine, Request
from engine.errors import DestinationTimeout
from engine.http.system import SystemClock, SystemWorld
from engine.world import Bell
from tests.engine.deployment import CARD

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
    assert abs(clock.steady_ns - clock.wall_ns) < HOUR_NS // 60
    clock.not_before(clock.wall_ns - 100 * HOUR_NS)
    assert abs(clock.steady_ns - clock.wall_ns) < HOUR_NS // 60
    clock.not_before(clock.wall_ns + 100 * HOUR_NS)
    assert abs(clock.steady_ns - clock.wall_ns - 100 * HOUR_NS) < HOUR_NS // 60


def test_code_that_hangs_delays_neither_other_code_nor_the_end() -> None:
    """RCT-TIMEOUT: each owner has a bounded part of threads that end with the process."""
    release = threading.Event()

    def runtime(code: str, args: Any, configuration: Any) -> Any:
        if code == "hang":
            release.wait(60)
        if code == "exit":
            raise SystemExit(3)
        return args

    async def use(world: SystemWorld) -> Any:
        hanging = [
            asyncio.create_task(world.run_code("hang", 1, {}, HOUR_NS, "one")) for _ in range(100)
        ]
        await asyncio.sleep(0.05)
        names = [thread.name for thread in threading.enumerate()]
        assert 0 < names.count("tollgate-code") < 20
        assert all(t.daemon for t in threading.enumerate() if t.name == "tollgate-code")
        assert await world.run_code("quick", 7, {}, HOUR_NS, "another") == 7
        with pytest.raises(RuntimeError, match="SystemExit"):
            await world.run_code("exit", 7, {}, HOUR_NS, "another")
        release.set()
        return await asyncio.gather(*hanging)

    assert _in_world(use, runtime=runtime) == [1] * 100


def test_d_cvc_a_wall_clock_that_is_set_meanwhile_moves_no_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-CVC, D-CLOCK: a step inside of a request kept a cvc for two hours, or for none."""
    real, steps = time.time_ns, itertools.cycle((0, HOUR_NS, -HOUR_NS))
    with Engine(world=SystemWorld()) as engine:
        key = engine.key_for(engine.create_tenant("Acme"), "token:create")
        monkeypatch.setattr(time, "time_ns", lambda: real() + next(steps))
        request = Request("POST", "/tokens", ip="192.0.2.1", key=key, body=CARD)
        for _ in range(3):
            made = asyncio.run(engine.submit(request)).body
            with engine.services.store.transaction(write=False):
                token = engine.services.store.token(made["tenant_id"], made["id"])
            assert token is not None
            assert token.cvc_until_ns is not None
            left_ns = token.cvc_until_ns - engine.clock.steady_ns
            assert HOUR_NS * 0.9 < left_ns <= HOUR_NS

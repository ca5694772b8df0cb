"""Time is handed in: one clock for many coroutines (D-CLOCK), and several drivers of one code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Engine, Profile, Request, Response
from engine.errors import DestinationTimeout, DestinationUnreachable, DriverError
from engine.identity import PERMISSIONS
from engine.resources import OPERATIONS
from engine.service import drive
from engine.world import (
    EPOCH_2026_NS,
    Bell,
    Call,
    CallAnswer,
    ClockReading,
    ManualClock,
    ModelWorld,
    Sleep,
    VirtualLoop,
)
from tests.engine.deployment import CARD

CALL = Call("GET", "https://example.com/", {}, b"")


def test_a_manual_clock_moves_only_forward_and_takes_wall_time_along() -> None:
    clock = ManualClock(100)
    clock.advance_ns(5)
    assert (clock.now_ns, clock.wall_ns) == (105, EPOCH_2026_NS + 5)
    with pytest.raises(ValueError, match="by_ns = -1 must not be negative"):
        clock.advance_ns(-1)


def test_driving_a_coroutine_moves_the_clock_by_its_sleeps() -> None:
    world = ModelWorld()

    async def nap() -> str:
        await world.sleep_ns(30)
        await world.sleep_ns(0)
        await world.sleep_ns(12)
        return "rested"

    assert drive(nap(), world.clock) == "rested"
    assert world.clock.now_ns == 42


def test_driving_by_hand_refuses_what_is_not_of_this_world() -> None:
    async def stray() -> None:
        await _Stray()

    class _Stray:
        def __await__(self) -> Generator[str, None, None]:
            yield "asyncio's future"

    with pytest.raises(TypeError, match="cannot drive str by hand"):
        drive(stray(), ManualClock())


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12))
def test_a_virtual_loop_runs_in_order_of_time_then_arrival(naps: list[tuple[int, int]]) -> None:
    loop = VirtualLoop(ManualClock())
    order: list[tuple[int, int]] = []

    async def one(number: int, for_ns: int) -> None:
        await Sleep(for_ns)
        order.append((loop.clock.now_ns, number))

    for number, (start_ns, for_ns) in enumerate(naps):
        loop.at(start_ns, one(number, for_ns))
    loop.run()
    assert [at_ns for at_ns, _ in order] == sorted(s + n for s, n in naps)
    assert sorted(number for _, number in order) == list(range(len(naps)))


def test_a_virtual_loop_stops_before_its_end_instant() -> None:
    loop = VirtualLoop(ManualClock())

    async def nap() -> None:
        await Sleep(10)

    task = loop.at(0, nap())
    loop.run(until_ns=10)
    before = task.done
    assert not before
    loop.run()
    assert task.done
    assert task.ended_ns == 10


def test_a_bell_ends_one_sleep_early_and_no_other() -> None:
    loop = VirtualLoop(ManualClock())
    bell = Bell()
    woken: list[int] = []

    async def sleeper() -> None:
        await Sleep(50, bell)
        woken.append(loop.clock.now_ns)
        await Sleep(50)
        woken.append(loop.clock.now_ns)

    async def ringer(after_ns: int) -> None:
        await Sleep(after_ns)
        bell.ring()

    bell.ring()  # wakes nobody: nobody sleeps
    loop.at(0, sleeper())
    loop.at(0, ringer(20))
    loop.at(0, ringer(30))
    loop.run()
    assert woken == [20, 70]
    assert loop.clock.now_ns == 70


def test_a_bell_that_never_rings_changes_nothing() -> None:
    world = ModelWorld()
    drive(world.sleep_ns(30, Bell()), world.clock)
    assert world.clock.now_ns == 30


def _world(duration_ns: int, answer: CallAnswer | None) -> ModelWorld:
    return ModelWorld(destination=lambda _: (duration_ns, answer))


def test_a_destination_that_takes_exactly_its_time_passes() -> None:
    world = _world(25, CallAnswer(200, {}, b"ok"))
    assert drive(world.call_destination(CALL, 25), world.clock).body == b"ok"
    assert world.clock.now_ns == 25


def test_a_destination_that_takes_longer_times_out_at_its_bound() -> None:
    world = _world(26, CallAnswer(200, {}, b"ok"))
    with pytest.raises(DestinationTimeout):
        drive(world.call_destination(CALL, 25), world.clock)
    assert world.clock.now_ns == 25


def test_a_destination_without_an_answer_is_unreachable() -> None:
    world = _world(3, None)
    with pytest.raises(DestinationUnreachable):
        drive(world.call_destination(CALL, 25), world.clock)


def test_code_runs_after_its_service_time_and_times_out_at_its_bound() -> None:
    world = ModelWorld(
        runtime=lambda code, args, _: [code, args], service_ns=lambda code, _: len(code)
    )
    assert drive(world.run_code("abc", 1, {}, 3), world.clock) == ["abc", 1]
    assert world.clock.now_ns == 3
    with pytest.raises(DestinationTimeout):
        drive(world.run_code("abcd", 1, {}, 3), world.clock)
    assert world.clock.now_ns == 6


def test_a_call_shows_neither_headers_nor_body() -> None:
    shown = repr(Call("GET", "https://example.com/", {"SVC-API-KEY": "secret"}, b"4242"))
    assert "secret" not in shown
    assert "4242" not in shown


# --- several drivers -----------------------------------------------------------------------------


SECOND_NS = 1_000_000_000
MADE: dict[str, tuple[str, Any]] = {
    "token": ("/tokens", {**CARD, "metadata": {"a": "b"}}),
    "intent": ("/token-intents", {"type": "token", "data": "x"}),
    "reactor": ("/reactors", {"name": "r", "code": "c", "configuration": {"a": "b"}}),
    "application": ("/applications", {"name": "a", "kind": "private"}),
    "proxy": (
        "/proxies",
        {
            "name": "p",
            "destination_url": "https://a.example",
            "response_transform": {"code": "c"},
            "host": "pay.example",
        },
    ),
    "job": ("/account-updater/jobs", {}),
    "key": ("/keys", {"algorithm": "ECDH-ES"}),
}
PATHS = {
    "/tokens/{id}": "token",
    "/token-intents/{id}": "intent",
    "/reactors/{id}": "reactor",
    "/reactors/{id}/react": "reactor",
    "/applications/{id}": "application",
    "/applications/{id}/keys": "application",
    "/applications/{id}/keys/{key_id}": "application",
    "/proxies/{id}": "proxy",
    "/keys/{id}": "key",
    "/account-updater/jobs/{id}": "job",
    "/account-updater/jobs/{id}/file": "job",
}
BODIES: dict[str, Any] = {
    "tokenize": ["x", CARD],
    "search_tokens": {"query": "data:x"},
    "detokenize": {"a": "{{ name }}"},
    "invoke_reactor": {"args": [1]},
    "invoke_proxy": {"a": 1.10},
}


class Desk:
    """An engine whose outside takes its time: 2 s for a destination, 3 s for code."""

    def __init__(self, clock: Any) -> None:
        world = ModelWorld(
            clock=clock,
            seed=7,
            destination=lambda call: (2 * SECOND_NS, CallAnswer(200, {}, call.body)),
            service_ns=lambda _code, _args: 3 * SECOND_NS,
        )
        profile = Profile().replace(outside={"hot_concurrency": 0}, limits={"throttle": "delay"})
        self.engine = Engine(world=world, profile=profile)
        self.clock = clock
        tenant = self.engine.create_tenant("Acme", kind="test")
        app = self.engine.create_application(tenant, "shop", grants=[("/", set(PERMISSIONS))])
        self.key = str(self.engine.create_key(app))
        self.made: dict[str, Any] = {}

    def request(self, name: str) -> Request:
        """Return a request of an operation, or `+thing` for what makes one."""
        if name.startswith("+"):
            path, body = MADE[name[1:]]
            return self._ask("POST", path, body)
        operation = next(each for each in OPERATIONS if each.name == name)
        thing = self.made.get(PATHS.get(operation.path, ""), {})
        path = operation.path.replace("{id}", thing.get("id", "none")).replace("{key_id}", "none")
        more = {}
        if name == "upload_batch_file":
            path = self.made.get("job", {}).get("upload_url", "/batch-files/none")
        if name == "invoke_proxy":
            path = "/proxy/a"
            more["proxy_key"] = self.made.get("proxy", {}).get("key", "none")
        body = BODIES.get(name, MADE.get(PATHS.get(operation.path, ""), ("", {}))[1])
        if operation.body == "none":
            body = None
        elif operation.body == "raw" and name != "invoke_proxy":
            body = b"token,expiration_year,expiration_month\n"
        method = "POST" if operation.method == "ANY" else operation.method
        return self._ask(method, path, body, **more)

    def _ask(self, method: str, path: str, body: Any, **more: Any) -> Request:
        return Request(method, path, key=self.key, ip="192.0.2.1", body=body, **more)

    def seen(self, name: str, response: Response) -> Any:
        """Remember what was made; return all that a caller and a clock see."""
        if name.startswith("+") and response.ok:
            self.made[name[1:]] = response.body
        body = response.body
        if isinstance(body, dict) and "public_key" in body:  # the library's own chance
            body = {**body, "public_key": sorted(body["public_key"])}
        return response.status, body, dict(response.headers), self.clock.now_ns


def by_hand(names: Sequence[str]) -> list[Any]:
    desk = Desk(ManualClock())
    return [desk.seen(name, desk.engine.handle(desk.request(name))) for name in names]


def in_model_time(names: Sequence[str]) -> list[Any]:
    clock = ManualClock()
    desk, loop = Desk(clock), VirtualLoop(clock)
    found = []
    for name in names:
        task = loop.at(clock.now_ns, desk.engine.submit(desk.request(name)))
        loop.run()
        found.append(desk.seen(name, task.result))
    return found


def under_asyncio(names: Sequence[str]) -> list[Any]:
    async def play() -> list[Any]:
        desk = Desk(ManualClock())
        return [desk.seen(name, await desk.engine.submit(desk.request(name))) for name in names]

    return asyncio.run(play())


class SimpyClock:
    """A clock that is SimPy's."""

    def __init__(self, environment: simpy.Environment) -> None:
        self._environment = environment

    @property
    def now_ns(self) -> int:
        return int(self._environment.now)

    @property
    def wall_ns(self) -> int:
        return EPOCH_2026_NS + self.now_ns

    @property
    def steady_ns(self) -> int:
        return self.wall_ns

    def read(self) -> ClockReading:
        return ClockReading(self.now_ns, self.wall_ns, self.wall_ns)


def under_simpy(names: Sequence[str]) -> list[Any]:
    environment = simpy.Environment(initial_time=0)
    desk = Desk(SimpyClock(environment))
    found: list[Any] = []

    def play() -> Any:
        for name in names:
            answering = desk.engine.submit(desk.request(name))
            while True:
                try:
                    sleep = answering.send(None)
                except StopIteration as stop:
                    found.append(desk.seen(name, stop.value))
                    break
                yield environment.timeout(sleep.for_ns)

    environment.process(play())
    environment.run()
    return found


DRIVERS: list[Callable[[Sequence[str]], list[Any]]] = [in_model_time, under_asyncio, under_simpy]
NAMES = [operation.name for operation in OPERATIONS]
MAKING = [f"+{thing}" for thing in MADE]


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_operation_has_one_answer_whoever_drives_it(driver: Any) -> None:
    names = [*MAKING, "invoke_reactor", "invoke_proxy", *NAMES]
    expected = by_hand(names)
    assert driver(names) == expected
    assert [status for status, *_ in expected[: len(MAKING) + 2]] == [201] * len(MAKING) + [200] * 2
    assert expected[-1][3] >= 7 * SECOND_NS, "time passed: destinations, code, delays"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([*MAKING, *NAMES]), max_size=70))
def test_every_order_of_operations_has_the_same_answers(names: list[str]) -> None:
    expected = by_hand(names)
    for driver in DRIVERS:
        assert driver(names) == expected


def test_a_bell_rings_under_asyncio_too() -> None:
    """RCT-HOT: who waits for an instance gets it when another request gives it back."""

    async def play() -> list[int]:
        desk = Desk(ManualClock())
        desk.engine.services.profile = Profile().replace(outside={"instances_cap": 1})
        made = await desk.engine.submit(desk.request("+reactor"))
        desk.seen("+reactor", made)
        asked = (desk.engine.submit(desk.request("invoke_reactor")) for _ in range(2))
        return [answer.status for answer in await asyncio.gather(*asked)]

    assert asyncio.run(play()) == [200, 200]


def test_a_clock_that_nobody_can_move_says_so_under_asyncio() -> None:
    """It was 502, as if the code of the reactor had failed."""

    async def play() -> None:
        desk = Desk(SimpyClock(simpy.Environment()))
        desk.seen("+reactor", await desk.engine.submit(desk.request("+reactor")))
        await desk.engine.submit(desk.request("invoke_reactor"))

    with pytest.raises(DriverError, match="only a ManualClock"):
        asyncio.run(play())

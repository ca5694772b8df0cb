"""One code, several drivers: by hand, in model time, under SimPy and under asyncio, one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Engine, ManualClock, ModelWorld, Profile, Request, Response
from engine.errors import DriverError
from engine.identity import PERMISSIONS
from engine.resources import OPERATIONS
from engine.world import EPOCH_2026_NS, CallAnswer, ClockReading, VirtualLoop
from tests.engine.deployment import CARD

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

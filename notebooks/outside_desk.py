"""A desk whose outside world is the notebook's: destinations, reactors and the time they take.

Requests can be under way together: `at` sends one at an instant, `run` lets time pass until all
have ended, on the desk's own clock and in exact nanoseconds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from engine import (
    CallAnswer,
    Engine,
    LimitTable,
    ManualClock,
    ModelWorld,
    Profile,
    Request,
    VirtualLoop,
)
from engine.world import Task
from notebooks.desk import Desk

__all__ = ["NS", "OutsideDesk"]

NS: Final = 1_000_000_000
_RIGHTS: Final = (
    "token:create",
    *(f"{what}:{verb}" for what in ("reactor", "proxy") for verb in ("create", "invoke")),
    "account-updater:job:create",
    "account-updater:job:read",
)


class OutsideDesk(Desk):
    """A desk with one key that may do everything here.

    takes_ns: how long a destination, or the code of a reactor, takes from now on.
    """

    def __init__(self, *, takes_ns: int = 0, **profile: Mapping[str, Any]) -> None:
        self.clock = ManualClock()
        self.takes_ns = takes_ns
        world = ModelWorld(
            clock=self.clock,
            seed=1,
            entropy=random.Random(1).randbytes,
            destination=lambda call: (self.takes_ns, CallAnswer(200, {}, call.body)),
            service_ns=lambda _code, _args: self.takes_ns,
        )
        table = LimitTable(rules=())
        self.engine = Engine(world=world, limits=table, profile=Profile().replace(**profile))
        self.tenant = self.engine.create_tenant("Acme")
        self.all_rights = self.key(*_RIGHTS)
        self.loop = VirtualLoop(self.clock)

    def made(self, path: str, body: Any) -> Any:
        """Create something, expecting to succeed; returns the answer's body."""
        answer = self.ask("POST", path, body, key=self.all_rights)
        assert answer.status == 201, answer.body
        return answer.body

    def reactor(self) -> str:
        """Create a reactor; returns the path that invokes it."""
        body = {
            "name": "enrich",
            "code": "module.exports = (request) => request",
            "configuration": {},
        }
        return f"/reactors/{self.made('/reactors', body)['id']}/react"

    def proxy(self) -> str:
        """Create a proxy; returns its key."""
        address = "https://shop.example/charge"
        return str(self.made("/proxies", {"name": "pay", "destination_url": address})["key"])

    def at(self, second: float, method: str, path: str, body: Any = None, **more: Any) -> Task:
        """Send a request at a second of the clock; its answer is there after `run`."""
        more.setdefault("key", self.all_rights)
        request = Request(method, path, ip="203.0.113.7", body=body, **more)
        return self.loop.at(round(second * NS), self.engine.submit(request))

    def run(self) -> None:
        """Let time pass until every request has ended."""
        self.loop.run()

    def invoke(self, *seconds: float) -> list[Task]:
        """Invoke one reactor at these seconds; returns how each went."""
        path = self.reactor()
        tasks = [self.at(second, "POST", path, {"args": {}}) for second in seconds]
        self.run()
        return tasks

"""A deployment whose outside world is the test's: destinations, runtime, service times, time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine import Engine, ManualClock, Profile, Request, Response
from engine.messages import Json
from engine.store import Store
from engine.world import Call, CallAnswer, ModelWorld, Task, VirtualLoop
from tests.engine.deployment import IP, Deployment

__all__ = ["SECOND_NS", "Outside", "Stream"]

SECOND_NS = 1_000_000_000
_RIGHTS = {
    "token:create",
    "token:read",
    "token:use",
    "log:read",
    *(f"{r}:{verb}" for r in ("reactor", "proxy") for verb in ("create", "read", "update")),
    *(f"{r}:{verb}" for r in ("reactor", "proxy") for verb in ("delete", "invoke")),
    "account-updater:job:create",
    "account-updater:job:read",
}


class Stream:
    """A body on its way; says how much of it was read."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.read_bytes = 0

    async def read(self, limit_bytes: int) -> bytes | None:
        """Read no further than it takes to know that the limit is exceeded."""
        self.read_bytes = min(self.size_bytes, limit_bytes + 1)
        return b"x" * self.size_bytes if self.size_bytes <= limit_bytes else None


class Outside(Deployment):
    """What the outside does is set by assignment; `calls` and `runs` hold what it was asked."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        world_class: type[ModelWorld] = ModelWorld,
        **sections: Mapping[str, Any],
    ) -> None:
        self.calls: list[Call] = []
        self.runs: list[tuple[str, Any, Mapping[str, str]]] = []
        self.destination: Callable[[Call], tuple[int, CallAnswer | None]] = lambda call: (
            0,
            CallAnswer(200, {"Content-Type": "application/json"}, call.body),
        )
        self.runtime: Callable[[str, Any], Json] = lambda _code, args: args
        self.service_ns = 0
        world = world_class(
            seed=None if store is not None and store.persistent else 7,
            destination=self._call,
            runtime=self._run,
            service_ns=lambda _code, _args: self.service_ns,
        )
        super().__init__(
            Engine(
                profile=Profile().replace(**sections),
                world=world,
                store=store,
                master_key=None if store is None else bytes(32),
            )
        )
        assert isinstance(world.clock, ManualClock)
        self.loop = VirtualLoop(world.clock)
        self.key = self.key_with(*_RIGHTS)

    def _call(self, call: Call) -> tuple[int, CallAnswer | None]:
        self.calls.append(call)
        return self.destination(call)

    def _run(self, code: str, args: Json, configuration: Mapping[str, str]) -> Json:
        self.runs.append((code, args, configuration))
        return self.runtime(code, args)

    def at(self, at_ns: int, method: str, path: str, body: Any = None, **more: Any) -> Task:
        """Send a request at an instant of the loop, with the deployment's key unless told."""
        more.setdefault("key", self.key)
        request = Request(method, path, ip=IP, body=body, **more)
        return self.loop.at(at_ns, self.engine.submit(request))

    def made(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create something; returns the answer's body."""
        answer = self.ask("POST", path, dict(body))
        assert answer.status == 201, answer.body
        return answer.body

    def proxy(self, **more: Any) -> Any:
        """Create a proxy to a destination; returns its record with the key."""
        address = "https://api.example.com/v1"
        return self.made("/proxies", {"name": "payments", "destination_url": address, **more})

    def through(self, proxy: Any, body: Any = None, path: str = "", **more: Any) -> Response:
        """Ask through a proxy by its key, without an API key unless told; POST unless told."""
        more.setdefault("key", None)
        method = more.pop("method", "POST")
        return self.ask(method, f"/proxy{path}", body, proxy_key=proxy["key"], **more)

    def expression(self, value: Any) -> str:
        """Tokenize a value; returns the expression that stands for it."""
        made = self.tokenize([value])[0]
        return f"{{{{ {made if isinstance(made, str) else made['id']} }}}}"

    def logged(self, operation: str) -> list[tuple[str, str | None, int]]:
        """Return (entity id, actor id, status) of the log's entries of an operation."""
        entries: Any = self.ask("GET", "/logs?size=100").body
        return [
            (entry["entity_id"], entry["actor_id"], entry["status"])
            for entry in entries["data"]
            if entry["operation"] == operation
        ]

    def unfinished(self) -> int:
        """Return how many operations have begun and not ended."""
        store = self.engine.services.store
        with store.transaction(write=False):
            return len(store.unfinished_work())

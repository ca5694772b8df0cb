"""The transport: how a check reaches a deployment and its time.

Three obey one protocol. Over HTTP (`conformance.over_http`) time is real; straight into an engine
(`EngineTransport`) it is virtual, with modelled latency, so that a minute's window takes no
minute; and from a recorded history (`conformance.judging`) nothing is asked at all. A check cannot
tell them apart: it is a function of the answers, their times and the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol

from conformance.exchanges import Ask, KeyLabel
from engine import Engine, ManualClock, Request, VirtualLoop
from engine.tokens import dumps
from engine.world import Sleep

__all__ = ["Answer", "EngineTransport", "Latency", "Transport"]

Latency = Callable[[], tuple[int, int]]
"""Draws the way there and the way back of one request, nanoseconds each."""


class Answer:
    """What came back: `status` None when nothing did, then `error` says why."""

    __slots__ = ("body", "error", "headers", "received_ns", "sent_ns", "status")

    def __init__(
        self,
        sent_ns: int,
        received_ns: int,
        status: int | None,
        headers: Mapping[str, str],
        body: bytes,
        error: str | None = None,
    ) -> None:
        self.sent_ns = sent_ns
        self.received_ns = received_ns
        self.status = status
        self.headers = headers
        self.body = body
        self.error = error


class Transport(Protocol):
    """Sends requests and keeps the suite's time."""

    @property
    def now_ns(self) -> int:
        """The suite's clock, nanoseconds since the run began."""
        ...

    async def send(self, ask: Ask) -> Answer:
        """Send one request and wait for its answer; never raises for what the other side does."""
        ...

    async def sleep_until_ns(self, at_ns: int) -> None:
        """Return at `at_ns`, at once when that has passed."""
        ...

    def run(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines side by side to their ends; returns their results in order."""
        ...


class EngineTransport:
    """Straight into `engine.submit`, on the engine's own manual clock.

    keys: label → text. hosts: label → hostname. latency: None for none at all.
    """

    def __init__(
        self,
        engine: Engine,
        keys: Mapping[KeyLabel, str],
        *,
        hosts: Mapping[KeyLabel, str] | None = None,
        latency: Latency | None = None,
    ) -> None:
        assert isinstance(engine.clock, ManualClock), "virtual time is a manual clock's"
        self.engine = engine
        self._clock = engine.clock
        self._keys = keys
        self._hosts = hosts or {}
        self._latency = latency

    @property
    def now_ns(self) -> int:
        """The engine's clock: both sides share it here."""
        return self._clock.now_ns

    async def send(self, ask: Ask) -> Answer:
        """Pass the request through, after the way there and before the way back."""
        there_ns, back_ns = self._latency() if self._latency is not None else (0, 0)
        sent_ns = self._clock.now_ns
        if there_ns:
            await Sleep(there_ns)
        response = await self.engine.submit(self._request(ask))
        if back_ns:
            await Sleep(back_ns)
        body = response.body
        raw = b"" if body is None else body if isinstance(body, bytes) else dumps(body)
        headers = {"Content-Type": "application/json", **response.headers}
        return Answer(sent_ns, self._clock.now_ns, response.status, headers, raw)

    def _request(self, ask: Ask) -> Request:
        headers = dict(ask.headers)
        body = ask.body
        if body is not None and not isinstance(body, bytes):
            body = dumps(body)
            headers.setdefault("Content-Type", "application/json")
        return Request(
            ask.method,
            ask.path,
            key=None if ask.key is None else self._keys.get(ask.key, ask.key),
            ip=ask.source or "127.0.0.1",
            headers=headers,
            body=body,
            host=None if ask.host is None else self._hosts.get(ask.host, ask.host),
            proxy_key=None if ask.proxy_key is None else self._keys.get(ask.proxy_key),
        )

    async def sleep_until_ns(self, at_ns: int) -> None:
        """Sleep on the virtual loop."""
        if at_ns > self._clock.now_ns:
            await Sleep(at_ns - self._clock.now_ns)

    def run(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run them on one virtual loop, in order of time, then of arrival."""
        loop = VirtualLoop(self._clock)
        tasks = [loop.at(self._clock.now_ns, coroutine) for coroutine in coroutines]
        loop.run()
        return [task.result for task in tasks]


def labels(keys: Mapping[KeyLabel, str], role: str) -> Iterator[KeyLabel]:
    """Return the labels of a role's keys, in order."""
    return (label for label in keys if label.rpartition(".")[0] == role)

"""The transport: how a check reaches a deployment, and the suite's clock.

Three transports implement one protocol. `conformance.wire.over_http` sends in real time.
`EngineTransport` calls an engine on virtual time with modelled latency, without real waiting.
`conformance.runner.offline` sends nothing: it reads a recorded history. A check cannot tell them
apart: it is a function of the answers, their times and the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from conformance.messages.exchange import KEY_PLACE, HttpRequest, KeyLabel
from conformance.target import Target
from engine import Engine, ManualClock, Request, VirtualLoop
from engine.tokens.strict_json import dumps
from engine.world import Bell, Sleep, Task

Latency = Callable[[], tuple[int, int]]
"""Draws the latencies of one request and of its answer, nanoseconds each."""

Work = Coroutine[Any, Any, Any]
_Computed = TypeVar("_Computed")

_EVER_NS: Final = 1 << 60
PROXY_KEY: Final = "{proxy_key}"
"""Where a proxy's key stands in a path or a host of the target."""


class Place(NamedTuple):
    """Identifies the sender of a request, so that a history can be replayed."""

    check: str
    lane: str
    turn: int


@dataclass(slots=True, eq=False, repr=False)
class Answer:
    """An answer; without one, `status` is None and `error` says why.

    number: of the exchange in the history that it is replayed from, else None.
    """

    sent_ns: int
    received_ns: int
    status: int | None
    headers: Mapping[str, str]
    body: bytes
    error: str | None = None
    number: int | None = None


class Transport(Protocol):
    """Sends requests and keeps the suite's time."""

    @property
    def now_ns(self) -> int:
        """The suite's clock, nanoseconds since the run began."""

    @property
    def wall_start_ns(self) -> int:
        """What this machine's wall clock showed when the suite's clock showed 0."""

    async def send(self, ask: HttpRequest, place: Place) -> Answer:
        """Send one request and wait for its answer; never raises for what the other side does."""

    async def sleep_until_ns(self, at_ns: int) -> None:
        """Return at `at_ns`, at once when that has passed."""

    async def gather(self, coroutines: Sequence[Work]) -> list[Any]:
        """Run coroutines in parallel, from within one; raises the first exception at the end."""

    async def aside(self, compute: Callable[[], _Computed]) -> _Computed:
        """Return what a function computes, without delaying others where time is real."""

    def start(self, coroutines: Sequence[Work]) -> Callable[[], list[Any]]:
        """Start coroutines in parallel; the returned function waits and returns their results.

        On virtual time, nothing runs before the wait. The wait raises the first exception, after
        all have ended.
        """

    def run(self, coroutines: Sequence[Work]) -> list[Any]:
        """Run coroutines in parallel to their ends; returns their results in order."""

    def learn_key(self, label: KeyLabel, text: str) -> None:
        """Register a key that a check has created; requests can then name its `label`."""

    def close(self) -> None:
        """Close the connections; nothing is sent afterwards."""


def with_keys(text: str, keys: Mapping[KeyLabel, str]) -> str:
    """Return a header's text with key texts for `{key:LABEL}`.

    >>> with_keys("Bearer {key:public.1}", {"public.1": "text"})
    'Bearer text'
    """
    return KEY_PLACE.sub(lambda match: keys.get(match[1], match[1]), text)


def fields_of(target: Target, ask: HttpRequest) -> list[tuple[str, str]]:
    """Return the header fields that say who asks, and those of the check, with `{key:LABEL}`.

    A proxy's host and a custom hostname are the `Host`; without one it is the target's own.
    """
    fields = []
    if ask.source is not None and target.forwarded is not None:
        name, _, template = target.forwarded.partition(":")
        fields.append((name, (template.strip() or "{source}").replace("{source}", ask.source)))
    if ask.key is not None:
        name = _header_of(target, ask.key, target.key_header)
        fields.append((name, _formatted(target, f"{{key:{ask.key}}}")))
    host = None if ask.host is None else f"{{key:{ask.host}}}"
    if ask.proxy_key is not None:
        key = f"{{key:{ask.proxy_key}}}"
        if target.proxy_host is not None:
            host = host or target.proxy_host.replace(PROXY_KEY, key)
        elif PROXY_KEY not in ask.path:
            fields.append((_header_of(target, ask.proxy_key, target.proxy_key_header), key))
    if host is not None:
        fields.append(("Host", host))
    for name, text in ask.headers.items():
        is_key = name.lower() == target.key_header.lower()
        fields.append((name, _formatted(target, text) if is_key else text))
    return fields


def _header_of(target: Target, label: KeyLabel, usual: str) -> str:
    """Return the header that a key is sent in: its own, or the usual one."""
    key = target.key_labels.get(label)
    return usual if key is None else key.header or usual


def _formatted(target: Target, key: str) -> str:
    """Return what the key's header holds; a text that already has the format stays."""
    before, after = target.key_format.split("{key}")
    is_whole = bool(before or after) and key.startswith(before) and key.endswith(after)
    # An empty key may leave a space at an end, which no field of HTTP can hold.
    return key if is_whole else (before + key + after).strip()


class VirtualTransport:
    """Runs coroutines on virtual time, in order of time, then of arrival."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._loop: VirtualLoop | None = None

    @property
    def now_ns(self) -> int:
        """The virtual clock."""
        return self._clock.now_ns

    async def sleep_until_ns(self, at_ns: int) -> None:
        """Sleep on the virtual loop."""
        if at_ns > self._clock.now_ns:
            await Sleep(at_ns - self._clock.now_ns)

    async def aside(self, compute: Callable[[], _Computed]) -> _Computed:
        """Compute at once: it takes no virtual time."""
        return compute()

    async def gather(self, coroutines: Sequence[Work]) -> list[Any]:
        """Run coroutines on the loop that runs the caller."""
        assert self._loop is not None, "gather is awaited by what this transport runs"
        left = len(coroutines)
        bell = Bell()

        async def run_one(coroutine: Work) -> tuple[Any, Exception | None]:
            nonlocal left
            result = await _kept(coroutine)
            left -= 1
            if not left:
                bell.ring()
            return result

        tasks = [self._loop.at(self.now_ns, run_one(coroutine)) for coroutine in coroutines]
        if tasks:
            await Sleep(_EVER_NS, bell)
        return _values(tasks)

    def start(self, coroutines: Sequence[Work]) -> Callable[[], list[Any]]:
        """Run coroutines at the wait; until then the caller owns the clock."""
        return lambda: self.run(coroutines)

    def run(self, coroutines: Sequence[Work]) -> list[Any]:
        """Run coroutines on one virtual loop."""
        outer, loop = self._loop, VirtualLoop(self._clock)
        self._loop = loop
        tasks = [loop.at(self.now_ns, _kept(coroutine)) for coroutine in coroutines]
        try:
            loop.run()
        finally:
            self._loop = outer  # `aside` may run coroutines inside one
        return _values(tasks)

    def close(self) -> None:
        """Do nothing: nothing is open."""


class EngineTransport(VirtualTransport):
    """Calls `engine.submit` directly, on the engine's own manual clock.

    latency: None for none at all.
    """

    def __init__(self, engine: Engine, target: Target, latency: Latency | None = None) -> None:
        assert isinstance(engine.clock, ManualClock), "virtual time is a manual clock's"
        super().__init__(engine.clock)
        self.engine = engine
        self._keys = target.key_texts
        self._hosts = target.hosts
        self._latency = latency

    @property
    def wall_start_ns(self) -> int:
        """The engine's wall clock at 0: both sides share it too."""
        return self._clock.wall_ns - self._clock.now_ns

    async def send(self, ask: HttpRequest, place: Place) -> Answer:  # noqa: ARG002 # reason: the protocol's form
        """Submit the request, between the latency there and the latency back."""
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

    def _request(self, ask: HttpRequest) -> Request:
        """Return the engine's request; a key header that stands in `headers` counts too."""
        headers = {name: with_keys(text, self._keys) for name, text in ask.headers.items()}
        http = self.engine.profile.http
        by_hand = {name.lower(): value for name, value in headers.items()}
        key = by_hand.get(http.key_header.lower())
        proxy_key = by_hand.get(http.proxy_key_header.lower())
        body = ask.body
        if body is not None and not isinstance(body, bytes):
            body = dumps(body)
            headers.setdefault("Content-Type", "application/json")
        return Request(
            ask.method,
            ask.path,
            key=key if ask.key is None else self._keys.get(ask.key, ask.key),
            ip=ask.source or "127.0.0.1",
            headers=headers,
            body=body,
            host=None if ask.host is None else self._hosts.get(ask.host, ask.host),
            proxy_key=(
                proxy_key if ask.proxy_key is None else self._keys.get(ask.proxy_key, ask.proxy_key)
            ),
        )

    def learn_key(self, label: KeyLabel, text: str) -> None:
        """Register a key that a check has created."""
        self._keys[label] = text


async def _kept(coroutine: Work) -> tuple[Any, Exception | None]:
    """Return what a coroutine returns, and what it raises, so that one never ends the others."""
    try:
        return await coroutine, None
    except Exception as error:  # noqa: BLE001 # reason: raised again once all have ended
        return None, error


def _values(tasks: Sequence[Task]) -> list[Any]:
    """Return what coroutines have returned; raises the first exception."""
    for task in tasks:
        if task.result[1] is not None:
            raise task.result[1]
    return [task.result[0] for task in tasks]

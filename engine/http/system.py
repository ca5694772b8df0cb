"""The real world: a monotonic clock, asyncio's sleep, httpx's calls, the operator's runtime.

`engine.world` defines these ports. No caller's code is evaluated here: a reactor's code goes to the
operator's runtime; without a runtime, a reactor returns its arguments.

`Destinations` says who may be called, and so prevents server-side request forgery (SSRF). A proxy's
definition comes from a caller and is not trusted. The operator's list decides:

- an address is called only when an entry of `allowed` covers it: the same scheme, host and port,
  and a path below the entry's;
- the name is resolved once, and the connection goes to the address that was checked, so that the
  name cannot resolve to another address in between (DNS rebinding);
- an address that is not on the public internet (private, loopback, link-local, multicast, reserved,
  and IPv4 inside IPv6) is called only when `private` holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias, TypeVar, cast
from urllib.parse import SplitResult, unquote, urlsplit
from weakref import WeakValueDictionary

import httpx

from engine.errors import DestinationTimeout, DestinationUnreachable, InputError
from engine.hosts import FIELD_NAME, FIELD_VALUE, Address, leaves_its_folder, unmapped
from engine.http.requests import RUNNING, Network, in_networks, parse_networks
from engine.messages import Json
from engine.profile import SECOND_NS
from engine.world import Bell, Call, CallAnswer, ClockReading, Entropy

AnyRuntime: TypeAlias = Callable[[str, Json, Mapping[str, str]], Json | Awaitable[Json]]
"""Runs reactor code: `(code, args, configuration) → result`, a plain function or a coroutine's."""

_Result = TypeVar("_Result")

_CODE_THREADS: Final = 64
_THREADS_PER_OWNER: Final = 8
"""How many threads run code at a time, in all and for one reactor or transform."""


class SystemClock:
    """The machine's clocks: monotonic since this object was made, and wall time (D-CLOCK).

    `created_at` follows the wall clock, also when it is set. Deadlines follow a steady time, which
    never goes back and never lies before the last instant in the store.
    """

    __slots__ = ("_start_ns", "_steady_start_ns")

    def __init__(self) -> None:
        self._start_ns = time.monotonic_ns()
        self._steady_start_ns = time.time_ns()

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the start."""
        return time.monotonic_ns() - self._start_ns

    @property
    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch, as the machine has it now."""
        return time.time_ns()

    @property
    def steady_ns(self) -> int:
        """The time of deadlines; setting the wall clock does not move it."""
        return self._steady_start_ns + self.now_ns

    def read(self) -> ClockReading:
        """Return all three at one instant."""
        now_ns = self.now_ns
        return ClockReading(now_ns, self.wall_ns, self._steady_start_ns + now_ns)

    def not_before(self, steady_ns: int) -> None:
        """Start no earlier than an instant of an earlier process, if the clock was set back."""
        self._steady_start_ns = max(self._steady_start_ns, steady_ns - self.now_ns)


class SystemWorld:
    """The world of a server; its coroutines run under asyncio.

    destinations: who may be called; nobody unless given. answer_limit_bytes: the largest answer
    of a destination that is read. runtime: runs reactor and transform code.
    """

    is_real_time = True

    def __init__(
        self,
        *,
        destinations: Destinations | None = None,
        answer_limit_bytes: int = 10_000_000,
        runtime: AnyRuntime | None = None,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self.clock = SystemClock()
        self.random: random.Random = random.SystemRandom()
        self.entropy: Entropy = os.urandom
        self._destinations = destinations or Destinations()
        self._answer_limit_bytes = answer_limit_bytes
        self._runtime = runtime
        self._verify = verify
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._preparing = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._callers: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()
        self._worker = ThreadPoolExecutor(1, "tollgate-apart")
        self._threads = asyncio.Semaphore(_CODE_THREADS)
        self._owners: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def sleep_ns(self, for_ns: int, bell: Bell | None = None) -> None:
        """Return `for_ns` later, or as soon as `bell` rings."""
        seconds = max(0, for_ns) / SECOND_NS
        if bell is None:
            await asyncio.sleep(seconds)
            return
        rung = asyncio.Event()
        bell.ring = rung.set
        try:
            async with asyncio.timeout(seconds):
                await rung.wait()
        except TimeoutError:
            return

    async def apart(self, work: Callable[[], _Result], whose: object) -> _Result:
        """Run work in the one worker thread, which callers share in turn (D-BODY-COST).

        More threads would finish no earlier, since Python runs one at a time, and hold the memory
        of several large bodies at once. A caller waits once among the others, whatever it sends:
        one with a hundred large bodies delays itself, and others by one of them.
        """
        caller = self._callers.setdefault(whose, asyncio.Lock())
        run = partial(copy_context().run, work)  # whose reservation it is
        async with caller, self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._worker, run)

    def reserve(self, size_bytes: int) -> None:
        """Count memory that the running request takes; raises `Problem` 503 for no room."""
        reservation = RUNNING.get()
        if reservation is not None:
            reservation.grow(size_bytes)

    async def call_destination(self, call: Call, timeout_ns: int) -> CallAnswer:
        """Call a destination over HTTP; the time runs from the name's resolution to the last byte.

        No redirect is followed, no proxy of the environment is used, no cookie is kept. Raises
        `DestinationTimeout`, and `DestinationUnreachable` for whatever else goes wrong, an answer
        over `answer_limit_bytes` among it.
        """
        transport = await self.prepare()
        try:
            async with asyncio.timeout(timeout_ns / SECOND_NS):
                target = await self._destinations.target(call.url)
                return await self._exchange(transport, call, target)
        except TimeoutError:
            raise DestinationTimeout("the destination took longer than it may") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError):
            raise DestinationUnreachable("the destination cannot be reached") from None

    async def run_code(
        self,
        code: str,
        args: Json,
        configuration: Mapping[str, str],
        timeout_ns: int,
        owner: str = "",
    ) -> Json:
        """Hand code to the operator's runtime; a plain function runs in a thread of its own.

        A thread cannot be stopped: after `timeout_ns` the caller is answered, the function's result
        is dropped, and the thread ends with the process at the latest. Each owner has a few threads
        (`_THREADS_PER_OWNER`) of those that there are (`_CODE_THREADS`), and waits for a free one.
        Raises `DestinationTimeout`.
        """
        if self._runtime is None:
            return args
        try:
            async with asyncio.timeout(timeout_ns / SECOND_NS):
                if inspect.iscoroutinefunction(self._runtime):
                    result: Json = await self._runtime(code, args, configuration)
                    return result
                work = partial(self._runtime, code, args, configuration)
                return cast("Json", await self._in_thread(work, owner))  # which the engine checks
        except TimeoutError:
            raise DestinationTimeout("the code took longer than it may") from None

    async def _in_thread(self, work: Callable[[], object], owner: str) -> object:
        """Return what work returns in a daemon thread, which delays no stop of the process."""
        own = self._owners.get(owner)
        if own is None:
            own = self._owners[owner] = asyncio.Semaphore(_THREADS_PER_OWNER)
        await own.acquire()
        try:
            await self._threads.acquire()
        except BaseException:
            own.release()
            raise
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[object] = loop.create_future()

        def ended(result: object, error: BaseException | None) -> None:
            self._threads.release()
            own.release()
            if outcome.cancelled():
                return
            if error is None:
                outcome.set_result(result)
            else:
                outcome.set_exception(error)

        def run() -> None:
            result: object = None
            failure: BaseException | None = None
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 # reason: the caller judges what code raises
                failure = error
            except BaseException as error:  # noqa: BLE001 # reason: such as SystemExit
                failure = RuntimeError(type(error).__name__)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(ended, result, failure)

        threading.Thread(target=run, name="tollgate-code", daemon=True).start()
        return await outcome

    async def prepare(self) -> httpx.AsyncHTTPTransport:
        """Return the transport; it is made before a call, which then need not load certificates.

        Called first in every call, and by a server when it starts.
        """
        async with self._preparing:
            if self._transport is None:
                if self._verify is None:
                    self._verify = await asyncio.to_thread(ssl.create_default_context)
                self._transport = httpx.AsyncHTTPTransport(
                    verify=self._verify,
                    trust_env=False,
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
                )
            return self._transport

    async def close(self) -> None:
        """Close the connections to destinations, and end the worker."""
        self._worker.shutdown()
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def _exchange(
        self, transport: httpx.AsyncHTTPTransport, call: Call, target: CheckedTarget
    ) -> CallAnswer:
        """Send the call to the judged address, with the URL's own name in Host and in TLS."""
        address = f"[{target.address}]" if ":" in target.address else target.address
        headers = [
            (b"host", target.host_field.encode("ascii")),
            *(
                (name.encode("ascii"), value.encode("latin-1", "replace"))
                for name, value in call.headers.items()
            ),
        ]
        request = httpx.Request(
            call.method,
            httpx.URL(f"{target.scheme}://{address}:{target.port}").copy_with(
                raw_path=target.target.encode("ascii")
            ),
            headers=headers,
            content=call.body or None,
            extensions={"sni_hostname": target.host},
        )
        response = await transport.handle_async_request(request)
        try:
            return await self._read(response)
        finally:
            await response.aclose()

    async def _read(self, response: httpx.Response) -> CallAnswer:
        """Return the answer as received, not decompressed, with the headers that HTTP allows."""
        status = response.status_code
        if not 200 <= status <= 599:
            raise DestinationUnreachable("the destination answered a status that is none")
        parts: list[bytes] = []
        size_bytes = 0
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream), "an async transport's"
        async for part in stream:
            size_bytes += len(part)
            if size_bytes > self._answer_limit_bytes:
                raise DestinationUnreachable("the destination answered too much")
            self.reserve(len(part))
            parts.append(part)
        return CallAnswer(status, _fields(response.headers), b"".join(parts))


def _fields(headers: httpx.Headers) -> dict[str, str]:
    """Return the fields, repeated ones joined by commas; Set-Cookie values by line feeds."""
    fields: dict[str, str] = {}
    for raw_name, raw_value in headers.raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if re.fullmatch(FIELD_NAME, name) is None or re.fullmatch(FIELD_VALUE, value) is None:
            continue
        joint = "\n" if name == "set-cookie" else ", "
        fields[name] = value if name not in fields else fields[name] + joint + value
    return fields


_PORTS = {"http": 80, "https": 443}
_NOT_PUBLIC: Final = parse_networks(
    ("64:ff9b:1::/48", "fec0::/10", "::/96", "3fff::/20", "5f00::/16"),
    "networks that are not public",
)
"""Networks that Python's `is_global` may hold for public: local NAT64 (RFC 8215), site-local
addresses (RFC 3879), IPv4-compatible addresses (RFC 4291, 2.5.5.1), documentation (RFC 9637),
segment identifiers (RFC 9602)."""

_Origin: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """The target of a call: the checked address, and the parts of the URL."""

    address: str
    port: int
    scheme: str
    host: str
    host_field: str
    target: str


class Destinations:
    """The operator's list of destinations.

    allowed: origins such as `https://api.example.com`, with a path where only what lies below it
        may be called. private: addresses and networks outside of the public internet that may be
        called all the same. Raises `InputError` for an invalid entry.
    """

    __slots__ = ("_allowed", "_private")

    def __init__(self, allowed: Iterable[str] = (), private: Iterable[str] = ()) -> None:
        self._allowed = tuple(_entry(text) for text in allowed)
        self._private: tuple[Network, ...] = parse_networks(private, "private_destinations")

    async def target(self, url: str) -> CheckedTarget:
        """Return where a call to `url` goes.

        Raises `DestinationUnreachable` when it may not be called or has no address.
        """
        try:
            parts = urlsplit(url)
            scheme, host, port = origin = _origin(parts)
        except (ValueError, KeyError):
            raise DestinationUnreachable("the address is none") from None
        below = unquote(parts.path).replace("\\", "/").rstrip("/") + "/"
        covers = (own == origin and below.startswith(path) for own, path in self._allowed)
        if leaves_its_folder(parts.path) or not any(covers):
            raise DestinationUnreachable("the destination is not on the operator's list")
        address = await self._judged(host, port)
        target = parts.path or "/"
        if parts.query:
            target += "?" + parts.query
        return CheckedTarget(str(address), port, scheme, host, parts.netloc, target)

    async def _judged(self, host: str, port: int) -> Address:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise DestinationUnreachable("the destination's name has no address") from None
        for info in infos:
            address = ip_address(str(info[4][0]).partition("%")[0])
            if self._may_be_called(address):
                return address
        raise DestinationUnreachable("the destination's address may not be called")

    def _may_be_called(self, address: Address) -> bool:
        inner = _inner(address)
        if in_networks(inner, self._private) or in_networks(address, self._private):
            return True
        if any(in_networks(candidate, _NOT_PUBLIC) for candidate in (address, inner)):
            return False
        return all(
            candidate.is_global and not candidate.is_multicast for candidate in (address, inner)
        )


def _inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one leads to (mapped, 6to4, NAT64), else itself."""
    address = unmapped(address)
    if isinstance(address, IPv6Address):
        if address.sixtofour is not None:
            return address.sixtofour
        if address.packed[:12] == bytes.fromhex("0064ff9b0000000000000000"):
            return ip_address(address.packed[12:])
    return address


def _origin(parts: SplitResult) -> _Origin:
    """Return scheme, host and port; raises `ValueError` or `KeyError` where there is no port."""
    port = parts.port or _PORTS[parts.scheme]
    return parts.scheme, (parts.hostname or "").rstrip("."), port


def _entry(text: str) -> tuple[_Origin, str]:
    """Return the origin of an entry, and what the paths of its addresses begin with."""
    with contextlib.suppress(ValueError, KeyError):
        parts = urlsplit(text)
        origin = _origin(parts)
        if parts.hostname and not (parts.query or parts.fragment or "@" in parts.netloc):
            return origin, parts.path.rstrip("/") + "/"
    raise InputError(
        f"allowed_destinations = {text!r} must be an origin such as "
        f"https://api.example.com, perhaps with a path"
    )

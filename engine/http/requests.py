"""Requests as HTTP brings them: header fields, bodies read when the engine asks, client addresses.

The engine reads a body only after it has checked limits and key, and never beyond the size limit
(D-ORDER, D-SIZE); a `Content-Length` is checked before a byte is read. A body has 20 s, and a
second more for each 1,000 bytes received.

One `MemoryBudget` bounds the memory of all requests, and of a caller's: unfinished heads, bodies,
what is read for a request or answered from outside, and answers that their clients have not
taken. What does not fit gets 503 with `Retry-After`, before it is there.

A client's address (D-IP) is the socket's peer. A forwarded-for header counts only when the peer is
one of the proxies that the operator trusts, and then the nearest address in it that is none of
them. The engine tells apart which addresses are one client's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final, TypeAlias

from starlette.requests import ClientDisconnect

from engine.errors import InputError
from engine.hosts import Address, read_address
from engine.messages import Problem, Request
from engine.resources import OPERATIONS
from engine.world import UNCOUNTED_BYTES

Network: TypeAlias = IPv4Network | IPv6Network

_NOBODY: Final = "0.0.0.0"  # noqa: S104 # reason: compared, never bound
"""The address of clients that connect through a Unix socket."""

_HOPS_LIMIT: Final = 32


def parse_networks(texts: Iterable[str], what: str) -> tuple[Network, ...]:
    """Return addresses and networks such as `10.0.0.0/8`; `what` names them in messages.

    Raises `InputError`.
    """
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text, strict=False))
        except ValueError:
            raise InputError(
                f"{what} = {text!r} must be an IP address or a network such as 10.0.0.0/8"
            ) from None
    return tuple(networks)


def in_networks(address: Address, networks: Sequence[Network]) -> bool:
    """Return whether one of the networks holds the address."""
    return any(address in network for network in networks)


@lru_cache(65_536)
def peer_address(peer: str) -> str:
    """Return the address of a socket's peer; one without an address has nobody's."""
    return _NOBODY if read_address(peer) is None else peer


def forwarded_client(peer: str, forwarded: str, trusted: Sequence[Network]) -> str:
    """Return the last address of a chain of proxies that is no trusted one's.

    peer: the address of the chain's end. forwarded: the header. An entry that is not an address
    ends the chain: the entries before it cannot be trusted.

    >>> forwarded_client("10.0.0.1", "198.51.100.9", parse_networks(["10.0.0.0/8"], "trusted"))
    '198.51.100.9'
    """
    nearest = read_address(peer)
    assert nearest is not None, "a peer has an address"
    for hop in reversed(forwarded.split(",")[-_HOPS_LIMIT:]):
        if not in_networks(nearest, trusted):
            break
        address = read_address(hop.strip())
        if address is None:
            break
        nearest = address
    return str(nearest)


Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]

KEPT_UNREAD_BYTES: Final = 65_536
"""The most unread body to skip on a kept connection; with more, the connection is closed."""

BUDGET_BYTES: Final = 300_000_000
"""The most memory of all requests that are being read or answered."""

OWNER_BYTES: Final = 100_000_000
"""The most of it that one caller may hold: an API key, or an address without a key. It is enough
for the largest file of an account-updater job beside its result (ACC-FILE)."""

_ASK_FOR_A_KEY: Final = frozenset(o.name for o in OPERATIONS if o.authentication == "key")

_GRACE_S: Final = 20.0
_LEAST_BYTES_A_SECOND: Final = 1_000


class Fields(dict[str, str]):
    """A request's header fields by their names in lower case; repeated ones joined by commas.

    are_lower: tells callers that they need not compare names without case.
    """

    are_lower: Final = True

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
        super().__init__(fields)
        if len(self) != len(fields):
            for name in self:  # a cookie's parts are joined as in RFC 9113, 8.2.3
                separator = "; " if name == "cookie" else ", "
                self[name] = separator.join(value for other, value in fields if other == name)

    def __repr__(self) -> str:
        return f"<Fields: {len(self)}>"


class MemoryBudget:
    """How much memory requests hold: each caller's, and all together."""

    __slots__ = ("_held_by", "_lock", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int = BUDGET_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held_by: dict[object, int] = {}
        self._lock = threading.Lock()

    def check(self, more_bytes: int, owner: object) -> None:
        """Raise `Problem` 503 where a caller cannot hold so much more."""
        own_bytes = self._held_by.get(owner, 0) + more_bytes
        if own_bytes > OWNER_BYTES or self.held_bytes + more_bytes > self.limit_bytes:
            raise Problem(
                503,
                "The server holds too much for requests that it has not answered yet.",
                clause=None,
                headers={"Retry-After": "1"},
            )

    def add(self, more_bytes: int, owner: object) -> None:
        """Count more of a caller's memory, or less; raises `Problem` 503 as `check` does."""
        with self._lock:
            if more_bytes > 0:
                self.check(more_bytes, owner)
            self.held_bytes += more_bytes
            own_bytes = self._held_by.pop(owner, 0) + more_bytes
            if own_bytes:
                self._held_by[owner] = own_bytes


@dataclass(eq=False, repr=False, slots=True)
class Reservation:
    """What one request holds of a budget, until it is resized to 0.

    owner: who holds it; by the request, once there is one: its API key where the operation asks for
    one, which is then known, else its address.
    """

    _budget: MemoryBudget
    owner: object = None
    request: Request | None = None
    size_bytes: int = 0

    def check(self, more_bytes: int) -> None:
        """Raise `Problem` 503 where there is no room for so much more."""
        if self.request is not None and not self.size_bytes:
            keyed = self.request.operation in _ASK_FOR_A_KEY
            self.owner = self.request.key if keyed else self.request.ip
        self._budget.check(more_bytes, self.owner)

    def resize(self, size_bytes: int) -> None:
        """Hold that much; raises `Problem` 503, and changes nothing, where there is no room."""
        if size_bytes > self.size_bytes:
            self.check(size_bytes - self.size_bytes)
        if size_bytes != self.size_bytes:
            self._budget.add(size_bytes - self.size_bytes, self.owner)
            self.size_bytes = size_bytes

    def grow(self, more_bytes: int) -> None:
        """Hold more; raises `Problem` 503 where there is no room."""
        self.resize(self.size_bytes + more_bytes)


RUNNING: Final[ContextVar[Reservation | None]] = ContextVar("running", default=None)
"""The reservation of the request that runs in this task, for what the engine reads for it."""


@dataclass(eq=False, repr=False, slots=True)
class Body:
    """A request body that is still arriving (`engine.messages.BodyStream`).

    size_bytes: what the head announces, None where it comes in chunks. `is_whole` once its last
    byte was read.
    """

    _receive: Receive
    size_bytes: int | None
    _reservation: Reservation
    read_bytes: int = 0
    is_whole: bool = False
    is_late: bool = False

    @property
    def ends_connection(self) -> bool:
        """Whether too much of it is unread for the connection to go on."""
        if self.is_whole:
            return False
        return self.is_late or self.size_bytes is None or self.size_bytes > KEPT_UNREAD_BYTES

    async def read(self, limit_bytes: int) -> bytes | None:
        """Return the whole body, None as soon as it is known to exceed the limit.

        Raises `Problem` 400 for a sender that is too slow, 503 where the server holds too much
        already, starlette's `ClientDisconnect` for a sender that has gone.
        """
        if self.size_bytes is not None:
            if self.size_bytes > limit_bytes:
                return None
            if self.size_bytes > UNCOUNTED_BYTES:
                self._reservation.check(self.size_bytes)
        try:
            async with asyncio.timeout(_GRACE_S) as deadline:
                return await self._read(limit_bytes, deadline)
        except TimeoutError:
            self.is_late = True
            raise Problem(400, "The body came too slowly.", clause="D-STATUSES") from None

    async def _read(self, limit_bytes: int, deadline: asyncio.Timeout) -> bytes | None:
        parts: list[bytes] = []
        began_s = asyncio.get_running_loop().time()
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            part: bytes = message.get("body", b"")
            self.read_bytes += len(part)
            self.is_whole = not message.get("more_body", False)
            if self.read_bytes > limit_bytes:
                return None
            if self.read_bytes > UNCOUNTED_BYTES:
                self._reservation.resize(self.read_bytes)
            if self.is_whole:
                return b"".join((*parts, part)) if parts else part
            parts.append(part)
            deadline.reschedule(began_s + _GRACE_S + self.read_bytes / _LEAST_BYTES_A_SECOND)

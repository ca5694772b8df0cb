"""What arrives: the header fields and the body of a request, as the engine asks for them.

The engine reads a body only after limits and key, and never further than its bound (D-ORDER,
D-SIZE); a length that the head announces is judged before a byte is read. Who sends a body too
slowly is given up (`Watch`), so that nobody holds the server by the hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from engine.messages import Problem

__all__ = ["Body", "Disconnected", "Fields", "Receive", "Watch"]

Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]

KEPT_UNREAD_BYTES: Final = 65_536
"""So much unread body is let pass on a connection that goes on; more ends it."""

_GRACE_S: Final = 20.0
_LEAST_BYTES_A_SECOND: Final = 1_000


class Disconnected(Exception):
    """The client has gone before its request was whole; nobody waits for an answer."""


class Fields(Mapping[str, str]):
    """A request's header fields, names without regard to case; repeated ones joined by commas."""

    __slots__ = ("_values",)

    def __init__(
        self, raw: Sequence[tuple[bytes, bytes]], values: dict[bytes, bytes] | None = None
    ) -> None:
        """Take the fields; `values` is `dict(raw)` where it is there already."""
        if values is None:
            values = dict(raw)
        if len(values) != len(raw):
            values = {
                name: b", ".join(value for other, value in raw if other == name) for name in values
            }
        self._values = values

    def __repr__(self) -> str:
        return f"<Fields: {len(self._values)}>"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower().encode("latin-1", "replace")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._values)

    def __len__(self) -> int:
        return len(self._values)


class Body:
    """A request's body on its way (`engine.messages.BodyStream`).

    size_bytes: what the head announces, None where it comes in chunks. `is_whole` once its last
    byte was read.
    """

    __slots__ = ("_receive", "_task", "_watch", "is_late", "is_whole", "read_bytes", "size_bytes")

    def __init__(self, receive: Receive, size_bytes: int | None, watch: Watch) -> None:
        self._receive = receive
        self._watch = watch
        self._task: asyncio.Task[Any] | None = None
        self.size_bytes = size_bytes
        self.read_bytes = 0
        self.is_whole = False
        self.is_late = False

    @property
    def ends_connection(self) -> bool:
        """Whether too much of it is unread for the connection to go on."""
        if self.is_whole:
            return False
        return self.is_late or self.size_bytes is None or self.size_bytes > KEPT_UNREAD_BYTES

    async def read(self, limit_bytes: int) -> bytes | None:
        """Return the whole body, None as soon as it is known to exceed the limit.

        Raises `Problem` 408 for a sender that is too slow, `Disconnected` for one that has gone.
        """
        if self.size_bytes is not None and self.size_bytes > limit_bytes:
            return None
        self._task = asyncio.current_task()
        self._watch.reading[self] = self._watch.now_s
        try:
            return await self._read(limit_bytes)
        except asyncio.CancelledError:
            if not self.is_late or self._task is None:
                raise
            self._task.uncancel()
            raise Problem(408, "The body came too slowly.") from None
        finally:
            del self._watch.reading[self]

    async def _read(self, limit_bytes: int) -> bytes | None:
        parts: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise Disconnected
            part: bytes = message.get("body", b"")
            self.read_bytes += len(part)
            if not message.get("more_body", False):
                self.is_whole = True
                if self.read_bytes > limit_bytes:
                    return None
                return b"".join((*parts, part)) if parts else part
            if self.read_bytes > limit_bytes:
                return None
            parts.append(part)

    def give_up(self) -> None:
        """Stop waiting for the rest."""
        self.is_late = True
        if self._task is not None:
            self._task.cancel()


class Watch:
    """Who is reading a body since when; asked by a timer instead of a timer for each request.

    A body has 20 s, and a second more for each 1 000 bytes that have come.
    """

    __slots__ = ("now_s", "reading")

    def __init__(self) -> None:
        self.reading: dict[Body, float] = {}
        self.now_s = 0.0

    def tick(self, now_s: float) -> None:
        """Give up every body that is too late at `now_s`, in seconds of any one clock."""
        self.now_s = now_s
        for body, since_s in list(self.reading.items()):
            if now_s - since_s > _GRACE_S + body.read_bytes / _LEAST_BYTES_A_SECOND:
                body.give_up()

"""Bodies that arrive in pieces: how much of them is read, and how much memory they may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from engine.http.requests import (
    BODIES_LIMIT_BYTES,
    KEPT_UNREAD_BYTES,
    OWNER_LIMIT_BYTES,
    Body,
    Disconnected,
    Watch,
)
from engine.messages import Problem


class _Sender:
    """Gives the pieces of a body, and says how many were taken."""

    def __init__(self, *pieces: bytes | None) -> None:
        self._pieces = pieces
        self.taken = 0

    async def __call__(self) -> Mapping[str, Any]:
        piece = self._pieces[self.taken]
        self.taken += 1
        if piece is None:
            return {"type": "http.disconnect"}
        is_last = self.taken == len(self._pieces)
        return {"type": "http.request", "body": piece, "more_body": not is_last}


def _read(body: Body, limit_bytes: int) -> bytes | None:
    return asyncio.run(body.read(limit_bytes))


@pytest.mark.parametrize(
    ("pieces", "limit", "found", "taken"),
    [
        ((b"",), 0, b"", 1),
        ((b"abc",), 3, b"abc", 1),
        ((b"abc",), 2, None, 1),
        ((b"ab", b"c"), 3, b"abc", 2),
        ((b"ab", b"c"), 2, None, 2),
        ((b"ab", b"c", b"d"), 1, None, 1),
        ((b"ab", b"", b""), 2, b"ab", 3),
    ],
)
def test_a_body_is_read_no_further_than_its_limit(
    pieces: tuple[bytes, ...], limit: int, found: bytes | None, taken: int
) -> None:
    """D-SIZE: the bound itself fits."""
    sender = _Sender(*pieces)
    body = Body(sender, None, Watch())
    assert _read(body, limit) == found
    assert sender.taken == taken
    assert body.is_whole == (taken == len(pieces))


def test_a_body_that_is_announced_too_large_is_not_read_at_all() -> None:
    sender = _Sender(b"abc")
    assert _read(Body(sender, 4, Watch()), 3) is None
    assert sender.taken == 0
    assert _read(Body(sender, 3, Watch()), 3) == b"abc"


def test_who_goes_away_in_the_middle_needs_no_answer() -> None:
    with pytest.raises(Disconnected):
        _read(Body(_Sender(b"ab", None), None, Watch()), 9)


def test_a_connection_ends_with_too_much_unread_body() -> None:
    watch = Watch()
    assert not Body(_Sender(), KEPT_UNREAD_BYTES, watch).ends_connection
    assert Body(_Sender(), KEPT_UNREAD_BYTES + 1, watch).ends_connection
    assert Body(_Sender(), None, watch).ends_connection
    assert Body(_Sender(), 1, watch, is_late=True).ends_connection
    read = Body(_Sender(b"a"), None, watch)
    assert _read(read, 1) == b"a"
    assert not read.ends_connection


def test_small_bodies_hold_nothing_and_large_ones_until_they_are_released() -> None:
    watch = Watch()
    small = Body(_Sender(b"x" * KEPT_UNREAD_BYTES, b""), None, watch)
    _read(small, 10**6)
    assert (small.held_bytes, watch.held_bytes) == (0, 0)
    large = Body(_Sender(b"x" * KEPT_UNREAD_BYTES, b"x", b"yy", b""), None, watch, owner="a")
    _read(large, 10**6)
    assert large.held_bytes == watch.held_bytes == KEPT_UNREAD_BYTES + 3
    small.release()
    assert watch.held_bytes == KEPT_UNREAD_BYTES + 3
    large.release()
    assert (large.held_bytes, watch.held_bytes) == (0, 0)
    watch.check_room(OWNER_LIMIT_BYTES, "a")


def _holding(watch: Watch, size_bytes: int, owner: str) -> Body:
    body = Body(_Sender(), None, watch, owner=owner, read_bytes=size_bytes)
    watch.hold(body)
    return body


def _is_refused(watch: Watch, size_bytes: int, owner: str) -> bool:
    try:
        watch.check_room(size_bytes, owner)
    except Problem as problem:
        return (problem.status, problem.headers) == (503, {"Retry-After": "1"})
    return False


def test_one_caller_may_hold_a_share_and_all_together_the_whole() -> None:
    watch = Watch()
    first = _holding(watch, OWNER_LIMIT_BYTES - 5, "a")
    assert not _is_refused(watch, 5, "a")
    assert _is_refused(watch, 6, "a")
    second = _holding(watch, 5, "a")
    assert _is_refused(watch, 1, "a")
    for owner in "bcd":
        _holding(watch, OWNER_LIMIT_BYTES, owner)
    assert watch.held_bytes == BODIES_LIMIT_BYTES == 4 * OWNER_LIMIT_BYTES
    assert not _is_refused(watch, 0, "e")
    assert _is_refused(watch, 1, "e")
    second.release()
    assert not _is_refused(watch, 5, "e")
    assert not _is_refused(watch, 5, "a")
    first.release()
    assert not _is_refused(watch, OWNER_LIMIT_BYTES, "a")


def test_a_large_announced_body_needs_room_before_it_is_read() -> None:
    sender, watch = _Sender(b"abc"), Watch(KEPT_UNREAD_BYTES)
    with pytest.raises(Problem, match="too many large bodies"):
        _read(Body(sender, KEPT_UNREAD_BYTES + 1, watch), 10**6)
    assert sender.taken == 0
    assert _read(Body(sender, KEPT_UNREAD_BYTES, watch), 10**6) == b"abc"

"""Bodies that arrive in pieces: how much of them is read, and how much memory they may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from engine.http.requests import (
    BUDGET_BYTES,
    KEPT_UNREAD_BYTES,
    OWNER_BYTES,
    Body,
    Disconnected,
    MemoryBudget,
    Reservation,
)
from engine.messages import Problem, Request
from engine.world import UNCOUNTED_BYTES


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
    body = Body(sender, None, Reservation(MemoryBudget()))
    assert _read(body, limit) == found
    assert sender.taken == taken
    assert body.is_whole == (taken == len(pieces))


def test_a_body_that_is_announced_too_large_is_not_read_at_all() -> None:
    sender = _Sender(b"abc")
    assert _read(Body(sender, 4, Reservation(MemoryBudget())), 3) is None
    assert sender.taken == 0
    assert _read(Body(sender, 3, Reservation(MemoryBudget())), 3) == b"abc"


def test_who_goes_away_in_the_middle_needs_no_answer() -> None:
    with pytest.raises(Disconnected):
        _read(Body(_Sender(b"ab", None), None, Reservation(MemoryBudget())), 9)


def test_a_connection_ends_with_too_much_unread_body() -> None:
    held = Reservation(MemoryBudget())
    assert not Body(_Sender(), KEPT_UNREAD_BYTES, held).ends_connection
    assert Body(_Sender(), KEPT_UNREAD_BYTES + 1, held).ends_connection
    assert Body(_Sender(), None, held).ends_connection
    assert Body(_Sender(), 1, held, is_late=True).ends_connection
    read = Body(_Sender(b"a"), None, held)
    assert _read(read, 1) == b"a"
    assert not read.ends_connection


def test_small_bodies_hold_nothing_and_large_ones_until_they_are_released() -> None:
    budget = MemoryBudget()
    small = Body(_Sender(b"x" * UNCOUNTED_BYTES, b""), None, Reservation(budget))
    _read(small, 10**6)
    assert budget.held_bytes == 0
    held = Reservation(budget, "a")
    large = Body(_Sender(b"x" * UNCOUNTED_BYTES, b"x", b"yy", b""), None, held)
    _read(large, 10**6)
    assert held.size_bytes == budget.held_bytes == UNCOUNTED_BYTES + 3
    held.resize(0)
    assert budget.held_bytes == 0
    Reservation(budget, "a").resize(OWNER_BYTES)


def _is_refused(budget: MemoryBudget, size_bytes: int, owner: str) -> bool:
    try:
        Reservation(budget, owner).check(size_bytes)
    except Problem as problem:
        return (problem.status, problem.headers) == (503, {"Retry-After": "1"})
    return False


def test_one_caller_may_hold_a_share_and_all_together_the_whole() -> None:
    budget = MemoryBudget()
    first, second = Reservation(budget, "a"), Reservation(budget, "a")
    first.resize(OWNER_BYTES - 5)
    assert not _is_refused(budget, 5, "a")
    assert _is_refused(budget, 6, "a")
    second.grow(5)
    assert _is_refused(budget, 1, "a")
    for owner in "bc":
        Reservation(budget, owner).resize(OWNER_BYTES)
    assert budget.held_bytes == BUDGET_BYTES == 3 * OWNER_BYTES
    assert not _is_refused(budget, 0, "e")
    assert _is_refused(budget, 1, "e")
    second.resize(0)
    assert not _is_refused(budget, 5, "e")
    assert not _is_refused(budget, 5, "a")
    first.resize(0)
    assert not _is_refused(budget, OWNER_BYTES, "a")


def test_a_caller_is_the_key_where_one_is_asked_for_and_else_the_address() -> None:
    """An unknown key buys nobody a share of its own."""
    budget = MemoryBudget()
    for operation, owner in (("tokenize", "k"), ("invoke_proxy", "192.0.2.1"), (None, "192.0.2.1")):
        request = Request("POST", "/", ip="192.0.2.1", key="k")
        request.operation = operation
        held = Reservation(budget, request=request)
        held.resize(1)
        assert held.owner == owner


def test_a_large_announced_body_needs_room_before_it_is_read() -> None:
    sender, held = _Sender(b"abc"), Reservation(MemoryBudget(UNCOUNTED_BYTES))
    with pytest.raises(Problem, match="holds too much"):
        _read(Body(sender, UNCOUNTED_BYTES + 1, held), 10**6)
    assert sender.taken == 0
    assert _read(Body(sender, UNCOUNTED_BYTES, held), 10**6) == b"abc"

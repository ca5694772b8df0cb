"""Compiled events come in the reference's order: (t_ns, client, attempt), then serial and making.

A wheel in front of a heap is an optimisation that no result may show. So events are made and taken
as a simulation does it, new ones at or after the last taken, close together or years apart, and
held against Python's own heap.
"""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.limits.compiled.jit import Jit, pointer
from simulator.play.compiled import event_queue as ordering
from simulator.play.compiled import layout as at
from simulator.play.compiled import state
from simulator.play.compiled.layout import linked

_JIT = Jit("tests of order", [Path(str(m.__file__)) for m in (ordering, state, at)])
_ROOM = 1 << 11


class Events(NamedTuple):
    """As much of a simulation as events need."""

    clock: Any
    events: Any
    links: Any
    near: Any
    wheel: Any
    wheel_mask: int
    heap: Any


@_JIT.compiled
def play(  # noqa: PLR0917 # reason: compiled code takes arrays one by one
    clock: Any,
    events: Any,
    links: Any,
    near: Any,
    wheel: Any,
    heap: Any,
    gaps: Any,
    orders: Any,
    most: int,
    out: Any,
) -> None:
    """Take `len(out)` events; keep about `most` pending, each `gaps` after the one taken."""
    sim = Events(
        pointer(clock),
        pointer(events),
        pointer(links),
        pointer(near),
        pointer(wheel),
        len(wheel) - 1,
        pointer(heap),
    )
    made = 0
    for taken in range(len(out)):
        while made < len(gaps) and sim.clock[at.PENDING] < most:
            t_ns = sim.clock[at.NOW] + gaps[made]
            ordering.schedule(sim, t_ns, orders[made], 7 * made % 3, at.ASK, made)
            made += 1
        number = ordering.next_event(sim)
        out[taken] = state.event_row(sim, number)[at.E_WHAT] >> at.KIND_BITS
        ordering.free_event(sim, number)


def reference(gaps: list[int], orders: list[int], most: int) -> list[int]:
    """Return what is taken, in order, by a heap of whole keys."""
    heap: list[tuple[int, int, int, int]] = []
    now_ns, made, out = 0, 0, []
    while made < len(gaps) or heap:
        while made < len(gaps) and len(heap) < most:
            key = (now_ns + gaps[made], orders[made], 7 * made % 3, made)
            heapq.heappush(heap, key)
            made += 1
        now_ns, _, _, what = heapq.heappop(heap)
        out.append(what)
    return out


def compiled(gaps: list[int], orders: list[int], most: int) -> list[int]:
    """Return the same of the compiled events."""
    clock = np.zeros(at.CLOCK_WIDTH, dtype=np.int64)
    clock[at.SHIFT], clock[at.TUNE_AT] = ordering.ALL_NEAR, ordering.FIRST_TUNING
    links = linked(np.zeros((0, at.LINK_WIDTH), dtype=np.int64), 0, _ROOM, at.L_NEXT)
    wheel = np.full(64, at.NONE, dtype=np.int32)
    out = np.zeros(len(gaps), dtype=np.int64)
    play(
        clock,
        np.zeros((_ROOM, at.EVENT_WIDTH), dtype=np.int64),
        links,
        np.zeros((at.NEAR_ROOM, at.NEAR_WIDTH), dtype=np.int64),
        wheel,
        np.zeros((_ROOM, 2), dtype=np.int64),
        np.array(gaps, dtype=np.int64),
        np.array(orders, dtype=np.int64),
        most,
        out,
    )
    assert clock[at.PENDING] == 0
    return [int(what) for what in out]


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from([1, 3, 40, 1_000, 10**6, 10**9, 10**13]), min_size=1, max_size=3),
    st.integers(1, 1_500),
)
@settings(max_examples=60)
def test_events_come_in_order(seed: int, scales: list[int], most: int) -> None:
    chance = np.random.default_rng(seed)
    # Epochs of different density, so that spans are changed on the way.
    gaps = np.concatenate([chance.integers(0, scale + 1, 2_000) for scale in scales])
    orders = chance.integers(-1, 40, len(gaps))
    expected = reference(gaps.tolist(), orders.tolist(), most)
    assert compiled(gaps.tolist(), orders.tolist(), most) == expected


def test_a_crowd_of_one_instant_and_then_nothing_for_years() -> None:
    gaps = [5] * 600 + [10**17] * 5 + [0] * 600 + [1] * 2_000
    orders = [(7 * place) % 601 for place in range(len(gaps))]
    for most in (1, 30, 900, 1_500):
        assert compiled(gaps, orders, most) == reference(gaps, orders, most)

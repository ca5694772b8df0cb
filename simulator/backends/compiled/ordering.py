"""Events in order of (instant, client, attempt, serial, making), the service's own first.

A heap holds the events that are near, a wheel of lists those that are not: an event goes to the
list of its span of time, and when the heap is empty the next list that has events of its span is
heaped. A span is made so long that the heap holds an event or two, whatever the traffic; order is
the heap's alone, so neither the spans nor when they are changed can be seen in a result.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.limits.compiled.finding import Int
from engine.limits.compiled.jit import called, inlined
from simulator.backends.compiled import layout as at
from simulator.backends.compiled.state import RawSim, event_row

__all__ = ["ALL_NEAR", "FIRST_TUNING", "next_event", "schedule"]

ALL_NEAR: Final = 62
"""A span so long (2^62 ns) that everything is heaped."""

FIRST_TUNING: Final = 256
"""After so many events the first spans are made."""

_FEW: Final = 24
"""Of fewer events the heap alone is faster."""

_LONGEST: Final = 50
_TUNED_EVERY: Final = 4_096


@inlined
def _before(sim: RawSim, one: Int, other: Int) -> Any:  # noqa: ANN401 # reason: a truth value of the machine's
    """Whether one event of the same instant comes before another."""
    a, b = event_row(sim, one), event_row(sim, other)
    if a[at.E_ORDER] != b[at.E_ORDER]:
        return a[at.E_ORDER] < b[at.E_ORDER]
    if a[at.E_SERIAL] != b[at.E_SERIAL]:
        return a[at.E_SERIAL] < b[at.E_SERIAL]
    return a[at.E_SEQUENCE] < b[at.E_SEQUENCE]


@called
def schedule(sim: RawSim, t_ns: Int, order: Int, serial: Int, kind: Int, what: Int) -> None:
    """Make an event."""
    clock = sim.clock
    number = clock[at.FREE_EVENT]
    event = event_row(sim, number)
    clock[at.FREE_EVENT] = event[at.E_NEXT]
    event[at.E_T] = t_ns
    event[at.E_ORDER] = order
    event[at.E_SERIAL] = serial
    event[at.E_SEQUENCE] = clock[at.SEQUENCE]
    event[at.E_KIND] = kind
    event[at.E_WHAT] = what
    clock[at.SEQUENCE] += 1
    clock[at.PENDING] += 1
    _place(sim, number, t_ns)


@inlined
def _place(sim: RawSim, number: Int, t_ns: Int) -> None:
    """Put an event where it belongs."""
    clock = sim.clock
    span = t_ns >> clock[at.SHIFT]
    if span > clock[at.EPOCH]:
        slot = span & sim.wheel_mask
        event_row(sim, number)[at.E_NEXT] = sim.wheel[slot]
        sim.wheel[slot] = number
    else:
        _heap(sim, number, t_ns)


@inlined
def _heap(sim: RawSim, number: Int, t_ns: Int) -> None:
    """Put an event on the heap, of which each place has four below it."""
    heap, clock = sim.heap, sim.clock
    place = clock[at.HEAPED]
    clock[at.HEAPED] = place + 1
    while place > 0:
        above = (place - 1) >> 2
        above_ns = heap[2 * above]
        if above_ns < t_ns or (above_ns == t_ns and _before(sim, heap[2 * above + 1], number)):
            break
        heap[2 * place] = above_ns
        heap[2 * place + 1] = heap[2 * above + 1]
        place = above
    heap[2 * place] = t_ns
    heap[2 * place + 1] = number


@inlined
def next_event(sim: RawSim) -> Int:
    """Take the first event of all; there is one."""
    clock = sim.clock
    clock[at.TAKEN] += 1
    if clock[at.TAKEN] >= clock[at.TUNE_AT]:
        _tune(sim)
    if clock[at.HEAPED] == 0:
        _turn(sim)
    heap = sim.heap
    found = heap[1]
    clock[at.PENDING] -= 1
    count = clock[at.HEAPED] - 1
    clock[at.HEAPED] = count
    if count:
        _sift(sim, count)
    return found


@called
def _sift(sim: RawSim, count: Int) -> None:
    """Move the heap's last event to where it belongs, from the top on."""
    heap = sim.heap
    t_ns, number = heap[2 * count], heap[2 * count + 1]
    place: Int = np.int64(0)
    while True:
        child = 4 * place + 1
        if child >= count:
            break
        best, best_ns = child, heap[2 * child]
        for other in range(child + 1, min(child + 4, count)):
            other_ns = heap[2 * other]
            if other_ns < best_ns or (
                other_ns == best_ns and _before(sim, heap[2 * other + 1], heap[2 * best + 1])
            ):
                best, best_ns = other, other_ns
        if t_ns < best_ns or (t_ns == best_ns and _before(sim, number, heap[2 * best + 1])):
            break
        heap[2 * place] = best_ns
        heap[2 * place + 1] = heap[2 * best + 1]
        place = best
    heap[2 * place] = t_ns
    heap[2 * place + 1] = number


@called
def _turn(sim: RawSim) -> None:
    """Turn the wheel to the next span that has events, and heap them."""
    clock, wheel, shift = sim.clock, sim.wheel, sim.clock[at.SHIFT]
    span = clock[at.EPOCH]
    passed = np.int64(0)
    while clock[at.HEAPED] == 0:
        if passed > sim.wheel_mask:
            span, passed = _least_span(sim) - 1, np.int64(0)
        span += 1
        passed += 1
        number = np.int64(wheel[span & sim.wheel_mask])
        if number >= 0:
            left = np.int64(at.NONE)
            while number >= 0:
                event = event_row(sim, number)
                following = event[at.E_NEXT]
                if event[at.E_T] >> shift == span:
                    _heap(sim, number, event[at.E_T])
                else:
                    event[at.E_NEXT] = left
                    left = number
                number = following
            wheel[span & sim.wheel_mask] = left
    clock[at.EPOCH] = span
    clock[at.TUNE_AT] -= passed >> 3


@called
def _least_span(sim: RawSim) -> Int:
    """Return the first span that any list has an event of."""
    found: Int = np.int64(1) << 62
    for slot in range(sim.wheel_mask + 1):
        number = np.int64(sim.wheel[slot])
        while number >= 0:
            event = event_row(sim, number)
            found = min(found, event[at.E_T] >> sim.clock[at.SHIFT])
            number = event[at.E_NEXT]
    return found


@called
def _tune(sim: RawSim) -> None:
    """Make spans as long as two events are apart now, where they are not about that long."""
    clock = sim.clock
    gap_ns = 2 * (clock[at.NOW] - clock[at.TUNED_NS]) // clock[at.TAKEN]
    shift: Int = np.int64(0)
    while gap_ns > 1 and shift < _LONGEST:
        gap_ns >>= 1
        shift += 1
    if clock[at.PENDING] < _FEW:
        shift = np.int64(ALL_NEAR)
    clock[at.TUNED_NS] = clock[at.NOW]
    clock[at.TAKEN] = 0
    clock[at.TUNE_AT] = _TUNED_EVERY + 2 * clock[at.PENDING]
    if abs(shift - clock[at.SHIFT]) > 1:
        _change(sim, shift)


@called
def _change(sim: RawSim, shift: Int) -> None:
    """Place every event again, in spans of 2^shift ns."""
    clock, heap, wheel = sim.clock, sim.heap, sim.wheel
    chain = np.int64(at.NONE)
    for place in range(clock[at.HEAPED]):
        event_row(sim, heap[2 * place + 1])[at.E_NEXT] = chain
        chain = heap[2 * place + 1]
    for slot in range(sim.wheel_mask + 1):
        number = np.int64(wheel[slot])
        wheel[slot] = at.NONE
        while number >= 0:
            event = event_row(sim, number)
            following = event[at.E_NEXT]
            event[at.E_NEXT] = chain
            chain = number
            number = following
    clock[at.HEAPED] = 0
    clock[at.SHIFT] = shift
    clock[at.EPOCH] = clock[at.NOW] >> shift
    while chain >= 0:
        event = event_row(sim, chain)
        following = event[at.E_NEXT]
        _place(sim, chain, event[at.E_T])
        chain = following

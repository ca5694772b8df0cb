"""Events in order of (instant, client, attempt, serial, making), the service's own first.

A timing wheel of lists holds distant events: an event goes to the list of its span of time. As the
wheel turns, the events of a span are sorted and appended to the near events. An event for a span
that the wheel has passed goes to a heap; the next event is the earlier of the heap's first and the
first near one. The length of a span adapts so that one holds an event or two. Results depend
neither on the spans nor on how far the wheel is turned ahead.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.limits.compiled.jit import called, inlined, prefetch
from engine.limits.compiled.lookup import Int
from simulator.play.compiled import layout as at
from simulator.play.compiled.state import RawSim, event_row, link_row, near_row, request_row

ALL_NEAR: Final = 62
"""A span so long (2^62 ns) that all events go to the heap."""

FIRST_TUNING: Final = 256
"""The number of events after which the first spans are made."""

_FEW: Final = 24
"""With fewer events the heap alone is faster."""

_MANY: Final = 800
"""From this many events on, their data no longer fit into a core's own cache."""

_AHEAD: Final = 15
"""With many events, this many and one are sorted before the first happens."""

_LISTS_AHEAD: Final = 6
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
    event, link = event_row(sim, number), link_row(sim, number)
    clock[at.FREE_EVENT] = link[at.L_NEXT]
    link[at.L_T] = t_ns
    event[at.E_ORDER] = order
    event[at.E_SERIAL] = serial
    event[at.E_SEQUENCE] = clock[at.SEQUENCE]
    event[at.E_WHAT] = what << at.KIND_BITS | kind
    clock[at.SEQUENCE] += 1
    clock[at.PENDING] += 1
    _place(sim, number, t_ns)


@inlined
def schedule_for(sim: RawSim, t_ns: Int, asking: Int, attempt: Int, kind: Int) -> None:
    """Make an event of a request, in the order of an attempt of it, or of its answer."""
    request = request_row(sim, asking)
    order = request[at.R_CLIENT] << at.ORDER_BITS | attempt
    schedule(sim, t_ns, order, request[at.R_SERIAL], kind, asking)


@inlined
def free_event(sim: RawSim, number: Int) -> None:
    """Free the place of an event that has happened."""
    link_row(sim, number)[at.L_NEXT] = sim.clock[at.FREE_EVENT]
    sim.clock[at.FREE_EVENT] = number


@inlined
def _place(sim: RawSim, number: Int, t_ns: Int) -> None:
    """Put an event on the wheel, the heap or the near list."""
    clock = sim.clock
    span = t_ns >> clock[at.SHIFT]
    if span > clock[at.EPOCH]:
        slot = span & sim.wheel_mask
        link_row(sim, number)[at.L_NEXT] = sim.wheel[slot]
        sim.wheel[slot] = number
    else:
        _heap(sim, number, t_ns)


# --- the heap ------------------------------------------------------------------------------------


@inlined
def _heap(sim: RawSim, number: Int, t_ns: Int) -> None:
    """Put an event on the heap, in which each node has four children."""
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


# --- the next event ------------------------------------------------------------------------------


@inlined
def next_event(sim: RawSim) -> Int:
    """Take the first event and set the clock to its instant; there must be one."""
    clock = sim.clock
    clock[at.TAKEN] += 1
    if clock[at.TAKEN] >= clock[at.TUNE_AT]:
        _tune(sim)
    near = clock[at.NEAR_COUNT]
    if near <= clock[at.NEAR_WANTED] and near + clock[at.HEAPED] < clock[at.PENDING]:
        _turn(sim)
    clock[at.PENDING] -= 1
    if clock[at.HEAPED] and _is_heap_first(sim):
        return _heap_first(sim)
    first = near_row(sim, clock[at.NEAR_FIRST])
    clock[at.NEAR_FIRST] += 1
    clock[at.NEAR_COUNT] -= 1
    clock[at.NOW] = first[at.N_T]
    return first[at.N_NUMBER]


@inlined
def _is_heap_first(sim: RawSim) -> Any:  # noqa: ANN401 # reason: a truth value of the machine's
    """Whether the heap's first event comes before those that are near."""
    if not sim.clock[at.NEAR_COUNT]:
        return True
    first, heap = near_row(sim, sim.clock[at.NEAR_FIRST]), sim.heap
    if heap[0] != first[at.N_T]:
        return heap[0] < first[at.N_T]
    return _before(sim, heap[1], first[at.N_NUMBER])


@called
def _heap_first(sim: RawSim) -> Int:
    """Take the heap's first event."""
    clock, heap = sim.clock, sim.heap
    found = heap[1]
    clock[at.NOW] = heap[0]
    count = clock[at.HEAPED] - 1
    clock[at.HEAPED] = count
    if count:
        _sift(sim, count)
    return found


@called
def _turn(sim: RawSim) -> None:
    """Turn the wheel, span by span, until as many events are near as are wanted.

    Where one is near already, the wheel is not turned far ahead of it: what is made for a span that
    it has passed is put in order at a higher cost.
    """
    clock, shift = sim.clock, sim.clock[at.SHIFT]
    wanted, span = clock[at.NEAR_WANTED], clock[at.EPOCH]
    farthest = (clock[at.NOW] >> shift) + 2 * wanted
    passed = np.int64(0)
    while clock[at.NEAR_COUNT] <= wanted:
        held = clock[at.NEAR_COUNT] + clock[at.HEAPED]
        if held >= clock[at.PENDING] or (held and span >= farthest):
            break
        if passed > sim.wheel_mask:
            span, passed = _least_span(sim) - 1, np.int64(0)
        span += 1
        passed += 1
        ahead = np.int64(sim.wheel[(span + _LISTS_AHEAD) & sim.wheel_mask])
        prefetch(link_row(sim, max(ahead, np.int64(0))))
        if sim.wheel[span & sim.wheel_mask] >= 0:
            _empty_list(sim, span)
    clock[at.EPOCH] = span
    clock[at.TUNE_AT] -= passed >> 3


@inlined
def _empty_list(sim: RawSim, span: Int) -> None:
    """Put the events of a span behind those that are near; those of later turns stay."""
    clock, wheel, shift = sim.clock, sim.wheel, sim.clock[at.SHIFT]
    number, left = np.int64(wheel[span & sim.wheel_mask]), np.int64(at.NONE)
    while number >= 0:
        link = link_row(sim, number)
        t_ns, following = link[at.L_T], link[at.L_NEXT]
        if t_ns >> shift != span:
            link[at.L_NEXT] = left
            left = number
        elif clock[at.NEAR_COUNT] < at.NEAR_ROOM:
            _come_near(sim, number, t_ns)
        else:
            _heap(sim, number, t_ns)
        number = following
    wheel[span & sim.wheel_mask] = left


@inlined
def _come_near(sim: RawSim, number: Int, t_ns: Int) -> None:
    """Put an event where it belongs among those that are near."""
    clock = sim.clock
    prefetch(event_row(sim, number))
    first = clock[at.NEAR_FIRST]
    place = first + clock[at.NEAR_COUNT]
    clock[at.NEAR_COUNT] += 1
    near_row(sim, place)[at.N_ASKING] = at.NONE
    while place > first:
        above = near_row(sim, place - 1)
        above_ns, above_number = above[at.N_T], above[at.N_NUMBER]
        if above_ns < t_ns or (above_ns == t_ns and _before(sim, above_number, number)):
            break
        here = near_row(sim, place)
        here[at.N_T] = above_ns
        here[at.N_NUMBER] = above_number
        place -= 1
    here = near_row(sim, place)
    here[at.N_T] = t_ns
    here[at.N_NUMBER] = number


@called
def _least_span(sim: RawSim) -> Int:
    """Return the first span that any list has an event of."""
    found: Int = np.int64(1) << 62
    for slot in range(sim.wheel_mask + 1):
        number = np.int64(sim.wheel[slot])
        while number >= 0:
            link = link_row(sim, number)
            found = min(found, link[at.L_T] >> sim.clock[at.SHIFT])
            number = link[at.L_NEXT]
    return found


# --- how long spans are --------------------------------------------------------------------------


@called
def _tune(sim: RawSim) -> None:
    """Set the length of spans to about the present distance of two events."""
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
    clock[at.NEAR_WANTED] = _AHEAD if clock[at.PENDING] >= _MANY else 0
    if abs(shift - clock[at.SHIFT]) > 1:
        place_events(sim, shift)


@called
def place_events(sim: RawSim, shift: Int) -> None:
    """Place every event again, in spans of 2^shift ns."""
    clock, heap, wheel = sim.clock, sim.heap, sim.wheel
    chain = np.int64(at.NONE)
    for place in range(clock[at.HEAPED]):
        chain = _chained(sim, heap[2 * place + 1], chain)
    for place in range(clock[at.NEAR_COUNT]):
        chain = _chained(sim, near_row(sim, clock[at.NEAR_FIRST] + place)[at.N_NUMBER], chain)
    for slot in range(sim.wheel_mask + 1):
        number = np.int64(wheel[slot])
        wheel[slot] = at.NONE
        while number >= 0:
            following = link_row(sim, number)[at.L_NEXT]
            chain = _chained(sim, number, chain)
            number = following
    clock[at.HEAPED] = clock[at.NEAR_COUNT] = 0
    clock[at.SHIFT] = shift
    clock[at.EPOCH] = clock[at.NOW] >> shift
    while chain >= 0:
        number, link = chain, link_row(sim, chain)
        chain = link[at.L_NEXT]
        _place(sim, number, link[at.L_T])


@inlined
def _chained(sim: RawSim, number: Int, chain: Int) -> Int:
    """Put an event before a chain of others, and return it."""
    link_row(sim, number)[at.L_NEXT] = chain
    return np.int64(number)

"""One decision of several nodes over the arrays of `Core`: `engine.limits.nodes`, compiled.

Every set of counters (`sets_of_counters`) has legs, and so counters, of its own. The lanes of a
request, one a set, are made together, so they have consecutive numbers; the lane of the first set
stands for all.

A common counter has a list of events, each in a row that is free again once everybody knows it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.limits import nodes
from engine.limits.compiled import core as at
from engine.limits.compiled.algorithms import BLOCK, FULL, LAST, LIMIT, PLACE, READY
from engine.limits.compiled.composition import DELAYED, begin_block, charge, decide, make_slots
from engine.limits.compiled.jit import called, inlined
from engine.limits.compiled.lookup import (
    Int,
    Pointer,
    Raw,
    lane_row,
    line_of,
    rows_of,
    rule_of,
    sizes_of,
)
from engine.limits.nodes import BLOCKS, CHARGED

_known_before_ns = inlined(nodes.known_before_ns)
_history: Final = rows_of(lambda raw: raw.histories, at.HISTORY_WIDTH)
_event: Final = rows_of(lambda raw: raw.events, at.EVENT_WIDTH)
_saved_row: Final = rows_of(lambda raw: raw.saved, at.SAVED_WIDTH)


@called
def decide_on_node(raw: Raw, now_ns: Int, lanes: Int, node: Int) -> tuple[Int, Int, Int]:
    """Decide about a request that a node gets; return verdict, wait_ns, and the exact verdict.

    lanes: the lane of the first set.
    """
    exact, _, _, _ = decide(raw, now_ns, lanes + raw.flags[at.SETS] - 1)
    if raw.flags[at.KNOWS] == at.ALONE:
        verdict, wait_ns, _, _ = decide(raw, now_ns, lanes + node)
    else:
        verdict, wait_ns = _decide_with_others(raw, now_ns, lanes, node)
    return verdict, wait_ns, exact


@inlined
def _decide_with_others(raw: Raw, now_ns: Int, lanes: Int, node: Int) -> tuple[Int, Int]:
    """Decide by what a node knows of the events of all."""
    before_ns = _known_before_ns(now_ns, raw.flags[at.EVERY_NS], raw.flags[at.LAG_NS])
    is_synced = raw.flags[at.KNOWS] == at.SYNCED
    lane, common_lane = lanes, lanes
    if is_synced:
        lane, common_lane = lanes + node, lanes + raw.flags[at.SETS] - 2
    row, common_row = lane_row(raw, lane), lane_row(raw, common_lane)
    count = sizes_of(raw, row[0])[at.ALL]
    for place in range(count):
        counter, common = row[at.LANE_COUNTERS + place], common_row[at.LANE_COUNTERS + place]
        if is_synced:
            _hear(raw, counter, common, node, before_ns)
        else:
            _learn(raw, common, before_ns)
        _save(raw, place, counter, now_ns)
    verdict, wait_ns, _, shadow = decide(raw, now_ns, lane)
    let_in = verdict == 0 or verdict & 3 == DELAYED
    in_force = np.int64(sizes_of(raw, row[0])[at.IN_FORCE])
    for place in range(count):
        counter, common = row[at.LANE_COUNTERS + place], common_row[at.LANE_COUNTERS + place]
        if line_of(raw, counter)[BLOCK] != _saved_row(raw, place)[BLOCK]:
            _note(raw, common, now_ns, node, BLOCKS)
        would_refuse = place >= in_force and shadow >> max(place - in_force, 0) & 1
        if raw.flags[at.COUNTS_REFUSED] or (let_in and not would_refuse):
            _note(raw, common, now_ns, node, CHARGED)
        if not is_synced:
            _put_back(raw, place, counter)
    return verdict, wait_ns


# --- the history of a counter --------------------------------------------------------------------


@called
def _note(raw: Raw, common: Int, now_ns: Int, node: Int, what: Int) -> None:
    """Add an event to a counter's history."""
    used, history = raw.used, _history(raw, common)
    number = used[at.FREE_EVENT]
    event = _event(raw, number)
    used[at.FREE_EVENT] = event[at.V_NEXT]
    used[at.EVENTS] += 1
    event[at.V_T] = now_ns
    event[at.V_NODE] = node
    event[at.V_WHAT] = what
    event[at.V_NEXT] = at.NONE
    if history[at.H_FIRST] < 0:
        history[at.H_FIRST] = number
    else:
        _event(raw, history[at.H_LAST])[at.V_NEXT] = number
    history[at.H_LAST] = number


@called
def _learn(raw: Raw, common: Int, before_ns: Int) -> None:
    """Put the events before an instant into the common counter, and forget them."""
    used, history = raw.used, _history(raw, common)
    while history[at.H_FIRST] >= 0:
        number = history[at.H_FIRST]
        event = _event(raw, number)
        if event[at.V_T] >= before_ns:
            break
        _play(raw, common, event[at.V_T], event[at.V_WHAT])
        history[at.H_FIRST] = event[at.V_NEXT]
        event[at.V_NEXT] = used[at.FREE_EVENT]
        used[at.FREE_EVENT] = number
        used[at.EVENTS] -= 1


@called
def _hear(raw: Raw, counter: Int, common: Int, node: Int, before_ns: Int) -> None:
    """Make a node's own counter from the common one and its own later events."""
    heard = _history(raw, counter)
    if heard[at.H_HEARD] == before_ns:
        return
    heard[at.H_HEARD] = before_ns
    _learn(raw, common, before_ns)
    _copy(raw, common, counter)
    number = _history(raw, common)[at.H_FIRST]
    while number >= 0:
        event = _event(raw, number)
        if event[at.V_NODE] == node:
            _play(raw, counter, event[at.V_T], event[at.V_WHAT])
        number = event[at.V_NEXT]


@called
def _play(raw: Raw, counter: Int, t_ns: Int, what: Int) -> None:
    """Charge an event to a counter."""
    line = line_of(raw, counter)
    leg = line[at.LEG]
    rule = rule_of(raw, leg)
    if what == BLOCKS:
        begin_block(raw, line, rule, t_ns)
    elif line[BLOCK] <= t_ns or not raw.flags[at.CLEARS]:
        charge(raw, counter, leg, t_ns)
        line[READY] = max(line[READY], line[BLOCK])


@inlined
def _copy(raw: Raw, from_counter: Int, to_counter: Int) -> None:
    """Give a counter the state of another one of its rule; its ring gets as many slots."""
    line, own = line_of(raw, from_counter), line_of(raw, to_counter)
    rule, used = rule_of(raw, own[at.LEG]), raw.used
    if rule[at.ALGORITHM] == at.SLIDING_LOG:
        held = rule[LIMIT] if line[FULL] else line[PLACE]
        if held > own[at.RING] & at.SLOT_MASK:
            slots = line[at.RING] & at.SLOT_MASK
            own[at.RING] = used[at.SLOTS] << at.SLOT_BITS | slots
            used[at.SLOTS] += slots
            used[at.LARGEST] = max(used[at.LARGEST], slots)
        ring, first, own_first = (
            raw.ring,
            line[at.RING] >> at.SLOT_BITS,
            own[at.RING] >> at.SLOT_BITS,
        )
        for slot in range(held):
            ring[own_first + slot] = ring[first + slot]
    else:
        own[at.RING] = line[at.RING]  # a word of the algorithm
    _copy_words(line, own)


@inlined
def _copy_words(line: Pointer, own: Pointer) -> None:
    """Copy the words of a line that a decision may change, but not where its ring is."""
    own[READY] = line[READY]
    own[BLOCK] = line[BLOCK]
    own[LAST] = line[LAST]
    own[PLACE] = line[PLACE]
    own[FULL] = line[FULL]


# --- what a decision may change ------------------------------------------------------------------


@called
def _save(raw: Raw, place: Int, counter: Int, now_ns: Int) -> None:
    """Note the state of a counter, and make room so that a charge does not move its ring.

    The slot of the ring that a charge overwrites is not noted: nothing reads it before the next
    charge, which overwrites it again.
    """
    line, saved = line_of(raw, counter), _saved_row(raw, place)
    rule = rule_of(raw, line[at.LEG])
    if rule[at.ALGORITHM] == at.SLIDING_LOG and line[PLACE] == line[at.RING] & at.SLOT_MASK:
        make_slots(raw, line, rule, now_ns)
    _copy_words(line, saved)
    saved[at.RING] = line[at.RING]


@called
def _put_back(raw: Raw, place: Int, counter: Int) -> None:
    """Restore the state of a counter that was saved."""
    line, saved = line_of(raw, counter), _saved_row(raw, place)
    _copy_words(saved, line)
    line[at.RING] = saved[at.RING]

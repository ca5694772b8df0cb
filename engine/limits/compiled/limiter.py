"""The limiter over columns: whole arrays of requests in, whole arrays of decisions out.

Three passes over the rows: the first finds each row's lane, by one probe of a hash table; the
second counts, so that every ring gets the slots that it will need; the third decides. Rows of the
first pass are independent, so the processor overlaps their look-ups; those of the third are not,
so it prefetches the memory of later rows.
Counters are kept between calls, so a long log can be passed in pieces; memory grows with the
counters, not with the requests.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from engine.errors import InputError
from engine.limits.compiled import core as at
from engine.limits.compiled.composition import (
    BLOCKED,
    DELAYED,
    REFUSED,
    decide,
    move_ring,
    slots_short,
)
from engine.limits.compiled.core import Core, Ints, fresh_core, grown, leg_rows, widened
from engine.limits.compiled.jit import Jit, inlined, moved, pointer, prefetch
from engine.limits.compiled.lookup import (
    SOURCES,
    Int,
    Raw,
    fill_slot,
    find_lane,
    first_slot,
    has_lane_room,
    is_plain,
    lane_row,
    line_of,
    plain_raw_of,
    raw_of,
    sizes_of,
)
from engine.limits.nodes import publication, sets_of_counters
from engine.limits.rules import CounterFamily, RequestClass, RuleSet
from engine.limits.subject import OTHER_FIELDS, KeyField, Subject
from engine.limits.table import COUNTER_KEYS, LimitTable
from engine.messages import Outcome
from engine.profile import LimitsProfile, NodesProfile

Lanes: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]

_NARROW_BITS: Final = 16
_UNKNOWN_NS: Final = -(1 << 63)
"""Before any instant: no charge has left its window."""

_NARROW_LEGS: Final = 8_000
_MOST_AT_ONCE: Final = 1 << 16


class CompiledLimiter:
    """Decides about columns of requests, exactly as `Limiter` does one by one.

    tables, profile, origin_ns: as `Limiter` takes them. from_ns: shadow refusals are counted
    from here on.
    tell: called with a line of text when code is compiled, which happens once on a machine.
    nodes: those that a simulation plays (`engine.limits.compiled.nodes`); columns are for one node.

    Raises `InputError` where `Limiter` does, and where only answers decide what counts
    (`counted_statuses = "success"`): there are none here.

    >>> limiter = CompiledLimiter({"Default": LimitTable.default()}, LimitsProfile())
    >>> public = limiter.kind(Subject("POST", "/tokenize", "ip", key_id="k",
    ...                               application_kind="public"))
    >>> zeros = np.zeros(51, dtype=np.int64)
    >>> decided = limiter.decide(Columns(zeros, zeros + public, zeros, zeros))
    >>> int(decided.admitted.sum()), decided.verdicts()[int(decided.verdict[50])]
    (50, ('blocked', 'LIM-PUBLIC'))
    """

    def __init__(
        self,
        tables: Mapping[str, LimitTable],
        profile: LimitsProfile,
        *,
        from_ns: int = 0,
        tell: Callable[[str], None] | None = None,
        nodes: NodesProfile | None = None,
        origin_ns: int = 0,
    ) -> None:
        if profile.counted_statuses == "success":
            raise InputError(
                'counted_statuses = "success" must go with the engine; the compiled limits know '
                "no answers"
            )
        self.profile = profile
        sets = [(tables, profile)]
        if nodes is not None and not nodes.is_exact:
            sets = sets_of_counters(tables, profile, nodes)
        self._legs = [RuleSet(*each, origin_ns) for each in sets]
        self._places: dict[int, int] = {}
        self._all: list[CounterFamily] = []
        self._kinds: dict[Any, int] = {}
        self._rows: list[tuple[list[int], list[int]]] = []
        flags = np.zeros(at.FLAGS, dtype=np.int64)
        flags[at.BOUND_NS] = profile.delay_bound_ns if profile.throttle == "delay" else 0
        flags[at.EXTENDS] = profile.block_extends
        flags[at.COUNTS_REFUSED] = profile.count_refused
        flags[at.CLEARS] = profile.block_reset == "clear"
        flags[at.FROM_NS] = from_ns
        flags[at.GROWS] = True
        flags[at.SETS] = len(sets)
        if nodes is not None and len(sets) > 1:
            flags[at.KNOWS] = {"synced": at.SYNCED, "shared-slow": at.SLOW}.get(
                nodes.sharing, at.ALONE
            )
            flags[at.EVERY_NS], flags[at.LAG_NS] = publication(nodes)
        self.core = fresh_core(flags)
        self._stale = True
        self._roomy: Lanes | None = None
        JIT.warm_up(_compile_all, tell)

    def fresh(self) -> CompiledLimiter:
        """Return a limiter with the same rules and kinds, which has counted nothing.

        Call it only before anything was counted; neither limiter can get new kinds after it.
        """
        found = copy.copy(self)
        found.core = fresh_core(self.core.flags.copy())
        found._stale = True  # noqa: SLF001 # reason: one of its own kind
        return found

    # --- kinds of requests -------------------------------------------------------------------

    def kind(self, subject: Subject) -> int:
        """Return the number of a subject's kind: all that decides which rules apply to it.

        Each set of counters has a kind of its own; they are numbered one after the other.
        Raises `InputError` when its table is unknown.
        """
        resources = self._legs[0].classifier.matching(subject.method, subject.path)
        asked = RequestClass.of(subject, resources)
        found = self._kinds.get(asked)
        if found is None:
            found = self._kinds[asked] = len(self._rows)
            for legs_of_set in self._legs:
                self._rows.append(self._row(legs_of_set.of_class(asked)))
            self._stale = True
        return found

    def _row(self, legs: Sequence[CounterFamily]) -> tuple[list[int], list[int]]:
        if len(legs) > at.MOST_RULES:
            raise InputError(
                f"limits = {len(legs)} counters for one request must be at most "
                f"{at.MOST_RULES} where they are compiled; leave rules out"
            )
        return (
            [self._place(leg) for leg in legs if not leg.rule.shadow],
            [self._place(leg) for leg in legs if leg.rule.shadow],
        )

    def rules(self, kind: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of a kind's rules in force, and in shadow, as masks number them."""
        in_force, shadow = self._rows[kind]
        names = self.legs
        return tuple(names[place] for place in in_force), tuple(names[place] for place in shadow)

    @property
    def legs(self) -> list[str]:
        """The names of rules, as verdicts number them."""
        return [leg.name for leg in self._all]

    @property
    def other_fields(self) -> frozenset[KeyField]:
        """The fields beside key and address that some counter is keyed by."""
        fields = {field for leg in self._all for field in COUNTER_KEYS[leg.key_place]}
        return frozenset(fields.intersection(OTHER_FIELDS))

    @property
    def exact_legs(self) -> list[bool]:
        """Whether each leg is one of the exact counter by which nodes are judged."""
        judges = set(map(id, self._legs[-1].families())) if len(self._legs) > 1 else set()
        return [id(leg) in judges for leg in self._all]

    def _place(self, leg: CounterFamily) -> int:
        found = self._places.get(id(leg))
        if found is None:
            found = self._places[id(leg)] = len(self._all)
            self._all.append(leg)
        return found

    def ready_core(self) -> Core:
        """Return the arrays with all kinds in them, for compiled code."""
        if self._stale:
            self._stale = False
            self.core = self._with_kinds()
        return self.core

    def _with_kinds(self) -> Core:
        most = max((len(force) + len(shadow) for force, shadow in self._rows), default=0)
        class_legs = np.zeros((max(1, len(self._rows)), max(1, most)), dtype=np.int32)
        sizes = np.zeros((max(1, len(self._rows)), 2), dtype=np.int32)
        for number, (force, shadow) in enumerate(self._rows):
            class_legs[number, : len(force) + len(shadow)] = force + shadow
            sizes[number, at.IN_FORCE], sizes[number, at.ALL] = len(force), len(force) + len(shadow)
        core = self.core
        core.flags[at.MOST_LEGS] = max(most, 1)
        logs = [
            leg.rule.limit_requests for leg in self._all if leg.settings.algorithm == "sliding-log"
        ]
        core.flags[at.MOST_SLOTS] = max(logs, default=0)
        core.flags[at.LATER] = core.flags[at.BOUND_NS] > 0 or any(
            shadow for _, shadow in self._rows
        )
        new_legs = max(0, len(self._all) - len(core.shadow_counts))
        core = core._replace(
            rules=leg_rows(self._all),
            class_legs=class_legs,
            class_sizes=sizes,
            shadow_counts=np.pad(core.shadow_counts, (0, new_legs)),
        )
        return widened(core, most)

    def grow(self, *, lanes: int = 1, slots: int = 0) -> Core:
        """Make room where there is none, for one more request at least; return the arrays.

        lanes, slots: how many lanes and slots of rings there must be room for beside what is there.
        """
        before = self.core
        core = self.core = grown(before, lanes=lanes, slots=slots)
        for old, new in (
            (before.lane_table, core.lane_table),
            (before.counter_table, core.counter_table),
        ):
            if new is not old:
                copy_table(old, new)
        return core

    # --- deciding ----------------------------------------------------------------------------

    def lanes(self, columns: Columns) -> Lanes:
        """Return each row's lane; do not write to the array."""
        lane = self._find(columns)
        self._make_room(lane, _UNKNOWN_NS)  # others may be decided first
        return lane

    def _find(self, columns: Columns) -> Lanes:
        core = self.ready_core()
        rows = len(columns)
        lane = np.empty(rows, dtype=np.int32)
        others = columns.others
        if others is None:
            assert not self.other_fields, f"columns must hold {sorted(self.other_fields)}"
            others = np.full((1, at.OTHERS), at.NONE, dtype=np.int32)
        kind, key, ip, others = _alike(columns.kind, columns.key, columns.ip, others)
        if len(core.lanes) < rows:
            core = self.grow(lanes=min(rows, _MOST_AT_ONCE) - self.lane_count)
        row = 0
        while True:
            row = int(find_rows(core, row, kind, key, ip, others, lane))
            if row == rows:
                break
            core = self.grow()
        return lane

    def _make_room(self, lane: Lanes, now_ns: int) -> None:
        """Give every ring the slots for what these rows may charge to it.

        now_ns: what has left its window by then is forgotten, so that rings follow what windows
        hold and not how many requests there have been.
        """
        core = self.ready_core()
        need = np.zeros(core.used[at.COUNTERS], dtype=np.int64)
        asked = np.zeros(self.lane_count, dtype=np.int32)
        short = int(count_rows(core, lane, now_ns, asked, need))
        if short:
            if core.used[at.SLOTS] + short > len(core.ring):
                core = self.grow(slots=short)
            reserve_slots(core, need)
        self._roomy = lane

    def decide_lanes(self, t_ns: Ints, lane: Lanes) -> Decided:
        """Decide about rows whose lanes `lanes` found."""
        assert len(t_ns) == len(lane), "columns are of one length"
        if lane is not self._roomy:
            self._make_room(lane, int(t_ns[0]) if len(t_ns) else _UNKNOWN_NS)
        self._roomy = None  # the room can be used once
        core = self.ready_core()
        rows = len(t_ns)
        # Fresh memory costs more than decisions do, so the columns are as narrow as they can be.
        small = np.int16 if core.flags[at.MOST_LEGS] < _NARROW_BITS else np.int64
        verdict = np.empty(rows, dtype=np.int16 if len(self._all) < _NARROW_LEGS else np.int32)
        wait_ns = np.empty(rows, dtype=np.int64)
        refusing = np.empty(rows, dtype=small)
        has_shadows = any(shadow for _, shadow in self._rows)
        shadow = np.empty(rows if has_shadows else 0, dtype=small)
        decide = decide_plain_rows if is_plain(core) else decide_rows
        (t_ns,) = _alike(t_ns)
        decide(core, Rows(t_ns, lane, verdict, wait_ns, refusing, shadow))
        if not has_shadows:
            shadow = np.broadcast_to(small(0), rows)
        return Decided(verdict, wait_ns, refusing, shadow, self.legs)

    def decide(self, columns: Columns) -> Decided:
        """Decide about all rows, in order, and charge them where they count."""
        return self.decide_lanes(columns.t_ns, self._find(columns))

    # --- what it holds -----------------------------------------------------------------------

    @property
    def counter_count(self) -> int:
        """How many counters are held."""
        return int(self.core.used[at.COUNTERS]) - at.NOBODY - 1

    @property
    def lane_count(self) -> int:
        """How many lanes are held."""
        return int(self.core.used[at.LANES])

    @property
    def size_bytes(self) -> int:
        """How much memory the arrays take."""
        return sum(array.nbytes for array in self.core)

    def shadow_requests(self) -> dict[str, int]:
        """Return clause → how many requests it would have refused in shadow since `from_ns`.

        A request that two counters of a clause refuse counts once; the exact counter that judges
        nodes is left out.
        """
        found: dict[str, int] = {}
        counts = self.core.shadow_counts.tolist()
        for leg, is_judge, count in zip(self._all, self.exact_legs, counts, strict=False):
            if count and not is_judge:
                found[leg.rule.id] = found.get(leg.rule.id, 0) + count
        return found


def _alike(*columns: Numbers) -> list[Numbers]:
    """Return columns as compiled code takes them: contiguous, all 32-bit or all 64-bit."""
    dtype = np.int32 if all(column.dtype == np.int32 for column in columns) else np.int64
    return [np.require(column, dtype, ["C", "W"]) for column in columns]


def _compile_all() -> None:
    """Call every compiled function once, with each type of column that callers have."""
    limiter = CompiledLimiter.__new__(CompiledLimiter)
    core = fresh_core(np.zeros(at.FLAGS, dtype=np.int64))
    core.flags[at.MOST_LEGS] = 1
    limiter.core, limiter._all, limiter._rows, limiter._stale = core, [], [], False  # noqa: SLF001 # reason: a fresh one of its own
    times = np.zeros(0, dtype=np.int64)
    for dtype in (np.int32, np.int64):
        column = np.zeros(0, dtype=dtype)
        lane = limiter.lanes(Columns(times, column, column, column))
    for core.flags[at.LATER] in (0, 1):
        limiter.decide_lanes(times, lane)
    reserve_slots(core, np.zeros(0, dtype=np.int64))
    copy_table(core.lane_table, core.lane_table)


Array: TypeAlias = np.ndarray[Any, Any]

_LANES_AHEAD: Final = 16
_LINES_AHEAD: Final = 8
_LINES_FETCHED: Final = 6

JIT: Final = Jit("compiled limiter", (*SOURCES, Path(__file__)))


@JIT.compiled
def find_rows(
    core: Core,
    first: int,
    kind: Array,
    key: Array,
    ip: Array,
    others: Array,
    lane: Array,
) -> int:
    """Find the lanes of rows from `first` on; return the first row without room for its lane.

    others: a row a request, or one row for all of them.
    """
    raw = raw_of(core)
    step = at.OTHERS if len(others) == len(kind) else 0
    for row in range(first, len(kind)):
        if not has_lane_room(raw):
            return row
        lane[row] = find_lane(
            raw,
            int(kind[row]),
            int(key[row]),
            int(ip[row]),
            moved(pointer(others), row * step),
        )
    return len(kind)


@JIT.compiled
def count_rows(core: Core, lane: Array, now_ns: int, asked: Array, need: Array) -> int:
    """Return how many slots the rings lack in total, and set `need` to each ring's number.

    now_ns: no row, here or elsewhere, is decided at an earlier instant from now on.
    asked, need: zeros, one a lane and one a counter; `asked` counts each lane's rows.
    """
    raw = raw_of(core)
    for row in range(len(lane)):
        asked[lane[row]] += 1
    for number in range(len(asked)):
        if asked[number]:
            found = lane_row(raw, number)
            for place in range(sizes_of(raw, found[0])[at.ALL]):
                need[found[at.LANE_COUNTERS + place]] += asked[number]
    short = 0
    for counter in range(len(need)):
        if need[counter]:
            need[counter] = slots_short(raw, line_of(raw, counter), need[counter], now_ns)
            short += need[counter]
    return short


@JIT.compiled
def reserve_slots(core: Core, need: Array) -> None:
    """Give every ring the slots that `count_rows` found it short of; there is room for them."""
    raw = raw_of(core)
    for counter in range(len(need)):
        if need[counter]:
            move_ring(raw, line_of(raw, counter), need[counter])


@inlined
def _fetch_ahead(raw: Raw, lane: Array, row: Int) -> None:
    """Prefetch the memory of later rows."""
    last = len(lane) - 1
    prefetch(lane_row(raw, lane[min(row + _LANES_AHEAD, last)]))
    counters = moved(lane_row(raw, lane[min(row + _LINES_AHEAD, last)]), at.LANE_COUNTERS)
    for place in range(_LINES_FETCHED):
        prefetch(moved(raw.lines, np.int64(counters[place]) * at.LINE_WIDTH))


class Rows(NamedTuple):
    """Columns of rows to decide: instants, lanes, and where the parts of decisions are written.

    shadow: empty where no rule is in shadow.
    """

    t_ns: Array
    lane: Array
    verdict: Array
    wait_ns: Array
    refusing: Array
    shadow: Array


@inlined
def _decide_all(raw: Raw, rows: Rows) -> None:
    t_ns, lane, verdict, wait_ns, refusing, shadow = rows  # a look into `rows` counts a reference
    for row in range(len(t_ns)):
        _fetch_ahead(raw, lane, row)
        found = decide(raw, t_ns[row], lane[row])
        verdict[row], wait_ns[row], refusing[row] = found[:3]
        if len(shadow):
            shadow[row] = found[3]


@JIT.compiled
def decide_rows(core: Core, rows: Rows) -> None:
    """Decide about all rows; every ring has the slots that it will need."""
    _decide_all(raw_of(core), rows)


@JIT.compiled
def decide_plain_rows(core: Core, rows: Rows) -> None:
    """Do the same for a limiter whose profile is plain."""
    _decide_all(plain_raw_of(core), rows)


@JIT.compiled
def copy_table(old: Array, new: Array) -> None:
    """Put the slots of a hash table into a larger one, which is empty."""
    table, mask = pointer(new), new.shape[0] - 1
    for place in range(old.shape[0]):
        a, b, c = old[place, 1], old[place, 2], old[place, 3]
        if old[place, 0] >= 0:
            probe = first_slot(b, c, a, mask)
            while moved(table, probe * at.SLOT_WIDTH)[0] >= 0:
                probe = (probe + 1) & mask
            fill_slot(moved(table, probe * at.SLOT_WIDTH), old[place, 0], a, b, c)


Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Verdict: TypeAlias = tuple[Outcome, str | None]

_OUTCOMES: Final[dict[int, Outcome]] = {
    DELAYED: "delayed",
    REFUSED: "refused",
    BLOCKED: "blocked",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Requests in order of time, a row a request.

    t_ns: arrivals, never decreasing. kind: numbers that `CompiledLimiter.kind` gave. key, ip:
    numbers of the API key (−1 = none) and of the address. others: numbers of the other parts of
    requests (`OTHER_FIELDS`), a column each, −1 = none; None where no request has any.
    """

    t_ns: Ints
    kind: Numbers
    key: Numbers
    ip: Numbers
    others: Numbers | None = None

    def __post_init__(self) -> None:
        assert all(
            column is None or len(column) == len(self.t_ns)
            for column in (self.kind, self.key, self.ip, self.others)
        ), "columns are of one length"
        assert self.others is None or self.others.shape[1] == len(OTHER_FIELDS), "a column a part"

    def __len__(self) -> int:
        return len(self.t_ns)


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided, a row a request.

    verdict: a number; `verdicts` says which outcome and reported rule it stands for.
    wait_ns: the delay imposed, or the exact time until admissible. refusing: bit i is set where
    the i-th rule in force of the request's kind refuses (`CompiledLimiter.rules`); shadow: the
    same of its rules in shadow that would refuse.
    """

    verdict: Numbers
    wait_ns: Ints
    refusing: Numbers
    shadow: Numbers
    legs: Sequence[str] = field(repr=False)

    def __len__(self) -> int:
        return len(self.verdict)

    @property
    def admitted(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether the request of each row was admitted, at once or delayed."""
        return np.asarray((self.verdict == 0) | (self.verdict & 3 == DELAYED))

    def verdicts(self) -> dict[int, Verdict]:
        """Return what each number among the verdicts stands for."""
        return {int(n): verdict_of(int(n), self.legs) for n in np.unique(self.verdict)}


def verdict_of(number: int, legs: Sequence[str]) -> Verdict:
    """Return the outcome and the reported rule that a verdict's number stands for."""
    if not number:
        return "admitted", None
    return _OUTCOMES[number & 3], legs[(number >> 2) - 1]

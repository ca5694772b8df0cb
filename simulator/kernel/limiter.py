"""The limiter over columns: arrays of requests in, arrays of decisions out.

Counters are kept between calls, so a long log can be passed in pieces; memory grows with the
counters, not with the requests.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from engine.errors import InputError
from engine.limits.rules import CounterFamily, RequestClass, RuleSet, Subject
from engine.limits.table import COUNTER_KEYS, OTHER_FIELDS, LimitTable
from engine.messages import Outcome
from engine.profile import LimitsProfile
from simulator.kernel import deciding as at
from simulator.kernel.compiling import warm_up
from simulator.progress import tell_line
from simulator.rows.record import Numbers, Recorder

Array: TypeAlias = np.ndarray[Any, Any]

_ALGORITHMS: Final = {
    "sliding-log": at.LOG,
    "fixed-window": at.FIXED,
    "sliding-counter": at.SLIDING,
    "token-bucket": at.GCRA,
    "gcra": at.GCRA,
}
LARGEST_LIMIT: Final = (1 << 31) - 1
_FIRST_ROOM: Final = 1 << 10
_FIRST_RINGS: Final = 1 << 12
_MOST_ROOM_AT_ONCE: Final = 1 << 17
_MOST_COUNTERS: Final = 8_000
_CACHE_LINE_BYTES: Final = 64
_OUTCOMES: Final[tuple[Outcome, ...]] = "admitted", "delayed", "refused", "blocked"


def verdict_of(number: int, rules: Sequence[str]) -> tuple[Outcome, str | None]:
    """Return the outcome and the reported rule that a verdict's number stands for."""
    return (_OUTCOMES[number & 3], rules[(number >> 2) - 1]) if number else ("admitted", None)


def is_admitted(verdicts: Array) -> Array:
    """Whether each verdict lets its request in, at once or delayed."""
    return verdicts & 3 <= at.DELAYED


def zeros(shape: int | tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return zeros that begin with a cache line, so that no small record lies in two."""
    size_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(size_bytes + _CACHE_LINE_BYTES, np.uint8)
    first = -raw.ctypes.data % _CACHE_LINE_BYTES
    return raw[first : first + size_bytes].view(dtype).reshape(shape)


def enlarged(array: Array, size: int) -> Array:
    """Return an array of `size` rows: those of this one, then zeros."""
    larger = zeros((size, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


class ColumnLimiter:
    """Decides about columns of requests, exactly as `engine.limits.Limiter` does one by one.

    tables, profile: as `Limiter` takes them. origin_ns: the Unix time of instant 0 (D-ALIGN).
    from_ns: shadow refusals are counted from here on.

    Raises `InputError` where `Limiter` does, and for what is not compiled.
    """

    def __init__(
        self,
        tables: Mapping[str, LimitTable],
        profile: LimitsProfile,
        *,
        origin_ns: int = 0,
        from_ns: int = 0,
    ) -> None:
        if profile.counted_statuses == "success":
            raise InputError(
                'counted_statuses = "success" must go with the engine; the compiled limits know '
                "no answers"
            )
        warm_up("compiled limiter", _compile_all, tell_line)
        self._rule_set = RuleSet(tables, profile, origin_ns)
        self.classifier = self._rule_set.classifier
        self._profile, self._from_ns = profile, from_ns
        self._known: dict[tuple[RequestClass, tuple[str | None, ...]], int] = {}
        self._rows: list[list[int]] = []
        self._others: list[list[int]] = []
        self._other_numbers: dict[tuple[tuple[str, str | None], ...], int] = {}
        self._families: list[CounterFamily] = []
        self._limits: at.Limits | None = None

    # --- kinds of requests -------------------------------------------------------------------

    def kind(self, subject: Subject) -> int:
        """Return the number of a subject's kind: all of it but its key and its address.

        Raises `InputError` when its table is unknown.
        """
        resources = self._rule_set.classifier.matching(subject.method, subject.path)
        request_class = RequestClass.of(subject, resources)
        known = request_class, tuple(getattr(subject, field) for field in OTHER_FIELDS)
        kind = self._known.get(known)
        if kind is None:
            kind = self._known[known] = len(self._rows)
            families = self._rule_set.of_class(request_class)
            ordered = sorted(families, key=lambda family: family.settings.in_shadow)
            if len(ordered) > at.MOST_RULES:
                raise InputError(
                    f"limits = {len(ordered)} counters for one request must be at most "
                    f"{at.MOST_RULES} where they are compiled; leave rules out"
                )
            self._rows.append([self._number(family) for family in ordered])
            self._others.append([self._other(family, subject) for family in ordered])
            self._limits = None
        return kind

    def _number(self, family: CounterFamily) -> int:
        if family not in self._families:
            if family.settings.limit_requests > LARGEST_LIMIT:
                raise InputError(
                    f"{family.rule.id}: rate must be at most {LARGEST_LIMIT} requests where it "
                    "is compiled; take less"
                )
            if len(self._families) == _MOST_COUNTERS:
                raise InputError(f"limits must have at most {_MOST_COUNTERS} counters; take less")
            self._families.append(family)
        return self._families.index(family)

    def _other(self, family: CounterFamily, subject: Subject) -> int:
        """Return a number for what a counter is keyed by beside key and address, −1 for nothing."""
        fields = [field for field in COUNTER_KEYS[family.key_place] if field in OTHER_FIELDS]
        if not fields:
            return -1
        if "key_id" in COUNTER_KEYS[family.key_place]:
            raise InputError(
                f"{family.rule.id}: a counter by key and {fields[0]} is not compiled; leave it out"
            )
        values = tuple((field, getattr(subject, field)) for field in fields)
        return self._other_numbers.setdefault(values, len(self._other_numbers))

    @property
    def is_by_other_fields(self) -> bool:
        """Whether a rule met so far is keyed by more than key and address."""
        return bool(self._other_numbers)

    @property
    def names(self) -> list[str]:
        """The names of rules' counters, as verdicts number them."""
        return [family.name for family in self._families]

    # --- arrays ------------------------------------------------------------------------------

    @property
    def limits(self) -> at.Limits:
        """The arrays with all kinds in them, for compiled code."""
        if self._limits is None:
            self._limits = self._fresh()
        return self._limits

    def copy(self) -> ColumnLimiter:
        """Return a limiter with the same rules and kinds, which has counted nothing."""
        other = copy.copy(self)
        other._limits = None  # noqa: SLF001 # reason: of this class
        return other

    def _fresh(self) -> at.Limits:
        """Return arrays that have counted nothing."""
        width = max(1, *map(len, self._rows), 0)
        kinds = np.full((max(1, len(self._rows)), width), -1, np.int32)
        others = np.full_like(kinds, -1)
        for kind, (numbers, other) in enumerate(zip(self._rows, self._others, strict=True)):
            kinds[kind, : len(numbers)], others[kind, : len(other)] = numbers, other
        return empty_limits(max(1, len(self._families)), width)._replace(
            profile=np.array([self._profile_record()], at.PROFILE),
            rules=self._rule_records(),
            kinds=kinds,
            others=others,
        )

    def _profile_record(self) -> tuple[int, ...]:
        profile = self._profile
        bound_ns = profile.delay_bound_ns if profile.throttle == "delay" else 0
        plain = not bound_ns and not any(family.rule.shadow for family in self._families)
        clears = profile.block_reset == "clear"
        counts_refused = profile.count_refused
        return plain, bound_ns, profile.block_extends, clears, counts_refused, self._from_ns

    def _rule_records(self) -> Array:
        records, clauses = np.zeros(max(1, len(self._families)), at.RULE), dict[str, int]()
        for record, family in zip(records, self._families, strict=False):
            counter, fields = family.settings, COUNTER_KEYS[family.key_place]
            limit, window_ns = counter.limit_requests, counter.window_ns
            record["algorithm"] = _ALGORITHMS[counter.algorithm]
            record["limit"], record["window_ns"] = limit, window_ns
            record["span_ns"] = window_ns + counter.tick_ns
            record["offset_ns"], record["anchored"] = counter.offset_ns, counter.is_anchored
            record["step"], record["rest"] = divmod(window_ns, limit)
            record["slack"] = (counter.burst_requests - 1) * window_ns
            record["block_ns"], record["shadow"] = counter.block_ns, counter.in_shadow
            record["by_key"], record["by_ip"] = "key_id" in fields, "ip" in fields
            record["clause"] = clauses.setdefault(family.rule.id, len(clauses))
        return records

    def make_lane_room(self, lanes: int = 0) -> None:
        """Double the room for lanes or for counters, whichever is full, or make it for `lanes`."""
        used, width = self.limits.used, self.limits.lanes.shape[1]
        if lanes or used[at.LANES] >= len(self.limits.lanes):
            self._enlarge(max(2 * len(self.limits.lanes), lanes), "lane_table", "lanes")
        if used[at.COUNTERS] + width > len(self.limits.counters):
            size = 2 * len(self.limits.counters)
            self._enlarge(size, "counter_table", "counters", "blocks")

    def make_ring_room(self) -> None:
        """Double the room for rings."""
        self._enlarge(2 * len(self.limits.rings), None, "rings")

    def _enlarge(self, size: int, table: str | None, *arrays: str) -> None:
        """Make room for `size` rows of some arrays; each frees the older one before the next."""
        if table is not None:
            larger = _table(size)
            at.refill_table(larger, getattr(self.limits, table))
            self._limits = self.limits._replace(**{table: larger})
        for name in arrays:
            larger = enlarged(getattr(self.limits, name), size)
            self._limits = self.limits._replace(**{name: larger})

    # --- deciding ----------------------------------------------------------------------------

    def lanes(self, kind: Array, key: Array, ip: Array) -> Array:
        """Return each row's lane.

        kind: numbers that `kind` gave. key, ip: numbers of the API key (−1 = none) and the address.
        """
        rows = len(kind)
        kind, key, ip = (np.ascontiguousarray(column, np.int64) for column in (kind, key, ip))
        lane = np.empty(rows, np.uint32)
        if rows > 2 * len(self.limits.lanes):
            self.make_lane_room(1 << min(rows, _MOST_ROOM_AT_ONCE).bit_length() - 1)
        row = 0
        while (row := at.find_lanes(row, kind, key, ip, lane, self.limits)) < rows:
            self.make_lane_room()
        return lane

    def close_lanes(self) -> None:
        """Free what finds lanes: all rows to come have one of those that `lanes` returned."""
        self._limits = self.limits._replace(lane_table=_table(1), counter_table=_table(1))

    def decide(self, t_ns: Array, lane: Array) -> tuple[Array, Array]:
        """Decide about rows in order, and charge them where they count; return verdicts and waits.

        t_ns: arrivals, never decreasing. lane: as `lanes` returned them. A verdict is a number, of
        which `verdict_of` returns outcome and rule. The wait is the delay imposed, or the exact
        time until admissible.
        """
        rows = len(t_ns)
        verdict, wait_ns = np.empty(rows, np.int16), np.empty(rows, np.int64)
        t_ns = np.ascontiguousarray(t_ns, np.int64)
        row = 0
        while (row := at.decide_rows(row, t_ns, lane, verdict, wait_ns, self.limits)) < rows:
            self.make_ring_room()
        return verdict, wait_ns

    def shadow_requests(self) -> dict[str, int]:
        """Return clause → how many requests it would have refused in shadow since `from_ns`."""
        counts: dict[str, int] = {}
        for family, count in zip(self._families, self.limits.shadow_counts.tolist(), strict=False):
            if count:
                counts[family.rule.id] = counts.get(family.rule.id, 0) + count
        return counts


def verdict_numbers(limiter: ColumnLimiter, recorder: Recorder) -> Callable[[Array], Numbers]:
    """Return what converts a column of a limiter's verdicts to the recorder's numbers.

    Verdicts that occur get a number, and no other.
    """
    names = limiter.names
    numbers: Numbers = np.full(4 * (len(names) + 1), -1, dtype=np.int64)

    def converted(verdicts: Array) -> Numbers:
        for verdict in np.flatnonzero(np.bincount(verdicts)).tolist():
            if numbers[verdict] < 0:
                numbers[verdict] = recorder.verdicts[verdict_of(verdict, names)]
        return numbers[verdicts]

    return converted


def empty_limits(rules: int = 1, width: int = 1) -> at.Limits:
    """Return the arrays of a limiter without kinds of requests."""
    return at.Limits(
        profile=np.zeros(1, at.PROFILE),
        rules=np.zeros(rules, at.RULE),
        kinds=np.full((1, width), -1, np.int32),
        others=np.full((1, width), -1, np.int32),
        counters=zeros(_FIRST_ROOM, at.COUNTER),
        blocks=np.zeros(_FIRST_ROOM, at.BLOCK),
        counter_table=_table(_FIRST_ROOM),
        lanes=np.zeros((_FIRST_ROOM, width), np.uint32),
        lane_table=_table(_FIRST_ROOM),
        rings=np.zeros(max(_FIRST_RINGS, 4 * width), np.int64),
        used=np.array([0, 0, 0, 1], np.int64),
        shadow_counts=np.zeros(rules, np.int64),
    )


def _table(room: int) -> Array:
    """Return an empty hash table for `room` entries that is never more than half full."""
    return np.full((1 << (2 * room - 1).bit_length(), 4), -1, np.int32)


def _compile_all() -> None:
    """Call every compiled function once, with the types that callers have."""
    limits = empty_limits()
    none = np.zeros(0, np.int64)
    at.find_lanes(0, none, none, none, np.zeros(0, np.uint32), limits)
    at.refill_table(limits.lane_table, limits.lane_table[:0])
    lane = np.zeros(0, np.uint32)
    at.decide_rows(0, none, lane, np.zeros(0, np.int16), none, limits)

"""Which algorithms could have produced a history: it is replayed through the engine's own.

A history is a list of *clusters*, bursts that lie well apart. A family is an algorithm of
D-ALGORITHM with one choice each of D-COUNT, D-BLOCK-START and D-BLOCK-RESET. Before each cluster, a
family is put into the state that the answers so far would have left it in, and says how many of the
cluster's requests it would admit. It does so for the earliest, the middle and the latest times that
the client's clock allows, which gives a range. A family whose range misses a cluster is ruled out.

So errors do not add up, and a request need not be told from its neighbours. The only uncertainty is
what an algorithm gains in the time that is not known: nothing for logs and fixed windows.

Windows on a clock without blocks are not replayed (`_fits_windows`): such a window admits up to the
limit and refuses only when it is full. Where its border divides a burst, the answers do not show
which requests came before it, so every division is tried that their times allow. With a block,
whose end may divide the burst too, each of these divisions is replayed on (`_fits_branches`).

This does not model composition: a history covers one counter.
"""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from conformance.probes.sightings import Sighting, bounds, uncertainty_ns
from conformance.runner.registry import check_time
from engine.limits.compiled.algorithms import (
    ALGORITHMS,
    BLOCK,
    COUNT,
    CUR,
    END,
    LINE_SIZE,
    PREV,
    READY,
    START,
    begin_or_extend_block,
    grow_ring,
    rule_row,
)
from engine.profile import Algorithm

Cluster: TypeAlias = Sequence[Sighting]
"""A burst of requests to one counter, in order of sending."""

_Cell: TypeAlias = tuple[int, int]
"""The first and the last time at which a border of windows may lie."""

_SECOND_NS: Final = 1_000_000_000
_EVER: Final = 1 << 60
_GRID: Final = 80
_FINEST: Final = 4_000
"""The phase of windows is searched in steps of this part of a window."""
_INSIDE: Final = 8
_ORDERS_LIMIT: Final = 4_000
"""The most orders of requests around the ends of a block and of a window that are tried."""
HEAVY_REQUESTS: Final = 1_000
"""From this limit on, a burst is too long to tell the finer choices; the lighter rows tell them."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of a row: L per W, and for a block rule how long it blocks."""

    limit_requests: int
    window_ns: int
    block_ns: int = 0

    @property
    def says(self) -> str:
        """The rate in words: `50 per 60 s, then a block of 10 s`."""
        block = f", then a block of {seconds(self.block_ns)}" if self.block_ns else ""
        return f"{self.limit_requests} per {seconds(self.window_ns)}{block}"


def seconds(of_ns: int) -> str:
    """Return a duration in words: `10 s`."""
    return f"{of_ns / _SECOND_NS:g} s"


@dataclass(frozen=True, slots=True)
class Family:
    """One way of counting.

    anchored: fixed windows start at the first admission. counts_refused: D-COUNT all. extends,
    clears: D-BLOCK-START and D-BLOCK-RESET, for block rules only. burst_requests: for gcra only.
    """

    algorithm: Algorithm
    anchored: bool = False
    counts_refused: bool = False
    extends: bool = False
    clears: bool = False
    burst_requests: int | None = None

    @property
    def is_aligned(self) -> bool:
        """Whether its windows begin at times that the client does not know."""
        return ALGORITHMS[self.algorithm].has_windows and not self.anchored

    @property
    def is_on_a_clock(self) -> bool:
        """Whether it counts in fixed windows that begin at multiples of their length."""
        return self.algorithm == "fixed-window" and not self.anchored


BASIC: Final = tuple(
    Family(name, anchored=anchored)
    for name, method in ALGORITHMS.items()
    for anchored in ((False, True) if method.takes_anchor else (False,))
    if not method.takes_burst
)
"""The five algorithms with their defaults; a gcra with its default burst equals the bucket."""

_ON_A_CLOCK: Final = Family("fixed-window")


def families(rate: Rate) -> Iterator[Family]:
    """Yield every family that a row with this rate may belong to, the plain ones first."""
    of_blocks = (False, True) if rate.block_ns else (False,)
    for counts, extends, clears in itertools.product((False, True), of_blocks, of_blocks):
        for one in BASIC:
            yield dataclasses.replace(one, counts_refused=counts, extends=extends, clears=clears)
    yield Family("gcra", burst_requests=1)


def families_that_fit(
    lanes: Sequence[Sequence[Cluster]],
    rate: Rate,
    told: Algorithm | None = None,
    since_ns: int = 0,
) -> list[Family]:
    """Return the families that could have made the histories of several counters of one row.

    Where windows are aligned, one alignment must fit all of them. told: the algorithm, if known;
    for a heavy rate only that one is tried. since_ns: earlier requests are replayed but not judged,
    because other clients' requests may have affected them.
    """
    heavy = rate.limit_requests >= HEAVY_REQUESTS
    ordered = list(families(rate))
    if heavy and told is not None:
        ordered.sort(key=lambda family: family.algorithm != told)
    found: list[Family] = []
    for family in ordered:
        if heavy and found and (found[0].algorithm == told or family not in BASIC):
            break  # the lighter rows show this too
        if fits(lanes, rate, family, since_ns):
            found.append(family)
    return found


def fits(lanes: Sequence[Sequence[Cluster]], rate: Rate, family: Family, since_ns: int = 0) -> bool:
    """Whether one family could have made the histories; since_ns: as in `families_that_fit`."""
    if family.is_on_a_clock and not rate.block_ns:
        return any(is_fit for _, _, is_fit in _borders_tried(lanes, rate, since_ns))
    fits_at, phases, blur_ns = _tried(lanes, rate, family, since_ns)
    if family.algorithm != "sliding-counter":
        return any(fits_at((phase_ns,)) for phase_ns in phases)
    finest_ns = max(blur_ns, rate.window_ns // _FINEST)
    return _fits_in_cells(phases, rate.window_ns, fits_at, finest_ns)


def border_between(lanes: Sequence[Sequence[Cluster]], rate: Rate) -> tuple[int, int] | None:
    """Return two times between which a window begins, if windows are fixed on a clock.

    None if the histories do not show it.
    """
    seen = list(_borders_tried(lanes, rate))
    # Phases form a circle: begin after one that does not fit.
    begin = next((place for place, (_, _, is_fit) in enumerate(seen) if not is_fit), None)
    if begin is None or not any(is_fit for _, _, is_fit in seen):
        return None
    window_ns = rate.window_ns
    later = [(low + window_ns, high + window_ns, is_fit) for low, high, is_fit in seen[:begin]]
    chosen = [(low, high) for low, high, is_fit in [*seen[begin:], *later] if is_fit]
    return chosen[0][0], chosen[-1][1] + 1


def _borders_tried(
    lanes: Sequence[Sequence[Cluster]], rate: Rate, since_ns: int = 0
) -> Iterator[tuple[int, int, bool]]:
    """Yield the first and the last time of every cell of borders, and whether one of them fits.

    Borders are windows apart, so all cells lie in one window. Inside a cell, no border moves across
    the first or the last instant of a burst.
    """
    clusters = _bursts_apart(lanes)
    first_ns = min(one.sent_ns for lane in clusters for cluster in lane for one in cluster)
    shifts = aligned_shifts(clusters, rate.window_ns, _ON_A_CLOCK)
    edges = sorted((first_ns - each_ns) % rate.window_ns for each_ns in shifts)
    bursts = [[_Answers.of(cluster) for cluster in lane] for lane in clusters]
    for low_ns, next_ns in itertools.pairwise([*edges, edges[0] + rate.window_ns]):
        check_time()
        cell = low_ns, next_ns - 1
        yield *cell, all(_fits_windows(lane, rate, cell, since_ns) for lane in bursts)


def _bursts_apart(lanes: Sequence[Sequence[Cluster]]) -> list[list[Cluster]]:
    """Return the clusters of each lane; those during which requests overlap become one."""
    return [apart(lane, lambda one: (one.sent_ns, one.received_ns - 1)) for lane in lanes]


def _tried(
    lanes: Sequence[Sequence[Cluster]], rate: Rate, family: Family, since_ns: int
) -> tuple[Callable[[Sequence[int]], bool], Sequence[int], int]:
    """Return a test of whether a family fits at given phases, the phases, and the uncertainty."""
    clusters = _bursts_apart(lanes)
    first_ns = min(
        (one.sent_ns for lane in clusters for cluster in lane for one in cluster), default=0
    )
    unsure_ns = max((uncertainty_ns(cluster) for lane in clusters for cluster in lane), default=0)
    bursts = [[_Burst.of(cluster) for cluster in lane] for lane in clusters]
    if rate.block_ns:
        # A lost request may have been the one that began the block.
        unsure_ns = max([unsure_ns, *(x.span_ns for lane in bursts for x in lane if x.lost)])
    # Gradual refill is uncertain by when the bucket was last full and by when it is asked.
    blur_ns = 2 * unsure_ns if ALGORITHMS[family.algorithm].regains else unsure_ns

    # Add whole windows, so that no time is below 0 and no edge moves.
    origin_ns = rate.window_ns * (2 + blur_ns // rate.window_ns) - first_ns

    # Where an anchored window ends inside a burst, its requests may have come before or after.
    cell_ns = unsure_ns if family.anchored else 0

    def fits_at(phases_ns: Sequence[int]) -> bool:
        check_time()
        replays = [(rate, family, origin_ns + each_ns) for each_ns in phases_ns]
        return all(
            _fits_branches(_Replay(*replays[0]), lane, blur_ns, since_ns)
            if family.is_on_a_clock
            else _fits_lane([_Replay(*each) for each in replays], lane, blur_ns + cell_ns, since_ns)
            for lane in bursts
        )

    phases = aligned_shifts(clusters, rate.window_ns, family) if family.is_aligned else (0,)
    if family.is_on_a_clock:
        phases = _thinned(phases, unsure_ns)
    return fits_at, phases, blur_ns


def _thinned(ordered: Sequence[int], near_ns: int) -> list[int]:
    """Return times of which none is near the one before it."""
    kept = [ordered[0]]
    for each_ns in ordered:
        if each_ns - kept[-1] > near_ns:
            kept.append(each_ns)
    return kept


def _fits_in_cells(
    phases: Sequence[int], window_ns: int, fits_at: Callable[[Sequence[int]], bool], finest_ns: int
) -> bool:
    """Whether some phase fits: the cells between phases are halved as far as needed.

    Inside a cell, no window's edge moves across a request. So its two ends admit the most and the
    fewest, and a cell that does not fit as a whole contains no phase that fits.
    """
    ends = [each - 1 for each in (*phases[1:], phases[0] + window_ns)]
    cells = list(zip(phases, ends, strict=True))
    while cells:
        low_ns, high_ns = cells.pop()
        middle_ns = (low_ns + high_ns) // 2
        if not fits_at((middle_ns, low_ns, high_ns)):
            continue
        if high_ns - low_ns <= 2 * finest_ns:
            return True
        cells += [(low_ns, middle_ns), (middle_ns + 1, high_ns)]
    return False


def apart(lane: Sequence[Cluster], span_ns: Callable[[Sighting], tuple[int, int]]) -> list[Cluster]:
    """Return the clusters in order of time; those that overlap become one.

    span_ns: the first and the last instant of a sighting.
    """
    found: list[list[Sighting]] = []
    end_ns = -1
    spans = [(min(map(span_ns, cluster)), cluster) for cluster in lane if cluster]
    for (begin_ns, _), cluster in sorted(spans, key=lambda each: each[0][0]):
        if found and begin_ns <= end_ns:
            found[-1] += cluster
        else:
            found.append(list(cluster))
        end_ns = max(end_ns, *(span_ns(one)[1] for one in cluster))
    return list(found)


def aligned_shifts(
    lanes: Iterable[Sequence[Cluster]], window_ns: int, family: Family
) -> Sequence[int]:
    """Return the time shifts that put a window's edge at every place that makes a difference."""
    edges: set[int] = set()
    first_ns = min(one.sent_ns for lane in lanes for cluster in lane for one in cluster)
    for lane in lanes:
        for cluster in lane:
            start = min(one.sent_ns for one in cluster) - first_ns
            end = max(one.received_ns for one in cluster) - first_ns
            edges |= {start % window_ns, (end + 1) % window_ns}
            step = (end - start) // (_INSIDE + 1)
            if step:
                edges |= {(start + step * (i + 1)) % window_ns for i in range(_INSIDE)}
    ordered = sorted(edges)
    between = [
        (a + (b - a) // 2) % window_ns
        for a, b in zip(ordered, [*ordered[1:], ordered[0] + window_ns], strict=True)
    ]
    grid = (
        [window_ns * i // _GRID for i in range(_GRID)]
        if family.algorithm == "sliding-counter"
        else []
    )
    # An edge at x means that x is a multiple of the window: shift all times by W − x.
    return sorted({(window_ns - x) % window_ns for x in [*ordered, *between, *grid]})


class _Burst(NamedTuple):
    """A cluster in the form that a replay needs: about when its requests arrived, in order."""

    all_ns: list[int]
    admitted_ns: list[int]
    refused_ns: list[int]
    lost: int
    sent_ns: int

    @property
    def span_ns(self) -> int:
        """From its first request to its last."""
        return self.all_ns[-1] - self.all_ns[0]

    @classmethod
    def of(cls, cluster: Cluster) -> _Burst:
        """Return the burst of a cluster."""
        found = sorted((one.middle_ns, one.outcome) for one in cluster)
        return cls(
            [at_ns for at_ns, _ in found],
            [at_ns for at_ns, outcome in found if outcome == "admitted"],
            [at_ns for at_ns, outcome in found if outcome == "refused"],
            sum(outcome == "lost" for _, outcome in found),
            min(one.sent_ns for one in cluster),
        )


class _Answers(NamedTuple):
    """A cluster in the form that windows on a clock need: between when its requests arrived.

    admitted, refused: when those were sent, and when answered, each in order.
    """

    admitted: tuple[list[int], list[int]]
    refused: tuple[list[int], list[int]]
    lost: int
    first_ns: int
    last_ns: int

    @classmethod
    def of(cls, cluster: Cluster) -> _Answers:
        """Return the answers of a cluster."""
        return cls(
            bounds(cluster, "admitted"),
            bounds(cluster, "refused"),
            sum(one.outcome == "lost" for one in cluster),
            min(one.sent_ns for one in cluster),
            max(one.received_ns for one in cluster),
        )


def _fits_windows(lane: Sequence[_Answers], rate: Rate, cell: _Cell, since_ns: int) -> bool:
    """Whether windows on a clock could have made a history, if one begins inside a cell.

    A window admits up to the limit and refuses only when it is full. A lost request may have
    filled it too, in its own burst and in those after it.
    """
    low_ns, high_ns = cell
    counts: set[int] = {0}
    window, lost = None, 0
    for burst in lane:
        first = (burst.first_ns - high_ns) // rate.window_ns
        last = (burst.last_ns - low_ns) // rate.window_ns
        if first != window:
            counts = {0}
        window = last
        lost += burst.lost
        is_judged = burst.first_ns >= since_ns
        limit = rate.limit_requests if is_judged else _EVER
        full = limit - lost if is_judged else 0
        if first == last:
            admitted, is_refused = len(burst.admitted[0]), bool(burst.refused[0])
            after = {each + admitted for each in counts}
            counts = {x for x in after if x <= limit and (x >= full or not is_refused)}
        else:
            last_border = low_ns + last * rate.window_ns, high_ns + last * rate.window_ns
            counts = _counts_divided(burst, counts, full, limit, last - first, last_border)
        if not counts:
            return False
        if not is_judged:
            counts = {min(each, rate.limit_requests) for each in counts}
    return True


def _counts_divided(
    burst: _Answers, counts: set[int], full: int, limit: int, borders: int, last_border: _Cell
) -> set[int]:
    """Return how many the last window of a burst can have admitted, for every possible division.

    counts: how many its first window can have admitted before. full: how many at least a window
    has admitted that refuses; limit: how many at most. borders: how many lie inside the burst.
    """
    admitted, refused = len(burst.admitted[0]), len(burst.refused[0])
    fewest, most = _before(burst.admitted, last_border)
    fewest_refused, most_refused = _before(burst.refused, last_border)
    found, ordered = set(), sorted(counts)
    for before in range(fewest, most + 1):
        after = admitted - before
        if after > limit:
            continue
        may_refuse = after >= full
        fitting = bisect_right(ordered, borders * limit - before)
        if not fitting:
            continue
        none_before = fewest_refused == 0 and (may_refuse or not refused)
        some_before = most_refused > 0 and (may_refuse or most_refused == refused)
        # The fullest that the windows before can be decides whether one of them may refuse.
        if none_before or (some_before and ordered[fitting - 1] + before >= full):
            found.add(after)
    return found


def _before(bounds_ns: tuple[list[int], list[int]], border: _Cell) -> tuple[int, int]:
    """Return how many of these requests, at least and at most, arrived before a border."""
    (sent_ns, received_ns), (low_ns, high_ns) = bounds_ns, border
    return bisect_left(received_ns, low_ns), bisect_left(sent_ns, high_ns)


def _fits_lane(
    replays: Sequence[_Replay], lane: Sequence[_Burst], unsure_ns: int, since_ns: int
) -> bool:
    """Whether each burst's admissions lie in the range of some replays, given all before it.

    The first replay is the middle one. A lost request may have counted or not, in its own burst
    and in those after it. Where a block ends near a refusal, the answers do not show which of
    the two came first; every order leaves counters of its own, which are replayed on.
    """
    branches, unknown = [replays], 0
    for burst in lane:
        if burst.sent_ns >= since_ns:
            unknown += burst.lost
            branches = [one for one in branches if _explains(one, burst, unsure_ns, unknown)]
        branches = [x for each in branches for x in _after(each, burst, unsure_ns)]
        if len(branches) > 1:
            branches = list({tuple(x.state for x in each): each for each in branches}.values())
    return bool(branches)


def _after(
    replays: Sequence[_Replay], burst: _Burst, unsure_ns: int
) -> Iterator[Sequence[_Replay]]:
    """Yield what a burst may leave, for every number of its refusals that an old block made."""
    first, *others = replays[0].blocked(burst, unsure_ns)
    for blocked in others:
        check_time()
        copies = [one.copy() for one in replays]
        for one in copies:
            one.take(burst, blocked)
        yield copies
    for one in replays:
        one.take(burst, first)
    yield replays


def _explains(replays: Sequence[_Replay], burst: _Burst, unsure_ns: int, unknown: int) -> bool:
    """Whether a burst's admissions lie in the range of some replays."""
    seen = len(burst.admitted_ns)
    least = most = replays[0].would_admit(burst.all_ns, 0)
    if not least - unknown <= seen <= most + unknown:
        # The middle times alone do not explain it: the range decides.
        offsets = (-unsure_ns, unsure_ns) if unsure_ns else (0,)
        would = [one.would_admit(burst.all_ns, by) for one in replays for by in offsets]
        least, most = min(least, *would), max(most, *would)
    return least - unknown <= seen <= most + unknown


def _fits_branches(replay: _Replay, lane: Sequence[_Burst], unsure_ns: int, since_ns: int) -> bool:
    """As `_fits_lane`, for fixed windows on a clock with a block; both may end inside a burst.

    Every possible division leaves a counter of its own, which is replayed on, unless they are too
    many: then the range of what could be admitted decides, as in `_fits_lane`.
    """
    # A phase stands for all near it, and a request came near its middle time.
    reach_ns = 2 * unsure_ns + max(burst.span_ns for burst in lane) // (2 * _INSIDE)
    replays, unknown = [replay], 0
    for burst in lane:
        if burst.sent_ns < since_ns:
            replay.take(burst)
            continue
        unknown += burst.lost
        tried = [one.after(burst, unsure_ns, reach_ns, unknown) for one in replays]
        after: dict[tuple[int, ...], _Replay] = {}
        for orders, one in enumerate(itertools.chain.from_iterable(tried), 1):
            if orders > _ORDERS_LIMIT:
                replays = [each for each in replays if _explains([each], burst, reach_ns, unknown)]
                for each in replays:
                    each.take(burst)
                break
            if one is not None:
                after[one.state] = one
        else:
            replays = list(after.values())
    return bool(replays)


def _reached(at_ns: Sequence[int], instant_ns: int, near_ns: int) -> tuple[int, int]:
    """Return how many requests, at least and at most, came before an instant."""
    return bisect_left(at_ns, instant_ns - near_ns), bisect_left(at_ns, instant_ns + near_ns)


def _divided(at_ns: Sequence[int], instant_ns: int, before: int) -> list[int]:
    """Return times of which so many come before an instant, and the others not before it."""
    early = [min(each_ns, instant_ns - 1) for each_ns in at_ns[:before]]
    return early + [max(each_ns, instant_ns) for each_ns in at_ns[before:]]


class FamilyCounter:
    """One counter of one family, in the state that the requests so far have left it in."""

    def __init__(self, rate: Rate, family: Family, shift_ns: int) -> None:
        self._rate = rate
        self._family = family
        self._shift_ns = shift_ns
        self._charge = ALGORITHMS[family.algorithm].charge
        self._row = rule_row(
            family.algorithm,
            rate.limit_requests,
            rate.window_ns,
            burst_requests=family.burst_requests,
            anchored=family.anchored,
        )
        self._has_ring = ALGORITHMS[family.algorithm].has_ring
        self._line = [0] * LINE_SIZE
        self._ring: list[int] = []

    def _count(self, t_ns: int) -> None:
        if self._has_ring and len(self._ring) < self._rate.limit_requests:
            grow_ring(self._ring, self._rate.limit_requests)
        self._charge(self._line, self._ring, self._row, t_ns)


class _Replay(FamilyCounter):
    """A counter that replays what was observed."""

    def __init__(self, rate: Rate, family: Family, shift_ns: int) -> None:
        super().__init__(rate, family, shift_ns)
        self._is_weighted = family.algorithm == "sliding-counter"
        self._is_windowed = ALGORITHMS[family.algorithm].has_windows
        self._refusals_count = bool(rate.block_ns) or family.counts_refused
        self._now_ns = 0

    def copy(self) -> _Replay:
        """Return a counter in the same state."""
        found = copy(self)
        found._line = self._line.copy()  # noqa: SLF001 # reason: of its own class
        found._ring = self._ring.copy()  # noqa: SLF001 # reason: of its own class
        return found

    def would_admit(self, at_ns: Sequence[int], offset_ns: int) -> int:
        """Return how many it would admit at these times, in order, all moved by the same offset."""
        kept = self._line, self._ring, self._now_ns, self._shift_ns
        self._line, self._ring = self._line.copy(), self._ring.copy()
        self._shift_ns += offset_ns
        admitted = self.admit(at_ns)
        self._line, self._ring, self._now_ns, self._shift_ns = kept
        return admitted

    def admit(self, at_ns: Sequence[int]) -> int:
        """Answer requests at these times, in order; returns how many it admits."""
        line, shift_ns, family, now_ns = self._line, self._shift_ns, self._family, self._now_ns
        admitted = place = 0
        while place < len(at_ns):
            now_ns = max(now_ns, at_ns[place] + shift_ns)
            begin, place = place, place + 1
            if line[READY] <= now_ns:
                self._count(now_ns)
                if self._is_windowed:
                    begin, place = place, place + self._room(at_ns, place, now_ns)
                    now_ns = self._charge_run(at_ns, begin, place, now_ns)
                    admitted += place - begin
                admitted += 1
            else:
                # All are refused until it admits again, or until the end of a block that clears it.
                if self._refusals_count:
                    self._refuse_run(at_ns, begin, place, now_ns)
                until_ns = min(line[READY], line[BLOCK]) if family.clears else line[READY]
                begin, place = place, bisect_left(at_ns, until_ns - shift_ns, place)
                if self._refusals_count:
                    now_ns = self._refuse_run(at_ns, begin, place, now_ns)
        self._now_ns = now_ns
        return admitted

    @property
    def state(self) -> tuple[int, ...]:
        """What its further answers depend on."""
        return (self._now_ns, *self._line, *self._ring)

    def after(
        self, burst: _Burst, unsure_ns: int, reach_ns: int, unknown: int
    ) -> Iterator[_Replay | None]:
        """Yield the counters that a burst may leave: as a border and a block's end divide it.

        None for a division in which it would have been answered in another way. unsure_ns: the
        uncertainty of when a block ends; reach_ns: of whether a request came before a border.
        """
        at_ns, seen, window_ns = burst.all_ns, len(burst.admitted_ns), self._rate.window_ns
        window = (at_ns[-1] + reach_ns + self._shift_ns) // window_ns
        is_divided = (at_ns[0] - reach_ns + self._shift_ns) // window_ns != window
        border_ns = window * window_ns - self._shift_ns if is_divided else None
        near_ns = reach_ns if is_divided else unsure_ns
        certain = self._certain(at_ns, near_ns)
        if certain is not None and border_ns is None:
            if abs(certain - seen) <= unknown:
                taken = self.copy()
                taken.take(burst)
                yield taken
            return
        ends = [None] if certain is not None else self._block_ends(border_ns, near_ns)
        for end_ns in ends:
            for times in self._divisions(at_ns, border_ns, end_ns, near_ns, seen, unknown):
                divided = self.copy()
                if end_ns is not None:
                    divided._move_block_end(end_ns)  # noqa: SLF001 # reason: of its own class
                yield divided if abs(divided.admit(times) - seen) <= unknown else None

    def _divisions(
        self,
        at_ns: Sequence[int],
        border_ns: int | None,
        end_ns: int | None,
        near_ns: int,
        seen: int,
        unknown: int,
    ) -> Iterator[list[int]]:
        """Yield the times of a burst for every number of its requests before each of two instants.

        border_ns: of a window; end_ns: of a block. None for what is not inside the burst.
        """
        if end_ns is None:
            assert border_ns is not None, "something divides the burst"
            fewest, most = _reached(at_ns, border_ns, near_ns)
            room = self.would_admit([border_ns - 1] * most, 0)
            for before in range(fewest, most + 1):
                if 0 < before <= room:
                    admitted = before + min(len(at_ns) - before, self._rate.limit_requests)
                    if abs(admitted - seen) > unknown:
                        continue  # quicker than to replay it
                yield _divided(at_ns, border_ns, before)
            return
        fewest, most = _reached(at_ns, end_ns, near_ns)
        for refused in range(fewest, most + 1):
            check_time()
            times = _divided(at_ns, end_ns, refused)
            if border_ns is None:
                yield times
                continue
            fewest_before, most_before = _reached(at_ns, border_ns, near_ns)
            if end_ns <= border_ns:
                fewest_before = max(fewest_before, refused)
            if end_ns >= border_ns:
                most_before = min(most_before, refused)
            for before in range(fewest_before, most_before + 1):
                yield _divided(times, border_ns, before)

    def _block_ends(self, border_ns: int | None, near_ns: int) -> Sequence[int]:
        """Return when the block may end: on either side of a border that is near its end."""
        end_ns = self._line[BLOCK] - self._shift_ns
        if border_ns is None or abs(end_ns - border_ns) > near_ns:
            return (end_ns,)
        return (border_ns - 1, border_ns + 1)

    def _move_block_end(self, at_ns: int) -> None:
        line = self._line
        line[BLOCK] = at_ns + self._shift_ns
        is_full = line[COUNT] >= self._rate.limit_requests
        line[READY] = max(line[BLOCK], line[END]) if is_full else line[BLOCK]

    def _certain(self, at_ns: Sequence[int], unsure_ns: int) -> int | None:
        """Return how many one window admits of a burst; None if a block may end during it."""
        begin_ns = at_ns[0] + self._shift_ns
        if self._line[BLOCK] > at_ns[-1] + self._shift_ns + unsure_ns:
            return 0
        if self._line[BLOCK] > begin_ns - unsure_ns:
            return None
        counted = self._line[COUNT] if self._line[END] > begin_ns else 0
        return min(len(at_ns), max(0, self._rate.limit_requests - counted))

    def blocked(self, burst: _Burst, unsure_ns: int) -> range:
        """Return how many of a burst's refusals the block that it is in may have made."""
        fewest, most = _reached(burst.refused_ns, self._line[BLOCK] - self._shift_ns, unsure_ns)
        return range(fewest, most + 1)

    def take(self, burst: _Burst, blocked: int | None = None) -> None:
        """Replay a burst as it was observed: its admissions, then its refusals.

        blocked: how many refusals come before both, by the block that it is in; None: as many as
        their times say.
        """
        refused_ns, first = burst.refused_ns, 0
        if self._rate.block_ns:
            first = self.blocked(burst, 0).start if blocked is None else blocked
            refused_ns = _divided(refused_ns, self._line[BLOCK] - self._shift_ns, first)
            self._now_ns = self._refuse_run(refused_ns, 0, first, self._now_ns)
        at_ns = burst.admitted_ns
        self._now_ns = self._count_run(at_ns, 0, len(at_ns), self._now_ns)
        if self._refusals_count:
            self._now_ns = self._refuse_run(refused_ns, first, len(refused_ns), self._now_ns)
        elif refused_ns:
            self._now_ns = max(self._now_ns, refused_ns[-1] + self._shift_ns)

    # Windows store how many requests they counted, not when. So the requests inside one window are
    # counted in one step: bursts of thousands are replayed hundreds of times.

    def _window_end(self, at_ns: Sequence[int], place: int) -> int:
        """Return the index of the first time, from an index on, that is in a later window."""
        line = self._line
        end_ns = line[START] + self._rate.window_ns if self._is_weighted else line[END]
        return bisect_left(at_ns, end_ns - self._shift_ns, place)

    def _room(self, at_ns: Sequence[int], place: int, now_ns: int) -> int:
        """Return how many requests, from an index on, are certainly admitted.

        Inside a window the weight of the window before only falls, so the room that is there now
        stays until the window ends.
        """
        line, window_ns = self._line, self._rate.window_ns
        if self._is_weighted:
            weight = line[PREV] * (window_ns - (now_ns - line[START])) // window_ns
            room = self._rate.limit_requests - line[CUR] - weight
        else:
            room = self._rate.limit_requests - line[COUNT]
        return max(0, min(room, self._window_end(at_ns, place) - place))

    def _charge_run(self, at_ns: Sequence[int], place: int, end: int, now_ns: int) -> int:
        """Count the requests of one window from an index to an end; returns the last time."""
        if place < end:
            self._line[CUR if self._is_weighted else COUNT] += end - place - 1
            now_ns = max(now_ns, at_ns[end - 1] + self._shift_ns)
            self._charge(self._line, self._ring, self._row, now_ns)
        return now_ns

    def _count_run(self, at_ns: Sequence[int], place: int, end: int, now_ns: int) -> int:
        """Count the requests from an index to an end; returns the last time."""
        while place < end:
            now_ns = max(now_ns, at_ns[place] + self._shift_ns)
            self._count(now_ns)
            place += 1
            if self._is_windowed:
                until = min(end, self._window_end(at_ns, place))
                now_ns = self._charge_run(at_ns, place, until, now_ns)
                place = max(place, until)
        return now_ns

    def _refuse_run(self, at_ns: Sequence[int], place: int, end: int, now_ns: int) -> int:
        """Refuse the requests from an index to an end; returns the last time."""
        if place >= end:
            return now_ns
        family, line, shift_ns = self._family, self._line, self._shift_ns
        block_ns, last_ns = self._rate.block_ns, max(now_ns, at_ns[end - 1] + shift_ns)
        begin = place
        while block_ns and begin < end:
            t_ns = max(now_ns, at_ns[begin] + shift_ns)
            if line[BLOCK] <= t_ns or family.extends:
                begin_or_extend_block(line, t_ns, block_ns, family.extends, family.clears)
            # Those inside the block change nothing, unless they extend it: then the last counts.
            begin = bisect_left(at_ns, line[BLOCK] - shift_ns, begin + 1, end)
            if family.extends:
                t_ns = max(now_ns, at_ns[begin - 1] + shift_ns)
                begin_or_extend_block(line, t_ns, block_ns, family.extends, family.clears)
        if family.counts_refused and not (block_ns and family.clears):
            self._count_run(at_ns, place, end, now_ns)
            line[READY] = max(line[READY], line[BLOCK])
        return last_ns

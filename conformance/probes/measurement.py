"""Turns the histories of a row into a measurement: is it sound, which families fit, how precise.

`Measured.fault` says what breaks "L per W" whatever the algorithm: a refusal after too few
admissions, or more than L admissions inside one window, in a history that no family of L per W
could have produced; or more than 2·L admissions, which only a block that clears its counter allows.
Everything else is a reading.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.probes.bursts import Counter, refused_in
from conformance.probes.delays import (
    Arrivals,
    bound_between,
    delay_fits,
    delays,
    delays_that_fit,
    longest_wait_ns,
    turn_slack_ns,
)
from conformance.probes.families import (
    BASIC,
    HEAVY_REQUESTS,
    Cluster,
    Family,
    Rate,
    families_that_fit,
    fits,
    seconds,
)
from conformance.probes.procedures import Played, counters_of
from conformance.probes.sightings import (
    Sighting,
    broken_blocks,
    late_after_ns,
    nodes_filled,
    plainly,
    premature_refusals,
    provable_admissions,
    turns_beyond,
    uncertainty_ns,
)
from conformance.wire.exchange import Exchange
from engine.profile import Algorithm, LimitsProfile

_MS_NS = 1_000_000
_SECOND_NS = 1_000_000_000
_BLUR = 20
"""A resolution above this part of the window is too coarse to rule out every family."""
_PLAIN = (Family("sliding-log"), Family("token-bucket"))
_ON_A_CLOCK = ("fixed-window", False)
_BLOCKS = (5, 9, 11, 15, 20, 30)
"""Lengths of other blocks, in tenths of the row's own block."""
_NODES = (2, 3, 4)
"""How many nodes with counters of their own an explanation names."""
_OTHER_BLOCKS = (5, 8, 9, 11, 12, 15, 20, 30, 60, 120)
"""Those that an explanation names."""
_BOUND_NS = LimitsProfile().delay_bound_ns
"""The longest delay of a throttle that slows, where another is not known."""
_SHOWN = 12
_COARSE = 10
"""And one above this part too coarse to choose between families."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of measuring a row.

    fault: what breaks it, None when nothing does. families: what could have made the histories.
    delays: D-THROTTLE delay was seen. refused: whether anything was refused or held back at all.
    resolution_ns: nothing shorter can be told; a burst's span and a round trip. is_clear: whether
    nothing looked held back that was only late. bound_ns: between which two waits the longest
    delay lies, None where that is not told. unseen: what would have looked the same: rates of other
    numbers, windows and blocks. is_stalled: whether what looks held back was taken for a server
    that stalled. is_bordered: whether nothing but windows fixed on a clock fits, and single polls
    have shown two of their borders: then bursts may be long.
    """

    rate: Rate
    fault: str | None
    families: tuple[Family, ...]
    delays: bool
    refused: bool
    admitted_requests: int
    resolution_ns: int
    is_clear: bool = True
    bound_ns: tuple[int, int] | None = None
    unseen: tuple[str, ...] = ()
    is_stalled: bool = False
    is_bordered: bool = False

    @property
    def tells_more(self) -> bool:
        """Whether bursts lie far enough apart to tell how the row is counted."""
        return self.is_bordered or self.resolution_ns <= self.rate.window_ns // _COARSE

    @property
    def summary(self) -> str:
        """The text for a report, with the resolution."""
        how = "slowed" if self.delays else "refused"
        return (
            f"{self.rate.says}; requests beyond it are {how}; at most {self.admitted_requests} "
            f"admitted in one window; counted as {self.algorithms}; resolution {self.resolution}"
        )

    @property
    def algorithms(self) -> str:
        """The algorithms that could have made the histories."""
        names = " or ".join(dict.fromkeys(one.algorithm for one in self.families))
        if self.families and all(one.counts_refused for one in self.families):
            names += ", refused requests included"
        return names or "none of the known algorithms"

    @property
    def resolution(self) -> str:
        """The shortest time that can be told apart, as text."""
        if self.resolution_ns < _SECOND_NS:
            return f"{self.resolution_ns / _MS_NS:.0f} ms"
        return f"{self.resolution_ns / _SECOND_NS:.1f} s"


def measure(
    histories: Sequence[Sequence[Cluster]],
    rate: Rate,
    *,
    bound_ns: int = _BOUND_NS,
    told: Algorithm | None = None,
    known: Algorithm | None = None,
    since_ns: int = 0,
) -> Measured:
    """Return what the histories of a row's counters (one for each) show.

    bound_ns: the longest delay of a throttle that slows, if known. told: the only algorithm that
    may fit, if the operator stated it; a bucket is a gcra whose burst is the limit. known: the
    algorithm that other rows have shown. since_ns: earlier requests are not judged, because other
    clients' requests may have affected them.
    """
    histories = [history for history in histories if history]
    found = _measured(histories, rate, bound_ns, told, known, since_ns)
    plain = [[plainly(cluster) for cluster in history] for history in histories]
    if delays(histories):
        if found.families:
            return found
        other = None if rate.block_ns else _turns_of_another(histories, rate, bound_ns, since_ns)
        if other is not None:
            says = f"requests beyond the rate waited exactly as long as {other} makes them wait"
            return dataclasses.replace(found, fault=found.fault or says)
        # What looks held back may be a server that stalled: then the plain history fits.
        stalled = _measured(plain, rate, bound_ns, told, known, since_ns)
        found = dataclasses.replace(stalled, is_stalled=True) if stalled.families else found
    is_clear = found.delays or not any(_is_stalled(history) for history in plain)
    is_bordered = _is_bordered(found, plain if found.is_stalled else histories)
    return dataclasses.replace(found, is_clear=is_clear, is_bordered=is_bordered)


def _is_bordered(found: Measured, histories: Sequence[Sequence[Cluster]]) -> bool:
    """Whether only windows fixed on a clock fit, and single polls show two of their borders."""
    rate = found.rate
    if rate.block_ns or {(x.algorithm, x.anchored) for x in found.families} != {_ON_A_CLOCK}:
        return False
    for history in histories:
        polls = [cluster[0] for cluster in history if len(cluster) == 1]
        borders = [
            (shut.sent_ns, free.received_ns)
            for shut, free in itertools.pairwise(polls)
            if (shut.outcome, free.outcome) == ("refused", "admitted")
            and free.received_ns - shut.sent_ns <= rate.window_ns // _BLUR
        ]
        for (begin_ns, end_ns), (later_ns, until_ns) in itertools.pairwise(borders):
            # The two are whole windows apart, as exactly as they were seen.
            if (until_ns - begin_ns) // rate.window_ns > (later_ns - end_ns) // rate.window_ns:
                return True
    return False


def _turns_of_another(
    histories: Sequence[Sequence[Cluster]], rate: Rate, bound_ns: int, since_ns: int
) -> str | None:
    """Return the rate near a row's own by which every turn came exactly, None where there is none.

    A server that stalled does not wait as exactly.
    """
    arrivals = Arrivals(histories)
    if 2 * turn_slack_ns(arrivals, rate) > rate.window_ns // rate.limit_requests:
        return None
    bound_ns = max(arrivals.longest_wait_ns, bound_ns)
    clear = [family for family in BASIC if not family.is_aligned]
    for name, other in neighbours(rate):
        if any(delay_fits(arrivals, other, x, bound_ns, since_ns, is_sharp=True) for x in clear):
            return name
    return None


def _is_stalled(history: Sequence[Cluster]) -> bool:
    """Whether an admission came so late that it may have been held back."""
    late_ns = late_after_ns(uncertainty_ns(history[0]))
    return any(
        one.outcome == "admitted" and one.received_ns - one.sent_ns > late_ns
        for cluster in history
        for one in cluster
    )


def _measured(  # reason: what `measure` was handed
    histories: Sequence[Sequence[Cluster]],
    rate: Rate,
    bound_ns: int,
    told: Algorithm | None,
    known: Algorithm | None,
    since_ns: int,
) -> Measured:
    flat = [[one for cluster in history for one in cluster] for history in histories]
    held_back = delays(histories) and not rate.block_ns
    families: list[Family] = (
        _held_families(histories, rate, bound_ns, since_ns)
        if held_back
        else families_that_fit(histories, rate, told or known, since_ns)
    )
    if told is not None:
        same = "token-bucket" if told == "gcra" else told
        families = [one for one in families if one.algorithm in {told, same}]
    admitted = max((provable_admissions(each, rate.window_ns) for each in flat), default=0)
    held_back = held_back or any(_is_paced(history, rate) for history in histories)
    refused = held_back or any(one.outcome == "refused" for each in flat for one in each)
    span_ns = max(
        (
            max(x.received_ns for x in cluster) - min(x.sent_ns for x in cluster)
            for history in histories
            for cluster in history
            if not any(one.is_late for one in cluster)
        ),
        default=0,
    )
    unsure_ns = max((uncertainty_ns(each) for each in flat), default=0)
    is_bound = held_back and families
    found = Measured(
        rate,
        None,
        tuple(families),
        held_back,
        refused,
        admitted,
        span_ns + unsure_ns,
        bound_ns=bound_between(Arrivals(histories), rate, families) if is_bound else None,
    )
    return dataclasses.replace(found, fault=_fault(found, flat, since_ns))


def _held_families(
    histories: Sequence[Sequence[Cluster]], rate: Rate, bound_ns: int, since_ns: int
) -> list[Family]:
    """Return the families that fit with the known bound, or else with the longest wait observed.

    Whatever the bound is, no request here was held back for longer than that wait.
    """
    is_refused = any(x.outcome == "refused" for lane in histories for part in lane for x in part)
    arrivals = Arrivals(histories)
    seen_ns = arrivals.longest_wait_ns
    bounds = (seen_ns, bound_ns) if is_refused else (max(seen_ns, bound_ns),)
    for each_ns in bounds:
        found = delays_that_fit(arrivals, rate, each_ns, since_ns)
        if found:
            return found
    return []


def _is_paced(history: Sequence[Cluster], rate: Rate) -> bool:
    """Whether a long burst was admitted at the rule's pace, much slower than the first one.

    A throttle that slows looks like this if our connections are fewer than what it would hold.
    """
    first = _pace(history[0])
    slow = [_pace(cluster[len(cluster) // 2 :]) for cluster in history[1:] if len(cluster) >= 100]
    pace = rate.limit_requests / rate.window_ns
    return any(one < 1.3 * pace and first > 3 * one for one in slow)


def _pace(cluster: Cluster) -> float:
    received = [one.received_ns for one in cluster]
    return len(received) / max(max(received) - min(received), 1)


def _fault(found: Measured, flat: Sequence[Sequence[Sighting]], since_ns: int) -> str | None:
    """Return what is wrong with a measurement; flat: the sightings of each counter."""
    rate, families, admitted = found.rate, found.families, found.admitted_requests
    window = seconds(rate.window_ns)
    says = f"{rate.limit_requests} per {window}"
    is_sharp = found.resolution_ns <= rate.window_ns // _BLUR
    if not found.refused and not families and (is_sharp or admitted > 2 * rate.limit_requests):
        return f"{admitted} requests within {window}, and none was refused or slowed"
    # A late answer may have been delayed elsewhere too, so only its whole round trip is proof.
    proven = max((provable_admissions(plainly(x), rate.window_ns) for x in flat), default=0)
    if proven > 2 * rate.limit_requests and not any(one.clears for one in families):
        return f"{proven} admitted within {window}, more than twice the limit"
    premature = None if families else _premature(flat, rate, says, since_ns, is_sharp=is_sharp)
    if premature is not None and rate.block_ns:
        return premature  # a block that is too long can look like a broken one, too
    late = [[one for one in each if one.sent_ns >= since_ns] for each in flat]
    broken = [one for each in late for one in broken_blocks(each, rate.block_ns)]
    if rate.block_ns and broken:
        return (
            f"{len(broken)} admitted less than {seconds(rate.block_ns)} after the first refusal: "
            "a block must refuse every request until it ends"
        )
    if families:
        return None
    if admitted > rate.limit_requests and is_sharp:
        # A window or a bucket may admit up to twice the limit; the times tell whether one did.
        return f"{admitted} admitted within {window}: no way of counting {says} explains it"
    return premature


def _premature(
    flat: Sequence[Sequence[Sighting]], rate: Rate, says: str, since_ns: int, *, is_sharp: bool
) -> str | None:
    """Return what is wrong with a refusal after too few admissions; None if there is none.

    If bursts last for a good part of the window, times prove nothing. What is left is what no
    family does: refuse although even the window before (which a sliding counter weighs) and all
    refused requests (which D-COUNT all counts) would be too few.
    """
    reach_ns = rate.window_ns if is_sharp else 2 * rate.window_ns
    early = [
        (premature, each)
        for each in flat
        for premature in premature_refusals(
            plainly(each), rate.limit_requests, reach_ns, counts_refused=not is_sharp
        )
        if premature.sighting.sent_ns >= since_ns
        and not _is_blocked(premature.sighting, each, rate.block_ns)
    ]
    if not early:
        return None
    fewest = min(premature.possible_requests for premature, _ in early)
    were = f"at most {fewest} requests were" if fewest else "nothing was"
    outlasts = [_outlasts(premature.sighting, each, rate.block_ns) for premature, each in early]
    if rate.block_ns and max(outlasts):
        return (
            f"still refused {max(outlasts) / _SECOND_NS:.1f} s after the refusal before it, with "
            f"no request in between: longer than a block of {seconds(rate.block_ns)}, and {were} "
            f"admitted in the {seconds(reach_ns)} before"
        )
    return (
        f"refused although {were} admitted in the {seconds(reach_ns)} before: no way of counting "
        f"{says} explains it"
    )


def _outlasts(one: Sighting, seen: Sequence[Sighting], block_ns: int) -> int:
    """Return how long after the previous refusal a request was refused.

    0 if the request before was not refused, or so long ago that another block may have begun.
    """
    before = [other for other in seen if other.sent_ns < one.sent_ns]
    last = max(before, key=lambda x: (x.received_ns, x.outcome == "refused"), default=one)
    after_ns = one.sent_ns - last.received_ns
    is_later = block_ns <= after_ns < 2 * block_ns
    return after_ns if last.outcome == "refused" and is_later else 0


def _is_blocked(one: Sighting, seen: Sequence[Sighting], block_ns: int) -> bool:
    """Whether a block that an earlier refusal began may have refused it."""
    return any(
        other.outcome == "refused"
        and other.sent_ns < one.sent_ns
        and one.sent_ns < other.received_ns + block_ns
        for other in seen
    )


def with_sight(
    measured: Measured,
    histories: Sequence[Sequence[Cluster]],
    known: Algorithm | None,
    since_ns: int = 0,
) -> Measured:
    """Return the measurement with the rates that it could not have told from the row's own rate.

    known: the algorithm that the operator stated or other rows have shown; else any may be in use.
    """
    rate, heavy = measured.rate, measured.rate.limit_requests >= HEAVY_REQUESTS
    same = {known, "token-bucket"} if known == "gcra" else {known}
    likely = [one for one in measured.families if one.algorithm in same] or list(measured.families)
    if known is None and not heavy and not measured.delays:
        likely += [one for one in BASIC if one not in likely]
    bound_ns = max(longest_wait_ns(histories), _BOUND_NS)
    if measured.is_stalled:
        histories = [[plainly(cluster) for cluster in history] for history in histories]
    arrivals = Arrivals(histories) if measured.delays and delays(histories) else None

    def looks_like(other: Rate, *, is_sharp: bool = False) -> bool:
        if arrivals is None:
            return any(fits(histories, other, family, since_ns) for family in likely)
        return any(
            delay_fits(arrivals, other, x, bound_ns, since_ns, is_sharp=is_sharp) for x in likely
        )

    # Nothing is failed by how exactly turns came. But where they came exactly as the row's own
    # rate has them, another rate has to explain them as exactly.
    is_sharp = arrivals is not None and looks_like(rate, is_sharp=True)

    return dataclasses.replace(
        measured,
        unseen=tuple(
            name for name, other in neighbours(rate) if looks_like(other, is_sharp=is_sharp)
        ),
    )


def neighbours(rate: Rate) -> list[tuple[str, Rate]]:
    """Return rates that a row must not be, by what differs; those furthest off come last."""
    limit, window_ns, block_ns = rate.limit_requests, rate.window_ns, rate.block_ns
    tenth = max(2, limit // 10)
    numbers = (limit - 1, limit + 1, limit - tenth, limit + tenth)
    windows = (window_ns * 9 // 10, window_ns * 11 // 10)
    blocks = [block_ns * part // 10 for part in _BLOCKS] if block_ns else []
    return [
        *((f"a limit of {x}", dataclasses.replace(rate, limit_requests=x)) for x in numbers),
        *((f"a window of {seconds(x)}", dataclasses.replace(rate, window_ns=x)) for x in windows),
        *((f"a block of {seconds(x)}", dataclasses.replace(rate, block_ns=x)) for x in blocks),
    ]


def alternatives(names: Sequence[str]) -> str:
    """Return several names as one phrase.

    >>> alternatives(["a limit of 49", "a limit of 51", "a window of 9 s"])
    'a limit of 49, a limit of 51 or a window of 9 s'
    """
    *front, last = names
    return f"{', '.join(front)} or {last}" if front else last


def counters_per_node(played: Sequence[Played]) -> str | None:
    """Return what shows that several nodes count a row each for itself, None where nothing does.

    A multiple of the rate is admitted, and requests from one address are admitted between refusals
    more often than one counter of any rate does. Where nodes fill up alike, or an address always
    meets the same node, that is not seen.
    """
    rate = played[0].rate
    counters = [each for one in played for each in (*one.counters, one.nodes) if each is not None]
    turns = max(_turns_beyond(each, rate) for each in counters)
    seen = [[plainly(cluster) for cluster in counter.clusters()] for counter in counters]
    flat = [[one for cluster in clusters for one in cluster] for clusters in seen]
    nodes = max(nodes_filled(each, rate.limit_requests, rate.window_ns) for each in flat)
    admitted = max(provable_admissions(each, rate.window_ns) for each in flat)
    is_multiple = admitted * 100 >= nodes * rate.limit_requests * 85
    if turns <= 0 or nodes not in _NODES or not is_multiple:
        return None
    return (
        f"admits up to {nodes} × the rate: counters per node, since {turns} requests were admitted "
        "between refusals that no single counter would admit"
    )


def _turns_beyond(counter: Counter, rate: Rate) -> int:
    """Return `turns_beyond` of one address, 0 where requests are held back, spaced or warm."""
    is_late = any(one.is_late for cluster in counter.clusters() for one in cluster)
    if is_late or not counter.bursts or refused_in(counter.bursts[0].exchanges):
        return 0
    seen = counter.by_source()
    return max(turns_beyond(each, rate.window_ns, rate.block_ns) for each in seen)


def explain(histories: Sequence[Sequence[Cluster]], rate: Rate, since_ns: int = 0) -> str | None:
    """Return what the plainest rate has that the histories fit, where the row's own does not.

    Limits a little off, multiples and halves, windows up to a fifth off and other blocks are tried.
    """
    limit, window_ns = rate.limit_requests, rate.window_ns
    limits = [limit + d for d in (-1, 1, -2, 2, -5, 5)] + [limit * 2, limit // 2]
    limits += [limit * 9 // 10, limit * 11 // 10, limit * 3, limit * 4]
    windows = [window_ns * part // 100 for part in (90, 110, 95, 105, 80, 120, 50, 200)]
    blocks = [rate.block_ns * part // 10 for part in _OTHER_BLOCKS] if rate.block_ns else []
    window = seconds(window_ns)

    def looks_like(limit: int, window_ns: int, block_ns: int) -> bool:
        other = Rate(limit, window_ns, block_ns)
        return any(fits(histories, other, family, since_ns) for family in _PLAIN)

    for x in limits:
        if x > 0 and looks_like(x, window_ns, rate.block_ns):
            nodes, more = divmod(x, limit)
            if nodes in _NODES and not more:
                return (
                    f"admits up to {nodes} × the rate: counters per node would explain it, and so "
                    f"would one counter of {x} per {window}"
                )
            return f"{x} per {window} would explain it"
    alike = [x for x in blocks if looks_like(limit, window_ns, x)]
    if alike:
        return f"{_block_of(alike, blocks)} would explain it"
    for x in windows:
        if looks_like(limit, x, rate.block_ns):
            return f"{limit} per {seconds(x)} would explain it"
    admitted = max(
        provable_admissions([one for cluster in lane for one in cluster], window_ns)
        for lane in histories
    )
    for nodes in _NODES:
        if nodes * limit * 97 <= admitted * 100 <= nodes * limit * 102:
            return f"admits up to {nodes} × the rate: counters per node would explain it"
    is_so = looks_like(admitted, window_ns, rate.block_ns)
    return f"{admitted} per {window} would explain it" if is_so else None


def _block_of(alike: Sequence[int], tried: Sequence[int]) -> str:
    """Return the blocks that look alike, in words; alike: those of the tried ones, in order."""
    first = tried.index(alike[0])
    if len(alike) == 1 or list(alike) != list(tried[first : first + len(alike)]):
        return f"a block of {' or '.join(map(seconds, alike))}"
    if alike[-1] == tried[-1]:
        return f"a block of {seconds(alike[0])} or longer"
    return f"a block of {seconds(alike[0])} to {seconds(alike[-1])}"


def histories_of(
    played: Sequence[Played], before: Sequence[Played] = ()
) -> list[list[list[Sighting]]]:
    """Return the histories of all counters; before: earlier ones of the same counters."""
    histories = [counter.clusters() for counter in counters_of(played)]
    earlier = [counter.clusters() for counter in counters_of(before)]
    if not earlier:
        return histories
    return [[*one, *two] for one, two in zip(earlier, histories, strict=True)]


def evidence(played: Sequence[Played]) -> list[Exchange]:
    """Return the exchanges that show a row best: the last of each burst."""
    shown = []
    for counter in counters_of(played):
        for burst in counter.bursts:
            shown += sorted(burst.exchanges, key=lambda one: one.number)[-1:]
    return shown[:_SHOWN]

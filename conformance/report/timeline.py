"""The timeline of a limit's finding, from the exchanges of its check.

What decides stands alone: the requests that the finding names, and the first that each party was
refused. All others are bursts: when the first and the last were sent, and how many got which
status. A check that tells its own timeline in the finding is believed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from conformance.runner.verdicts import Finding, Moment, Verdict
from conformance.wire.exchange import Exchange

__all__ = ["SHOWN_EVIDENCE", "timeline"]

SHOWN_EVIDENCE: Final = 5
"""So many exchanges of a finding are shown in full."""
_GAP_NS: Final = 400_000_000
"""A pause that ends a burst; longer where a check has very many."""
_MOST: Final = 60
_TOLD: Final = frozenset({Verdict.FAIL, Verdict.INCONCLUSIVE})


def timeline(finding: Finding, exchanges: Mapping[int, Exchange]) -> tuple[Moment, ...]:
    """Return the moments of a limit's finding, in order of time; none for other findings."""
    if finding.timeline or finding.verdict not in _TOLD:
        return finding.timeline
    if not finding.check.startswith("limits."):
        return ()
    own = sorted(
        (one for one in tuple(exchanges.values()) if one.check == finding.check),
        key=lambda one: one.sent_ns,
    )
    named = {
        number: "shown below" if place < SHOWN_EVIDENCE else "also decides"
        for place, number in enumerate(finding.evidence)
    }
    gap_ns = _GAP_NS
    found = _moments(own, named, gap_ns)
    while len(found) > _MOST and gap_ns < 1 << 40:
        gap_ns *= 2
        found = _moments(own, named, gap_ns)
    return tuple(found)


def _moments(own: Sequence[Exchange], named: Mapping[int, str], gap_ns: int) -> list[Moment]:
    parties: dict[tuple[str | None, str | None], list[Exchange]] = defaultdict(list)
    for one in own:
        ask = one.ask
        parties[ask.key or ask.proxy_key or ask.host, ask.source].append(one)
    found = []
    for (key, source), sent in parties.items():
        first = next((one.number for one in sent if one.refused), None)
        alone = [one for one in sent if one.number in named or one.number == first]
        for one in alone:
            is_first = one.number == first
            asked = f"{one.ask.method} {one.ask.path.partition('?')[0]}"
            says = f"{asked}, {'the first refused' if is_first else named[one.number]}"
            found.append(
                Moment(at_ns=one.sent_ns, status=one.status, key=key, source=source, says=says)
            )
        singled = {one.number for one in alone}
        rest = [one for one in sent if one.number not in singled]
        for burst in _bursts(rest, gap_ns):
            by_status: dict[int | None, list[Exchange]] = defaultdict(list)
            for one in burst:
                by_status[one.status].append(one)
            for status, each in by_status.items():
                until_ns = each[-1].sent_ns if len(each) > 1 else None
                found.append(
                    Moment(
                        at_ns=each[0].sent_ns,
                        until_ns=until_ns,
                        count=len(each),
                        status=status,
                        key=key,
                        source=source,
                    )
                )
    return sorted(found, key=lambda one: one.at_ns)


def _bursts(sent: Iterable[Exchange], gap_ns: int) -> list[list[Exchange]]:
    found: list[list[Exchange]] = []
    for one in sent:
        if found and one.sent_ns - found[-1][-1].sent_ns <= gap_ns:
            found[-1].append(one)
        else:
            found.append([one])
    return found

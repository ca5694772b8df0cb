"""Cleaning up: everything that a run has created is deleted again where the deployment allows.

It asks with the key that made it and, where that one may not, with the others of its tenant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from conformance.bench import Bench, Lane
from conformance.exchanges import KeyLabel
from conformance.registry import Check, Inconclusive, Skip
from conformance.session import Session
from conformance.target import Target
from conformance.verdicts import Finding

__all__ = ["CLEANING", "clean"]

_LANES: Final = 4


def _no_judge(bench: Bench) -> Iterable[Finding]:  # noqa: ARG001 # reason: a judge's form
    return ()


CLEANING: Final = Check(
    "cleaning", (), "deletes what the run created", "an answer to every deletion", _no_judge
)


def clean(session: Session) -> tuple[int, int]:
    """Delete; returns how many things are gone, and how many are left."""
    session.is_cleaning = True
    bench = Bench(CLEANING, session)
    work = list(session.created)
    gone = [0]
    hopeless: dict[KeyLabel, int] = defaultdict(int)

    async def worker(lane: Lane) -> None:
        while work:
            path, label = work.pop()
            if await _deleted(session.target, lane, path, label, hopeless):
                session.created.forget(path)
                gone[0] += 1

    session.transport.run([worker(bench.lane(f"cleaning {place}")) for place in range(_LANES)])
    session.is_cleaning = False
    return gone[0], len(session.created)


async def _deleted(
    target: Target, lane: Lane, path: str, label: KeyLabel, hopeless: dict[KeyLabel, int]
) -> bool:
    for key in _keys_for(target, label):
        if hopeless[key] >= 3:  # it has been refused often enough: it has no such right
            continue
        try:
            found = await lane.insist("DELETE", path, key=key)
        except (Skip, Inconclusive):
            hopeless[key] += 1
            continue
        if found.ok or found.status == 404:
            return True
        hopeless[key] += found.status in {401, 403}
    return False


def _keys_for(target: Target, label: KeyLabel) -> list[KeyLabel]:
    """Return the labels to try: the maker's tenant's keys, those likely to hold the right first."""
    made_by = target.key_labels.get(label)
    if made_by is None:
        return []
    if made_by.role == "management":
        return [label]
    tenant = target.tenant_of(made_by)
    roles = ("private_prod", "private_test", "private_reader", "dedup_reader", "dedup", "short")
    same = [
        other
        for role in roles
        for other in target.labels(role)[:1]
        if target.tenant_of(target.key_labels[other]) == tenant
    ]
    first = [label] if made_by.role in roles else []
    return list(dict.fromkeys([*first, *same]))

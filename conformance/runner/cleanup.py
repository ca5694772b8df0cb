"""Cleaning up: deletes everything that a run has created, where the deployment allows it.

It uses the key that created an object and, where that key lacks the right, other keys of its
tenant. While the probes of limits still wait, it can delete the objects of checks that have ended,
with keys and from addresses that no probe uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from conformance.context.check import CLEANING, Inconclusive, Skip
from conformance.context.context import CheckContext, Lane
from conformance.context.cooldown import CounterId
from conformance.context.created import Thing
from conformance.context.session import Session
from conformance.messages.exchange import KeyLabel
from conformance.target import Source, Target

_LANES: Final = 4
_ENOUGH: Final = 3
"""After this many refusals a key lacks the right; after this many 404s an operation is missing."""


def clean(
    session: Session,
    *,
    made_by: Collection[str] | None = None,
    busy: Collection[KeyLabel] = (),
    sources: Sequence[Source] | None = None,
) -> int:
    """Delete objects; returns how many are gone. What is left stays in `session.created`.

    made_by: ids of checks, None for all. busy: keys that must not be used now. sources: addresses
    to ask from, None for all.
    """
    ctx = CheckContext(CLEANING, session, sources=sources)
    work = [thing for thing in session.created if made_by is None or thing.check in made_by]
    gone = [0]
    hopeless: dict[KeyLabel, int] = defaultdict(int)
    for label in busy:
        hopeless[label] = _ENOUGH

    absent = _Absent(session)

    async def worker(lane: Lane) -> None:
        while work:
            thing = work.pop()
            if absent.is_hopeless(thing):
                continue
            status = await _deleted(session.target, lane, thing, hopeless)
            for deleted in absent.gone(thing, status):
                session.created.forget(deleted.path)
                gone[0] += 1

    began = session.cleanings = session.cleanings + 1
    lanes = [ctx.lane(f"cleaning {began}.{place}") for place in range(_LANES)]
    session.transport.run([worker(lane) for lane in lanes])
    _note_used(ctx)
    orphans = absent.orphans()
    for orphan in orphans:
        session.created.forget(orphan.path)
    return gone[0] + len(orphans)


def _note_used(ctx: CheckContext) -> None:
    """Note the counters that deletions were in: the next run's probes must not take them soon."""
    session = ctx.session
    used: dict[CounterId, int] = {
        (x.ask.key, x.ask.source): x.received_ns + session.wall_start_ns
        for x in list(session.exchanges.values())
        if x.check == CLEANING.id
    }
    for rule in ctx.limits if used else ():
        session.cooldown.note(rule.id, used)


class _Absent:
    """Tracks the deletions that a deployment lacks: every one of them is answered 404.

    A 404 means that an object is gone only where the same operation has deleted another, or where
    the run has read one and then no longer found it: such objects expire (QUO-INTENT).
    """

    def __init__(self, session: Session) -> None:
        self._spelling = session.target.spelling
        self._exchanges = session.exchanges
        self._doubtful: dict[str, list[Thing]] = defaultdict(list)
        self._works: set[str] = set()
        self._paths: list[str] = []

    def is_hopeless(self, thing: Thing) -> bool:
        """Whether the operation that deletes it seems to be missing."""
        name = self._name(thing)
        return name not in self._works and len(self._doubtful[name]) >= _ENOUGH

    def gone(self, thing: Thing, status: int | None) -> list[Thing]:
        """Return the objects that are gone after a deletion; status: None when it was refused."""
        name = self._name(thing)
        if status is None:
            return []
        if status == 404 and name not in self._works and not self._expires(thing.method, name):
            self._doubtful[name].append(thing)
            return []
        self._works.add(name)
        self._paths.append(thing.path + "/")
        return [thing, *self._doubtful.pop(name, ())]

    def orphans(self) -> list[Thing]:
        """Return the objects deleted with their parent, such as a key with its application."""
        held = [thing for things in self._doubtful.values() for thing in things]
        return [thing for thing in held if thing.path.startswith(tuple(self._paths))]

    def _expires(self, method: str, name: str) -> bool:
        """Whether the run has read an object that the operation deletes, and later found none."""
        known: set[str] = set()
        for exchange in list(self._exchanges.values()):
            path = exchange.ask.path
            if exchange.ask.method == "GET" and self._operation(method, path) == name:
                if exchange.status == 404 and path in known:
                    return True
                if exchange.ok:
                    known.add(path)
        return False

    def _name(self, thing: Thing) -> str:
        return self._operation(thing.method, thing.path)

    def _operation(self, method: str, path: str) -> str:
        operation = self._spelling.operation(method, path)
        return method if operation is None else operation[0]


async def _deleted(
    target: Target, lane: Lane, thing: Thing, hopeless: dict[KeyLabel, int]
) -> int | None:
    """Try one key after another; returns the status of a success or a 404, else None."""
    for key in _keys_for(target, thing.key):
        if hopeless[key] >= _ENOUGH:
            continue
        try:
            exchange = await lane.insist(thing.method, thing.path, key=key)
        except (Skip, Inconclusive):
            hopeless[key] += 1
            continue
        if exchange.ok or exchange.status == 404:
            return exchange.status
        hopeless[key] += exchange.status in {401, 403}
    return None


def _keys_for(target: Target, label: KeyLabel) -> list[KeyLabel]:
    """Return the keys to try: those of the creating key's tenant, the likeliest to work first."""
    made_by = target.key_labels.get(label)
    if made_by is None:
        # A key that a check has made and deleted: of the tenant whose application made it.
        managing = target.labels("management")
        if not managing:
            return []
        made_by = target.key_labels[managing[0]]
    elif made_by.role == "management":
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

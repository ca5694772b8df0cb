"""Records kept whole in memory: by class and id, in order by tenant, and by name where unique."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from engine.errors import StoreError
from engine.model import Key, Proxy, Tenant
from engine.store.catalogue import Catalogue
from engine.store.catalogue import Key as Place
from engine.store.protocol import Document
from engine.store.selection import Term

__all__ = ["DocumentShelf", "Name"]

Name = tuple[str, str | bytes]
"""A unique name of a record besides its id: the kind of name, and the name."""


def _place_of(record: Document) -> Place:
    return (record.created_at_ns, record.id)


def _no_terms(_record: Document) -> tuple[Term, ...]:
    return ()


def _owner(record: Document) -> str:
    return "" if isinstance(record, Tenant) else record.tenant_id


def _names(record: Document) -> list[Name]:
    if isinstance(record, Key):
        return [("key hash", record.text_hash)]
    if isinstance(record, Proxy):
        names: list[Name] = [("hostname", record.host)] if record.host else []
        return [*names, ("proxy-key hash", record.key_hash)] if record.key_hash else names
    return []


class DocumentShelf:
    """All documents of a store. `named` is open to the store, for look-ups.

    Tenants are listed under the tenant id "".
    """

    __slots__ = ("_held", "_listed", "named")

    def __init__(self) -> None:
        self._held: defaultdict[type, dict[str, Document]] = defaultdict(dict)
        self._listed: dict[tuple[type, str], Catalogue[Document]] = {}
        self.named: dict[Name, Document] = {}

    def get(self, kind: type, record_id: str) -> Document | None:
        """Return the record of that class and id."""
        return self._held[kind].get(record_id)

    def check_names(self, record: Document) -> None:
        """Raise `StoreError` when another record has a name of this one."""
        for name in _names(record):
            other = self.named.get(name)
            if other is not None and other.id != record.id:
                raise StoreError(f"the {name[0]} of a record must be its own; it is taken")

    def swap(self, kind: type, record_id: str, new: Document | None) -> Document | None:
        """Put `new`, or nothing, in the place of a record, which is returned."""
        held = self._held[kind]
        old = held.pop(record_id, None)
        if old is not None:
            self._listed[kind, _owner(old)].remove(record_id)
            for name in _names(old):
                del self.named[name]
        if new is not None:
            held[record_id] = new
            place = (kind, _owner(new))
            if place not in self._listed:
                self._listed[place] = Catalogue(_place_of, _no_terms)
            self._listed[place].add(record_id, new)
            for name in _names(new):
                self.named[name] = new
        return old

    def listed(self, kind: type, tenant_id: str) -> Catalogue[Document] | None:
        """Return a tenant's records of a class, in order."""
        return self._listed.get((kind, tenant_id))

    def tenant(self, tenant_id: str) -> Sequence[Document]:
        """Return the one tenant of that id, as a list."""
        own = self._held[Tenant].get(tenant_id)
        return [] if own is None else [own]

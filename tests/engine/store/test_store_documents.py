"""Documents and log entries, in both stores."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import StoreError
from engine.model import Intent, Job, JobResult, KeptAnswer, Key, Proxy, Tenant
from engine.store import Store, cursor
from tests.engine.store._queries import logged
from tests.engine.store._records import (
    OTHER_TENANT,
    TENANT,
    job_result,
    key,
    log,
    one_of_each,
    proxy,
    sealed,
    tenant,
    token,
    uuid,
)


@pytest.mark.parametrize("kind", sorted({type(each).__name__ for each in one_of_each()}))
def test_a_document_comes_back_as_it_was_put(store: Store, kind: str) -> None:
    for record in (each for each in one_of_each() if type(each).__name__ == kind):
        owner = "" if isinstance(record, Tenant) else TENANT
        with store.transaction():
            store.put(record)
        with store.transaction(write=False):
            assert store.get(type(record), record.id) == record
            assert list(store.list(type(record), owner)) == [record]
            assert list(store.list(type(record), OTHER_TENANT)) == []
        with store.transaction():
            assert store.delete(type(record), record.id)
            assert not store.delete(type(record), record.id)
            assert store.get(type(record), record.id) is None
            assert list(store.list(type(record), owner)) == []


def test_put_replaces_the_record_of_that_id(store: Store) -> None:
    for file in (sealed(1), sealed(1) * 99, sealed(2), b"", sealed(1)):
        changed = job_result(1, sealed_content=file)
        with store.transaction():
            store.put(changed)
        with store.transaction(write=False):
            assert list(store.list(JobResult, TENANT)) == [changed]
            assert store.get(JobResult, changed.id) == changed


def test_documents_are_listed_by_instant_then_id_a_page_at_a_time(store: Store) -> None:
    """D-LIST: pages of a cursor, without hole or repetition."""
    keys = [key(number, created_at_ns=number // 3) for number in range(10)]
    with store.transaction():
        for each in reversed(keys):
            store.put(each)
    with store.transaction(write=False):
        pages: list[Key] = []
        after = None
        while page := store.list(Key, TENANT, after=after, size=4):
            pages += page
            after = page[-1].id
        assert pages == keys
        assert list(store.list(Key, TENANT)) == keys
        assert list(store.list(Key, TENANT, after=uuid(99))) == []
    with store.transaction():
        store.delete(Key, keys[3].id)
        assert list(store.list(Key, TENANT, after=keys[3].id)) == []
        assert list(store.list(Key, TENANT, after=cursor(keys[3]))) == keys[4:]


def test_all_tenants_are_listed_in_order(store: Store) -> None:
    with store.transaction():
        for number in (2, 1, 3):
            store.put(tenant(number))
        assert list(store.tenants()) == [tenant(1), tenant(2), tenant(3)]


def test_keys_and_proxies_are_found_by_their_names(store: Store) -> None:
    with store.transaction():
        store.put(key(1))
        store.put(proxy(2, host="a.example"))
        store.put(proxy(3))
    with store.transaction(write=False):
        assert store.key_by_hash(b"key 1") == key(1)
        assert store.key_by_hash(b"nobody") is None
        assert store.proxy_by_hash(b"proxy 2") == proxy(2, host="a.example")
        assert store.proxy_by_host("a.example") == proxy(2, host="a.example")
        assert store.proxy_by_host("b.example") is None
        assert store.proxy_by_hash(b"") is None
    with store.transaction():
        store.put(proxy(2, host="b.example"))
        assert store.proxy_by_host("a.example") is None
        assert store.proxy_by_host("b.example") is not None
        store.delete(Proxy, uuid(2))
        assert store.proxy_by_host("b.example") is None


@pytest.mark.parametrize(
    "second", [key(2, text_hash=b"key 1"), proxy(4, key_hash=b"proxy 3"), proxy(4, host="a.b")]
)
def test_a_name_of_another_record_is_refused(store: Store, second: Any) -> None:
    with store.transaction():
        store.put(key(1))
        store.put(proxy(3, host="a.b"))
    with pytest.raises(StoreError) as refused, store.transaction():
        store.put(second)
    assert "a.b" not in str(refused.value)
    with store.transaction(write=False):
        assert store.get(type(second), second.id) is None


def test_log_entries_stand_in_order_of_instant_and_arrival(store: Store) -> None:
    """D-LOGS, D-CLOCK: equal instants in order of arrival."""
    with store.transaction():
        for number, at_ns in ((9, 5), (1, 5), (5, 3), (7, 5)):
            store.add_log(log(number, at_ns))
        store.add_log(log(8, 5, tenant_id=OTHER_TENANT))
    assert logged(store) == [uuid(n) for n in (5, 9, 1, 7)]
    assert logged(store, size=2) == [uuid(5), uuid(9)]
    assert logged(store, size=2, after=uuid(9)) == [uuid(1), uuid(7)]
    assert logged(store, after=uuid(42)) == []


def test_log_filters(store: Store) -> None:
    """D-LOG-LIST: entity type, entity id, and instants half-open."""
    with store.transaction():
        for number in range(6):
            kind = "token" if number % 2 else "key"
            store.add_log(log(number, number, entity_type=kind, entity_id=f"e{number // 2}"))
    assert logged(store, entity_type="token") == [uuid(1), uuid(3), uuid(5)]
    assert logged(store, entity_id="e1") == [uuid(2), uuid(3)]
    assert logged(store, entity_id="e1", entity_type="key") == [uuid(2)]
    assert logged(store, from_ns=2, before_ns=4) == [uuid(2), uuid(3)]
    assert logged(store, entity_type="token", from_ns=2, before_ns=5) == [uuid(3)]
    assert logged(store, after=uuid(1), from_ns=1, size=2) == [uuid(2), uuid(3)]
    assert logged(store, entity_id="nothing") == []


def test_old_log_entries_go_and_their_cursor_goes_on(store: Store) -> None:
    """QUO-LOG: entries before the instant go, the one at it stays."""
    entries = [log(number, number) for number in range(6)]
    with store.transaction():
        for each in entries:
            store.add_log(each)
        store.add_log(log(9, 0, tenant_id=OTHER_TENANT))
    with store.transaction():
        assert store.expire_logs(TENANT, 3) == 3
        assert store.expire_logs(TENANT, 3) == 0
        assert store.expire_logs(uuid(77), 3) == 0
    assert logged(store) == [uuid(3), uuid(4), uuid(5)]
    assert logged(store, after=cursor(entries[0])) == [uuid(3), uuid(4), uuid(5)]
    assert logged(store, after=cursor(entries[3])) == [uuid(4), uuid(5)]
    with store.transaction():
        assert store.expire_logs(TENANT, 4) == 1
        store.add_log(log(10, 1))
        assert store.expire_logs(TENANT, 5) == 2
    assert logged(store) == [uuid(5)]


def test_the_documents_version_moves_with_every_change_that_requests_depend_on(
    store: Store,
) -> None:
    records = [
        each
        for each in one_of_each()
        if not isinstance(each, Job | JobResult | Intent | KeptAnswer)
    ]
    seen = set()
    for record in records:
        with store.transaction():
            store.put(record)
            seen.add(store.documents_version)
        assert store.documents_version in seen
    assert None not in seen
    assert len(seen) == len(records)
    with store.transaction():
        store.delete(type(records[0]), records[0].id)
    assert store.documents_version not in seen


def test_the_documents_version_stands_still_while_only_tokens_and_logs_are_written(
    store: Store,
) -> None:
    with store.transaction():
        before = store.documents_version
        store.add_tokens([token(1)])
        store.add_log(log(1, 1))
    with store.transaction(write=False):
        assert store.token(TENANT, token(1).id) is not None
    assert store.documents_version == before


def test_the_documents_version_of_a_change_that_is_undone_is_never_that_of_another(
    store: Store,
) -> None:
    store.begin()
    store.put(tenant(1))
    inside = store.documents_version
    store.rollback()
    assert store.documents_version != inside
    with store.transaction():
        store.put(tenant(2))
        assert store.documents_version != inside


def test_what_is_due_is_known_at_its_instant(store: Store) -> None:
    """QUO-INTENT, QUO-CVC: half-open, so erased at the deadline itself."""
    due = [each for each in one_of_each() if isinstance(each, Intent | KeptAnswer)]
    assert {type(each) for each in due} == {Intent, KeptAnswer}
    for record in due:
        with store.transaction():
            store.put(record)
        assert store.next_deadline_ns == record.until_ns
        with store.transaction():
            assert store.expire(record.until_ns - 1) == 0
            assert store.expire(record.until_ns) == 1
            assert store.get(Intent, record.id) is None
            assert store.get(KeptAnswer, record.id) is None
        assert store.next_deadline_ns is None

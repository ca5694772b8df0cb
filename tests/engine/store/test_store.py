"""What the engine may rely on, whichever store it is given: transactions, retention, secrets."""

from __future__ import annotations

import dataclasses
import sys
import threading
from hashlib import blake2b
from typing import Any

import pytest
from msgspec.structs import replace

from engine.errors import StoreError
from engine.model import (
    EncryptionKey,
    Intent,
    Job,
    JobResult,
    KeptAnswer,
    Key,
    Proxy,
    Tenant,
    Token,
)
from engine.store import MemoryStore, Store, TokenFilter, cursor
from engine.store.protocol import token_terms
from tests.engine.store._queries import found, logged
from tests.engine.store._records import (
    OTHER_TENANT,
    TENANT,
    card,
    intent,
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


def test_what_raises_undoes_everything(store: Store) -> None:
    """TOK-ATOMIC: nothing of a transaction stays when its block raises."""
    with store.transaction():
        store.add_tokens([card(1, 50), token(2)])
        store.put(intent(3, 60))
        store.put(key(4))
        store.add_log(log(5, 10))
        store.put_secret("dek", b"one")
        store.open_work(log(70, 5))
    with pytest.raises(ZeroDivisionError):
        change_everything_and_fail(store)
    with store.transaction(write=False):
        assert store.token(TENANT, uuid(1)) == card(1, 50)
        assert store.token(TENANT, uuid(2)) == token(2)
        assert store.token(TENANT, uuid(6)) is None
        assert store.duplicate(TENANT, b"hash 6") is None
        assert store.count_tokens(TENANT) == 2
        assert store.get(Intent, uuid(3)) == intent(3, 60)
        assert store.key_by_hash(b"key 4") == key(4)
        assert store.key_by_hash(b"other") is None
        assert store.next_deadline_ns == 50
        assert store.secrets() == {"dek": b"one"}
        assert store.unfinished_work() == [log(70, 5)]
    assert logged(store) == [uuid(5)]
    assert [each.id for each in found(store, metadata=(("order", "é\0"),))] == [uuid(1)]


def change_everything_and_fail(store: Store) -> None:
    with store.transaction():
        store.add_tokens([token(6)])
        store.update_token(card(1, 70, metadata=None))
        store.delete_token(TENANT, uuid(2))
        store.delete(Intent, uuid(3))
        store.put(dataclasses.replace(key(4), text_hash=b"other"))
        store.expire_logs(TENANT, 99)
        store.add_log(log(7, 10))
        store.put_secret("dek", b"two")
        store.put_secret("new", b"new")
        store.close_work(uuid(70))
        store.expire(100)
        raise ZeroDivisionError


def test_transactions_do_not_nest_and_the_outer_one_goes_on(store: Store) -> None:
    with store.transaction():
        store.add_tokens([token(1)])
        with pytest.raises(AssertionError, match="do not nest"):
            store.begin()
        store.add_tokens([token(2)])
    assert len(found(store)) == 2


def test_a_write_outside_of_a_writing_transaction_is_a_programmer_error(store: Store) -> None:
    with pytest.raises(AssertionError):
        store.add_tokens([token(1)])
    with store.transaction(write=False):
        for write in (
            lambda: store.add_tokens([token(1)]),
            lambda: store.put(key(1)),
            lambda: store.expire(5),
            lambda: store.add_log(log(1, 1)),
            lambda: store.put_secret("a", b"b"),
        ):
            with pytest.raises(AssertionError):
                write()
    assert found(store) == []


def test_a_read_outside_of_a_transaction_is_a_programmer_error(store: Store) -> None:
    with pytest.raises(AssertionError):
        store.token(TENANT, uuid(1))
    with pytest.raises(AssertionError):
        store.get(Key, uuid(1))
    with pytest.raises(AssertionError):
        store.list(Key, TENANT)
    with pytest.raises(AssertionError):
        store.tenants()


def test_begin_commit_and_rollback_by_hand(store: Store) -> None:
    store.begin()
    store.add_tokens([token(1)])
    store.rollback()
    store.begin()
    store.add_tokens([token(2)])
    store.commit()
    assert found(store) == [token(2)]


def test_many_threads_leave_one_token_of_equal_ones(store: Store) -> None:
    """D-DEDUP-KEY: look-up and insert in one transaction; racing requests make one token."""
    start = threading.Barrier(8)

    def race(first: int) -> None:
        start.wait()
        for at in range(20):
            with store.transaction():
                if store.duplicate(TENANT, b"same %d" % at) is None:
                    store.add_tokens([token(first + at, dedup_hash=b"same %d" % at)])

    threads = [threading.Thread(target=race, args=(100 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found(store)) == 20


def test_a_cvc_and_an_intent_go_at_their_instant(store: Store) -> None:
    """QUO-CVC, QUO-INTENT: there before the deadline, gone at it; the token stays."""
    with store.transaction():
        store.add_tokens([card(1, 50), card(2, 60)])
        store.put(intent(3, 55))
        assert store.next_deadline_ns == 50
        assert store.expire(49) == 0
    with store.transaction():
        assert store.expire(50) == 1
        bare = store.token(TENANT, uuid(1))
        assert bare == replace(card(1, 50), sealed_cvc=None, cvc_until_ns=None)
        assert store.get(Intent, uuid(3)) is not None
        assert store.next_deadline_ns == 55
        assert store.expire(100) == 2
        assert store.get(Intent, uuid(3)) is None
    assert store.next_deadline_ns is None


def test_the_next_deadline_follows_every_change(store: Store) -> None:
    def change(do: Any) -> int | None:
        with store.transaction():
            do()
            inside = store.next_deadline_ns
        assert store.next_deadline_ns == inside
        return inside

    assert change(lambda: store.put(intent(1, 50))) == 50
    assert change(lambda: store.add_tokens([card(2, 40)])) == 40
    assert change(lambda: store.update_token(card(2, 60))) == 50
    assert change(lambda: store.delete(Intent, uuid(1))) == 60
    assert change(lambda: store.put(intent(1, 30))) == 30
    assert change(lambda: store.put(intent(1, 70))) == 60
    assert change(lambda: store.delete_token(TENANT, uuid(2))) == 70
    assert change(lambda: store.add_tokens([card(2, 60)])) == 60
    assert change(lambda: store.expire(60)) == 70
    store.begin()
    assert store.expire(70) == 1
    store.rollback()
    assert store.next_deadline_ns == 70


def test_wrapped_secrets_are_kept_by_name(store: Store) -> None:
    with store.transaction():
        assert store.secret("dek") is None
        store.put_secret("dek", b"one")
        store.put_secret("empty", b"")
        store.put_secret("dek", b"two" * 100)
    with store.transaction(write=False):
        assert store.secret("dek") == b"two" * 100
        assert store.secrets() == {"dek": b"two" * 100, "empty": b""}


def test_work_that_never_finished_is_remembered(store: Store) -> None:
    with store.transaction():
        store.open_work(log(2, 7))
        store.open_work(log(1, 7, actor_id=None, status=500))
        store.open_work(log(3, 1))
        store.close_work(uuid(3))
        store.close_work("nothing")
    with store.transaction(write=False):
        assert store.unfinished_work() == [log(1, 7, actor_id=None, status=500), log(2, 7)]


def test_a_store_that_works_is_probed_again_and_again(store: Store) -> None:
    """What readiness asks; a store that cannot write raises `StoreError`."""
    for _ in range(3):
        store.probe()


def test_what_was_deleted_is_overwritten_where_nobody_else_reads(store: Store) -> None:
    """The server's timer calls it; False would be logged as a failure to erase."""
    assert store.truncate_log()


def test_no_repr_shows_what_is_sealed(store: Store) -> None:
    """REC-SECRET: a record or a store in a log or a traceback gives nothing away."""
    shown = [
        card(1, 5),
        intent(2, 5),
        job_result(3),
        EncryptionKey("id", TENANT, "a", {}, sealed(4)),
    ]
    with store.transaction():
        store.add_tokens([card(1, 5)])
    assert "sealed" not in repr([store, *shown]).replace("sealed_", "")
    assert "hash 1" not in repr(shown)


def test_memory_holds_no_reference_to_what_it_erased() -> None:
    """QUO-CVC: really gone: nothing in the store leads to the ciphertext any more."""
    store = MemoryStore()
    cvc, data = bytearray(b"cvc").ljust(99), bytearray(b"data").ljust(99)
    ours = [sys.getrefcount(cvc), sys.getrefcount(data)]
    with store.transaction():
        store.add_tokens([card(1, 50, sealed_cvc=cvc), card(2, 50, sealed_data=data)])
        store.put(intent(3, 50, sealed_data=cvc))
        store.find_tokens(TENANT, TokenFilter(), size=9)
    assert [sys.getrefcount(cvc), sys.getrefcount(data)] != ours
    with store.transaction():
        store.expire(50)
        store.delete_token(TENANT, uuid(2))
    assert [sys.getrefcount(cvc), sys.getrefcount(data)] == ours


def test_quo_cvc_a_deletion_that_is_undone_leaves_the_deadline(store: Store) -> None:
    """QUO-CVC: a cvc is erased in its time, whatever was begun and given up before."""
    with store.transaction():
        store.add_tokens([card(1, 50)])
    store.begin()
    assert store.delete_token(TENANT, uuid(1))
    assert store.expire(60) == 0
    store.rollback()
    with store.transaction():
        assert store.next_deadline_ns == 50
        assert store.expire(60) == 1
        kept = store.token(TENANT, uuid(1))
    assert kept is not None
    assert kept.sealed_cvc is None


# --- tokens --------------------------------------------------------------------------------------


def test_tokens_come_back_as_they_were_added(store: Store) -> None:
    whole, bare = card(1, 99), token(2)
    with store.transaction():
        store.add_tokens([whole, bare])
        assert store.token(TENANT, whole.id) == whole
        assert store.token(TENANT, bare.id) == bare
        assert store.token(OTHER_TENANT, bare.id) is None
        assert store.count_tokens(TENANT) == 2
        assert store.count_tokens(OTHER_TENANT) == 0


def test_an_id_that_is_taken_is_refused_whole(store: Store) -> None:
    with store.transaction():
        store.add_tokens([token(1)])
    with pytest.raises(StoreError), store.transaction():
        store.add_tokens([token(2), token(1, sealed_data=b"other")])
    assert found(store) == [token(1)]


def test_the_oldest_of_equal_tokens_is_the_duplicate(store: Store) -> None:
    """D-DEDUP-KEY: the oldest by (created_at, id) that is not deleted, within the tenant."""
    same = b"same"
    third = token(3, dedup_hash=same, created_at_ns=7)
    second = token(2, dedup_hash=same, created_at_ns=5)
    first = token(1, dedup_hash=same, created_at_ns=5)
    with store.transaction():
        for each in (third, second, first):
            store.add_tokens([each])
            assert store.duplicate(TENANT, same) == each
        assert store.duplicate(OTHER_TENANT, same) is None
        store.delete_token(TENANT, first.id)
        assert store.duplicate(TENANT, same) == second
        store.update_token(replace(second, dedup_hash=b"changed"))
        assert store.duplicate(TENANT, same) == third
        assert store.duplicate(TENANT, b"changed") == replace(second, dedup_hash=b"changed")
        store.delete_token(TENANT, third.id)
        assert store.duplicate(TENANT, same) is None


def test_a_token_is_replaced_whole_and_found_by_what_it_has_now(store: Store) -> None:
    """D-PATCH: the new metadata, container, indexes, fingerprint and cvc count, not the old."""
    old = card(1, 50)
    new = card(
        1,
        90,
        container="/other/",
        metadata={"order": "2"},
        index_hashes=(b"third",),
        fingerprint="new",
        sealed_data=sealed(2) * 50,
        sealed_cvc=sealed(2, "cvc"),
    )
    with store.transaction():
        store.add_tokens([old])
        assert found_now(store, fingerprint="print") == [old]
        store.update_token(new)
    assert found(store, fingerprint="print") == []
    assert found(store, containers=("/pci/",)) == []
    assert found(store, index_hash=b"second") == []
    assert found(store, metadata=(("", "empty name"),)) == []
    for chosen in (
        {"fingerprint": "new"},
        {"containers": ("/other/",)},
        {"index_hash": b"third"},
        {"metadata": (("order", "2"),)},
    ):
        assert found(store, **chosen) == [new]
    with store.transaction():
        assert store.next_deadline_ns == 90
        assert store.count_tokens(TENANT) == 1
        with pytest.raises(StoreError):
            store.update_token(token(5))


def found_now(store: Store, **chosen: Any) -> list[Token]:
    return list(store.find_tokens(TENANT, TokenFilter(**chosen), size=100))


def test_a_deleted_token_is_found_nowhere(store: Store) -> None:
    """D-DELETE."""
    with store.transaction():
        store.add_tokens([card(1, 50), token(2)])
        assert store.delete_token(TENANT, uuid(1))
        assert not store.delete_token(TENANT, uuid(1))
        assert not store.delete_token(OTHER_TENANT, uuid(2))
        assert store.token(TENANT, uuid(1)) is None
        assert store.next_deadline_ns is None
        assert store.count_tokens(TENANT) == 1
        assert found_now(store, index_hash=b"second") == []
        assert found_now(store) == [token(2)]


@pytest.mark.parametrize(
    ("containers", "numbers"),
    [
        (None, [1, 2, 3, 4, 5]),
        ((), []),
        (("/",), [1, 2, 3, 4, 5]),
        (("/pci/",), [2, 3]),
        (("/pci/high/",), [3]),
        (("/pc/",), []),
        (("/pci/", "/pci/high/", "/pcix/"), [2, 3, 4]),
        (("/a/b/c/d/e/f/g/h/",), [5]),
        (("/a/b/c/d/e/f/g/h/i/j/",), [5]),
        (("/a/b/c/d/e/f/g/h/x/",), []),
    ],
)
def test_a_container_filter_goes_by_whole_segments(
    store: Store, containers: tuple[str, ...] | None, numbers: list[int]
) -> None:
    """D-GRANT: a path covers itself and all below it, however deep."""
    paths = ("/", "/pci/", "/pci/high/", "/pcix/", "/a/b/c/d/e/f/g/h/i/j/k/")
    with store.transaction():
        store.add_tokens([token(at, container=path) for at, path in enumerate(paths, start=1)])
    assert [each.id for each in found(store, containers=containers)] == [uuid(n) for n in numbers]


def test_filters_are_anded(store: Store) -> None:
    """D-LIST, D-SEARCH: type, container, fingerprint, metadata and a searched value together."""
    with store.transaction():
        store.add_tokens([card(1, 9), card(2, 9, container="/other/"), token(3), token(4)])
        store.add_tokens([card(5, 9, tenant_id=OTHER_TENANT)])
    assert [each.id for each in found(store, type="card")] == [uuid(1), uuid(2)]
    assert found(store, type="card", containers=("/general/",)) == []
    assert found(store, type="card", containers=("/other/",)) == [card(2, 9, container="/other/")]
    assert found(store, index_hash=b"\x00first", containers=("/pci/",), type="card") == [card(1, 9)]
    assert found(store, index_hash=b"\x00first", fingerprint="other") == []
    both = (("order", "é\0"), ("", "empty name"))
    assert len(found(store, metadata=both)) == 2
    assert found(store, metadata=(*both, ("missing", ""))) == []
    assert found(store, metadata=(("", "é\0"),)) == []


@pytest.mark.parametrize("chosen", [{}, {"containers": ("/general/", "/pci/")}, {"type": "token"}])
def test_tokens_are_paged_in_order_and_deletion_tears_no_hole(
    store: Store, chosen: dict[str, Any]
) -> None:
    """D-LIST: deleting each page before asking for the next one reaches every token."""
    tokens = [
        token(number, created_at_ns=number // 5, container=("/pci/", "/general/high/")[number % 2])
        for number in range(23)
    ]
    with store.transaction():
        for each in reversed(tokens):
            store.add_tokens([each])
    assert found(store, **chosen) == tokens
    seen: list[Token] = []
    after = None
    while page := found(store, after=after, size=4, **chosen):
        seen += page
        after = page[-1].id
    assert seen == tokens
    seen, after = [], None
    while page := found(store, after=after, size=4, **chosen):
        seen += page
        after = cursor(page[-1])
        with store.transaction():
            for each in page:
                store.delete_token(TENANT, each.id)
    assert seen == tokens
    assert found(store, after=tokens[0].id) == []


@pytest.mark.parametrize("after", ["", ":", "x:y", "99999999999999999999:a", "-1:a", "²:a"])
def test_a_cursor_that_nobody_gave_starts_nowhere(store: Store, after: str) -> None:
    with store.transaction():
        store.add_tokens([token(1)])
        store.put(key(1))
        store.add_log(log(1, 1))
        assert list(store.list(Key, TENANT, after=after)) == []
    assert found(store, after=after) == []
    assert logged(store, after=after) == []


def test_a_file_written_earlier_is_found_by_its_metadata() -> None:
    """Terms are stored, so another form of them needs another version of the file."""
    (term,) = [term for term in token_terms(token(1, metadata={"order": "1"})) if term[:1] == b"m"]
    assert term[1:] == blake2b(b"5:order1", digest_size=16).digest()


# --- documents and log entries -------------------------------------------------------------------


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

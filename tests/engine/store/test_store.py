"""What the engine may rely on, whichever store it is given: transactions, retention, secrets."""

from __future__ import annotations

import dataclasses
import sys
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from engine.model import EncryptionKey, Intent, Key
from engine.store import MemoryStore, Store, TokenFilter
from tests.engine.store._queries import found, logged
from tests.engine.store._records import (
    TENANT,
    card,
    intent,
    job_result,
    key,
    log,
    sealed,
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

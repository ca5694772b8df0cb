"""Tokens: kept, found, paged and counted alike in both stores."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest
from msgspec.structs import replace

from engine.errors import StoreError
from engine.model import Key, Token
from engine.store import Store, TokenFilter, cursor
from engine.store.protocol import token_terms
from tests.engine.store._queries import found, logged
from tests.engine.store._records import (
    OTHER_TENANT,
    TENANT,
    card,
    key,
    log,
    sealed,
    token,
    uuid,
)


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

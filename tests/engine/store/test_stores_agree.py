"""Both stores side by side through the same operations: they answer alike, whatever is undone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from engine.errors import StoreError
from engine.model import Application, Intent, Job, JobResult, KeptAnswer, Key, Proxy, Tenant, Token
from engine.store import LogFilter, MemoryStore, SqliteStore, Store, TokenFilter, cursor
from tests.engine.store._records import (
    OTHER_TENANT,
    TENANT,
    intent,
    job,
    job_result,
    kept_answer,
    key,
    log,
    proxy,
    sealed,
    tenant,
    token,
    uuid,
)

TENANTS = st.sampled_from([TENANT, OTHER_TENANT])
NUMBERS = st.integers(0, 12)
INSTANTS = st.integers(0, 6)
PATHS = st.sampled_from(["/", "/a/", "/a/b/", "/ab/", "/a/b/c/"])
WORDS = st.sampled_from(["", "x", "y"])
HASHES = st.sampled_from([b"h1", b"h2"])
PAIRS = st.dictionaries(WORDS, WORDS, max_size=2)
CURSORS = (
    st.none() | st.builds(uuid, NUMBERS) | st.builds("{}:{}".format, INSTANTS, NUMBERS.map(uuid))
)
SIZES = st.integers(1, 5)
TYPES = st.sampled_from(["token", "card"])
TOKENS = st.builds(
    token,
    NUMBERS,
    tenant_id=TENANTS,
    type=TYPES,
    container=PATHS,
    dedup_hash=HASHES,
    metadata=st.none() | PAIRS,
    fingerprint=st.none() | WORDS,
    index_hashes=st.lists(HASHES, max_size=2, unique=True).map(tuple),
    sealed_data=st.integers(0, 200).map(lambda size: b"s" * size),
)
CVCS = st.none() | INSTANTS
FILTERS = st.builds(
    TokenFilter,
    containers=st.none() | st.lists(PATHS, max_size=3).map(tuple),
    type=st.none() | TYPES,
    fingerprint=st.none() | WORDS,
    index_hash=st.none() | HASHES,
    metadata=PAIRS.map(lambda pairs: tuple(pairs.items())) | st.just(()),
)
DOCUMENTS = st.one_of(
    st.builds(intent, NUMBERS, INSTANTS, tenant_id=TENANTS),
    st.builds(kept_answer, NUMBERS, INSTANTS, tenant_id=TENANTS),
    st.builds(key, NUMBERS, tenant_id=TENANTS, created_at_ns=INSTANTS, text_hash=HASHES),
    st.builds(proxy, NUMBERS, key_hash=HASHES, host=st.none() | st.sampled_from(["a.b", "c.d"])),
    st.builds(job, NUMBERS, ends_at_ns=st.none() | INSTANTS),
    st.builds(job_result, NUMBERS, sealed_content=NUMBERS.map(sealed)),
    st.builds(tenant, NUMBERS, created_at_ns=INSTANTS),
)
KINDS: Any = st.sampled_from([Tenant, Application, Key, Proxy, Job, JobResult, Intent, KeptAnswer])
LOG_FILTERS = st.builds(
    LogFilter,
    entity_type=st.none() | TYPES,
    entity_id=st.none() | WORDS,
    from_ns=st.none() | INSTANTS,
    before_ns=st.none() | INSTANTS,
)


class Agreement(RuleBasedStateMachine):
    """Each rule does one thing to both stores and compares what they answer."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stores: list[Store] = [
            MemoryStore(),
            SqliteStore(Path(self.folder.name) / "tollgate.db"),
        ]
        self.logs = 0
        for store in self.stores:
            store.begin()

    def teardown(self) -> None:
        for store in self.stores:
            store.rollback()
            store.close()
        self.folder.cleanup()

    def both(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Ask both; a refusal gives the transaction up, as the protocol says."""
        answers = []
        for store in self.stores:
            try:
                answers.append(getattr(store, name)(*arguments, **named))
            except StoreError:
                answers.append(StoreError)
        first, second = answers
        assert first == second, (name, arguments, named)
        if first is StoreError:
            self.end("rollback")
        return first

    def end(self, how: str) -> None:
        for store in self.stores:
            getattr(store, how)()
            store.begin()

    @rule()
    def commit(self) -> None:
        self.end("commit")

    @rule()
    def rollback(self) -> None:
        self.end("rollback")

    @rule(tokens=st.lists(TOKENS, min_size=1, max_size=3), at_ns=INSTANTS, until_ns=CVCS)
    def add(self, tokens: list[Token], at_ns: int, until_ns: int | None) -> None:
        cvc = None if until_ns is None else b"cvc"
        added = [
            replace(each, created_at_ns=at_ns, cvc_until_ns=until_ns, sealed_cvc=cvc)
            for each in tokens
        ]
        self.both("add_tokens", added)

    @rule(new=TOKENS, until_ns=CVCS)
    def update(self, new: Token, until_ns: int | None) -> None:
        old = self.both("token", new.tenant_id, new.id)
        at_ns = new.created_at_ns if old is None else old.created_at_ns
        cvc = None if until_ns is None else b"changed cvc"
        self.both(
            "update_token",
            replace(new, created_at_ns=at_ns, cvc_until_ns=until_ns, sealed_cvc=cvc),
        )

    @rule(tenant_id=TENANTS, number=NUMBERS)
    def delete(self, tenant_id: str, number: int) -> None:
        self.both("delete_token", tenant_id, uuid(number))

    @rule(tenant_id=TENANTS, chosen=FILTERS, after=CURSORS, size=SIZES)
    def find(self, tenant_id: str, chosen: TokenFilter, after: str | None, size: int) -> None:
        page = self.both("find_tokens", tenant_id, chosen, after=after, size=size)
        if page:
            self.both("find_tokens", tenant_id, chosen, after=cursor(page[-1]), size=size)

    @rule(record=DOCUMENTS)
    def put(self, record: Any) -> None:
        self.both("put", record)

    @rule(kind=KINDS, number=NUMBERS)
    def delete_document(self, kind: Any, number: int) -> None:
        self.both("delete", kind, uuid(number))

    @rule(kind=KINDS, tenant_id=TENANTS, after=CURSORS, size=st.none() | SIZES)
    def documents(self, kind: Any, tenant_id: str, after: str | None, size: int | None) -> None:
        self.both("list", kind, tenant_id, after=after, size=size)
        self.both("tenants")

    @rule(kind=KINDS, number=NUMBERS, name=HASHES, host=st.sampled_from(["a.b", "c.d"]))
    def look_up(self, kind: Any, number: int, name: bytes, host: str) -> None:
        self.both("get", kind, uuid(number))
        self.both("key_by_hash", name)
        self.both("proxy_by_hash", name)
        self.both("proxy_by_host", host)

    @rule(tenant_id=TENANTS, at_ns=INSTANTS, kind=TYPES, entity=WORDS)
    def log(self, tenant_id: str, at_ns: int, kind: str, entity: str) -> None:
        self.logs += 1
        entry = log(self.logs, at_ns, tenant_id=tenant_id, entity_type=kind, entity_id=entity)
        self.both("add_log", entry)

    @rule(tenant_id=TENANTS, chosen=LOG_FILTERS, after=CURSORS, size=SIZES)
    def find_logs(self, tenant_id: str, chosen: LogFilter, after: str | None, size: int) -> None:
        page = self.both("find_logs", tenant_id, chosen, after=after, size=size)
        if page:
            self.both("find_logs", tenant_id, chosen, after=cursor(page[-1]), size=size)

    @rule(tenant_id=TENANTS, before_ns=INSTANTS)
    def expire_logs(self, tenant_id: str, before_ns: int) -> None:
        self.both("expire_logs", tenant_id, before_ns)

    @rule(now_ns=INSTANTS)
    def expire(self, now_ns: int) -> None:
        self.both("expire", now_ns)

    @rule(name=WORDS, wrapped=st.binary(max_size=100))
    def put_secret(self, name: str, wrapped: bytes) -> None:
        self.both("put_secret", name, wrapped)
        self.both("secrets")

    @rule(number=NUMBERS, at_ns=INSTANTS)
    def open_work(self, number: int, at_ns: int) -> None:
        self.both("open_work", log(number, at_ns))

    @rule(number=NUMBERS)
    def close_work(self, number: int) -> None:
        self.both("close_work", uuid(number))

    @invariant()
    def agree(self) -> None:
        first, second = (store.next_deadline_ns for store in self.stores)
        assert first == second
        self.both("unfinished_work")
        for tenant_id in (TENANT, OTHER_TENANT):
            self.both("count_tokens", tenant_id)
            self.both("find_tokens", tenant_id, TokenFilter(), size=100)
            self.both("find_logs", tenant_id, LogFilter(), size=100)
            for dedup_hash in (b"h1", b"h2"):
                self.both("duplicate", tenant_id, dedup_hash)


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(stateful_step_count=30, max_examples=25)


@pytest.mark.slow
class TestAgreementAtLength(Agreement.TestCase):  # type: ignore[misc, valid-type] # reason: made by hypothesis
    settings = settings(stateful_step_count=30)

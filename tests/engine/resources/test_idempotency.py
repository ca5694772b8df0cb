"""`Idempotency-Key` on POSTs that create: once, whatever is repeated (D-IDEMPOTENCY)."""

import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import Engine, ManualClock, MemoryStore, ModelWorld, Response, SqliteStore
from engine.errors import StoreError
from engine.identity import PERMISSIONS
from engine.model import KeptAnswer
from engine.resources import OPERATIONS
from tests.engine.deployment import CARD, Deployment
from tests.engine.http.live import served

DAY_NS = 24 * 3_600 * 1_000_000_000
BODIES: dict[str, Any] = {
    "tokenize": {"name": "Ada", "card": CARD},
    "create_token": {"type": "token", "data": "Ada"},
    "create_token_intent": CARD,
    "create_reactor": {"name": "r", "code": "c", "configuration": {}},
    "create_proxy": {"name": "p", "destination_url": "https://api.example.com"},
    "create_job": {},
    "create_application": {"name": "a", "kind": "private"},
    "create_application_key": {"legacy": True},
    "create_key": {"algorithm": "ECDH-ES"},
}


def _once(deployment: Deployment, path: str, body: Any, name: str, **more: Any) -> Response:
    headers = {"Idempotency-Key": name, "Content-Type": "application/json"}
    return deployment.ask("POST", path, body, headers=headers, **more)


def test_every_operation_that_creates_gives_its_first_answer_again(acme: Deployment) -> None:
    private = acme.principal(set(PERMISSIONS))[1]
    management = acme.principal({"key:create"}, "management")[1]
    creating = [operation for operation in OPERATIONS if operation.creates]
    assert {"tokenize", "create_token", "create_application_key"} <= {o.name for o in creating}
    for operation in creating:
        assert operation.run is not None, "its answer is kept in the transaction that creates"
        path = operation.path.replace("{id}", acme.application.id)
        key = management if operation.name == "create_application_key" else private
        body = BODIES.get(operation.name, {})
        first = _once(acme, path, body, "first", key=key)
        assert first.ok, (operation.name, first.body)
        again = _once(acme, path, body, "first", key=key)
        assert (again.status, again.body) == (first.status, first.body)
        assert again.headers.get("Location") == first.headers.get("Location")
        other = _once(acme, path, body, "second", key=key)
        assert other.body != first.body
    assert not {"react", "detokenize", "search_tokens"} & {o.name for o in creating}


def test_another_body_under_the_key_is_422_and_creates_nothing(acme: Deployment) -> None:
    first = _once(acme, "/tokenize", {"a": "b"}, "k-1")
    before = acme.count()
    answer = _once(acme, "/tokenize", {"a": "c"}, "k-1")
    assert (answer.status, answer.body["clause"]) == (422, "D-IDEMPOTENCY")
    assert acme.count() == before
    assert _once(acme, "/tokenize", {"a": "b"}, "k-1").body == first.body


def test_keys_and_paths_are_apart(acme: Deployment) -> None:
    """Kept by API key and path: another one's `Idempotency-Key` is another."""
    token = {"type": "token", "data": "Ada"}
    first = _once(acme, "/tokens", token, "k-1")
    assert _once(acme, "/tokenize", token, "k-1").body["id"] != first.body["id"]
    other = str(acme.engine.create_key(acme.application))
    assert _once(acme, "/tokens", token, "k-1", key=other).body["id"] != first.body["id"]
    assert _once(acme, "/tokens?x=1", token, "k-1").body["id"] == first.body["id"]


def test_what_was_refused_is_answered_anew(acme: Deployment) -> None:
    """Only what created is kept: after a mend of the body, the right or the quota it goes on."""
    assert _once(acme, "/tokenize", {"type": "token"}, "k-1").status == 400
    assert _once(acme, "/tokenize", {"a": "b"}, "k-1").status == 200
    acme.engine.set_quota(acme.tenant, "Tokenize Limit", 0)
    assert _once(acme, "/tokenize", {"a": "b"}, "k-2").status == 400
    assert _once(acme, "/tokenize", {"a": "b"}, "k-1").status == 200
    acme.engine.set_quota(acme.tenant, "Tokenize Limit", 5)
    assert _once(acme, "/tokenize", {"a": "b"}, "k-2").status == 200


@pytest.mark.parametrize("text", ["", " ", "a b", "é", "a\tb", "x" * 256, "a, b"])
def test_a_key_of_another_form_is_400(acme: Deployment, text: str) -> None:
    answer = _once(acme, "/tokenize", {"a": "b"}, text)
    assert (answer.status, answer.body["clause"]) == (400, "D-IDEMPOTENCY")
    assert acme.count() == 0


def test_an_answer_is_kept_for_a_day_to_the_nanosecond(acme: Deployment) -> None:
    first = _once(acme, "/tokenize", {"a": "b"}, "k-1")
    acme.clock.advance_ns(DAY_NS - 1)
    assert _once(acme, "/tokenize", {"a": "b"}, "k-1").body == first.body
    acme.clock.advance_ns(1)
    assert _once(acme, "/tokenize", {"a": "c"}, "k-1").status == 200
    with acme.engine.services.store.transaction(write=False):
        kept = acme.engine.services.store.list(KeptAnswer, acme.tenant.id)
    assert len(kept) == 1


def test_the_profile_says_how_long_and_whether(deploy: Callable[..., Deployment]) -> None:
    short = deploy(http={"idempotency_kept_ns": "10s"})
    first = _once(short, "/tokenize", {"a": "b"}, "k-1")
    short.clock.advance_ns("10s")
    assert _once(short, "/tokenize", {"a": "b"}, "k-1").body != first.body
    ignoring = deploy(http={"idempotency": "ignore"})
    first = _once(ignoring, "/tokenize", {"a": "b"}, "k-1")
    assert _once(ignoring, "/tokenize", {"a": "c"}, "k-1").status == 200
    assert _once(ignoring, "/tokenize", {"a": "b"}, "a b").status == 200


def test_an_answer_that_shows_a_cvc_is_not_kept_longer(deploy: Callable[..., Deployment]) -> None:
    """QUO-CVC: where POST /tokens shows plaintext, its kept answer goes with the cvc."""
    open_reads = deploy(tokens={"plaintext_reads": True})
    first = _once(open_reads, "/tokens", CARD, "k-1")
    assert first.body["data"]["cvc"] == "123"
    open_reads.clock.advance_ns("59m")
    assert _once(open_reads, "/tokens", CARD, "k-1").body == first.body
    open_reads.clock.advance_ns("1m")
    again = _once(open_reads, "/tokens", CARD, "k-1")
    assert again.body["id"] != first.body["id"]


@pytest.mark.parametrize("ahead_ns", [-DAY_NS, DAY_NS])
def test_a_wall_clock_that_was_set_keeps_no_answer_longer_or_shorter(
    deploy: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch, ahead_ns: int
) -> None:
    """D-CLOCK: deadlines follow the steady time; this answer's is that of the cvc in it."""
    open_reads = deploy(tokens={"plaintext_reads": True})
    wall_ns = ManualClock.steady_ns
    ahead = property(lambda clock: wall_ns.__get__(clock) + ahead_ns)
    monkeypatch.setattr(ManualClock, "wall_ns", ahead)
    store = open_reads.engine.services.store
    _once(open_reads, "/tokens", CARD, "k-1")
    open_reads.clock.advance_ns("59m")
    open_reads.ask("GET", "/nothing")  # every request deletes what has expired
    with store.transaction(write=False):
        assert len(store.list(KeptAnswer, open_reads.tenant.id)) == 1
    open_reads.clock.advance_ns("1m")
    open_reads.ask("GET", "/nothing")  # every request deletes what has expired
    with store.transaction(write=False):
        assert not store.list(KeptAnswer, open_reads.tenant.id)


def test_neither_body_nor_answer_nor_key_lies_open_in_the_file(tmp_path: Path) -> None:
    """D-KEY: a kept answer may show a key's text; the file holds ciphertext and keyed hashes."""
    path = tmp_path / "a.sqlite"
    world = ModelWorld(clock=ManualClock())
    with Engine(world=world, store=SqliteStore(path), master_key=os.urandom(32)) as engine:
        acme = Deployment(engine)
        key = acme.principal({"token:create"})[1]
        manager = acme.principal({"key:create"}, "management")[1]
        path_of_keys = f"/applications/{acme.application.id}/keys"
        made = _once(acme, path_of_keys, {}, "idem-text", key=manager)
        _once(acme, "/tokenize", {"name": "secret name"}, "idem-text", key=key)
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for text in (made.body["key"], "idem-text", "secret name"):
        assert text.encode() not in files


@pytest.mark.parametrize("make", [MemoryStore, lambda: None], ids=["memory", "sqlite"])
def test_where_the_answer_cannot_be_kept_nothing_is_created(
    make: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TOK-ATOMIC: the answer and what it created are one transaction."""
    store = make() or SqliteStore(tmp_path / "a.sqlite")
    put = store.put

    def failing(record: Any) -> None:
        if isinstance(record, KeptAnswer):
            raise StoreError("the disk is full")
        put(record)

    with Engine(world=ModelWorld(), store=store, master_key=os.urandom(32)) as engine:
        acme = Deployment(engine)
        monkeypatch.setattr(store, "put", failing)
        with pytest.raises(StoreError):
            _once(acme, "/tokenize", {"a": "b"}, "k-1")
        assert acme.count() == 0


def test_of_two_at_once_one_creates(acme: Deployment) -> None:
    """TOK-ATOMIC: the look-up and the write are one transaction."""
    body = {"a": "b"}
    answers: list[Any] = []

    def ask() -> None:
        answers.append(_once(acme, "/tokenize", body, "k-1").body)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 16
    assert all(answer == answers[0] for answer in answers)
    assert acme.count() == 1


@pytest.mark.slow
def test_a_kill_at_any_instant_leaves_the_answer_with_what_it_created(tmp_path: Path) -> None:
    """Repeated until it is answered, each request creates once, whenever the server was killed."""
    answers: dict[str, Any] = {}
    draw = random.Random(7)
    store = ("--store", str(tmp_path / "a.sqlite"))
    for attempt in range(3):
        with served(tmp_path, *store) as live:
            killer = threading.Timer(
                draw.uniform(0.0, 0.1), os.kill, (live.process.pid, signal.SIGKILL)
            )
            begun = draw.randrange(4, 40)
            for number in range(10_000):
                name = f"{attempt}-{number}"
                if number == begun:
                    killer.start()
                try:
                    answer = live.ask(
                        "POST", "/tokenize", json=[name], headers={"Idempotency-Key": name}
                    )
                except httpx.HTTPError:
                    answers[name] = None  # written or not: nobody knows
                    break
                answers[name] = answer.json()
            killer.join()
    assert len(answers) > 10
    with served(tmp_path, *store) as live:
        for name, first in answers.items():
            again = live.ask("POST", "/tokenize", json=[name], headers={"Idempotency-Key": name})
            assert again.status_code == 200
            assert first is None or again.json() == first
        total = sum(1 for _ in _tokens(live))
        assert total == len(answers)


def _tokens(live: Any) -> Any:
    start = None
    while True:
        query = {"size": 100, **({"start": start} if start else {})}
        page = live.ask("GET", "/tokens", params=query).json()
        yield from page["data"]
        start = page["pagination"]["next"]
        if start is None:
            return

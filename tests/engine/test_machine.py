"""Tokens, deduplication, permissions, quotas, retention and time against a small plain model.

The model knows the clauses and nothing of the engine: a list of what should be there. It is held
against the engine over both stores, through hypothesis' stateful testing.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from engine import Engine, ManualClock, ModelWorld
from engine.store import SqliteStore
from tests.engine.deployment import Deployment

SECOND_NS = 1_000_000_000
CONTAINERS = ("/general/high/", "/pci/high/", "/pci/low/")
RIGHTS = {
    "all": {c: {"create", "read", "update", "delete"} for c in CONTAINERS},
    "creator": {c: {"create"} for c in CONTAINERS},
    "pci": {c: {"create", "read", "update"} for c in CONTAINERS[1:]},
}
GRANTS = {
    "all": [("/", {"token:create", "token:read", "token:update", "token:delete"})],
    "creator": [("/", {"token:create"})],
    "pci": [("/pci/", {"token:create", "token:read", "token:update"})],
}


@dataclasses.dataclass
class Stored:
    """One token as the model remembers it."""

    value: str
    container: str
    kind: str
    created_ns: int
    token_id: str
    metadata: dict[str, str] | None
    cvc: str | None
    cvc_until_ns: int

    def same(self, kind: str, value: str, container: str) -> bool:
        """D-DEDUP-KEY."""
        return (self.kind, self.value, self.container) == (kind, value, container)


VALUES = st.sampled_from(["ada", "bob", "cyd"])
NUMBERS = st.sampled_from(["4242424242424242", "5555555555554444"])
WHO = st.sampled_from(sorted(RIGHTS))


@st.composite
def elements(draw: st.DrawFn) -> Any:
    """One element of a tokenize body: a leaf, a token or a card."""
    if draw(st.booleans()):
        return draw(VALUES)
    element: dict[str, Any] = {"type": "token", "data": draw(VALUES)}
    if draw(st.booleans()):
        element = {"type": "card", "data": {"number": draw(NUMBERS)}}
        if draw(st.booleans()):
            element["data"]["cvc"] = draw(st.sampled_from(["111", "222"]))
    if draw(st.booleans()):
        element["containers"] = [draw(st.sampled_from(CONTAINERS))]
    if draw(st.booleans()):
        element["metadata"] = {"k": draw(VALUES)}
    flag = draw(st.sampled_from([None, True, False]))
    if flag is not None:
        element["deduplicate_token"] = flag
    return element


class TokenMachine(RuleBasedStateMachine):
    """The engine beside the model; `store` is chosen by the subclass."""

    tokens: Bundle[str] = Bundle("tokens")

    @initialize()
    def start(self) -> None:
        """An empty tenant with three principals."""
        self.acme = self.deployment()
        self.keys = {
            name: str(
                self.acme.engine.create_key(
                    self.acme.engine.create_application(self.acme.tenant, name, grants=grants)
                )
            )
            for name, grants in GRANTS.items()
        }
        self.model: list[Stored] = []
        self.setting = False
        self.limit = 5
        self.cvc_retention_ns = 3600 * SECOND_NS

    def deployment(self) -> Deployment:
        """Make the engine."""
        return Deployment(Engine(seed=3))

    @property
    def wall_ns(self) -> int:
        """The model's clock."""
        return self.acme.clock.now_ns

    @rule(target=tokens, who=WHO, body=st.lists(elements(), min_size=1, max_size=7))
    def tokenize(self, who: str, body: list[Any]) -> Any:
        """TOK-ATOMIC, TOK-DEDUP, TOK-LIMIT, AUTH-CREATE, REC-DEDUP-REDACT, in D-ORDER."""
        answer = self.acme.ask("POST", "/tokenize", body, key=self.keys[who])
        planned = [self._planned(element) for element in body]
        if any("create" not in RIGHTS[who].get(p.container, ()) for p, _ in planned):
            assert answer.status == 403
            return multiple()
        results, fresh = self._decided(planned)
        if len(fresh) > self.limit:
            assert (answer.status, answer.body["clause"]) == (400, "TOK-LIMIT")
            return multiple()
        assert answer.status == 200, answer.body
        for element, shown, (stored, deduplicated) in zip(body, answer.body, results, strict=True):
            token_id = shown if isinstance(element, str) else shown["id"]
            if stored.token_id == "":
                stored.token_id = token_id
            assert stored.token_id == token_id
            if not isinstance(element, str):
                assert shown["_extras"] == {"deduplicated": deduplicated}
                may_read = "read" in RIGHTS[who][stored.container]
                if deduplicated and not may_read:
                    assert "metadata" not in shown
                    assert "data" not in shown
                else:
                    assert shown.get("metadata") == stored.metadata
        self.model += fresh
        return multiple(*[stored.token_id for stored in fresh])

    def _planned(self, element: Any) -> tuple[Stored, bool]:
        if isinstance(element, str):
            element = {"type": "token", "data": element}
        is_card = element["type"] == "card"
        default = "/pci/high/" if is_card else "/general/high/"
        data = element["data"]
        stored = Stored(
            data["number"] if is_card else data,
            element.get("containers", [default])[0],
            element["type"],
            self.wall_ns,
            "",
            element.get("metadata"),
            data.get("cvc") if is_card else None,
            self.wall_ns + self.cvc_retention_ns,
        )
        return stored, element.get("deduplicate_token", self.setting)

    def _decided(
        self, planned: list[tuple[Stored, bool]]
    ) -> tuple[list[tuple[Stored, bool]], list[Stored]]:
        results: list[tuple[Stored, bool]] = []
        fresh: list[Stored] = []
        for stored, deduplicate in planned:
            equal = [t for t in self.model if t.same(stored.kind, stored.value, stored.container)]
            oldest = min(equal, key=lambda t: (t.created_ns, t.token_id), default=None)
            here = next(
                (t for t in fresh if t.same(stored.kind, stored.value, stored.container)), None
            )
            if deduplicate and (found := oldest or here) is not None:
                results.append((found, True))
            else:
                results.append((stored, False))
                fresh.append(stored)
        return results, fresh

    @rule(token_id=tokens, who=WHO)
    def detokenize(self, token_id: str, who: str) -> None:
        """QUO-CVC, AUTH-READ."""
        answer = self.acme.ask("POST", "/detokenize", f"{{{{{token_id}}}}}", key=self.keys[who])
        stored = self._stored(token_id)
        if who == "creator" or (stored and "read" not in RIGHTS[who].get(stored.container, ())):
            assert answer.status == 403
        elif stored is None:
            assert answer.status == 400
        elif stored.kind == "token":
            assert answer.body == stored.value
        else:
            assert answer.body["number"] == stored.value
            alive = stored.cvc is not None and self.wall_ns < stored.cvc_until_ns
            assert answer.body.get("cvc") == (stored.cvc if alive else None)

    def _stored(self, token_id: str) -> Stored | None:
        return next((t for t in self.model if t.token_id == token_id), None)

    @rule(token_id=tokens, who=WHO, value=VALUES | st.none())
    def patch(self, token_id: str, who: str, value: str | None) -> None:
        """D-PATCH: metadata merges, a null removes."""
        answer = self.acme.ask(
            "PATCH", f"/tokens/{token_id}", {"metadata": {"p": value}}, key=self.keys[who]
        )
        stored = self._stored(token_id)
        if who == "creator":
            assert answer.status == 403
        elif stored is None:
            assert answer.status == 404
        elif "update" not in RIGHTS[who].get(stored.container, ()):
            assert answer.status == 403
        else:
            merged = {k: v for k, v in (stored.metadata or {}).items() if k != "p"}
            stored.metadata = merged if value is None else {**merged, "p": value}
            assert answer.body.get("metadata") == stored.metadata

    @rule(token_id=consumes(tokens))
    def delete(self, token_id: str) -> None:
        """D-DELETE."""
        stored = self._stored(token_id)
        answer = self.acme.ask("DELETE", f"/tokens/{token_id}", key=self.keys["all"])
        assert answer.status == (404 if stored is None else 204)
        self.model = [t for t in self.model if t.token_id != token_id]

    @rule(on=st.booleans())
    def set_deduplication(self, on: bool) -> None:
        """D-DEDUP: the tenant's setting."""
        self.acme.engine.set_setting(self.acme.tenant, "deduplicate_tokens", on=on)
        self.setting = on

    @rule(limit=st.integers(0, 8))
    def set_tokenize_limit(self, limit: int) -> None:
        """QUO-TENANT: from the next request on."""
        self.acme.engine.set_quota(self.acme.tenant, "Tokenize Limit", limit)
        self.limit = limit

    @rule(seconds=st.sampled_from([1, 60]))
    def set_cvc_retention(self, seconds: int) -> None:
        """D-QUOTA-CHANGE: moves no deadline."""
        self.cvc_retention_ns = seconds * SECOND_NS
        self.acme.engine.set_quota(self.acme.tenant, "CVC Retention", self.cvc_retention_ns)

    @rule(by_ns=st.sampled_from([SECOND_NS - 1, SECOND_NS, 60 * SECOND_NS, 3600 * SECOND_NS]))
    def wait(self, by_ns: int) -> None:
        """Time passes."""
        self.acme.clock.advance_ns(by_ns)

    @invariant()
    def as_many_as_the_model(self) -> None:
        """TOK-ATOMIC: what the model holds is there, and nothing else."""
        if hasattr(self, "model"):
            assert self.acme.count() == len(self.model)


class SqliteMachine(TokenMachine):
    """The same over a SQLite file."""

    def deployment(self) -> Deployment:
        """Make the engine over a file of its own."""
        self.folder = tempfile.TemporaryDirectory()
        store = SqliteStore(Path(self.folder.name) / "tokens.sqlite")
        world = ModelWorld(clock=ManualClock())
        return Deployment(Engine(world=world, store=store, master_key=b"m" * 32))

    def teardown(self) -> None:
        """Give the file back."""
        if hasattr(self, "acme"):
            self.acme.engine.close()
            self.folder.cleanup()


@pytest.mark.slow
def test_the_engine_does_as_the_model_in_memory() -> None:
    """TOK-DEDUP, TOK-LIMIT, TOK-ATOMIC, REC-DEDUP-REDACT, QUO-CVC, AUTH-CREATE, AUTH-READ."""
    run_state_machine_as_test(
        TokenMachine, settings=settings(max_examples=200, stateful_step_count=30)
    )


@pytest.mark.slow
def test_the_engine_does_as_the_model_over_sqlite() -> None:
    """The same clauses over the store that is kept."""
    run_state_machine_as_test(
        SqliteMachine, settings=settings(max_examples=60, stateful_step_count=30)
    )

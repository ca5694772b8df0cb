"""What an engine answers to some hundred drawn requests, and what its store holds afterwards.

The requests are of every operation and every kind of key, right and wrong, alone and several at
once; between them the clock moves, from nothing to days, and the operator changes things. Trace 0
has the default profile and the default limits; every other one has a drawn profile and low limits.
Each trace is asked of both kinds of store, which answer alike.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from unittest import mock

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc.jwk import OKPKey

from engine import Engine, InputError, LimitTable, ManualClock, Profile, Request, Response
from engine.http.demo import demo_lines, write_target
from engine.identity import ASKABLE
from engine.model import Application, ApplicationKind, Tenant
from engine.profile import choices
from engine.resources import OPERATIONS, account_updater
from engine.store import LogFilter, MemoryStore, SqliteStore, Store, TokenFilter
from engine.store.protocol import Document
from engine.vault import jwe
from engine.world import Call, CallAnswer, ModelWorld, VirtualLoop
from tests.digests._commands import HERE
from tests.drawn import Seeded
from tests.engine.deployment import CARD, IP

__all__ = ["TRACES", "answers_text", "changed_profile", "demo_text"]

TRACES: Final = 8
_STEPS: Final = 260
_MS: Final = 1_000_000
_PAUSES: Final = (
    *(0, 0, 0, 1, 5, 30, 100, 400, 900, 1_000, 2_500, 10_000, 11_000, 61_000),
    *(120_000, 1_800_000, 3_600_000, 86_400_000),
)
_TEXTS: Final = (
    "Ada",
    "Ada",
    "Grace",
    "Ada Lovelace",
    "é☃\u2028",
    "😀",
    'say "hi" \\',
    "0042",
    "x" * 501,
)
_NUMBERS: Final = ("4242424242424242", "4242424242424242", "5555555555554444", "378282246310005")
_PLACES: Final = ("/", "/pci/", "/pci/high/", "/general/high/", "/general/", "/a/b/c/d/e/f/g/h/i/")
_EXPRESSIONS: Final = (
    "{{ data }}",
    "{{data}}",
    "{{ data.number }}",
    "{{ data.cvc }}",
    "{{ data.a.b }}",
)
_MIME: Final = "application/json"
_ODD_BODIES: Final = (
    b"",
    b"null",
    b' [ "Ada" , "Grace"\n] ',
    b'{"a": "x", "a": "y"}',
    b'{"a": "x",}',
    b'["\xff"]',
    b'\xef\xbb\xbf"Ada"',
    b"[" * 70 + b"]" * 70,
    b'{"n": 123456789012345678901234567890}',
    b"[NaN]",
    b'["\\ud800"]',
    b'["\\u007b{ 00000000-0000-4000-8000-000000000000 }}"]',
    b'{"type": "token", "data": "Ada"} x',
)


def changed_profile(choose: Seeded) -> Profile:
    """Return a profile with some choices drawn: what is listed, and small bounds."""
    sections: dict[str, dict[str, Any]] = {}
    for choice in choices():
        if choice.section != "nodes" and len(choice.listed) > 1 and choose.whole(0, 3) == 0:
            sections.setdefault(choice.section, {})[choice.name] = choose.one(choice.listed)
    throttle = choose.one(("refuse", "delay"))
    sections.setdefault("limits", {})["throttle"] = throttle
    for path, values in _BOUNDS.items():
        if choose.whole(0, 2) == 0:
            section, _, name = path.partition(".")
            sections.setdefault(section, {})[name] = choose.one(values)
    return Profile().replace(**sections)


_BOUNDS: Final[dict[str, tuple[Any, ...]]] = {
    "tokens.container_field": ("place",),
    "tokens.container_default_token": ("/pci/high/", "/"),
    "tokens.depth_limit": (8,),
    "tokens.extra_types": (("employee", "ssn"),),
    "tokens.metadata_entries_limit": (1,),
    "tokens.metadata_key_limit": (2,),
    "tokens.metadata_value_limit": (3,),
    "tokens.indexes_limit": (1,),
    "tokens.elements_limit": (6,),
    "tokens.encrypted_limit": (1,),
    "tokens.values_limit": (12,),
    "dedup.flag_name": ("dedup",),
    "http.body_limit_bytes": (300,),
    "http.proxy_body_limit_bytes": (60,),
    "http.target_limit": (256,),
    "http.idempotency_kept_ns": ("1s",),
    "limits.burst_requests": (1, 3),
    "limits.delay_bound_ns": ("700ms",),
    "limits.counters_limit": (24,),
    "outside.destination_timeout_ns": ("5ms", "4ms"),
    "outside.answer_limit_bytes": (40,),
    "outside.reactor_timeout_ns": ("20ms", "1s"),
    "outside.reactor_code_limit": (5,),
    "outside.reactor_payload_limit_bytes": (20,),
    "outside.hot_concurrency": (0, 2),
    "outside.cold_start_ns": ("0s", "10ms"),
    "outside.keep_hot_ns": ("1s",),
    "outside.instances_cap": (1, 2),
    "account_updater.file_limit_bytes": (120,),
    "account_updater.upload_valid_ns": ("1s",),
    "account_updater.job_base_ns": ("0s",),
    "account_updater.job_row_ns": ("1s",),
}


def _low_limits(choose: Seeded) -> dict[str, LimitTable]:
    """Return two tables with low rates; what counts every request stands in both."""
    table = _lowered(LimitTable.default(), choose, lambda rule_id: rule_id == "LIM-IP")
    lower = _lowered(table, choose, lambda rule_id: rule_id != "LIM-IP" and choose.either())
    return {"Default": lower, "Large": table}


def _lowered(table: LimitTable, choose: Seeded, is_meant: Callable[[str], bool]) -> LimitTable:
    for rule in table.rules:
        if is_meant(rule.id):
            changes = {"rate": choose.one(("3/1s", "6/2s", "9/1s", "20/10s"))}
            if rule.block_ns:
                changes["block_ns"] = choose.one(("300ms", "4s"))
            table = table.replace_rule(rule.id, **changes)
    return table


def _destination(call: Call) -> tuple[int, CallAnswer | None]:
    """Play destinations: by the last segment of the path."""
    name = call.url.partition("?")[0].rpartition("/")[2]
    said = f"{call.method} {call.url} {sorted(call.headers.items())}".encode() + call.body
    if name == "gone":
        return 3 * _MS, None
    if name == "slow":
        return 25_000 * _MS + 1, CallAnswer(200, {}, b"late")
    if name == "exact":
        return 25_000 * _MS, CallAnswer(204, {}, b"")
    if name == "cookies":
        headers = {"set-cookie": "a=1\nb=2", "Connection": "X-Hop", "X-Hop": "1", "RateLimit": "x"}
        return 5 * _MS, CallAnswer(503, {**headers, "content-type": "text/plain"}, said)
    if name == "json":
        kept = {"Content-Type": "application/vnd.x+json; charset=utf-8"}
        return 4 * _MS, CallAnswer(201, kept, json.dumps({"said": said.decode("latin-1")}).encode())
    return 5 * _MS, CallAnswer(200, {"Content-Type": "application/octet-stream"}, said + b"\xff")


def _run_code(code: str, args: Any, configuration: Any) -> Any:
    """Play code by its name; the code of a transform by what it returns."""
    if code.startswith("{"):
        return json.loads(code)
    if code == "fail":
        raise ValueError("a secret")
    results: dict[str, Any] = {
        "echo": args,
        "tokenize": {"tokenize": args},
        "both": {"tokenize": {"a": "Ada", "n": args}, "raw": sorted(configuration.items())},
        "raw": {"raw": [args]},
        "odd": object(),
        "none": None,
    }
    return results.get(code, {"raw": 1, "more": 2})


def _service_ns(code: str, _args: Any) -> int:
    return {"slow": 30_000 * _MS + 1, "exact": 30_000 * _MS, "quick": 0}.get(code, 20 * _MS)


_CODES: Final = ("echo", "tokenize", "both", "raw", "odd", "none", "fail", "slow", "exact", "quick")
_TRANSFORMS: Final = (
    *("echo", "fail", "none", "odd", '{"body": "text"}', '{"body": {"a": [1, "é"]}}'),
    '{"headers": {"X-A": ["1", "2"], "Set-Cookie": ["c=3", "d=4"], "X-B": []}, "status": 299}',
    '{"status": 600}',
    '{"status": true}',
    '{"headers": {"bad name": "x"}}',
    '{"headers": {"Content-Type": "application/json"}, "body": null}',
)
_PRIVATE: Final = bytes(range(32))


class _Plain:
    """Stands for zlib and leaves bytes as they are: another build of it compresses otherwise."""

    compress = decompress = staticmethod(bytes)

    @staticmethod
    def compressobj(**_: int) -> type[_Plain]:
        return _Plain

    @staticmethod
    def flush() -> bytes:
        return b""


def _fixed_pair(algorithm: jwe.Algorithm, kid: str) -> jwe.KeyPair:
    """Return one and the same pair, which a seed does not fix, in place of a new one."""
    key = X25519PrivateKey.from_private_bytes(_PRIVATE)
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    shown = OKPKey.import_key(key.public_key()).as_dict(private=False)
    public = {name: str(value) for name, value in shown.items()}
    return jwe.KeyPair(algorithm, {**public, "kid": kid, "use": "enc", "alg": "ECDH-ES"}, private)


class _Stream:
    """A body that is still on its way."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, limit_bytes: int) -> bytes | None:
        return self._data if len(self._data) <= limit_bytes else None


class _Trace:
    """One engine, the requests that it is asked, and the lines of what it answers."""

    def __init__(self, seed: int, store: Store) -> None:
        self.choose = choose = Seeded(seed)
        self.lines: list[str] = []
        self.usual_ms = 200 if seed else 30
        world = ModelWorld(
            clock=ManualClock(),
            entropy=random.Random(f"entropy of {seed}").randbytes,
            destination=_destination,
            runtime=_run_code,
            service_ns=_service_ns,
        )
        world.random = random.Random(seed)
        usual = LimitTable.default()
        limits = _low_limits(choose) if seed else {"Default": usual, "Large": usual}
        self.profile = changed_profile(choose) if seed else Profile()
        self.engine = Engine(
            world=world, profile=self.profile, limits=limits, store=store, master_key=bytes(32)
        )
        self.clock = self.engine.clock
        assert isinstance(self.clock, ManualClock)
        self.loop = VirtualLoop(self.clock)
        self.known: dict[str, list[str]] = {}
        self.public: list[dict[str, str]] = []
        self.keys: list[str | None] = []
        self._deploy()

    def _deploy(self) -> None:
        engine, keys = self.engine, self.keys
        on = {self.profile.dedup.setting_name: True}
        self.tenants = [
            engine.create_tenant("Acme", "production", settings=on),
            engine.create_tenant("Trial", "test", quotas={"Tokenize Limit": 3}),
        ]
        acme, trial = self.tenants
        kinds: tuple[tuple[Tenant, ApplicationKind, bool], ...] = (
            (acme, "private", False),
            (trial, "private", False),
            (acme, "public", False),
            (acme, "management", False),
            (trial, "private", True),
            (acme, "private", True),
        )
        for tenant, kind, legacy in kinds:
            keys.append(self._key(tenant, kind, ASKABLE[kind], legacy=legacy))
        keys.append(self._key(acme, "private", {"token:create", "token:read"}, "/pci/"))
        keys.append(self._key(acme, "private", {"token:create", "token:search"}))
        keys.append(self._key(acme, "management", {"application:create", "key:create"}, "/pci/"))
        keys += [None, "key_prod_nobody", "short"]
        for code in _CODES:
            self.first("/reactors", {"name": code, "code": code, "configuration": {"a": "1"}})
        for body in (
            {"host": "pay.shop.example", "require_auth": True},
            {"request_transform": {"code": "echo"}, "response_transform": {"code": "echo"}},
            {},
        ):
            named = {"name": "p", "destination_url": "https://api.example.com/base", **body}
            self.first("/proxies", named)
        self.first("/keys", {})
        self.first("/tokenize", ["Ada", "Grace", {"type": "card", "data": CARD["data"]}])

    def first(self, path: str, body: Any) -> None:
        """Create something that the drawn requests need; a profile may refuse it."""
        self.note(Request("POST", path, key=self.keys[0], ip=IP, body=body))
        self.pass_ns(2_000 * _MS)

    def pass_ns(self, ns: int) -> None:
        """Let time pass."""
        assert isinstance(self.clock, ManualClock)
        self.clock.advance_ns(ns)

    def _key(
        self,
        tenant: Tenant,
        kind: ApplicationKind,
        rights: Iterable[str],
        place: str = "/",
        *,
        legacy: bool = False,
    ) -> str:
        application = self.engine.create_application(
            tenant, f"{kind} app", kind, grants=[(place, sorted(rights))]
        )
        self.known.setdefault("application", []).append(application.id)
        return str(self.engine.create_key(application, legacy=legacy))

    # --- bodies ----------------------------------------------------------------------------------

    def seldom(self, times: int = 8) -> bool:
        """Return true once in so many times."""
        return self.choose.whole(1, times) == 1

    def id_of(self, kind: str) -> str:
        """Return the id of a record of a kind; now and then one that does not exist."""
        known = self.known.get(kind, [])
        if not known or self.seldom(12):
            return self.choose.one(("00000000-0000-4000-8000-000000000000", "x", "é%2F"))
        return self.choose.one(known[-12:])

    def token_id(self) -> str:
        """Return a token's id."""
        return self.id_of("token")

    def text(self) -> str:
        """Return a text to be tokenized."""
        return self.choose.one(_TEXTS)

    def card(self) -> Any:
        """Return the data of a card, mostly right."""
        choose = self.choose
        data: dict[str, Any] = {"number": choose.one(_NUMBERS)}
        for name, right in (
            ("expiration_month", (12, 1, 6.0)),
            ("expiration_year", (2030, 2031, 1000)),
            ("cvc", ("123", "0456", "123")),
        ):
            if choose.whole(0, 3):
                data[name] = choose.one(right)
        if self.seldom():
            name = choose.one(("number", "expiration_month", "expiration_year", "cvc", "cvv"))
            data[name] = choose.one(
                ("4242424242424241", "12", 13, 0, 9999, None, "1234x", True, 1.5)
            )
        return data

    def token(self) -> dict[str, Any]:
        """Return a token request object."""
        choose, rules = self.choose, self.profile
        kind = choose.one(("token", "token", "card", "card", "card", "employee"))
        kind = "token" if kind == "employee" and choose.whole(0, 2) else kind
        body: dict[str, Any] = {"type": kind}
        source = choose.whole(0, 9)
        if source == 0 and self.public:
            plain = json.dumps(self.card() if kind == "card" else self.text()).encode()
            body["encrypted"] = jwe.encrypt(choose.one(self.public), plain)
        elif source == 1 and "intent" in self.known:
            body["token_intent_id"] = self.id_of("intent")
        else:
            body["data"] = self.card() if kind == "card" else self.text()
        if choose.whole(0, 2) == 0:
            body["metadata"] = choose.one(
                (
                    {"a": "1"},
                    {"a": "1", "b": "xyz"},
                    {},
                    {"long": "v" * 501},
                    {"a": 1},
                    {"abc": "1"},
                )
            )
        if choose.whole(0, 2) == 0:
            body["search_indexes"] = [choose.one(_EXPRESSIONS[:3])]
            if self.seldom(4):
                body["search_indexes"].append(choose.one(_EXPRESSIONS))
        if choose.whole(0, 3) == 0:
            body["fingerprint_expression"] = choose.one(_EXPRESSIONS)
        if choose.whole(0, 2) == 0:
            paths = [choose.one(_PLACES)]
            is_one = rules.tokens.container_form == "string"
            body[rules.tokens.container_field] = paths[0] if is_one else paths
        if choose.whole(0, 2) == 0:
            body[rules.dedup.flag_name] = choose.either()
        if self.seldom(16):
            name = choose.one(("type", "data", "encrypted", "metadata", "search_indexes", "more"))
            body[name] = choose.one((None, 5, "", ["x"], {"a": None}, "ssn", True))
        return body

    def shape(self, depth: int = 0) -> Any:
        """Return a body of tokenize: leaves, token request objects, arrays, objects."""
        choose = self.choose
        drawn = choose.whole(0, 9)
        if depth == 0 and drawn < 4:
            return self.token()
        if depth > 2 or drawn < 3:
            return (
                self.text() if choose.whole(0, 9) else choose.one((5, None, True, 1.5, "", [], {}))
            )
        if drawn < 5:
            return self.token()
        size = choose.whole(0 if self.seldom() else 1, 3)
        if drawn < 8:
            return [self.shape(depth + 1) for _ in range(size)]
        return {choose.one("abc/~"): self.shape(depth + 1) for _ in range(size)}

    def named(self) -> Any:
        """Return a body with token expressions."""
        choose = self.choose
        expression = choose.one(("{{ %s }}", "{{%s}}", "{{ %s }}", "x{{ %s }}y"))
        one = expression % self.token_id()
        return choose.one(
            (
                {"a": one},
                [one, {"b": one, "c": 7}],
                one,
                [expression % self.token_id(), one, "plain"],
                {"n": None},
            )
        )

    # --- requests --------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> None:
        """Ask once, in one of several ways, and note what is answered."""
        self.note(self.request(method, path, body, **more))

    def request(self, method: str, path: str, body: Any = None, **more: Any) -> Request:
        """Return a request with a drawn key, address and form."""
        choose = self.choose
        headers: dict[str, str] = {}
        if method == "POST" and choose.whole(0, 4) == 0 and "encrypted" not in repr(body):
            headers["Idempotency-Key"] = choose.one(("one", "two", "three"))
        if body is not None and not isinstance(body, bytes) and choose.whole(0, 4) == 0:
            body = json.dumps(body, ensure_ascii=choose.either()).encode()
        if body is None and choose.either():
            body = b""  # as every request over HTTP has one
        if isinstance(body, bytes):
            kind = "application/merge-patch+json" if method == "PATCH" else _MIME
            headers["content-type"] = kind
            if self.seldom(20):
                name = choose.one(("content-type", "Content-Encoding"))
                headers[name] = choose.one(
                    (
                        "text/plain",
                        "gzip",
                        f"{_MIME}; charset=latin-1",
                        f'{_MIME.upper()}; Charset="utf-8"',
                    )
                )
            if choose.either():
                body = _Stream(body)
        key = self.keys[0] if choose.whole(0, 2) else choose.one(self.keys)
        return Request(
            method,
            path,
            key=key,
            ip=choose.one(
                ("203.0.113.7", "203.0.113.7", "198.51.100.1", "2001:db8::7", "2001:db8::8")
            ),
            body=body,
            headers={**headers, **more.pop("headers", {})} or None,
            **more,
        )

    def note(self, request: Request) -> None:
        """Ask, and write down the answer."""
        self.heard(request, self.engine.handle(request))

    def heard(self, request: Request, answer: Response) -> None:
        """Write down an answer, and learn the ids in it."""
        body = answer.body
        shown = body.decode("latin-1") if isinstance(body, bytes) else json.dumps(body)
        decision = answer.decision
        self.lines.append(
            f"{self.clock.now_ns} {request.method} {request.path[:80]} {request.operation}"
            f" {answer.status} {sorted(answer.headers.items())} {shown}"
            f" {decision.outcome} {decision.counted} {decision.shadow} {decision.wait_ns}"
        )
        if answer.ok and request.operation is not None:
            self._learn(request.operation, body)

    def _learn(self, operation: str, body: Any) -> None:
        if operation in {"tokenize", "create_token"}:
            self.known.setdefault("token", []).extend(_ids(body))
        elif operation == "create_application_key":
            self.known.setdefault("key", []).append(body["id"])
            self.keys.append(body["key"])
        elif operation.startswith("create_"):
            kind = operation.removeprefix("create_").rpartition("_")[2]
            self.known.setdefault(kind, []).append(body["id"])
            if operation == "create_encryption_key":
                self.public.append(body["public_key"])
            if "upload_url" in body:
                self.known.setdefault("upload", []).append(body["upload_url"])
            if operation == "create_proxy":
                self.known.setdefault("proxy key", []).append(body["key"])

    # --- steps -----------------------------------------------------------------------------------

    def tokenize(self) -> None:
        """Tokenize, or create one token."""
        path = self.choose.one(("/tokenize", "/tokenize", "/tokens"))
        self.ask("POST", path, self.token() if path == "/tokens" else self.shape())

    def odd_body(self) -> None:
        """Send bytes that are no JSON, or JSON of an odd kind."""
        path = self.choose.one(("/tokenize", "/detokenize", "/tokens", "/applications"))
        self.ask("POST", path, self.choose.one(_ODD_BODIES))

    def one_token(self) -> None:
        """Look at, change or delete a token."""
        choose, path = self.choose, f"/tokens/{self.token_id()}"
        method = choose.one(("GET", "GET", "PATCH", "PATCH", "PATCH", "DELETE"))
        body: Any = None
        if method == "PATCH":
            body = self.token()
            for name in ("type", "token_intent_id", self.profile.dedup.flag_name):
                if choose.whole(0, 9):
                    body.pop(name, None)
            for name in list(body):
                if choose.whole(0, 2) == 0:
                    body[name] = None if self.seldom(3) else body[name]
            if choose.either():
                body.pop("data", None)
            if isinstance(body.get("data"), dict) and choose.either():
                body["data"].pop("number", None)
            if self.seldom(20):
                body = choose.one(([], "x", 5))
        self.ask(method, path, body)

    def list_tokens(self) -> None:
        """List or search tokens."""
        choose = self.choose
        if choose.whole(0, 2) == 0:
            term = choose.one(("data:Ada", 'data:"Ada Lovelace"', "data.number:4242424242424242"))
            place = choose.one(
                ("", " AND container:/pci/", " AND container:general", " AND data:x")
            )
            body: dict[str, Any] = {"query": choose.one((term + place, term + place, "x", ""))}
            if choose.either():
                body["size"] = choose.one((1, 2, 100, 0, 101))
            self.ask("POST", "/tokens/search", body)
            return
        self.ask(
            "GET",
            "/tokens" + self.query("container=/pci/", "type=card", "metadata.a=1", "fingerprint=x"),
        )

    def query(self, *filters: str) -> str:
        """Return a query of a list."""
        choose = self.choose
        parts = [one for one in filters if choose.whole(0, 4) == 0]
        if choose.either():
            size = choose.one((1, 1, 2, 3, 100, 0, 101, "x"))
            parts.append(f"size={size}")
        if choose.whole(0, 3) == 0:
            parts.append(f"start={choose.one(('', self.token_id(), f'9:{self.token_id()}', '%'))}")
        if self.seldom(20):
            parts.append(choose.one(("size=1&size=2", "nothing=1", "%ff=%fe")))
        return "?" + "&".join(parts) if parts else ""

    def detokenize(self) -> None:
        """Detokenize."""
        self.ask("POST", "/detokenize", self.named())

    def lists(self) -> None:
        """List documents or the log, or show the tenant, page after page."""
        choose = self.choose
        path = choose.one(
            (
                "/applications",
                "/reactors",
                "/proxies",
                "/keys",
                "/account-updater/jobs",
                "/logs",
                "/tenants/self",
            )
        )
        if path == "/applications" and choose.either():
            path += f"/{self.id_of('application')}/keys"
        filters = (
            "entity_type=token",
            f"entity_id={self.token_id()}",
            "start_date=2026-01-01T00:00:09Z",
        )
        more = (
            (*filters, "end_date=2026-01-02T03:04:05.5Z", "end_date=x") if path == "/logs" else ()
        )
        request = self.request("GET", path + self.query(*more))
        for _ in range(3):
            answer = self.engine.handle(request)
            self.heard(request, answer)
            following = answer.body.get("pagination", {}).get("next") if answer.ok else None
            if following is None:
                return
            request = Request(
                "GET", f"{path}?size=2&start={following}", key=request.key, ip=request.ip
            )

    def documents(self) -> None:
        """Create, show, change or delete a document."""
        choose = self.choose
        path, kind = choose.one(
            (
                ("/reactors", "reactor"),
                ("/proxies", "proxy"),
                ("/applications", "application"),
                ("/keys", "key"),
                ("/token-intents", "intent"),
                ("/account-updater/jobs", "job"),
            )
        )
        method = choose.one(("POST", "POST", "POST", "GET", "PATCH", "PATCH", "DELETE"))
        body = self.document(kind, whole=method == "POST") if method in {"POST", "PATCH"} else None
        if isinstance(body, dict) and self.seldom(10):
            body[choose.one(("name", "more", "host", "code", "kind"))] = choose.one(
                (None, "", 5, "x" * 201)
            )
        self.ask(method, path if method == "POST" else f"{path}/{self.id_of(kind)}", body)

    def document(self, kind: str, *, whole: bool) -> Any:
        """Return the body of a document's creation or change."""
        choose = self.choose
        bodies: dict[str, Callable[[], Any]] = {
            "reactor": lambda: {
                "name": "r",
                "code": choose.one(_CODES),
                "configuration": choose.one(({"a": "1"}, {}, {"a": "1", "b": "é"})),
            },
            "proxy": self.proxy,
            "application": lambda: {
                "name": "made",
                "kind": choose.one(("private", "public", "management")),
                "grants": choose.one(
                    ([], [{"container": choose.one(_PLACES), "permissions": self.rights()}])
                ),
                **choose.one(({}, {}, {"origins": ["https://shop.example"]})),
            },
            "key": lambda: choose.one((None, {}, {"algorithm": "ECDH-ES"}, {"algorithm": "none"})),
            "intent": lambda: {"type": "card", "data": self.card()},
            "job": lambda: None,
        }
        body = bodies[kind]()
        if not whole and isinstance(body, dict):
            body.pop("kind", None)
            body = {name: value for name, value in body.items() if choose.either()}
            if "configuration" in body:
                body["configuration"] = choose.one(({"a": None}, {"c": "3"}))
        return body

    def rights(self) -> list[str]:
        """Return some permissions."""
        return [self.choose.one(sorted(ASKABLE["private"])) for _ in range(self.choose.whole(1, 3))]

    def proxy(self) -> dict[str, Any]:
        """Return the definition of a proxy."""
        choose = self.choose
        address = choose.one(
            (
                *(
                    "https://api.example.com/base",
                    "http://[::1]:8080/x?y=1",
                    "https://api.example.com",
                ),
                *("ftp://x", "https://a.example:99999", "https://user@x.example", "http://[::z]/"),
            )
        )
        body: dict[str, Any] = {"name": "p", "destination_url": address}
        if not self.seldom(3):
            body["destination_url"] = "https://api.example.com/base"
        for name in ("request_transform", "response_transform"):
            if choose.whole(0, 2) == 0:
                body[name] = choose.one((None, {"code": choose.one(_TRANSFORMS)}))
        if choose.either():
            body["require_auth"] = choose.either()
        if choose.either():
            body["host"] = choose.one(
                ("pay.shop.example", "Www.Shop.Example.", "else.test", "-x-", None)
            )
        return body

    def key_of_application(self) -> None:
        """Create or delete a key of an application."""
        path = f"/applications/{self.id_of('application')}/keys"
        if self.choose.whole(0, 3):
            self.ask("POST", path, self.choose.one((None, {}, {"legacy": True}, {"legacy": 1})))
        else:
            self.ask("DELETE", f"{path}/{self.id_of('key')}")

    def through_proxy(self) -> None:
        """Ask a destination through a proxy."""
        choose = self.choose
        path = choose.one(
            (
                "/gone",
                "/slow",
                "/exact",
                "/cookies",
                "/json",
                "",
                "/a%2Fb",
                "/../x",
                "/é",
                "/%2e%2e",
            )
        )
        path += choose.one(("", "", "?a=1&b={{x}}"))
        more: dict[str, Any] = {
            "headers": {"Accept-Encoding": "gzip", "X-A": "1", "Connection": "x-a"}
        }
        if not choose.either():
            more["host"] = choose.one(
                ("pay.shop.example", "www.shop.example:443", "nobody.shop.example")
            )
        if "host" not in more or self.seldom(4):
            more["proxy_key"] = self.choose.one(self.known.get("proxy key", ["nothing"])[-6:])
            path = path if "host" in more else f"/proxy{path}"
        body = choose.one((None, self.named(), b"plain \xff", b"x" * 61, "text"))
        if body is not None and isinstance(body, bytes):
            more["headers"]["Content-Type"] = "text/plain"
        self.ask(choose.one(("GET", "POST", "PUT", "HEAD", "PURGE", "OPTIONS")), path, body, **more)

    def react(self) -> None:
        """Invoke a reactor, alone or several times at once."""
        choose = self.choose
        path = f"/reactors/{self.id_of('reactor')}/react"
        body = choose.one(
            ({"args": self.named()}, {"args": "Ada"}, {"args": [1]}, {}, {"args": "x" * 30}, [])
        )
        if choose.either():
            self.ask("POST", path, body)
            return
        requests = [self.request("POST", path, body) for _ in range(choose.whole(2, 4))]
        start_ns = self.clock.now_ns
        tasks = [
            self.loop.at(start_ns + place * 5 * _MS, self.engine.submit(request))
            for place, request in enumerate(requests)
        ]
        self.loop.run()
        for request, task in zip(requests, tasks, strict=True):
            self.lines.append(f"ended {task.ended_ns - start_ns}")
            self.heard(request, task.result)

    def batch(self) -> None:
        """Upload a batch file, and ask for its result."""
        choose = self.choose
        if "upload" in self.known and choose.either():
            url = choose.one(self.known["upload"][-3:])
            header = "token,expiration_year,expiration_month\n"
            year, month = choose.one(("2030", "", "2031")), choose.one(("12", "", "1"))
            row = f"{self.token_id()},{year},{month}\n"
            data = choose.one(
                (header + row, header + row * 2, header, row, header + "x,1,1\n", header + '"')
            )
            self.ask("PUT", url if choose.whole(0, 9) else url[:-1], data.encode())
        else:
            self.ask(
                "GET", f"/account-updater/jobs/{self.id_of('job')}{choose.one(('', '/result'))}"
            )

    def elsewhere(self) -> None:
        """Ask for what is not there, or in another method."""
        choose = self.choose
        path = choose.one(
            [
                one.path.replace("{id}", self.token_id()).replace("{path...}", "x")
                for one in OPERATIONS
            ]
            + ["/", "*", "/nothing", "/tokens/", "/tokens/a/b", "/" + "x" * 300]
        )
        self.ask(
            choose.one(("OPTIONS", "HEAD", "PUT", "DELETE", "GET", "PATCH", "FETCH", "B@D")), path
        )

    def operate(self) -> None:
        """Do what an operator does."""
        choose, engine = self.choose, self.engine
        tenant = choose.one(self.tenants)
        deeds: tuple[Callable[[], Any], ...] = (
            lambda: engine.set_quota(tenant, "Tokenize Limit", choose.one((0, 2, 5, 50, -1))),
            lambda: engine.set_quota(tenant, "Detokenize Limit", choose.one((0, 1, 5, 10**10))),
            lambda: engine.set_quota(tenant, "CVC Retention", choose.one(("1s", "1h", "0s", "x"))),
            lambda: engine.set_quota(tenant, "Log Retention", choose.one(("1h", "24h", "40000d"))),
            lambda: engine.set_quota(tenant, "Token Intent Retention", choose.one(("1s", "24h"))),
            lambda: engine.set_quota(
                tenant, "Rate Limit", choose.one(("Default", "Large", "Larg"))
            ),
            lambda: engine.set_setting(tenant, self.profile.dedup.setting_name, on=choose.either()),
            lambda: engine.rename_tenant(tenant, choose.one(("New", "", "Acme"))),
            lambda: engine.set_host_suffixes(
                tenant, choose.one(((".shop.example",), ("x",), (".*",)))
            ),
            lambda: engine.delete_key(choose.one(self.keys[-3:]) or "nobody"),
            lambda: self._key(tenant, "private", {"token:create"}, choose.one(("/x/", "x", ""))),
            lambda: engine.change_application(
                self._last(tenant), name="changed", grants=[("/pci/", [])]
            ),
            engine.refused_hosts,
            engine.expire,
        )
        try:
            done: Any = choose.one(deeds)()
        except InputError as error:
            done = f"InputError: {error}"
        self.lines.append(f"operator {done}")

    def _last(self, tenant: Tenant) -> Application:
        return self.engine.applications(tenant)[-1]

    def play(self) -> None:
        """Take the steps, and let time pass between them."""
        steps = (
            *(self.tokenize, self.tokenize, self.tokenize, self.one_token, self.one_token),
            *(self.list_tokens, self.detokenize, self.detokenize, self.lists, self.documents),
            *(self.documents, self.documents, self.key_of_application, self.through_proxy),
            *(
                self.through_proxy,
                self.react,
                self.batch,
                self.elsewhere,
                self.odd_body,
                self.operate,
            ),
        )
        for _ in range(_STEPS):
            self.choose.one(steps)()
            pause_ms = self.choose.one(_PAUSES) if self.seldom(6) else self.usual_ms
            self.pass_ns(pause_ms * _MS + self.choose.whole(0, 2))


def _ids(body: Any) -> Iterator[str]:
    """Return the identifiers of an answer of tokenize."""
    if isinstance(body, str):
        yield body
    elif isinstance(body, list):
        for one in body:
            yield from _ids(one)
    elif isinstance(body, dict):
        if "tenant_id" in body:
            yield body["id"]
            return
        for one in body.values():
            yield from _ids(one)


def _held(store: Store) -> Iterator[str]:
    """Return what a store holds, by its protocol, a record a line."""
    with store.transaction(write=False):
        for tenant in store.tenants():
            yield repr(tenant)
            kinds: list[Any] = list(Document.__args__)
            for kind in kinds:
                for record in store.list(kind, tenant.id):
                    held = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
                    if isinstance(record, Application):  # a set has no order
                        held["grants"] = [
                            (g.container, sorted(g.permissions)) for g in record.grants
                        ]
                    yield f"{kind.__name__} {held}"
            yield f"{store.count_tokens(tenant.id)} tokens"
            for token in store.find_tokens(tenant.id, TokenFilter(), size=10_000):
                yield repr([getattr(token, name) for name in token.__struct_fields__])
            for entry in store.find_logs(tenant.id, LogFilter(), size=10_000):
                yield repr(entry)
        yield f"{store.next_deadline_ns} {store.unfinished_work()}"
        yield repr(sorted(store.secrets()))


def _rows(file: Path) -> Iterator[str]:
    """Return the rows of every table of a store's file."""
    with closing(sqlite3.connect(file)) as connection:
        names = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
        for name, sql in names:
            yield f"{name} {sql}"
            if sql is not None and sql.startswith("CREATE TABLE"):
                yield from sorted(map(repr, connection.execute(f"SELECT * FROM {name}")))


def answers_text(seed: int) -> str:
    """Return what an engine answers in a trace and what its store holds, of both kinds of store."""
    memory = Path("/dev/shm")  # where there is no disk to wait for
    place = memory if memory.is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=place) as folder,
        mock.patch.object(jwe, "generate", _fixed_pair),
        mock.patch.object(account_updater, "zlib", _Plain),
    ):
        file = Path(folder) / "store.db"
        stores: tuple[Store, ...] = (MemoryStore(), SqliteStore(file))
        found = []
        for store in stores:
            trace = _Trace(seed, store)
            trace.play()
            found.append([*trace.lines, *_held(store)])
            store.close()
        in_memory, in_file = found
        assert in_memory == in_file, "both stores answer alike"
        return "\n".join([*in_file, *_rows(file)])


def demo_text() -> str:
    """Return the lines of a demo, its targets and its store; made twice, it is the same."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(jwe, "generate", _fixed_pair):
        file, found = Path(folder) / "target.toml", []
        engine = Engine(seed=7)
        for url in ("http://127.0.0.1:8420", "http://[::1]:8420"):
            lines = list(demo_lines(engine, bytes(32), 3, "http://127.0.0.1:9"))
            write_target(file, url, engine, lines)
            found += [*map(repr, lines), file.read_text("utf-8"), oct(file.stat().st_mode)]
        text = "\n".join([*found, *_held(engine.services.store)])
        return text.replace(HERE, "…")

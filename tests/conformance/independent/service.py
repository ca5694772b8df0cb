"""A tokenization service that somebody else might have built from the specification alone.

It shares no code with the engine and none of its habits: Tornado instead of Starlette, SQLite for
counters, 201 for success and 422 for a bad body, error bodies of its own, vaults with plain names
instead of container paths, fixed windows on the clock in which refused requests count, and nothing
but `POST /tokenize`. What it does otherwise is open in the specification; where the specification
speaks it obeys. `broken` in its configuration names the one thing that it does wrong.

Run as `python -m tests.conformance.independent.service CONFIG.json`. It prints
 `{"port": N}` once it listens.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import hmac
import json
import re
import sqlite3
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Final

import tornado.httpserver
import tornado.netutil
import tornado.web
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash

EXPRESSION: Final = re.compile(r"\{\{\s*data((?:\.[A-Za-z0-9_]+)*)\s*\}\}")
REQUEST_FIELDS: Final = {
    "type",
    "data",
    "encrypted",
    "metadata",
    "search_indexes",
    "fingerprint_expression",
    "vault",
}
CARD_FIELDS: Final = {"number", "expiration_month", "expiration_year", "cvc"}
DEFAULT_VAULT: Final = {"token": "main", "card": "cards"}
DEEPEST: Final = 40

LIMITS: Final[tuple[tuple[Any, ...], ...]] = (
    # name, what it applies to, what shares a counter, requests, seconds, seconds of block
    ("test", lambda key, path: key and key["tenant_kind"] == "test", "ip+key", 50, 10, 0),
    ("create", lambda key, path: key and path == "/tokenize", "ip+key", 200, 10, 0),
    ("private-key", lambda key, path: key and key["kind"] == "private", "key", 2000, 10, 0),
    ("private-ip", lambda key, path: key and key["kind"] == "private", "ip", 2000, 10, 0),
    ("public", lambda key, path: key and key["kind"] == "public", "ip+key", 50, 60, 10),
    ("management", lambda key, path: key and key["kind"] == "management", "key", 200, 60, 60),
    ("legacy", lambda key, path: key and key["legacy"], "ip+key", 100, 60, 0),
    ("ip", lambda key, path: True, "ip", 2000, 10, 30),
)


class Bad(Exception):
    """A request that cannot be carried out."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Shelf:
    """Counters and tokens in one SQLite file, which several processes may share."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.executescript(
            """
            CREATE TABLE IF NOT EXISTS hits(name TEXT PRIMARY KEY, window INT, n INT, until REAL);
            CREATE TABLE IF NOT EXISTS tokens(equal TEXT, id TEXT, record TEXT, made INTEGER
                PRIMARY KEY AUTOINCREMENT);
            CREATE INDEX IF NOT EXISTS equals ON tokens(equal);
            """
        )

    def admits(self, rules: list[tuple[str, int, float, float]], now: float) -> bool:
        """Count a request under every rule; whether all of them have room."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            room = True
            for name, limit, seconds, block in rules:
                window = int(now // seconds)
                row = self.db.execute(
                    "SELECT window, n, until FROM hits WHERE name = ?", (name,)
                ).fetchone()
                n, until = (0, 0.0) if row is None else (row[1] * (row[0] == window), row[2])
                n += 1
                if now < until:
                    room = False
                elif n > limit:
                    room = False
                    until = now + block if block else 0.0
                self.db.execute(
                    "INSERT OR REPLACE INTO hits VALUES (?, ?, ?, ?)", (name, window, n, until)
                )
        finally:
            self.db.execute("COMMIT")
        return room


def unpadded(text: str) -> bytes:
    """Decode base64url without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def opened(compact: str, private: X25519PrivateKey) -> Any:
    """Decrypt a client-side payload: JWE compact, ECDH-ES over X25519, A256GCM."""
    try:
        head, wrapped, nonce, sealed, tag = compact.split(".")
        header = json.loads(unpadded(head))
        if (header["alg"], header["enc"], wrapped) != ("ECDH-ES", "A256GCM", ""):
            raise Bad(422, "payload: algorithm")
        shared = private.exchange(X25519PublicKey.from_public_bytes(unpadded(header["epk"]["x"])))
        parties = b"".join(
            len(part).to_bytes(4, "big") + part
            for part in (
                b"A256GCM",
                unpadded(header.get("apu", "")),
                unpadded(header.get("apv", "")),
            )
        )
        kdf = ConcatKDFHash(SHA256(), 32, otherinfo=parties + (256).to_bytes(4, "big"))
        key = kdf.derive(shared)
        plain = AESGCM(key).decrypt(
            unpadded(nonce), unpadded(sealed) + unpadded(tag), head.encode()
        )
        return json.loads(plain)
    except (ValueError, KeyError, TypeError, InvalidTag) as error:
        raise Bad(422, "payload cannot be opened") from error


def luhn(number: str) -> bool:
    """Whether the last digit checks the others."""
    digits = [int(one) for one in reversed(number)]
    return sum(digits[::2] + [sum(divmod(2 * one, 10)) for one in digits[1::2]]) % 10 == 0


class Draft:
    """One token to be made."""

    def __init__(self, asked: dict[str, Any], *, leaf: bool, private: X25519PrivateKey) -> None:
        self.leaf = leaf
        self.read(asked, private)
        self.metadata = asked.get("metadata")
        if self.metadata is not None and not (
            isinstance(self.metadata, dict)
            and all(isinstance(one, str) for one in self.metadata.values())
        ):
            raise Bad(422, "metadata holds strings")
        expression = asked.get("fingerprint_expression")
        if expression is None:
            expression = "{{ data.number }}" if self.type == "card" else "{{ data }}"
        self.expression = expression
        self.selected = self.select(expression)
        self.indexes = asked.get("search_indexes")
        if self.indexes is not None:
            if not isinstance(self.indexes, list):
                raise Bad(422, "search_indexes is an array")
            for one in self.indexes:
                self.select(one)

    def read(self, asked: dict[str, Any], private: X25519PrivateKey) -> None:
        """Read type, vault and data."""
        kind = asked.get("type")
        if kind not in ("token", "card"):
            raise Bad(422, "type is not known")
        self.type: str = kind
        if unknown := set(asked) - REQUEST_FIELDS:
            raise Bad(422, f"{len(unknown)} unknown fields")
        if ("data" in asked) == ("encrypted" in asked):
            raise Bad(422, "one of data and encrypted")
        self.vault = asked.get("vault", DEFAULT_VAULT[self.type])
        if not isinstance(self.vault, str):
            raise Bad(422, "vault is a name")
        data = asked.get("data")
        if "encrypted" in asked:
            if not isinstance(asked["encrypted"], str):
                raise Bad(422, "encrypted is a string")
            data = opened(asked["encrypted"], private)
        self.data = self.checked(data)

    def checked(self, data: Any) -> Any:
        """Return data that is what its type asks for."""
        if self.type == "token":
            if not isinstance(data, str):
                raise Bad(422, "data is a string")
            return data
        if not isinstance(data, dict) or set(data) - CARD_FIELDS:
            raise Bad(422, "data is a card")
        number, cvc = data.get("number"), data.get("cvc", "000")
        month, year = data.get("expiration_month", 1), data.get("expiration_year", 2000)
        if not (isinstance(number, str) and re.fullmatch("[0-9]{12,19}", number) and luhn(number)):
            raise Bad(422, "number is no card number")
        if type(month) is not int or not 1 <= month <= 12:
            raise Bad(422, "expiration_month is 1 to 12")
        if type(year) is not int or not 1000 <= year <= 9999:
            raise Bad(422, "expiration_year has four digits")
        if not (isinstance(cvc, str) and re.fullmatch("[0-9]{3,4}", cvc)):
            raise Bad(422, "cvc has three or four digits")
        return data

    def select(self, expression: Any) -> str:
        """Return the text of what an expression selects; never the cvc."""
        found = EXPRESSION.fullmatch(expression) if isinstance(expression, str) else None
        if found is None:
            raise Bad(422, "an expression names data")
        value = self.data
        if isinstance(value, dict):
            value = {name: one for name, one in value.items() if name != "cvc"}
        for name in found[1].split(".")[1:]:
            if not isinstance(value, dict) or name not in value:
                raise Bad(422, "an expression selects nothing")
            value = value[name]
        return json.dumps(value, sort_keys=True)


class Tokenize(tornado.web.RequestHandler):
    """`POST /tokenize`."""

    app: Application

    def initialize(self, app: Application) -> None:
        """Take the application."""
        self.app = app

    def prepare(self) -> None:
        """Identify and count, before anything else is looked at."""
        app = self.app
        given = self.request.headers.get_list("SVC-API-KEY")
        found = app.keys.get(given[0].strip()) if len(given) == 1 else None
        self.known = found is not None
        self.key: dict[str, Any] = found or {}
        ip = self.request.remote_ip or ""
        if not app.admits(found, ip, self.request.path):
            self.refuse(app.refusal, "slow down")

    def refuse(self, status: int, text: str) -> None:
        """Answer with an error of our own shape."""
        self.set_status(status)
        self.finish({"error": {"message": text, "status": status}})

    def write_error(self, status_code: int, **_: Any) -> None:
        """Answer what Tornado refuses by itself in the same shape."""
        if status_code == 405:
            self.set_header("Allow", "POST")
        self.finish({"error": {"message": "error", "status": status_code}})

    def post(self) -> None:
        """Tokenize a body."""
        try:
            self.tokenize()
        except Bad as error:
            self.refuse(error.status, str(error))

    def tokenize(self) -> None:
        """Read, check, store, answer."""
        if not self.known:
            raise Bad(401, "who are you?")
        if not self.request.headers.get("Content-Type", "").startswith("application/json"):
            raise Bad(415, "send JSON")
        try:
            body = json.loads(self.request.body.decode("utf-8"), object_pairs_hook=unique)
        except (ValueError, RecursionError) as error:
            raise Bad(400, "no JSON") from error
        if not isinstance(body, dict | list):
            raise Bad(422, "an object or an array")
        drafts: list[Draft] = []
        shape = self.walk(body, drafts, 1)
        for vault in {draft.vault for draft in drafts} or {None}:
            self.authorise(vault)
        if len(drafts) > self.key["tokenize_limit"] and self.app.broken != "no-quota":
            raise Bad(422, "too many tokens")
        self.set_status(201)
        made = [self.store(draft) for draft in drafts]
        self.finish(json.dumps(filled(shape, made)))

    def authorise(self, vault: str | None) -> None:
        """Require token:create on a vault; on any where the body names none."""
        grants = self.key["grants"]
        if self.app.broken == "no-permission":
            return
        if vault is None:
            if not any("token:create" in rights for rights in grants.values()):
                raise Bad(403, "not yours")
        elif "token:create" not in grants.get(vault, grants.get("*", ())):
            raise Bad(403, "not yours")

    def walk(self, body: Any, drafts: list[Draft], depth: int) -> Any:
        """Return the body's shape, with the numbers of its drafts in place of what they hold."""
        if depth > DEEPEST:
            raise Bad(422, "too deep")
        private = self.app.private
        if isinstance(body, str):
            drafts.append(Draft({"type": "token", "data": body}, leaf=True, private=private))
            return len(drafts) - 1
        if isinstance(body, list):
            return [self.walk(one, drafts, depth + 1) for one in body]
        if isinstance(body, dict):
            if "type" in body:
                drafts.append(Draft(body, leaf=False, private=private))
                return len(drafts) - 1
            return {name: self.walk(one, drafts, depth + 1) for name, one in body.items()}
        raise Bad(422, "strings only")

    def store(self, draft: Draft) -> Any:
        """Store a draft, or find its equal; return what the caller sees.

        No other process stores one in between, so that equal ones at the same time become one.
        """
        self.app.shelf.db.execute("BEGIN IMMEDIATE")
        try:
            return self.found_or_made(draft)
        finally:
            self.app.shelf.db.execute("COMMIT")

    def found_or_made(self, draft: Draft) -> Any:
        """Find a draft's equal, or store it."""
        app, key = self.app, self.key
        message = "\n".join((key["tenant"], draft.type, draft.vault, draft.selected))
        equal = hmac.new(app.pepper, message.encode(), hashlib.sha256).hexdigest()
        if key["deduplicate"]:
            row = app.shelf.db.execute(
                "SELECT record FROM tokens WHERE equal = ? ORDER BY made", (equal,)
            ).fetchone()
            if row is not None:
                record = json.loads(row[0])
                record["_extras"]["deduplicated"] = True
                if "token:read" not in key["grants"].get(draft.vault, key["grants"].get("*", ())):
                    if app.broken != "no-redaction":
                        record.pop("metadata", None)
                    record.pop("data", None)
                return record["id"] if draft.leaf else record
        record = self.record(draft, equal)
        app.shelf.db.execute(
            "INSERT INTO tokens(equal, id, record) VALUES (?, ?, ?)",
            (equal, record["id"], json.dumps(record)),
        )
        return record["id"] if draft.leaf else record

    def record(self, draft: Draft, equal: str) -> dict[str, Any]:
        """Return a new token record."""
        key = self.key
        record: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "tenant_id": key["tenant_id"],
            "type": draft.type,
            "vault": draft.vault,
            "fingerprint": equal[:40],
            "fingerprint_expression": draft.expression,
            "created_by": key["application_id"],
            "created_at": dt.datetime.now(dt.UTC).isoformat(),
            "_extras": {"deduplicated": False},
        }
        if draft.type == "card":
            number = draft.data["number"]
            shown = 6 if self.app.broken == "long-mask" else 4
            mask = {name: one for name, one in draft.data.items() if name != "cvc"}
            mask["number"] = "X" * (len(number) - shown) + number[-shown:]
            record["mask"] = mask
            record["data"] = mask
        if draft.metadata is not None:
            record["metadata"] = draft.metadata
        if draft.indexes is not None:
            record["search_indexes"] = draft.indexes
        return record


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that repeats a key."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def filled(shape: Any, made: list[Any]) -> Any:
    """Return the shape with what was made in its places."""
    if isinstance(shape, int):
        return made[shape]
    if isinstance(shape, list):
        return [filled(one, made) for one in shape]
    return {name: filled(one, made) for name, one in shape.items()}


class Missing(Tokenize):
    """Every other path; counted like any request."""

    def tokenize(self) -> None:
        """Say that nothing is here."""
        raise Bad(404, "nothing here")

    get = put = patch = delete = head = options = Tokenize.post


class Application:
    """What the handlers share."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.keys: dict[str, dict[str, Any]] = config["keys"]
        self.shelf = Shelf(config["store"])
        self.counters = self.shelf if config.get("share", True) else Shelf(":memory:")
        self.broken: str | None = config.get("broken")
        self.refusal = 503 if self.broken == "refuses-503" else 429
        self.pepper = config["pepper"].encode()
        self.private = X25519PrivateKey.from_private_bytes(unpadded(config["private"]))

    def admits(self, key: dict[str, Any] | None, ip: str, path: str) -> bool:
        """Count a request under the limits that apply to it."""
        rules = [
            self.rule(rule, key, ip)
            for rule in LIMITS
            if rule[1](key, path) and self.broken != f"no-{rule[0]}"
        ]
        return self.counters.admits(rules, time.time())

    def rule(
        self, row: tuple[Any, ...], key: dict[str, Any] | None, ip: str
    ) -> tuple[str, int, float, float]:
        """Return a limit's counter, number, window and block for who asks."""
        name, _, counter, limit, seconds, block = row
        if self.broken == f"more-{name}":
            limit += max(1, limit // 10)
        if self.broken == f"one-more-{name}":
            limit += 1
        if self.broken == f"long-block-{name}":
            block *= 2
        if self.broken == f"long-window-{name}":
            seconds *= 1.1
        if self.broken == f"by-key-{name}":
            counter = "key"
        parts = {"ip": ip, "key": key["id"] if key else ""}
        text = ":".join([name, *(parts[part] for part in counter.split("+"))])
        return text, limit, seconds, block


def main() -> None:
    """Serve what the configuration file says."""
    config = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))

    async def serve() -> None:
        shared = {"app": Application(config)}
        pages = [(r"/tokenize", Tokenize, shared), (r"/.*", Missing, shared)]
        server = tornado.httpserver.HTTPServer(
            tornado.web.Application(pages, log_function=lambda _: None),
            xheaders=config.get("forwarded", False),
        )
        sockets = tornado.netutil.bind_sockets(config.get("port", 0), "127.0.0.1")
        server.add_sockets(sockets)
        sys.stdout.write(json.dumps({"port": sockets[0].getsockname()[1]}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()

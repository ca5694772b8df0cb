"""The reference: a complete request and response; limits, statuses, headers, quotas and bodies.

The tables come from the engine's own (limits, quotas, operations, the OpenAPI document), the
answers from an engine that runs here. A test runs each curl line against a real server.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Final

import httpx

from engine import Engine, ManualClock, ModelWorld, Profile
from engine.http.app import HttpApplication
from engine.http.openapi import document
from engine.limits import LimitTable
from engine.limits.table import render
from engine.model import DEFAULT_QUOTAS
from engine.resources import OPERATIONS, Operation
from engine.tokens.rules import CARD_EXAMPLE

__all__ = ["BODIES", "reference_page"]

_WIDTH: Final = 84
BODIES: Final[tuple[tuple[str, Any, int], ...]] = (
    ("A plain object: keys stay, each string becomes an identifier (TOK-PLAIN).",
     {"name": "Ada", "city": "London"}, 200),
    ("An object that holds `type` becomes a record (TOK-OBJECT).",
     {"type": "token", "data": "Ada", "metadata": {"order": "7"}}, 200),
    ("A card: its record shows the mask and the fingerprint (REC-CARD-MASK, REC-FPEXPR).",
     {"type": "card", "data": CARD_EXAMPLE}, 200),
    ("An array keeps length and order (TOK-ARRAY).", ["Ada", {"type": "token", "data": "Grace"}],
     200),
    ("Any nesting of these (TOK-COMPOSITE).",
     {"buyer": {"names": ["Ada", "Grace"]}, "note": "call first"}, 200),
    ("Numbers are not an accepted body shape (D-LEAF): 400 names the place (D-PROBLEM).",
     {"age": 36}, 400),
    ("Six tokens exceed the Tokenize Limit of five: none is created (TOK-LIMIT, TOK-ATOMIC).",
     ["1", "2", "3", "4", "5", "6"], 400),
)  # fmt: skip  # reason: a table
"""What is sent to `POST /tokenize`: what it shows, the body, and the status of the answer."""

_STATUSES: Final = {
    200: ("Done.", "`/tokenize` and reads: our choice, D-STATUS"),
    201: ("Created; `Location` names it.", "our choice, D-STATUS"),
    204: ("Deleted or uploaded; no body.", "our choice, D-STATUS"),
    400: ("The body, the query or an expression has a fault.", "our choice, D-STATUSES"),
    401: ("No key, or an unknown one.", "our choice, D-STATUSES"),
    403: ("The key lacks a permission in the container.", "the right: AUTH-CREATE; 403: ours"),
    404: ("Unknown path, or no such resource in this tenant.", "our choice, D-STATUSES"),
    405: ("The path has other methods; `Allow` lists them.", "our choice, D-STATUSES"),
    408: ("A proxy's destination took more than 25 s.", "specified, ERR-408"),
    409: ("The record is in another state, or the name is taken.", "our choice, D-STATUSES"),
    413: ("The body is too large.", "bounds: RCT-PAYLOAD, ACC-FILE; others: D-SIZE"),
    414: ("The target is too long.", "our choice, D-SIZE"),
    415: ("Unsupported media type or content coding.", "TOK-JSON; 415: our choice"),
    422: (
        "This `Idempotency-Key` was already used with a different body.",
        "our choice, D-IDEMPOTENCY",
    ),
    429: ("A rate limit refuses; `Retry-After` says when to retry.", "specified, ERR-429"),
    431: ("The header section is too large.", "our choice, D-SIZE"),
    500: ("The server failed.", "our choice, D-STATUSES"),
    502: ("A destination could not be reached.", "our choice, D-STATUSES"),
    503: ("No room: connections, bodies in memory, counters.", "our choice, D-COUNTERS-BOUND"),
    504: ("A reactor ran for more than 30 s.", "30 s: RCT-TIMEOUT; 504: D-REACTOR-TIMEOUT"),
}
"""Status → when it comes, and who defined it."""

_QUOTA_CLAUSES: Final = {
    "Rate Limit": "QUO-RATE",
    "Log Retention": "QUO-LOG",
    "Tokenize Limit": "QUO-TOKENIZE",
    "Detokenize Limit": "QUO-DETOKENIZE",
    "CVC Retention": "QUO-CVC",
    "Token Intent Retention": "QUO-INTENT",
}


def reference_page(quota: Any) -> str:
    """Return the page as Markdown. quota: (name, value) → the value as it is written."""
    client = _Client()
    parts = [_OPENING, _whole(client), _bodies(client), _limits(), _statuses(), _headers()]
    parts += [_quotas(quota), _edges(), _operations(), _CLOSING]
    return "\n".join(parts)


class _Client:
    """A client of an engine in this process, through the same adapter as over HTTP."""

    def __init__(self) -> None:
        clock = ManualClock()
        world = ModelWorld(clock=clock, seed=7, entropy=random.Random(7).randbytes)
        self._engine = Engine(world=world)
        tenant = self._engine.create_tenant("Acme")
        grants = [("/", {"token:create", "token:read"})]
        app = self._engine.create_application(tenant, "shop", grants=grants)
        self.key = str(self._engine.create_key(app))

    def post(self, path: str, body: Any) -> httpx.Response:
        """Send a body as curl does."""

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(HttpApplication(self._engine))
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                headers = {"SVC-API-KEY": self.key, "X-Request-Id": "one-call"}
                return await client.post(path, json=body, headers=headers)

        return asyncio.run(asked())


def _curl(path: str, body: Any, more: str = "") -> str:
    data = json.dumps(body)
    data = (json.dumps(body, indent=2) if len(data) > _WIDTH else data).replace("'", "'\\''")
    return f'curl -sS{more} "$url{path}" -H "SVC-API-KEY: $key" \\\n  --json \'{data}\''


def _whole(client: _Client) -> str:
    body = {"name": "Ada"}
    answer = client.post("/tokenize", body)
    sent = json.dumps(body)
    fields = [("date", "Thu, 01 Jan 2026 00:00:00 GMT"), *answer.headers.items()]
    head = "\n".join(f"{name}: {value}" for name, value in fields)
    return f"""\
## A complete request and response

```sh
{_curl("/tokenize", body, " -i -H 'X-Request-Id: one-call'")}
```

The request:

```http
POST /tokenize HTTP/1.1
Host: 127.0.0.1:8080
SVC-API-KEY: {client.key}
X-Request-Id: one-call
Content-Type: application/json
Accept: application/json
Content-Length: {len(sent)}

{sent}
```

What comes back:

```http
HTTP/1.1 {answer.status_code} {answer.reason_phrase}
{head}

{answer.text}
```

The key identifies the caller (AUTH-HEADER), and must hold `token:create` in the container
(AUTH-CREATE). The answer mirrors the body (TOK-PLAIN). The rate-limit fields are our choice
(D-429-HEADERS).
"""


def _bodies(client: _Client) -> str:
    parts = ["## Bodies\n"]
    for says, body, status in BODIES:
        answer = client.post("/tokenize", body)
        assert answer.status_code == status, answer.text
        shown = json.dumps(answer.json(), indent=2)
        parts += [
            f"{says}\n",
            f"```sh\n{_curl('/tokenize', body)}\n```\n",
            f"```json\n{shown}\n```\n",
        ]
    return "\n".join(parts)


def _limits() -> str:
    return f"""\
## Limits

Every row that matches a request counts it, and the lowest binds (LIM-LOWEST). What any row refuses
is charged to none (D-COUNT).

```
{render(LimitTable.default())}
```

Send requests until the limit of a public key refuses one, and read when it admits the next:

```sh
for n in $(seq 51); do
  curl -sS -o answer.json -D head.txt "$url/tokenize" -H "SVC-API-KEY: $public" --json '["Ada"]'
done
grep -iE '^(HTTP|retry-after|ratelimit)' head.txt
```
"""


def _statuses() -> str:
    used: dict[int, set[str]] = {405: {"every path"}}
    for path, methods in document("full", Profile())["paths"].items():
        for method, operation in methods.items():
            for status in operation["responses"]:
                if status.isdigit():  # a class such as 2XX lists none
                    used.setdefault(int(status), set()).add(f"{method.upper()} {path}")
    assert set(used) == set(_STATUSES), set(used) ^ set(_STATUSES)
    rows = "\n".join(
        f"| {status} | {_STATUSES[status][0]} | {_STATUSES[status][1]} |" for status in sorted(used)
    )
    return f"""\
## Statuses

The first check that fails answers alone, in this order (our choice, D-ORDER): rate limits, path and
method, API key, size and form, permission, the body's faults, quota. Every error has a body of the
form `application/problem+json` (D-PROBLEM).

| status | when | defined by |
|---|---|---|
{rows}

```sh
curl -sS -o answer.json -w '%{{http_code}}\\n' "$url/tokenize" --json '["Ada"]'
curl -sS -o answer.json -w '%{{http_code}}\\n' "$url/nowhere" -H "SVC-API-KEY: $key"
curl -sS -o answer.json -w '%{{http_code}}\\n' -X PUT "$url/tokenize" -H "SVC-API-KEY: $key"
```

They print 401, 404 and 405.
"""


def _headers() -> str:
    http = Profile().http
    described = document("full", Profile())["components"]["headers"]
    asked = {
        http.key_header: "The API key (AUTH-HEADER).",
        http.proxy_key_header: "The key of a proxy, to invoke it.",
        "Content-Type": "`application/json`; for PATCH `application/merge-patch+json` (TOK-JSON).",
        "Idempotency-Key": "Create once, however often it is sent (D-IDEMPOTENCY).",
        "X-Request-Id": "Comes back as it was sent.",
    }
    rows = [f"| request | `{name}` | {says} |" for name, says in asked.items()]
    rows += [f"| answer | `{name}` | {one['description']} |" for name, one in described.items()]
    lines = "\n".join(rows)
    return f"## Headers\n\n| in | name | what it says |\n|---|---|---|\n{lines}\n"


def _quotas(quota: Any) -> str:
    rows = "\n".join(
        f"| {name} | {quota(name, value)} | {_QUOTA_CLAUSES[name]} |"
        for name, value in DEFAULT_QUOTAS.items()
    )
    return f"""\
## Quotas

A tenant has the defaults until its operator changes them (QUO-TENANT): in process with
`engine.set_quota(tenant, "Tokenize Limit", 10)`, for a server in its `--config` file.

| quota | default | clause |
|---|---|---|
{rows}
"""


def _edges() -> str:
    outside, updater, http = Profile().outside, Profile().account_updater, Profile().http
    second = 1_000_000_000
    rows = (
        ("code of a reactor", f"{outside.reactor_code_limit:,} characters", "RCT-CODE"),
        (
            "arguments of an invocation",
            f"{outside.reactor_payload_limit_bytes:,} bytes",
            "RCT-PAYLOAD",
        ),
        ("an invocation", f"{outside.reactor_timeout_ns // second} s", "RCT-TIMEOUT"),
        ("a proxy's destination", f"{outside.destination_timeout_ns // second} s", "PRX-TIMEOUT"),
        ("a batch file", f"{updater.file_limit_bytes:,} bytes", "ACC-FILE"),
        ("a JSON body", f"{http.body_limit_bytes:,} bytes", "D-SIZE"),
    )
    lines = "\n".join(f"| {what} | {bound} | {clause} |" for what, bound, clause in rows)
    return f"## Sizes and times\n\n| of | at most | defined by |\n|---|---|---|\n{lines}\n"


def _operations() -> str:
    rows = "\n".join(
        f"| `{one.method} {one.path}` | {one.summary} | {_needed(one)} "
        f"| {'specified' if one.tier == 'specified' else 'our choice'} |"
        for one in OPERATIONS
    )
    return f"""\
## Operations

Shapes are specified for `POST /tokenize` alone.

| operation | does | needs | its shapes are |
|---|---|---|---|
{rows}
"""


def _needed(operation: Operation) -> str:
    return f"`{operation.permission}`" if operation.permission else "–"


_OPENING: Final = """\
# Reference

One page to look things up. *Specified* is the specification's word; *our choice* is this engine's
where the specification is silent, and another service may do otherwise: the
[decisions](DECISIONS.md) list the alternatives. Each command runs against the demo server:

```sh
rm -f demo.jsonl
python -m engine serve --demo --port 0 > demo.jsonl & server=$!
trap 'kill $server' EXIT
until grep -qs '"end"' demo.jsonl; do sleep 0.1; done
url=$(sed -n 's/.*"url": "\\([^"]*\\)".*/\\1/p' demo.jsonl | head -n 1)
key=$(sed -n 's/.*"private_prod", "key": "\\([^"]*\\)".*/\\1/p' demo.jsonl | head -n 1)
public=$(sed -n 's/.*"public", "key": "\\([^"]*\\)".*/\\1/p' demo.jsonl | head -n 1)
```
"""
_CLOSING: Final = """\
## What is left out

The specification names no states of a token, no events, and no versions of the interface; so there
are none here. The bodies of other operations stand in `/openapi.json` of a running server, and
`/docs` shows them in a browser.
"""

"""The service's own pages: health, metrics, the OpenAPI document and its documentation.

They need no key and count in no limit (D-COUNTED). They are found under every hostname, before any
proxy, so that the owner of a custom hostname cannot fake the server's health (D-HOST).

`/` leads to `/docs`, except under a hostname of a proxy, whose root it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.clauses import CLAUSES, DECISIONS
from engine.errors import StoreBusy, StoreError
from engine.http.access_log import Metrics
from engine.http.openapi import document
from engine.limits import LimitTable
from engine.messages import CLAUSES_PAGE, Problem
from engine.service import Engine
from engine.store import Store
from engine.tokens.strict_json import dumps

REFUSALS_PAGE: Final = "/docs/429"
"""What a 429 says, and what to do about it. The clause of each refusal leads to it."""

_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_OWN_PAGES: Final = {
    "/docs": ("index.html", "text/html"),
    REFUSALS_PAGE: ("429.html", "text/html"),
    "/docs/docs.css": ("docs.css", "text/css"),
    "/docs/docs.js": ("docs.js", "text/javascript"),
}
_VIEWER: Final = {
    "/docs/swagger-ui.css": ("swagger-ui/swagger-ui.css", "text/css"),
    "/docs/swagger-ui-bundle.js": ("swagger-ui/swagger-ui-bundle.js", "text/javascript"),
}
"""Swagger UI 5.35.0 as the npm package `swagger-ui-dist` ships it, with its licences beside it."""

PAGE_PATHS: Final = frozenset(
    {
        "/",
        CLAUSES_PAGE,
        "/docs/keys.json",
        "/healthz",
        "/metrics",
        "/openapi.json",
        *_OWN_PAGES,
        *_VIEWER,
    }
)
"""Where the pages are. `/` leads to `/docs`, except on a proxy's hostname."""

METRICS_PATHS: Final = frozenset({"/healthz", "/metrics"})
"""The pages of the separate address for metrics."""

_POLICY: Final = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src 'self'; "
    "script-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REFUSING_RULES: Final = frozenset(rule.id for rule in LimitTable.default())
_HEALTH_S: Final = 1.0
_log: Final = logging.getLogger("tollgate")
_METHODS: Final = ["GET", "OPTIONS"]


def make_pages(
    engine: Engine,
    metrics: Metrics,
    *,
    demo_keys: Sequence[Mapping[str, Any]] = (),
    paths: frozenset[str] = PAGE_PATHS,
) -> Starlette:
    """Return the pages of an engine, as an ASGI application.

    demo_keys: the lines of a demo's keys, which `/docs` offers. paths: which pages.
    """
    openapi = json.dumps(document("full", engine.profile)).encode()
    keys = json.dumps(list(_offered(engine, demo_keys))).encode()

    pages: dict[str, Callable[[Request], Response | Awaitable[Response]]] = {
        **_documentation(),
        "/": lambda _: Response(status_code=307, headers={"location": "/docs"}),
        CLAUSES_PAGE: _file(_clauses_page().encode(), "text/html"),
        "/docs/keys.json": lambda _: _json(keys),
        "/healthz": _Health(engine.services.store),
        "/metrics": lambda _: _metrics(metrics),
        "/openapi.json": lambda _: _json(openapi),
    }
    assert pages.keys() == PAGE_PATHS
    return Starlette(
        routes=[
            Route(path, _answering(page), methods=_METHODS)
            for path, page in pages.items()
            if path in paths
        ],
        exception_handlers={HTTPException: _problem},  # type: ignore[dict-item] # reason: the handler of this exception gets this exception
    )


class _Health:
    """Whether the store can be written and read, asked at most once a second.

    A thread tests the store, so that a store that hangs delays no request.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking = asyncio.Lock()
        self._asked_s = -_HEALTH_S
        self._fault: str | None = None

    async def __call__(self, _: Request) -> Response:
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_s >= _HEALTH_S:
                self._fault = await asyncio.to_thread(self._probe)
                self._asked_s = loop.time()
        if self._fault is not None:
            raise HTTPException(503, self._fault)
        return _json(b'{"status":"ok"}')

    def _probe(self) -> str | None:
        try:
            self._store.probe()
        except StoreBusy:
            return "The store is locked by another program."
        except StoreError as error:
            _log.error("the store is not healthy: %s", error)
            return "The store cannot be written or read; the service's log says why."
        return None


def _documentation() -> dict[str, Callable[[Request], Response]]:
    """Return the pages of the viewer and its files."""
    own = resources.files("engine.http").joinpath("docs")
    files = {**_OWN_PAGES, **_VIEWER}
    return {
        path: _file(own.joinpath(name).read_bytes(), kind) for path, (name, kind) in files.items()
    }


def _clauses_page() -> str:
    """Return the page to which the `type` of each problem leads: every clause under its id."""

    def code(text: str) -> str:
        return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))

    texts = [(clause.id, clause.text) for clause in CLAUSES]
    texts += [(item.id, f"{item.question}: {item.default}") for item in DECISIONS]
    refusal = f'. <a href="{REFUSALS_PAGE}">What to do about a 429</a>'
    rows = "".join(
        f'<dt id="{id_}">{id_}</dt><dd>{code(text)}{refusal * (id_ in _REFUSING_RULES)}</dd>'
        for id_, text in texts
    )
    head = (
        '<meta charset="utf-8"><title>Clauses</title><link rel="stylesheet" href="/docs/docs.css">'
    )
    body = f'<main class="text"><h1>Clauses and decisions</h1><dl>{rows}</dl></main>'
    return f'<!doctype html><html lang="en">{head}{body}'


def _file(content: bytes, kind: str) -> Callable[[Request], Response]:
    headers = {
        "content-security-policy": _POLICY,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    }

    def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    return page


def _offered(engine: Engine, lines: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return what `/docs` offers: a key for each role, and the header that carries it."""
    schemes = {
        engine.profile.http.key_header: "apiKey",
        engine.profile.http.proxy_key_header: "proxyKey",
    }
    roles = set()
    for line in lines:
        scheme = schemes.get(line.get("header", ""))
        if scheme is not None and line.get("key") and line["role"] not in roles:
            roles.add(line["role"])
            names = ("role", "key", "header", "tenant_kind")
            yield {"scheme": scheme, **{name: line[name] for name in names}}


def _answering(
    page: Callable[[Request], Response | Awaitable[Response]],
) -> Callable[[Request], object]:
    async def answer(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": "GET, HEAD, OPTIONS"})
        answered = page(request)
        return answered if isinstance(answered, Response) else await answered

    return answer


def _problem(_: Request, error: HTTPException) -> Response:
    headers = {"Allow": "GET, HEAD, OPTIONS"} if error.status_code == 405 else None
    problem = Problem(
        error.status_code, error.detail, clause="D-STATUSES", headers=headers
    ).response()
    return Response(dumps(problem.body), problem.status, headers=problem.headers)


def _metrics(metrics: Metrics) -> Response:
    from engine.http.exposition import exposition  # noqa: PLC0415 # reason: needs the extra `server`

    return Response(exposition(metrics), headers={"content-type": _METRICS_TYPE})


def _json(body: bytes) -> Response:
    return Response(body, headers={"content-type": "application/json"})

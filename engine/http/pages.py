"""The service's own pages: health, metrics, the OpenAPI document and its documentation.

They need no key and count in no limit (D-COUNTED). They are found under every hostname, before any
proxy, so that the owner of a custom hostname cannot fake the server's health (D-HOST).

Metrics (requests, decisions by clause, latency) have the text format of Prometheus. They are
counted in plain dictionaries, which cost nanoseconds per request, and converted to metric families
only when a client reads them. Nothing here names a tenant, a key or an address.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.errors import StoreBusy, StoreError
from engine.http.openapi import document
from engine.messages import Decision, Problem
from engine.service import Engine
from engine.store import Store
from engine.tokens import dumps

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_BOUNDS_NS: Final = tuple(
    int(seconds * 1e9)
    for seconds in (
        0.00005,
        0.0001,
        0.0002,
        0.0005,
        0.001,
        0.0025,
        0.005,
        0.01,
        0.025,
        0.05,
        0.1,
        0.25,
        0.5,
        1,
        2.5,
        5,
        10,
        30,
    )
)


class Metrics(Collector):
    """What the server has done since its start."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, int, str, str | None], int] = {}
        self._shadows: dict[str, int] = {}
        self._buckets = [0] * (len(_BOUNDS_NS) + 1)
        self._sum_ns = 0
        self.in_flight = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, operation: str, status: int, decision: Decision, latency_ns: int) -> None:
        """Count one answered request."""
        answer = (operation, status, decision.outcome, decision.rule)
        self._answers[answer] = self._answers.get(answer, 0) + 1
        for rule in decision.shadow:
            self._shadows[rule] = self._shadows.get(rule, 0) + 1
        self._buckets[bisect_left(_BOUNDS_NS, latency_ns)] += 1
        self._sum_ns += latency_ns

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Return the metric families."""
        asked: Counter[tuple[str, ...]] = Counter()
        decided: Counter[tuple[str, ...]] = Counter()
        for (operation, status, outcome, rule), count in self._answers.copy().items():
            asked[operation, str(status)] += count
            decided[outcome, rule or ""] += count
        yield _counters("tollgate_requests", "Requests answered.", ("operation", "status"), asked)
        yield _counters(
            "tollgate_decisions",
            "Decisions of the limits; rule is the clause that refused or delayed.",
            ("outcome", "rule"),
            decided,
        )
        yield _counters(
            "tollgate_shadow_refusals",
            "Requests that a rule in shadow would have refused.",
            ("rule",),
            {(rule,): count for rule, count in self._shadows.items()},
        )
        yield GaugeMetricFamily(
            "tollgate_requests_in_flight", "Requests being answered.", self.in_flight
        )
        yield self._histogram()

    def _histogram(self) -> HistogramMetricFamily:
        total, buckets = 0, []
        for bound_ns, count in zip(_BOUNDS_NS, self._buckets, strict=False):
            total += count
            buckets.append((f"{bound_ns / 1e9:g}", total))
        buckets.append(("+Inf", total + self._buckets[-1]))
        return HistogramMetricFamily(
            "tollgate_request_duration_seconds",
            "From the head of a request to its answer.",
            buckets=buckets,
            sum_value=self._sum_ns / 1e9,
        )


def _counters(
    name: str, says: str, labels: tuple[str, ...], counts: Mapping[tuple[str, ...], int]
) -> CounterMetricFamily:
    found = CounterMetricFamily(name, says, labels=labels)
    for values, count in sorted(counts.items()):
        found.add_metric(values, count)
    return found


_OWN: Final = {
    "/docs": ("index.html", "text/html"),
    "/docs/docs.css": ("docs.css", "text/css"),
    "/docs/docs.js": ("docs.js", "text/javascript"),
}
_VIEWER: Final = {
    "/docs/swagger-ui.css": ("swagger-ui.css", "text/css"),
    "/docs/swagger-ui-bundle.js": ("swagger-ui-bundle.js", "text/javascript"),
}
"""Swagger UI's files, in the package `fastapi-swagger`, which follows each release of it."""

PAGE_PATHS: Final = frozenset(
    {"/docs/keys.json", "/healthz", "/metrics", "/openapi.json", *_OWN, *_VIEWER}
)
"""Where the pages are."""

METRICS_PATHS: Final = frozenset({"/healthz", "/metrics"})
"""The pages of the separate address for metrics."""

_POLICY: Final = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src 'self'; "
    "script-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
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
        "/docs/keys.json": lambda _: _json(keys),
        "/healthz": _Health(engine.services.store),
        "/metrics": lambda _: Response(metrics.text(), headers={"content-type": CONTENT_TYPE}),
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
    found = {path: (own.joinpath(name), kind) for path, (name, kind) in _OWN.items()}
    viewer = importlib.util.find_spec("fastapi_swagger")  # found, never imported: it needs FastAPI
    assert viewer is not None, "it is a dependency"
    folder = Path((viewer.submodule_search_locations or [""])[0], "resources")
    found |= {path: (folder / name, kind) for path, (name, kind) in _VIEWER.items()}
    return {path: _file(file.read_bytes(), kind) for path, (file, kind) in found.items()}


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
            shown = ("role", "key", "header", "tenant_kind")
            yield {"scheme": scheme, **{name: line[name] for name in shown}}


def _answering(
    page: Callable[[Request], Response | Awaitable[Response]],
) -> Callable[[Request], object]:
    async def answer(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": "GET, HEAD, OPTIONS"})
        found = page(request)
        return found if isinstance(found, Response) else await found

    return answer


def _problem(_: Request, error: HTTPException) -> Response:
    headers = {"Allow": "GET, HEAD, OPTIONS"} if error.status_code == 405 else None
    problem = Problem(
        error.status_code, error.detail, clause="D-STATUSES", headers=headers
    ).response()
    return Response(dumps(problem.body), problem.status, headers=problem.headers)


def _json(body: bytes) -> Response:
    return Response(body, headers={"content-type": "application/json"})

"""The service's own pages: health, metrics, the OpenAPI document and its documentation.

They ask for no key and count in no limit (D-COUNTED). They are found under every hostname, before
any proxy: nobody who holds a custom hostname can answer for the server's health (D-HOST).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.errors import StoreBusy, StoreError
from engine.http.metrics import CONTENT_TYPE, Metrics
from engine.http.openapi import document
from engine.messages import Problem
from engine.service import Engine
from engine.store import Store
from engine.tokens import dumps

__all__ = ["PAGE_PATHS", "make_pages"]

PAGE_PATHS: Final = frozenset({"/docs", "/healthz", "/metrics", "/openapi.json"})
"""Where the pages are."""

_POLICY: Final = (
    "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_HEALTH_S: Final = 1.0
_log: Final = logging.getLogger("tollgate")
_METHODS: Final = ["GET", "OPTIONS"]


def make_pages(engine: Engine, metrics: Callable[[], Metrics]) -> Starlette:
    """Return the pages of an engine, as an ASGI application."""
    openapi = json.dumps(document("full", engine.profile)).encode()
    docs = resources.files("engine.http").joinpath("docs.html").read_bytes()

    health = _Health(engine.services.store)

    def numbers(_: Request) -> Response:
        return Response(metrics().text(), headers={"content-type": CONTENT_TYPE})

    def openapi_document(_: Request) -> Response:
        return _json(200, openapi)

    def documentation(_: Request) -> Response:
        headers = {"content-security-policy": _POLICY, "referrer-policy": "no-referrer"}
        return Response(docs, media_type="text/html", headers=headers)

    pages: dict[str, Callable[[Request], Response | Awaitable[Response]]] = {
        "/docs": documentation,
        "/healthz": health,
        "/metrics": numbers,
        "/openapi.json": openapi_document,
    }
    assert pages.keys() == PAGE_PATHS
    return Starlette(
        routes=[Route(path, _answering(page), methods=_METHODS) for path, page in pages.items()],
        exception_handlers={HTTPException: _problem},  # type: ignore[dict-item] # reason: the handler of this exception gets this exception
    )


class _Health:
    """Whether the store can be written and read, asked at most once a second.

    It is asked in a thread, so that a store that does not answer holds up nobody.
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
        return _json(200, b'{"status":"ok"}')

    def _probe(self) -> str | None:
        try:
            self._store.probe()
        except StoreBusy:
            return "The store is locked by another program."
        except StoreError as error:
            _log.error("the store is not healthy: %s", error)
            return "The store cannot be written or read; the service's log says why."
        return None


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
    problem = Problem(error.status_code, error.detail, headers=headers).response()
    return Response(dumps(problem.body), problem.status, headers=problem.headers)


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, headers={"content-type": "application/json"})

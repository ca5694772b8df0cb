"""The service's own pages: health, metrics, the OpenAPI document and its documentation.

They ask for no key and count in no limit (D-COUNTED). They are found under every hostname, before
any proxy: nobody who holds a custom hostname can answer for the server's health (D-HOST).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.errors import StoreError
from engine.http.metrics import CONTENT_TYPE, Metrics
from engine.http.openapi import document
from engine.messages import Problem
from engine.service import Engine
from engine.tokens import dumps

__all__ = ["PAGE_PATHS", "make_pages"]

PAGE_PATHS: Final = frozenset({"/docs", "/healthz", "/metrics", "/openapi.json"})
"""Where the pages are."""

_POLICY: Final = (
    "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_METHODS: Final = ["GET", "OPTIONS"]


def make_pages(engine: Engine, metrics: Callable[[], Metrics]) -> Starlette:
    """Return the pages of an engine, as an ASGI application."""
    openapi = json.dumps(document("full", engine.profile)).encode()
    docs = resources.files("engine.http").joinpath("docs.html").read_bytes()

    def health(_: Request) -> Response:
        try:
            with engine.services.store.transaction(write=False):
                engine.services.store.tenants()
        except StoreError:
            raise HTTPException(503, "The store does not answer.") from None
        return _json(200, b'{"status":"ok"}')

    def numbers(_: Request) -> Response:
        return Response(metrics().text(), headers={"content-type": CONTENT_TYPE})

    def openapi_document(_: Request) -> Response:
        return _json(200, openapi)

    def documentation(_: Request) -> Response:
        headers = {"content-security-policy": _POLICY, "referrer-policy": "no-referrer"}
        return Response(docs, media_type="text/html", headers=headers)

    pages = {
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


def _answering(page: Callable[[Request], Response]) -> Callable[[Request], object]:
    async def answer(request: Request) -> Response:  # on the loop: the store has one thread
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": "GET, HEAD, OPTIONS"})
        return page(request)

    return answer


def _problem(_: Request, error: HTTPException) -> Response:
    headers = {"Allow": "GET, HEAD, OPTIONS"} if error.status_code == 405 else None
    problem = Problem(error.status_code, error.detail, headers=headers).response()
    return Response(dumps(problem.body), problem.status, headers=problem.headers)


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, headers={"content-type": "application/json"})

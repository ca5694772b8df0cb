"""A small service behind a rate limiter from PyPI: `python __main__.py KIND PORT JSON`.

JSON: as for `node.cjs`. It runs as a program of its own and imports nothing of the project.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

from werkzeug.serving import make_server

PATHS = ("/tokenize", "/tokens")


def mirrored(value: Any) -> Any:
    """Return a body with an identifier in place of each string."""
    if isinstance(value, str):
        return str(uuid.uuid4())
    if isinstance(value, list):
        return [mirrored(part) for part in value]
    if isinstance(value, dict):
        return {name: mirrored(part) for name, part in value.items()}
    return value


def party(given: dict[str, Any], address: str, key: str) -> str:
    """Return what the limiter counts."""
    return {"pair": f"{address} {key}", "key": key or "-", "ip": address}[given["by"]]


def is_limited(given: dict[str, Any], method: str, path: str) -> bool:
    """Whether the limiter sees a request."""
    return (
        bool(given["limited"]) and path != given["left_out"] and method == "POST" and path in PATHS
    )


def flask_application(given: dict[str, Any]) -> Any:
    """Return an application behind Flask-Limiter."""
    from flask import Flask, Response, request
    from flask_limiter import Limiter

    application = Flask(__name__)
    limiter = Limiter(
        lambda: party(given, request.remote_addr or "", request.headers.get("X-API-Key", "")),
        app=application,
        storage_uri="memory://",
        strategy=given.get("strategy", "fixed-window"),
    )
    window_s = given["window_ms"] // 1000

    @application.route("/<path:path>", methods=["GET", "POST", "PATCH", "DELETE"])
    @limiter.shared_limit(
        f"{given['limit']} per {window_s} second",
        scope="create",
        exempt_when=lambda: not is_limited(given, request.method, request.path),
    )
    def serve(path: str) -> Response:
        if "X-API-Key" not in request.headers:
            return Response('{"title": "no key"}', 401, content_type="application/json")
        body = request.get_json(silent=True)
        answer = mirrored(body) if path == "tokenize" else {"id": str(uuid.uuid4())}
        return Response(json.dumps(answer), content_type="application/json")

    return application


def django_application(given: dict[str, Any]) -> Any:
    """Return an application behind django-ratelimit."""
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpRequest, HttpResponse
    from django.urls import re_path

    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="for a test",
        CACHES={
            "default": {
                "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
                "OPTIONS": {"MAX_ENTRIES": 100_000},
            }
        },
        SILENCED_SYSTEM_CHECKS=["django_ratelimit.E003", "django_ratelimit.W001"],
    )
    django.setup()
    from django_ratelimit.core import is_ratelimited

    def whose(_: str, request: HttpRequest) -> str:
        headers = request.headers.get("X-API-Key", "")
        return party(given, request.META["REMOTE_ADDR"], headers)

    def serve(request: HttpRequest, path: str) -> HttpResponse:
        is_over = is_limited(given, request.method or "", request.path) and is_ratelimited(
            request,
            group="create",
            key=whose,
            rate=f"{given['limit']}/{given['window_ms'] // 1000}s",
            increment=True,
        )
        if is_over:
            return HttpResponse("{}", status=429, content_type="application/json")
        if "X-API-Key" not in request.headers:
            return HttpResponse('{"title": "no key"}', status=401, content_type="application/json")
        body = json.loads(request.body) if request.body else None
        answer = mirrored(body) if path == "tokenize" else {"id": str(uuid.uuid4())}
        return HttpResponse(json.dumps(answer), content_type="application/json")

    globals()["urlpatterns"] = [re_path(r"^(?P<path>.*)$", serve)]
    return get_wsgi_application()


if __name__ == "__main__":
    kind, port, text = sys.argv[1:]
    make = {"Flask-Limiter": flask_application, "django-ratelimit": django_application}[kind]
    make_server("127.0.0.1", int(port), make(json.loads(text)), threaded=True).serve_forever()

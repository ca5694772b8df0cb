"""Cross-origin requests with public keys (D-CORS): by headers, and in a real browser."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import Engine, InputError, Profile
from engine.http.app import HttpApplication
from engine.http.configuration import loads
from engine.http.pages import PAGE_PATHS
from engine.identity import PERMISSIONS
from engine.model import ApplicationKind
from tests.chromium import chromium, needs_chromium
from tests.engine.http.live import Live

SHOP = "https://shop.example"
EVERYWHERE = "https://kiosk.example"
PUBLIC = {"token:create"}


class Service:
    """An engine behind its ASGI application, with a public and a private key."""

    def __init__(self, **profile: Any) -> None:
        self.engine = Engine(profile=Profile().replace(http=profile))
        self.tenant = self.engine.create_tenant("Acme")
        self.public = self.key("public", PUBLIC, origins=[SHOP])
        self.private = self.key("private", set(PERMISSIONS))
        self._application = HttpApplication(
            self.engine, origins=(EVERYWHERE,), page_paths=PAGE_PATHS
        )

    def key(self, kind: ApplicationKind, rights: set[str], **more: Any) -> str:
        application = self.engine.create_application(
            self.tenant, kind, kind, grants=[("/", rights)], **more
        )
        return str(self.engine.create_key(application))

    async def ask(self, method: str, path: str, origin: str, **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(self._application)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            body = {"a": "b"} if method == "POST" else None
            return await client.request(
                method, path, headers={"Origin": origin, **named}, json=body
            )


@pytest.fixture
def ask() -> Callable[..., httpx.Response]:
    """Ask a service of one's own."""
    import asyncio  # noqa: PLC0415 # reason: only here

    def asking(method: str, path: str, origin: str, key: str = "", **more: Any) -> httpx.Response:
        service = Service(**more.pop("profile", {}))
        headers = {"SVC_API_KEY": getattr(service, key)} if key else {}
        return asyncio.run(service.ask(method, path, origin, **headers, **more))

    return asking


@pytest.mark.parametrize("origin", [SHOP, EVERYWHERE])
def test_a_public_key_is_readable_from_its_origins(
    ask: Callable[..., httpx.Response], origin: str
) -> None:
    answer = ask("POST", "/tokenize", origin, "public")
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == origin
    assert answer.headers["Vary"] == "Origin"
    exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
    assert {"RateLimit", "Retry-After", "X-Request-Id", "Location"} <= set(exposed)
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize(
    ("key", "origin"),
    [("public", "https://evil.example"), ("private", SHOP), ("private", EVERYWHERE), ("", SHOP)],
)
def test_nobody_else_is(ask: Callable[..., httpx.Response], key: str, origin: str) -> None:
    """Public keys alone, from listed origins alone; the answer itself is the same."""
    answer = ask("POST", "/tokenize", origin, key)
    assert answer.status_code == (200 if key else 401)
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_refusal_is_readable_too(ask: Callable[..., httpx.Response]) -> None:
    """ERR-429, D-PROBLEM: a page learns why, and when to come again."""
    answer = ask("POST", "/detokenize", SHOP, "public")
    assert answer.status_code == 403
    assert answer.headers["Access-Control-Allow-Origin"] == SHOP


@pytest.mark.parametrize(
    ("origin", "path", "is_allowed"),
    [
        (SHOP, "/tokenize", True),
        (EVERYWHERE, "/tokens", True),
        ("https://evil.example", "/tokenize", False),
        (SHOP, "/nothing", False),
    ],
)
def test_a_preflight_asks_without_a_key(
    ask: Callable[..., httpx.Response], origin: str, path: str, is_allowed: bool
) -> None:
    answer = ask("OPTIONS", path, origin, Access_Control_Request_Method="POST")
    assert answer.headers.get("Access-Control-Allow-Origin") == (origin if is_allowed else None)
    if is_allowed:
        assert answer.status_code == 204
        assert "POST" in answer.headers["Access-Control-Allow-Methods"].split(", ")
        allowed = answer.headers["Access-Control-Allow-Headers"].split(", ")
        assert {"SVC-API-KEY", "Content-Type", "Idempotency-Key"} <= set(allowed)


def test_any_is_a_reading(ask: Callable[..., httpx.Response]) -> None:
    answer = ask("POST", "/tokenize", "https://a.example", "public", profile={"cors": "any"})
    assert answer.headers["Access-Control-Allow-Origin"] == "https://a.example"
    answer = ask("POST", "/tokenize", "https://a.example", "private", profile={"cors": "any"})
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    "origin", ["*", "null", "shop.example", "https://shop.example/", "ftp://a", "https://"]
)
def test_an_origin_is_a_scheme_and_a_host(origin: str) -> None:
    engine = Engine()
    tenant = engine.create_tenant("Acme")
    with pytest.raises(InputError, match=r"^origins\[0\] = .* must be a scheme and a host, "):
        engine.create_application(tenant, "web", "public", origins=[origin])
    with pytest.raises(InputError, match=r"^serve.toml:1:16: cors_origins\[0\] = .* must be a "):
        loads(f'cors_origins = ["{origin}"]')


def test_only_a_public_application_has_origins(acme: Any) -> None:
    """Over HTTP and from Python alike."""
    engine = acme.engine
    with pytest.raises(InputError, match="origins must be empty for a private application: "):
        engine.create_application(acme.tenant, "web", "private", origins=[SHOP])
    key = acme.key_with(*PERMISSIONS)
    form = {"name": "web", "kind": "public", "grants": [], "origins": [SHOP]}
    made = acme.ask("POST", "/applications", form, key=key)
    assert (made.status, made.body["origins"]) == (201, [SHOP])
    refused = acme.ask("POST", "/applications", {**form, "kind": "private"}, key=key)
    assert refused.status == 409
    path = f"/applications/{made.body['id']}"
    patch = {"Content-Type": "application/merge-patch+json"}
    changed = acme.ask("PATCH", path, {"origins": []}, key=key, headers=patch)
    assert (changed.status, changed.body["origins"]) == (200, [])
    other = f"/applications/{acme.application.id}"
    refused = acme.ask("PATCH", other, {"origins": [SHOP]}, key=key, headers=patch)
    assert refused.status == 409


PAGE = b"<!doctype html><title>shop</title>"
ASKING = """async ([url, key]) => {
    const asked = await fetch(url + "/tokenize", {
        method: "POST",
        headers: {"SVC-API-KEY": key, "Content-Type": "application/json", "Idempotency-Key": "1"},
        body: JSON.stringify({name: "Ada"}),
    });
    return [asked.status, asked.headers.get("RateLimit"), await asked.json()];
}"""


@contextmanager
def _page() -> Iterator[str]:
    """Serve one empty page; yields its origin."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # reason: the library's name
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.slow
@needs_chromium
def test_a_page_asks_with_its_public_key_in_a_browser(tmp_path: Path) -> None:
    """The page of a listed origin reads its answer; any other page, and a private key, do not."""
    public, private = "key_prod_us_pub_2222222222222222222222", "key_prod_us_pvt_3333333333333333"
    with _page() as shop, _page() as stranger:
        config = tmp_path / "serve.toml"
        grants = 'grants = [ { container = "/", permissions = ["token:create"] } ]'
        config.write_text(
            f"""
            [[tenants]]
            name = "acme"
            [[applications]]
            name = "web"
            tenant = "acme"
            kind = "public"
            origins = ["{shop}"]
            keys = ["{public}"]
            {grants}
            [[applications]]
            name = "backend"
            tenant = "acme"
            keys = ["{private}"]
            {grants}
            """,
            encoding="utf-8",
        )
        with Live("--config", str(config)) as live, chromium() as browser:
            page = browser.new_page()
            page.goto(shop)
            status, room, body = page.evaluate(ASKING, [live.url, public])
            assert (status, list(body)) == (200, ["name"])
            assert room.startswith('"LIM-PUBLIC"')
            with pytest.raises(Exception, match="Failed to fetch"):
                page.evaluate(ASKING, [live.url, private])
            page.goto(stranger)
            with pytest.raises(Exception, match="Failed to fetch"):
                page.evaluate(ASKING, [live.url, public])

"""The documentation page in a real browser: shown, tried out, and nothing fetched elsewhere."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page

from tests.chromium import chromium, needs_chromium
from tests.engine.http.live import Live

TOKENIZE = "#operations-tokenize-tokenize"
STATUS = f"{TOKENIZE} .live-responses-table tbody .response-col_status"


class Watched:
    """A page that remembers what it asked for and what it complained of."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[str] = []
        self.wrong: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda message: self.wrong.append(message.text))

    def open(self, live: Live) -> None:
        self.page.goto(f"{live.url}/docs")
        self.page.wait_for_selector(".opblock")

    def check(self, live: Live) -> None:
        """Nothing was wrong, and nothing came from elsewhere."""
        assert self.wrong == []
        hosts = {urlsplit(url).netloc for url in self.asked if not url.startswith("data:")}
        assert hosts == {urlsplit(live.url).netloc}


@pytest.mark.slow
@needs_chromium
def test_the_page_shows_every_operation_without_a_foreign_request(live: Live) -> None:
    with chromium() as browser:
        seen = Watched(browser.new_page())
        seen.open(live)
        page = seen.page
        shown = page.locator(".opblock-summary-path").all_inner_texts()
        assert page.locator("#keys").is_hidden()  # this is no demo
        page.click(f"{TOKENIZE} .opblock-summary-control")
        page.wait_for_selector(f"{TOKENIZE} .execute")
        assert "TOK-ATOMIC" in page.inner_text(TOKENIZE)
        assert page.title().startswith("Tollgate")
        seen.check(live)
    paths = live.client.get("/openapi.json").json()["paths"]
    words = [path.replace("\u200b", "") for path in shown]
    assert sorted(words) == sorted(path for path, item in paths.items() for _ in item)
    assert live.client.get("/docs/keys.json").json() == []


@pytest.mark.slow
@needs_chromium
def test_an_operation_is_tried_with_the_keys_of_the_demo(hurried: Live) -> None:
    """The first key may create; the one that may nothing is refused; both by the page's buttons."""
    with chromium() as browser:
        seen = Watched(browser.new_page())
        seen.open(hurried)
        page = seen.page
        page.wait_for_selector("#keys:not([hidden])")
        offered = page.locator("#key option").all_inner_texts()
        roles = {line["role"] for line in hurried.lines if line.get("key")}
        assert {text.partition(" ")[0] for text in offered} == roles
        page.click(f"{TOKENIZE} .opblock-summary-control")
        page.click(f"{TOKENIZE} .execute")
        page.wait_for_selector(STATUS)
        assert page.inner_text(STATUS).startswith("200")
        seen.check(hurried)
        page.select_option("#key", label="private_no_permission (production)")
        page.click(f"{TOKENIZE} .execute")
        page.wait_for_function(
            "selector => document.querySelector(selector)?.innerText.startsWith('403')", arg=STATUS
        )


def test_the_page_runs_no_script_but_its_own(live: Live) -> None:
    """A strict policy: nothing inline, nothing from elsewhere, in no frame."""
    for path in ("/docs", "/docs/docs.js", "/docs/docs.css", "/docs/swagger-ui-bundle.js"):
        answer = live.client.get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        known = {"If-None-Match": answer.headers["etag"]}
        assert live.client.get(path, headers=known).status_code == 304


@pytest.mark.slow
def test_metrics_have_an_address_of_their_own() -> None:
    with Live("--demo", "--demo-keys", "1", "--metrics", "127.0.0.1:0") as live:
        (line,) = live.keys("metrics")
        assert live.client.get("/metrics").status_code == 404
        apart = live.client.get(line["url"])
        assert apart.status_code == 200
        assert 'operation="unknown",status="404"' in apart.text
        root = line["url"].removesuffix("/metrics")
        assert live.client.get(f"{root}/healthz").status_code == 200
        for path in ("/docs", "/openapi.json", "/tokens"):
            assert live.client.get(root + path).status_code == 404
        assert live.stop()[0] == 0

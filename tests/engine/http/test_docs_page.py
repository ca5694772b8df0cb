"""The documentation page in a real browser: everything is shown, nothing is fetched elsewhere."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.chromium import chromium, needs_chromium
from tests.engine.http.live import Live


@pytest.mark.slow
@needs_chromium
def test_the_page_shows_every_operation_without_a_foreign_request(live: Live) -> None:
    asked: list[str] = []
    wrong: list[str] = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.goto(f"{live.url}/docs")
        page.wait_for_selector("#tokenize")
        shown = page.locator("main details[id] > summary code").all_inner_texts()
        page.click("#tokenize > summary")
        assert "TOK-ATOMIC" in page.inner_text("#tokenize")
        assert page.title().startswith("Tollgate")
    assert wrong == []
    hosts = {urlsplit(url).netloc for url in asked if not url.startswith("data:")}
    assert hosts == {urlsplit(live.url).netloc}
    paths = live.client.get("/openapi.json").json()["paths"]
    assert sorted(shown) == sorted(path for path, item in paths.items() for _ in item)

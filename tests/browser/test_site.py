"""The static site in a browser without a network: nothing is asked for, nothing complains."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser

from notebooks.course import sources
from notebooks.site import write_site
from tests.chromium import chromium, needs_chromium

pytestmark = [pytest.mark.slow, needs_chromium]
LINKS = "[...document.querySelectorAll('a[href]')].map(link => link.href)"
NAMES = "[...document.querySelectorAll('[id], a[name]')].map(one => one.id || one.name)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(tmp_path_factory.mktemp("site")).parent


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def test_every_page_opens_offline_and_its_links_lead_somewhere(
    site: Path, browser: Browser
) -> None:
    """Each page: no message, no request beyond its own folder, no link to a page that is not."""
    complaints: list[str] = []
    requests: set[str] = set()
    links: dict[str, set[str]] = {}
    names: dict[str, set[str]] = {}
    context = browser.new_context(offline=True)
    for file in sorted(site.rglob("*.html")):
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.add(request.url))
        page.goto(file.as_uri())
        links[file.as_uri()] = set(page.evaluate(LINKS))
        names[file.as_uri()] = set(page.evaluate(NAMES))
        page.close()
    context.close()
    assert len(links) > len(sources())
    assert complaints == []
    index = (site / "index.html").as_uri()
    assert all(index in links[(site / f"{source.stem}.html").as_uri()] for source in sources())
    strangers = {url for url in requests if not url.startswith((site.as_uri(), "data:", "blob:"))}
    assert not strangers
    for page_url, hrefs in links.items():
        for href in hrefs:
            address, _, fragment = href.partition("#")
            if urlsplit(href).scheme in {"http", "https"}:
                continue  # followed by whoever wants to, with a network
            assert Path(unquote(urlsplit(address).path)).is_file(), f"{page_url}: {href}"
            assert not fragment or {fragment, unquote(fragment)} & names[address], href


def test_every_notebook_shows_its_pictures(site: Path, browser: Browser) -> None:
    """What a notebook draws is in its page, of a size that can be seen, and within the screen."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    for source in sources():
        drawn = source.with_suffix(".ipynb").read_text("utf-8").count('"image/svg+xml"')
        page = context.new_page()
        page.goto((site / f"{source.stem}.html").as_uri())
        pictures = page.locator("figure img")
        assert pictures.count() == drawn, source.stem
        for place in range(drawn):
            box = pictures.nth(place).bounding_box()
            assert box is not None
            assert box["width"] > 100, f"{source.stem}: picture {place}"
            assert box["height"] > 30, f"{source.stem}: picture {place}"
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{source.stem} is {wide} px wider than the screen"
        page.close()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(
    site: Path, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    """At 390 px no page is wider than the screen, no picture is cut, no text without contrast."""
    context = browser.new_context(
        offline=True, viewport={"width": 390, "height": 800}, color_scheme=scheme
    )
    for file in sorted(site.glob("*.html")):
        page = context.new_page()
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, file.name
        cut = page.evaluate(
            "[...document.querySelectorAll('figure img')].filter("
            "one => one.getBoundingClientRect().right > innerWidth).length"
        )
        assert cut == 0, file.name
        back, text = page.evaluate(
            "['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])"
        )
        light = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (back, text)]
        assert (light[0] > light[1]) is (scheme == "light"), file.name
        assert abs(light[0] - light[1]) > 450, file.name
        page.close()
    context.close()


def test_a_search_finds_a_clause_a_chapter_and_a_public_name(site: Path, browser: Browser) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    for asked, place in (
        ("TOK-ATOMIC", "specification.html#tok-atomic"),
        ("office ip", "13_one_office_ip.html"),
        ("engine.engine", "api/engine.html#Engine"),
    ):
        page.locator("#search").fill(asked)
        links = page.locator("#found a")
        addresses = [links.nth(n).get_attribute("href") or "" for n in range(links.count())]
        assert any(address.startswith(place) for address in addresses), (asked, addresses)
    page.locator("#search").fill("no such thing anywhere")
    assert page.locator("#found").inner_text() == "Nothing found."
    context.close()

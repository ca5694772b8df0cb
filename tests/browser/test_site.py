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
# In a drawing, `href` is no text: both kinds have the attribute.
LINKS = """[...document.querySelectorAll('a[href]')].map(
    link => new URL(link.getAttribute('href'), document.baseURI).href)"""
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
    for file in sorted(site.rglob("*.html")):
        page = context.new_page()
        page.goto(file.as_uri())
        assert page.locator("header .home").inner_text() == "Tollgate", "one frame for all"
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


NEWCOMERS = (
    ("why was I blocked", "00_from_429_to_clause.html"),
    ("what is Retry-After?", "00_from_429_to_clause.html"),
    ("which limit did I hit", "00_from_429_to_clause.html"),
    ("too many requests", "00_from_429_to_clause.html"),
    ("how long do I have to wait", "11_throttle_block_delay.html"),
    ("what is a sliding window", "10_algorithms.html"),
    ("why do I get 403", "03_authentication_grants.html"),
    ("when is the cvc deleted", "07_retention.html"),
    ("replay my log", "simulator.html#replay-a-log"),
    ("what happens if one token is invalid", "06_atomicity_quotas.html"),
)
"""What newcomers ask, and a page that is among the first three answers."""


def test_a_search_answers_newcomers_and_finds_names(site: Path, browser: Browser) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((site / "api" / "index.html").as_uri())
    for asked, place, most in (
        ("TOK-ATOMIC", "specification.html#tok-atomic", 1),
        ("office ip", "13_one_office_ip.html", 3),
        ("engine.engine", "api/engine.html#Engine", 1),
        *((asked, place, 3) for asked, place in NEWCOMERS),
    ):
        page.locator("#search").fill(asked)
        links = page.locator("#found a")
        addresses = [links.nth(n).get_attribute("href") or "" for n in range(links.count())]
        assert any(f"../{place}" in address for address in addresses[:most]), (asked, addresses)
        excerpts = page.locator("#found small").all_inner_texts()
        assert not re.search(r"href=|¶|[<>]/|&#?\w+;", " ".join(excerpts)), asked
    page.locator("#search").fill("xyzzy")
    assert page.locator("#found").inner_text() == "Nothing found."
    context.close()


def test_a_scrubber_moves_offline_and_is_a_still_picture_without_javascript(
    site: Path, browser: Browser
) -> None:
    file = next(one for one in sources() if one.stem.startswith("10_"))
    address = (site / f"{file.stem}.html").as_uri()
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(address)
    drawn = page.locator(".mechanism")
    assert drawn.count() == 5, "one for each algorithm"
    for place in range(drawn.count()):
        slider, said = drawn.nth(place).locator("input"), drawn.nth(place).locator("output")
        before, seen = said.inner_text(), set()
        slider.focus()
        for key in ("End", "ArrowLeft", "Home"):
            page.keyboard.press(key)
            seen.add((said.inner_text(), drawn.nth(place).locator(".cursor").get_attribute("x1")))
        assert len(seen) == 3
        assert said.inner_text() == before, "Home leads back to the first request"
    context.close()
    still = browser.new_context(offline=True, java_script_enabled=False)
    page = still.new_page()
    page.goto(address)
    drawn = page.locator(".mechanism")
    for place in range(drawn.count()):
        assert drawn.nth(place).locator("svg").is_visible()
        assert not drawn.nth(place).locator("input").is_visible()
    still.close()

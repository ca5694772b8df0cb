"""The static site in a browser without a network: nothing is asked for, nothing complains."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, ViewportSize

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


SCREENS: Final[dict[str, tuple[ViewportSize, Literal["light", "dark"]]]] = {
    "phone, light": ({"width": 390, "height": 800}, "light"),
    "phone, dark": ({"width": 390, "height": 800}, "dark"),
    "desk": ({"width": 1280, "height": 900}, "light"),
}
SIZES = """(() => {
    const boxes = [...document.querySelectorAll('figure img')].map(
        one => one.getBoundingClientRect());
    return {
        beyond_px: document.documentElement.scrollWidth - innerWidth,
        pictures: boxes.map(box => [box.width, box.height]),
        cut: boxes.filter(box => box.right > innerWidth).length,
        colours: ['backgroundColor', 'color'].map(
            name => getComputedStyle(document.body)[name]),
    };
})()"""


class View(NamedTuple):
    """What a page shows. sizes: of it and its pictures, and its colours, by screen."""

    links: set[str]
    names: set[str]
    home: str
    sizes: dict[str, dict[str, Any]]


class Visit(NamedTuple):
    """Every page opened once: what it shows, and what all of them complained of and requested."""

    views: dict[Path, View]
    complaints: list[str]
    requests: set[str]


@pytest.fixture(scope="module")
def visit(site: Path, browser: Browser) -> Visit:
    seen = Visit({}, [], set())
    context = browser.new_context(offline=True, viewport=SCREENS["phone, light"][0])
    for file in sorted(site.rglob("*.html")):
        page = context.new_page()
        page.on("console", lambda message: seen.complaints.append(message.text))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("request", lambda request: seen.requests.add(request.url))
        page.goto(file.as_uri())
        sizes = {}
        for name, (size, scheme) in SCREENS.items():
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            sizes[name] = page.evaluate(SIZES)
        home = page.locator("header .home").inner_text()
        links, names = set(page.evaluate(LINKS)), set(page.evaluate(NAMES))
        seen.views[file] = View(links, names, home, sizes)
        page.close()
    context.close()
    return seen


def test_every_page_opens_offline_and_its_links_lead_somewhere(site: Path, visit: Visit) -> None:
    """Each page: no message, no request beyond its own folder, no link to a page that is not."""
    assert len(visit.views) > len(sources())
    assert visit.complaints == []
    index = (site / "index.html").as_uri()
    chapters = [site / f"{source.stem}.html" for source in sources()]
    assert all(index in visit.views[chapter].links for chapter in chapters)
    strangers = {
        url for url in visit.requests if not url.startswith((site.as_uri(), "data:", "blob:"))
    }
    assert not strangers
    for file, view in visit.views.items():
        for href in view.links:
            address, _, fragment = href.partition("#")
            if urlsplit(href).scheme in {"http", "https"}:
                continue  # followed by whoever wants to, with a network
            target = Path(unquote(urlsplit(address).path))
            assert target.is_file(), f"{file}: {href}"
            assert not fragment or {fragment, unquote(fragment)} & visit.views[target].names, href


def test_every_notebook_shows_its_pictures(site: Path, visit: Visit) -> None:
    """What a notebook draws is in its page, of a size that can be seen, and within the screen."""
    for source in sources():
        drawn = source.with_suffix(".ipynb").read_text("utf-8").count('"image/svg+xml"')
        sizes = visit.views[site / f"{source.stem}.html"].sizes["desk"]
        assert len(sizes["pictures"]) == drawn, source.stem
        for place, (width, height) in enumerate(sizes["pictures"]):
            assert width > 100, f"{source.stem}: picture {place}"
            assert height > 30, f"{source.stem}: picture {place}"
        assert sizes["beyond_px"] <= 0, f"{source.stem} is wider than the screen"


@pytest.mark.parametrize("screen", [name for name in SCREENS if name != "desk"])
def test_nothing_is_wider_than_a_phone(visit: Visit, screen: str) -> None:
    """At 390 px no page is wider than the screen, no picture is cut, no text without contrast."""
    for file, view in visit.views.items():
        sizes = view.sizes[screen]
        assert view.home == "Tollgate", "one frame for all"
        assert sizes["beyond_px"] <= 0, file.name
        assert sizes["cut"] == 0, file.name
        light = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in sizes["colours"]]
        assert (light[0] > light[1]) is (SCREENS[screen][1] == "light"), file.name
        assert abs(light[0] - light[1]) > 450, file.name


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

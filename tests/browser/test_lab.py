"""JupyterLab on the course: `make lab` serves it, and the explorer's sliders move its picture."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import started
from tests.chromium import chromium, needs_chromium

EXPLORER = "19_limit_explorer.ipynb"
RUN_TIMEOUT_MS = 240_000
LIMIT = "LIM-PUBLIC / 1m"

pytestmark = pytest.mark.slow


@needs_chromium
def test_make_lab_opens_the_course(repository: Path, tmp_path: Path) -> None:
    """`make lab` answers on this machine alone, to who has the token, with a start page."""
    with started(["make", "lab"], repository, tmp_path) as lab, chromium() as browser:
        assert urlsplit(lab.root).hostname == "127.0.0.1"
        assert lab.folder == repository / "notebooks"
        page = httpx.get(lab.url("lab"))
        assert page.status_code == 200
        assert re.search(r'"news": \{"disabled": true\}', page.text), "no question about news"
        assert httpx.get(f"{lab.root}api/contents").status_code == 403
        listed = httpx.get(lab.url("api/contents")).json()["content"]
        names = {entry["name"] for entry in listed}
        assert {path.name for path in (repository / "notebooks").glob("[0-9]*.ipynb")} <= names
        assert not any(name.endswith(".py") for name in names), "no twin beside a chapter"
        tab = browser.new_page()
        tab.goto(lab.url(""))
        start = tab.locator(".jp-MarkdownViewer")
        expect(start.get_by_role("heading", name="Rate limits, from a 429")).to_be_visible(
            timeout=60_000
        )
        start.get_by_role("link", name="From 429 to clause").first.click()
        expect(tab.locator(".jp-NotebookPanel")).to_be_visible(timeout=60_000)


def _refused_percent(picture: Locator, part: str = "with these values") -> float:
    """Return the share that a picture's words name for one of its parts."""
    words = picture.get_attribute("aria-label")
    assert words is not None
    found = re.search(rf"{part}: [^;]*?([0-9.]+)\s% refused", words)
    assert found is not None
    return float(found[1])


def _run_all(page: Page) -> None:
    expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=60_000)
    page.locator(".lm-MenuBar-itemLabel", has_text="Run").click()
    page.locator(".lm-Menu-itemLabel", has_text="Run All Cells").first.click()
    # A folded answer has a prompt without a number: wait until no cell is queued or runs.
    done = page.locator(".jp-InputPrompt", has_text=re.compile(r"\[[0-9]+\]:"))
    expect(done.first).to_be_attached(timeout=RUN_TIMEOUT_MS)
    queued = page.locator(".jp-InputPrompt", has_text="[*]:")
    expect(queued).to_have_count(0, timeout=RUN_TIMEOUT_MS)


@needs_chromium
def test_moving_a_slider_changes_the_picture(repository: Path, tmp_path: Path) -> None:
    """Open the explorer, run all cells, turn LIM-PUBLIC down with the keyboard, and look."""
    course = tmp_path / "course"
    course.mkdir()
    shutil.copy(repository / "notebooks" / EXPLORER, course)
    kept = repository / "artefacts"
    kept.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "jupyter", "lab", "--notebook-dir", str(course)]
    command += ["--no-browser", "--allow-root"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    faults: list[str] = []
    hosts: set[str | None] = set()
    with started(command, course, tmp_path) as lab, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
        page.goto(lab.url(f"lab/tree/{EXPLORER}"))
        _run_all(page)
        assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
        slider = page.locator(".widget-hslider", has_text=LIMIT)
        picture = page.locator("svg[aria-label^='with these values']")
        for part in (picture, slider):
            box = part.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 1280, "nothing is cut off"
        expect(slider.locator(".widget-readout")).to_have_text("50")
        before = _refused_percent(picture)
        slider.scroll_into_view_if_needed()
        page.screenshot(path=kept / "explorer_before.png")
        slider.locator(".noUi-handle").focus()
        for _ in range(30):
            page.keyboard.press("ArrowLeft")
        expect(slider.locator(".widget-readout")).to_have_text("20")
        words = re.compile(rf"^with these values: (?![^;]* {before}\s% refused)")
        expect(picture).to_have_attribute("aria-label", words, timeout=30_000)
        page.screenshot(path=kept / "explorer.png")
        assert _refused_percent(picture) > before, "a lower limit refuses more"
        assert _refused_percent(picture, "as it stands") == before, "the other part stays"
    assert faults == []
    assert hosts <= {"127.0.0.1", None}, "nothing is fetched from elsewhere"

"""The real browser of the tests that open a page: where it is, and how it starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from playwright.sync_api import Browser, sync_playwright

__all__ = ["chromium", "needs_chromium"]

_PROGRAM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
# Without the last ones it looks for its maker's hosts at every start.
_FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
)

needs_chromium: Final = pytest.mark.skipif(_PROGRAM is None, reason="chromium is not installed")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser, and end it with the block, whatever happens in it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_PROGRAM, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()

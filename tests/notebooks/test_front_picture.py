"""The README's picture is what the scenario shows today."""

from __future__ import annotations

import pytest

from notebooks.front_picture import PICTURE, draw
from tests.house._files import ROOT


@pytest.mark.slow
def test_the_picture_is_what_is_committed() -> None:
    assert draw() == PICTURE.read_text(encoding="utf-8"), "run `make notebooks`"


def test_the_readme_shows_it() -> None:
    shown = PICTURE.relative_to(ROOT).as_posix()
    assert f"[picture]: {shown}\n" in (ROOT / "README.md").read_text(encoding="utf-8")

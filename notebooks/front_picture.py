"""The README's picture: what the limits do to the built-in scenario `everyday`.

It is made by running the scenario, like every picture of the course, and committed beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import altair as alt
import vl_convert

import simulator

__all__ = ["PICTURE", "draw"]

PICTURE: Final = Path(__file__).resolve().parent / "front_picture.svg"


def draw() -> str:
    """Return the picture as SVG, the same bytes on every run of one version."""
    result = simulator.run("everyday", fidelity="limits", progress=False)
    over = result.plots.timeline(bins=100).properties(
        title="Ten minutes of everyday traffic: admitted, or refused by a clause", height=180
    )
    out = result.plots.shut_out(rows=8).properties(title="Who is locked out, when, by which clause")
    both = alt.vconcat(over, out).resolve_scale(color="independent", x="shared")
    text: str = vl_convert.vegalite_to_svg(both.configure(background="white").to_dict())
    return f"{text}\n"

"""The colours of every picture: of the page, of notebooks' charts and of the explorer.

Clauses have the colours of Okabe and Ito ("Color universal design", 2008), which people tell apart
whatever their colour vision, and after them some darker ones; what is let in is pale and what is
refused dark, so those two are told apart by lightness alone. `page/report.css` has the same ones,
and lighter ones for dark paper; a test holds the two together.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ADMITTED", "CLAUSES", "REFUSED"]

ADMITTED: Final = "#b9c5d8"
REFUSED: Final = "#3f4a5f"
CLAUSES: Final = (
    "#d55e00",
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#8a7500",
    "#5d3a9b",
    "#7f3b08",
    "#66708a",
)
"""One a clause, in table order; beyond they begin anew."""

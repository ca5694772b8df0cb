"""A little SVG: elements as text, everything escaped, coordinates rounded, so bytes repeat.

A drawing takes its colours from the page's style sheet by class, so that it follows light and
dark. Bars of one series are one path: a drawing stays small however many bars it has.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

__all__ = ["Drawing", "bars_path", "number"]


def number(value: float) -> str:
    """Return a coordinate in at most two decimals, without a trailing zero."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def bars_path(bars: Iterable[tuple[float, float, float, float]]) -> str:
    """Return one path of upright bars, each given by x, y of its top, width and height."""
    return "".join(
        f"M{number(x)} {number(y)}h{number(w)}v{number(h)}h{number(-w)}z" for x, y, w, h in bars
    )


class Drawing:
    """One picture; `title` is what a screen reader says of it."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width = width
        self.height = height
        self._parts: list[Markup] = []
        self._title = title
        self.marks = 0

    def path(self, d: str, css: str, title: str = "") -> None:
        """Draw a path; nothing where it is empty."""
        if d:
            self._add("path", css, title, d=d)

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """Draw a straight line."""
        self._add("path", css, "", d=f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}")

    def rect(  # reason: a rectangle's own numbers
        self, x: float, y: float, width: float, height: float, css: str, title: str = ""
    ) -> None:
        """Draw a rectangle."""
        self._add(
            "rect", css, title, x=number(x), y=number(y), width=number(width), height=number(height)
        )

    def text(self, x: float, y: float, text: str, css: str) -> None:
        """Write a text; its anchor is in the class."""
        self.marks += 1
        self._parts.append(
            Markup('<text x="{}" y="{}" class="{}">{}</text>').format(
                number(x), number(y), css, text
            )
        )

    def markup(self) -> Markup:
        """Return the element."""
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            number(self.width), number(self.height), self._title, Markup("").join(self._parts)
        )

    def _add(self, tag: str, css: str, title: str, **attributes: str) -> None:
        self.marks += 1
        shown = Markup(" ").join(
            Markup('{}="{}"').format(name, value) for name, value in attributes.items()
        )
        inside = Markup("<title>{}</title>").format(title) if title else escape("")
        self._parts.append(Markup('<{} class="{}" {}>{}</{}>').format(tag, css, shown, inside, tag))

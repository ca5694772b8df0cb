"""What a picture says in words: its own description, or its axes, colours and ranges.

`use` runs in the kernel of a notebook that is being rendered. It lets Altair's `svg` renderer give
each picture its words, for screen readers and for whoever sees no pictures.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any, Final

import altair as alt
import pandas as pd
import vl_convert

__all__ = ["in_words", "use"]

_CHANNELS: Final = {
    "x": "Across",
    "y": "Up or down",
    "color": "Colours",
    "column": "Side by side",
    "row": "One below another",
    "text": "Written",
}
_PARTS: Final = ("layer", "hconcat", "vconcat", "concat")
"""Under which a specification holds others."""
_NAMED: Final = 8
"""Values of an axis of names that are listed; of more the number is said."""


def use() -> None:
    """Give every picture that Altair draws as SVG an alternative text.

    Altair and pandas are as after their import, whatever an earlier notebook has set.
    """
    alt.renderers.enable("default")
    alt.renderers.register("svg", _drawn)
    pd.reset_option("display")


def _drawn(spec: dict[str, Any], **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
    svg: str = vl_convert.vegalite_to_svg(spec)
    words = html.escape(in_words(spec))
    return {"image/svg+xml": svg.replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)}, {}


def in_words(spec: Mapping[str, Any]) -> str:
    """Return the alternative text of a chart's specification."""
    if described := _described(spec):
        return described
    datasets: Mapping[str, Any] = spec.get("datasets", {})
    said: dict[str, None] = {}
    for encoding, rows in _encodings(spec, datasets, []):
        for channel, where in _CHANNELS.items():
            one = encoding.get(channel)
            if isinstance(one, Mapping) and "field" in one:
                text = _channel(one, rows)
                said[f"{where}: {text}." if text else ""] = None
    return " ".join(["A chart.", *filter(None, said)])


def _described(spec: Mapping[str, Any]) -> str:
    """Return the description of a specification, or those of its parts."""
    if spec.get("description"):
        return str(spec["description"])
    parts = [inner for part in _PARTS for inner in spec.get(part, ())]
    if isinstance(spec.get("spec"), Mapping):
        parts.append(spec["spec"])
    return " ".join(dict.fromkeys(filter(None, map(_described, parts))))


def _encodings(
    spec: Mapping[str, Any], datasets: Mapping[str, Any], rows: list[Any]
) -> Iterator[tuple[Mapping[str, Any], list[Any]]]:
    """Yield each encoding of a specification with the rows that it draws."""
    data = spec.get("data") or {}
    rows = datasets.get(data.get("name", ""), data.get("values", rows))
    shared = spec.get("encoding", {})
    if isinstance(spec.get("facet"), Mapping):
        shared = {**shared, **spec["facet"]}
    if shared:
        yield shared, rows
    for part in _PARTS:
        for inner in spec.get(part, ()):
            yield from _encodings(inner, datasets, rows)
    if isinstance(spec.get("spec"), Mapping):
        yield from _encodings(spec["spec"], datasets, rows)


def _channel(channel: Mapping[str, Any], rows: list[Any]) -> str:
    field = channel["field"]
    values = [row[field] for row in rows if isinstance(row, Mapping) and row.get(field) is not None]
    title = channel.get("title") or field
    if not values:
        return str(title)
    if all(isinstance(value, int | float) for value in values):
        return f"{title}, {min(values):g} to {max(values):g}"
    names = list(dict.fromkeys(str(value) for value in values))
    shown = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} of them"
    return f"{title}: {shown}"

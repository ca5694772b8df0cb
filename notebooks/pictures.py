"""Pictures of what is no time line: a body as a tree, and who sees what as a grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import altair as alt
import pandas as pd

__all__ = ["grid", "mirror"]

_BLUE, _GREEN, _GREY, _RED, _YELLOW = "#2a78d6", "#3a9d5d", "#9aa1ab", "#e34948", "#eda100"
_PALETTE: Final = (_BLUE, _GREEN, _YELLOW, _RED, _GREY)
_NODES: Final = {
    "structure": _GREY,
    "string": _YELLOW,
    "token request object": _RED,
    "identifier": _BLUE,
    "record": _GREEN,
}


def grid(
    cells: Mapping[str, Mapping[str, object]], colours: Mapping[str, str] | None = None
) -> alt.Chart:
    """Return a grid: a row a key, a column a key of what it holds, the value written in the cell.

    colours: value → colour; the cells of other values are coloured in turn.
    """
    frame = pd.DataFrame(
        [(row, column, str(said)) for row, held in cells.items() for column, said in held.items()],
        columns=["row", "column", "said"],
    )
    values = list(dict.fromkeys(frame["said"]))
    given = colours or {}
    shown = [given.get(value, _PALETTE[n % len(_PALETTE)]) for n, value in enumerate(values)]
    columns = list(dict.fromkeys(frame["column"]))
    words = "; ".join(
        f"{row}: " + ", ".join(f"{column} {said}" for column, said in held.items())
        for row, held in cells.items()
    )
    base = alt.Chart(frame, width=max(110 * len(columns), 160), height=24 * len(cells)).encode(
        x=alt.X(
            "column:N",
            sort=columns,
            title=None,
            axis=alt.Axis(orient="top", labelAngle=0, labelLimit=108, domain=False, ticks=False),
        ),
        y=alt.Y(
            "row:N",
            sort=list(cells),
            title=None,
            axis=alt.Axis(labelLimit=260, domain=False, ticks=False),
        ),
    )
    chart: alt.Chart = base.mark_rect(aria=False, stroke="white", opacity=0.75).encode(
        color=alt.Color("said:N", scale=alt.Scale(domain=values, range=shown), legend=None)
    ) + base.mark_text(aria=False, color="black").encode(text="said:N")
    return chart.properties(description=f"A grid. {words}.")


def mirror(body: Any, answer: Any) -> alt.Chart:
    """Return a body and its answer side by side as trees, a line a value, coloured by kind."""
    rows = [
        {"side": side, "line": line, "depth": depth, "label": label, "kind": kind}
        for side, tree, leaf, whole in (
            ("sent", body, "string", "token request object"),
            ("came back", answer, "identifier", "record"),
        )
        for line, (depth, label, kind) in enumerate(_lines(tree, "body", 0, leaf, whole))
    ]
    frame = pd.DataFrame(rows)
    shown = [kind for kind in _NODES if kind in set(frame["kind"])]
    scale = alt.Scale(domain=shown, range=[_NODES[kind] for kind in shown])
    base = alt.Chart(frame, width=250, height=20 * (int(frame["line"].max()) + 1)).encode(
        x=alt.X("depth:Q", axis=None, scale=alt.Scale(domain=[-0.3, 5])),
        y=alt.Y("line:O", axis=None),
    )
    dots = base.mark_point(filled=True, size=90, shape="square", aria=False).encode(
        color=alt.Color("kind:N", scale=scale, title=None)
    )
    words = base.mark_text(align="left", dx=9, aria=False).encode(text="label:N")
    chart: alt.Chart = (dots + words).facet(
        column=alt.Column("side:N", sort=["sent", "came back"], title=None)
    )
    kinds = " and ".join(
        f"{side}: " + ", ".join(f"{n} {kind}" for kind, n in mine["kind"].value_counts().items())
        for side, mine in frame.groupby("side", sort=False)
    )
    return chart.properties(description=f"Two trees of one shape, side by side. {kinds}.")


def _lines(
    tree: Any, label: str, depth: int, leaf: str, whole: str
) -> Iterator[tuple[int, str, str]]:
    if isinstance(tree, dict) and "type" in tree:
        yield depth, f"{label}: {tree['type']}", whole
    elif isinstance(tree, dict | list):
        yield depth, f"{label} {'{}' if isinstance(tree, dict) else '[]'}", "structure"
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for name, inner in items:
            yield from _lines(inner, str(name), depth + 1, leaf, whole)
    else:
        yield depth, f"{label}: {str(tree)[:14]}{'…' if len(str(tree)) > 14 else ''}", leaf

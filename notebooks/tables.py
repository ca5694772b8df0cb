"""Data frames as the site shows them: one row of heads, numbers to the right, words to the left."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Final

__all__ = ["site_table"]

_STYLE: Final = re.compile(r"<style.*?</style>|\sborder=\"1\"", re.DOTALL)
_ROW: Final = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<(t[hd])\b([^>]*)>(.*?)</t[hd]>", re.DOTALL)
_QUOTED: Final = re.compile(r"`([^`<>]+)`")
_TWO_HEADS: Final = re.compile(r"<thead>\s*(<tr.*?</tr>)\s*(<tr.*?</tr>)\s*</thead>", re.DOTALL)
_NUMBER: Final = re.compile(r"[-−+<>\d.,e\s%–✓]*|NaN|None|True|False")


def site_table(frame: str) -> str:
    """Return the HTML of a data frame for the site.

    >>> site_table("<tr><th>0</th><td>1.5</td><td>Ada</td></tr>")
    '<tr><th>0</th><td>1.5</td><td class="words">Ada</td></tr>'
    """
    text = _TWO_HEADS.sub(_one_head, _STYLE.sub("", frame))
    text = _QUOTED.sub(r"<code>\1</code>", text)
    # Rows of an index with several levels differ in length: columns are counted from the right.
    cells = map(_CELL.findall, _ROW.findall(text))
    rows = ([value for tag, _, value in row if tag == "td"] for row in cells)
    columns = zip_longest(*(reversed(row) for row in rows))
    are_words = [any(cell and not _NUMBER.fullmatch(cell) for cell in column) for column in columns]

    def aligned(row: re.Match[str]) -> str:
        cells = list(_CELL.finditer(row[0]))
        of_words = {
            cell.start()
            for cell, is_words in zip(reversed(cells), are_words, strict=False)
            if is_words
        }
        return _CELL.sub(
            lambda cell: _with_class(cell) if cell.start() in of_words else cell[0], row[0]
        )

    return _ROW.sub(aligned, text)


def _with_class(cell: re.Match[str]) -> str:
    return f'<{cell[1]}{cell[2]} class="words">{cell[3]}</{cell[1]}>'


def _one_head(heads: re.Match[str]) -> str:
    """Return the names of the columns, and those of the index in its empty cells, as one row."""
    names, index = ([cell[2] for cell in _CELL.findall(row)] for row in heads.groups())
    if len(names) != len(index) or any(a and b for a, b in zip(names, index, strict=True)):
        return heads[0]
    cells = "".join(f"<th>{a or b}</th>" for a, b in zip(names, index, strict=True))
    return f"<thead><tr>{cells}</tr></thead>"

"""The chapters of the course: their titles, what each says in a sentence, and the doors to them.

A chapter is a percent script (`NN_topic.py`). Its first cell holds the title and, as the first
sentence below it, what the chapter answers.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "DOORS",
    "FOLDER",
    "PARTS",
    "START",
    "Chapter",
    "Door",
    "chapters",
    "sources",
    "start_page",
]

FOLDER: Final = Path(__file__).resolve().parent
START: Final = FOLDER / "README.md"
"""The page that `make lab` opens, and that code hosts show."""


@dataclass(frozen=True)
class Chapter:
    """One chapter. stem: the name of its file; says: one whole sentence, as Markdown."""

    stem: str
    title: str
    says: str

    @property
    def number(self) -> int:
        """The number of its file."""
        return int(self.stem[:2])

    @property
    def page(self) -> str:
        """The name of its page in the site."""
        return f"{self.stem}.html"


@dataclass(frozen=True)
class Door:
    """A way into the course for one kind of reader. numbers: its first chapters, in order."""

    title: str
    says: str
    numbers: tuple[int, ...]


DOORS: Final = (
    Door(
        "I integrate",
        "Build a client that tokenizes, reads records, and copes with refusals.",
        (0, 1, 2, 6, 12),
    ),
    Door(
        "I test",
        "Judge a deployment clause by clause, and distinguish bugs from permitted design choices.",
        (0, 8, 10, 23, 24),
    ),
    Door(
        "I model",
        "Predict what limits do to traffic before they are turned on.",
        (0, 8, 16, 18, 20),
    ),
)


PARTS: Final[tuple[tuple[str, tuple[int, ...]], ...]] = (
    ("Start here", (0,)),
    ("Sending data", (1, 2, 3, 4, 5, 6, 7)),
    ("Limits", (8, 9, 10, 11, 12, 13, 14, 15)),
    ("What would a change do?", (16, 17, 18, 19, 20, 21, 22)),
    ("Checking a deployment", (23, 24, 25, 26)),
)
"""The parts of the course and the chapters of each. File numbers are the order of reading."""


def sources() -> list[Path]:
    """Return the percent scripts, by number."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def chapters() -> list[Chapter]:
    """Return the chapters in the order of reading."""
    by_number = {chapter.number: chapter for chapter in map(_chapter, sources())}
    return [by_number[number] for _, numbers in PARTS for number in numbers]


def start_page() -> str:
    """Return the start page: the doors, and all chapters in the order of reading, as Markdown."""
    by_number = {chapter.number: chapter for chapter in chapters()}

    def linked(number: int) -> str:
        chapter = by_number[number]
        return f"{number:02} [{chapter.title}]({chapter.stem}.ipynb)"

    how = (
        "Open a chapter, read it, predict, and run its cells (Shift+Enter). Every claim is"
        " asserted: change a number and see which claim breaks."
    )
    parts = ["# Rate limits, from a 429 to its cause", _wrapped(how)]
    for door in DOORS:
        parts += [f"## {door.title}", door.says, _list(map(linked, door.numbers))]
    parts.append("## All chapters")
    for part, numbers in PARTS:
        texts = (f"{linked(number)}: {by_number[number].says}" for number in numbers)
        parts += [f"### {part}", _list(texts)]
    return "\n\n".join(parts) + "\n"


def _list(texts: Iterable[str]) -> str:
    return "\n".join(_wrapped(f"- {text}", "  ") for text in texts)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _chapter(source: Path) -> Chapter:
    first = source.read_text(encoding="utf-8").split("\n# %%", 1)[0]
    lines = [line.removeprefix("#").strip() for line in first.splitlines()[1:]]
    title, _, rest = "\n".join(lines).strip().removeprefix("#").strip().partition("\n")
    paragraph = " ".join(rest.strip().split("\n\n")[0].split())
    sentence = re.match(r".+?[.?!](?=\s|$)", paragraph)
    return Chapter(source.stem, title.strip(), sentence[0] if sentence else paragraph)

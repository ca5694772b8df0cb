"""How a check that spans several values names the one at fault."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from engine.errors import InputError, did_you_mean
from engine.files import Document, path_text

__all__ = ["Path", "fail", "need_name"]

Path = tuple[str | int, ...]


def fail(document: Document, path: Path, rule: str) -> NoReturn:
    """Raise `InputError` about the value at `path`, which the document may have left out."""
    try:
        spot = document.spot(*path)
    except LookupError:
        where = document.where(path)
        raise InputError(f"{where}{path_text(path)} {rule}") from None
    spot.fail(rule)


def need_name(document: Document, path: Path, name: str, known: Iterable[str], table: str) -> None:
    """Fail at `path` unless `name` is one of the names of a `[[table]]`."""
    names = list(known)
    if name not in names:
        hint = did_you_mean(name, names) if names else "; there is none"
        fail(document, path, f"must name one of [[{table}]]{hint}")

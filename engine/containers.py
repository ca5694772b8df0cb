"""Container paths: the form of a destination and what a grant on one covers (TOK-CONTAINER).

A path starts and ends with `/`, has no empty segment, and its segments are made of
`[A-Za-z0-9_-]`; it is lower-cased on creation (D-CONTAINER). A grant on a path covers the path
and all below it, by whole segments (D-GRANT): `/pci/` covers `/pci/high/`, not `/pciother/`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["CONTAINER_RULE", "covers", "normal_container"]

_FORM: Final = re.compile(r"/(?:[A-Za-z0-9_-]+/)*")
_LONGEST: Final = 400

CONTAINER_RULE: Final = (
    "must start and end with '/', with segments of letters, digits, '_' and '-' between"
)


def normal_container(path: str) -> str | None:
    """Return the lower-cased path, None when its form is wrong.

    >>> normal_container("/PCI/High/")
    '/pci/high/'
    >>> normal_container("/pci//high/") is None
    True
    """
    # A text that is too long is not remembered either: a caller's may be of any size.
    return None if len(path) > _LONGEST else _normal(path)


@lru_cache(maxsize=4096)
def _normal(path: str) -> str | None:
    return None if _FORM.fullmatch(path) is None else path.lower()


def covers(granted: str, path: str) -> bool:
    """Return whether a grant on `granted` covers `path` (both normal).

    >>> covers("/pci/", "/pci/high/"), covers("/pci/", "/pciother/")
    (True, False)
    """
    return path.startswith(granted)

"""Container paths: the form of a destination and what a grant on one covers (TOK-CONTAINER).

A path starts and ends with `/`, has no empty segment, and its segments are made of
`[A-Za-z0-9_-]`; it is lower-cased on creation, and the profile bounds its length (D-CONTAINER). A
grant on a path covers the path and all below it, by whole segments (D-GRANT): `/pci/` covers
`/pci/high/`, not `/pciother/`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_FORM: Final = re.compile(r"/(?:[A-Za-z0-9_-]+/)*")

CONTAINER_RULE: Final = (
    "must start and end with '/', with segments of letters, digits, '_' and '-' between"
)


def normal_container(path: str, limit: int) -> str | None:
    """Return the lower-cased path, None when its form is wrong or it is longer than `limit`.

    >>> normal_container("/PCI/High/", 400)
    '/pci/high/'
    >>> normal_container("/pci//high/", 400) is None
    True
    """
    # A text over the limit is not cached: callers can send texts of any size.
    return None if len(path) > limit else _normal(path)


def container_rule(path: object, limit: int) -> str:
    """Return the rule that a path breaks when `normal_container` returns None for it."""
    if isinstance(path, str) and len(path) > limit:
        return f"must hold at most {limit} characters"
    return CONTAINER_RULE


@lru_cache(maxsize=4096)
def _normal(path: str) -> str | None:
    return None if _FORM.fullmatch(path) is None else path.lower()


def covers(granted: str, path: str) -> bool:
    """Return whether a grant on `granted` covers `path` (both normal).

    >>> covers("/pci/", "/pci/high/"), covers("/pci/", "/pciother/")
    (True, False)
    """
    return path.startswith(granted)

"""Children that end with the tests that started them, also where those are killed."""

from __future__ import annotations

import shutil
from typing import Final

__all__ = ["WITH_US"]

WITH_US: Final[tuple[str, ...]] = (
    ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
)
"""Stands before a command: the kernel kills it when its parent ends, whatever ended the parent.

Of no use where util-linux is missing: there, only tests that end by themselves end their servers.
"""

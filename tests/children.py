"""Children that end with the tests that started them, also where those are killed."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
from typing import Final

__all__ = ["WITH_US", "free_port"]

WITH_US: Final[tuple[str, ...]] = (
    ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
)
"""Stands before a command: the kernel kills it when its parent ends, whatever ended the parent.

Of no use where util-linux is missing: there, only tests that end by themselves end their servers.
"""


def free_port() -> int:
    """Return a port that nothing listens on, and that the system gives to nobody by itself.

    Linux gives ports from 32768 on to clients, and to servers that ask for any.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_768)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port

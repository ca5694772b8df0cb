"""The most memory that this program held."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["ONE_HEAP", "STATUS", "forget_peak", "peak_kb"]

STATUS: Final = Path("/proc/self/status")
"""Where Linux says what a program holds and held."""

ONE_HEAP: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Of an environment: heaps per thread keep what others could use, by how the threads took turns."""


def forget_peak() -> int:
    """Let `peak_kb` count from here on; return the kilobytes held now, or at most so far."""
    with suppress(OSError):  # only Linux can forget
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    return peak_kb()


def peak_kb() -> int:
    """Return the most kilobytes held; `ru_maxrss` would count whoever started this program too."""
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

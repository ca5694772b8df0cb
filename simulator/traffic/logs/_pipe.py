"""Logs that can be read once: standard input, a named pipe, a process substitution.

Several readers look at a log's first lines before one reads all of it. So what is read from a pipe
to look at it is kept, and comes again when the log is read whole.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from engine.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["STDIN", "Pipe", "Place", "log_name", "place_of"]

STDIN: Final = "-"
"""What stands for standard input where a log is asked for."""

_MARK_BYTES: Final = 4
"""How much tells how a log is packed; a pipe may give less at once."""


class Pipe:
    """A log that can be read once. It is opened where it is first read, and shown as it was given.

    name: what the log is called. suffixes: those of its name, as a path has them.
    """

    def __init__(self, given: str) -> None:
        self._given = given
        self.name = log_name(given)
        self.suffixes = [] if given == STDIN else Path(given).suffixes
        self._source: io.BufferedReader | None = None
        self._kept = bytearray()
        self._is_spent = False

    def __str__(self) -> str:
        return self._given

    def open(self, *, look: bool) -> io.BufferedReader:
        """Return the log from its first byte. look: it will be opened again, so keep what is read.

        Raises `InputError` once it was read whole, and `OSError` where it cannot be opened.
        """
        if self._is_spent:
            raise InputError(f"log = '{self}' must be a file to be read twice; write it to one")
        self._is_spent = not look
        return io.BufferedReader(_FromStart(self._opened(), self._kept, look=look))

    def close(self) -> None:
        """Close what was opened, where the log is not read whole."""
        if self._source is not None:
            self._source.close()

    def _opened(self) -> io.BufferedReader:
        if self._source is None:
            is_stdin = self._given == STDIN
            self._source = io.BufferedReader(_Stdin()) if is_stdin else Path(self._given).open("rb")  # noqa: SIM115 # reason: it is read across calls
        return self._source


class _Stdin(io.RawIOBase):
    """Standard input, which is never closed here."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        found = memoryview(buffer).cast("B")
        part = cast("io.BufferedReader", sys.stdin.buffer).read1(len(found))
        found[: len(part)] = part
        return len(part)


class _FromStart(io.RawIOBase):
    """The bytes that are kept, and then those that were not read yet."""

    def __init__(self, source: io.BufferedReader, kept: bytearray, *, look: bool) -> None:
        self._source = source
        self._kept = kept
        self._look = look
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        found = memoryview(buffer).cast("B")
        is_kept = self._at < len(self._kept)
        if is_kept:
            part = bytes(self._kept[self._at : self._at + len(found)])
        elif self._at:
            part = self._source.read1(len(found))
        else:
            part = self._source.read(min(_MARK_BYTES, len(found)))
        self._at += len(part)
        if not is_kept:
            if self._look:
                self._kept += part
            else:
                self._kept.clear()
        found[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Close the source too, where nobody reads it again."""
        if not self._look:
            self._source.close()
        super().close()


Place: TypeAlias = Path | Pipe
"""Where a log is read from."""


def place_of(source: str | Path) -> Place:
    """Return where a log is read from: `STDIN` and whatever is no plain file can be read once."""
    if source == STDIN:
        return Pipe(STDIN)
    path = Path(source)
    try:
        is_pipe = path.is_fifo() or path.is_char_device()
    except OSError:
        is_pipe = False  # whoever opens it says what is wrong
    return Pipe(str(source)) if is_pipe else path


def log_name(source: str | Path) -> str:
    """Return what a log is called that is read from here."""
    return "stdin" if source == STDIN else Path(source).name

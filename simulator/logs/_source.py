"""Opening a log: plain or gzip, told by its first bytes, as a stream of numbered lines.

Lines end at a line feed and nothing else (text of clients may hold other line separators); a
carriage return before it and a byte-order mark at the start are taken off. No line longer than
`LONGEST_LINE_BYTES` is ever held. Lines come in blocks of many, since work on a block costs a line
little.

*Pipes* (standard input, a named pipe, a process substitution) can be read once, and several readers
look at a log's first lines before one reads all of it. So what is
read from a pipe at first is kept, and returned again when the whole log is read.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from engine.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LONGEST_LINE_BYTES: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_UTF8_MARK: Final = b"\xef\xbb\xbf"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def unreadable(path: Place) -> Iterator[None]:
    """Turn errors while `path` is read into one `InputError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"log = '{path}' must exist; check the name") from error
    except IsADirectoryError as error:
        raise InputError(f"log = '{path}' must be a file; it is a folder") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"log = '{path}' must be whole gzip; it is cut or damaged") from error
    except OSError as error:
        why = (error.strerror or "it is cut or damaged").lower()  # Arrow's has no strerror
        raise InputError(f"log = '{path}' must be readable; {why}") from error


@contextmanager
def open_log(path: Place, *, look: bool = False) -> Iterator[io.BufferedIOBase]:
    """Open a log, unpacked when it is gzip. look: to read it again later. Raises `InputError`."""
    with unreadable(path), _opened(path, look=look) as raw:
        start = raw.peek(4)[:4]
        if not start:
            raise InputError(f"log = '{path}' must hold at least one line; it is empty")
        if start.startswith(_UTF16_MARKS):
            raise InputError(f"log = '{path}' must be UTF-8; it is UTF-16, convert it first")
        if start.startswith(_GZIP):
            with gzip.open(raw) as unpacked:
                yield cast("io.BufferedIOBase", unpacked)
        else:
            yield raw


def _opened(path: Place, *, look: bool) -> io.BufferedReader:
    return path.open(look=look) if isinstance(path, Pipe) else path.open("rb")


def line_blocks(stream: io.BufferedIOBase) -> Iterator[tuple[int, str | None]]:
    r"""Yield (number from 1 of the first line, text of some whole lines, each ended by a feed).

    The text is None for one line that is too long. Bytes that are not UTF-8 become visible escapes
    (`\xff`).
    """
    number, held, is_skipping = 1, b"", False
    while raw := stream.read(LONGEST_LINE_BYTES):
        end = raw.find(b"\n")
        if is_skipping:
            if end < 0:
                continue
            is_skipping = False
            raw = raw[end + 1 :]
            end = raw.find(b"\n")
        # What is read at once is no longer than a line may be, so only the first can be too long.
        if len(held) + (end if end >= 0 else len(raw)) >= LONGEST_LINE_BYTES:
            yield number, None
            number += 1
            held, is_skipping = b"", end < 0
            raw = b"" if is_skipping else raw[end + 1 :]
        cut = raw.rfind(b"\n") + 1
        if not cut:
            held += raw
            continue
        lines, held = held + raw[:cut], raw[cut:]
        yield number, _text(lines, number)
        number += lines.count(b"\n")
    if held:
        yield number, _text(held + b"\n", number)


def _text(lines: bytes, number: int) -> str:
    if number == 1:
        lines = lines.removeprefix(_UTF8_MARK)
    return lines.decode("utf-8", errors="backslashreplace")


def numbered_lines(stream: io.BufferedIOBase) -> Iterator[tuple[int, str | None]]:
    """Yield (line number from 1, text); the text is None where the line is too long."""
    for first, text in line_blocks(stream):
        if text is None:
            yield first, None
        else:
            for number, line in enumerate(text[:-1].split("\n"), first):
                yield number, line.rstrip("\r")


def head_lines(path: Place, count: int) -> list[str]:
    """Return the first `count` lines that are not blank, for telling formats apart."""
    found: list[str] = []
    with open_log(path, look=True) as stream:
        for number, text in numbered_lines(stream):
            if text is not None and text.strip():
                found.append(text)
            if len(found) == count or number > 10 * count:
                break
    return found


STDIN: Final = "-"
"""What stands for standard input where a log is asked for."""

_MARK_BYTES: Final = 4
"""Bytes that identify a gzip log; a pipe may return fewer at once."""


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
        if self._source is None:
            is_stdin = self._given == STDIN
            opened = sys.stdin.buffer if is_stdin else Path(self._given).open("rb")  # noqa: SIM115 # reason: it is read across calls
            self._source = cast("io.BufferedReader", opened)
        return io.BufferedReader(_FromStart(self._source, self._kept, None if look else self.close))

    def close(self) -> None:
        """Close what was opened; standard input stays open."""
        if self._source is not None and self._given != STDIN:
            self._source.close()


class _FromStart(io.RawIOBase):
    """The bytes that are kept, and then those that were not read yet.

    ended: called where nobody reads them again, None where somebody does.
    """

    def __init__(
        self, source: io.BufferedReader, kept: bytearray, ended: Callable[[], None] | None
    ) -> None:
        self._source = source
        self._kept = kept
        self._ended = ended
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
            if self._ended is None:
                self._kept += part
            else:
                self._kept.clear()
        found[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Close the source too, where nobody reads it again."""
        if self._ended is not None:
            self._ended()
        super().close()


Place: TypeAlias = Path | Pipe
"""Where a log is read from."""


def place_of(source: str | Path) -> Place:
    """Return a path, or a `Pipe` for what can be read only once: `STDIN`, and special files."""
    if source == STDIN:
        return Pipe(STDIN)
    path = Path(source)
    try:
        is_pipe = path.is_fifo() or path.is_char_device()
    except OSError:
        is_pipe = False  # opening it reports the error
    return Pipe(str(source)) if is_pipe else path


def log_name(source: str | Path) -> str:
    """Return the name that messages give to a log."""
    return "stdin" if source == STDIN else Path(source).name

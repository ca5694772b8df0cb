"""Opening a log: plain or gzip, told by its first bytes, as a stream of numbered lines.

Lines end at a line feed and nothing else (text of clients may hold other line separators); a
carriage return before it and a byte-order mark at the start are taken off. No line longer than
`LONGEST_LINE_BYTES` is ever held. Lines come in blocks of many, since work on a block costs a line
little.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from engine.errors import InputError
from simulator.traffic.logs._pipe import Pipe, Place

__all__ = [
    "LONGEST_LINE_BYTES",
    "head_lines",
    "line_blocks",
    "numbered_lines",
    "open_log",
    "unreadable",
]

LONGEST_LINE_BYTES: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_UTF8_MARK: Final = b"\xef\xbb\xbf"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def unreadable(path: Place) -> Iterator[None]:
    """Turn what goes wrong while `path` is read into one `InputError`."""
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

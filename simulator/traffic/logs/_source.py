"""Opening a log: plain or gzip, told by its first bytes, as a stream of numbered lines.

Lines end at a line feed and nothing else (text of clients may hold other line separators); a
carriage return before it and a byte-order mark at the start are taken off. No line longer than
`LONGEST_LINE_BYTES` is ever held.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

from engine.errors import InputError

__all__ = ["LONGEST_LINE_BYTES", "head_lines", "numbered_lines", "open_log", "unreadable"]

LONGEST_LINE_BYTES: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_UTF8_MARK: Final = b"\xef\xbb\xbf"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
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
        why = error.strerror or type(error).__name__
        raise InputError(f"log = '{path}' must be readable; {why.lower()}") from error


@contextmanager
def open_log(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a log, unpacked when it is gzip. Raises `InputError`."""
    with unreadable(path), path.open("rb") as raw:
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


def numbered_lines(stream: io.BufferedIOBase) -> Iterator[tuple[int, str | None]]:
    r"""Yield (line number from 1, text); the text is None where the line is too long.

    Bytes that are not UTF-8 become visible escapes (`\xff`).
    """
    number = 0
    while raw := stream.readline(LONGEST_LINE_BYTES):
        number += 1
        if len(raw) == LONGEST_LINE_BYTES and not raw.endswith(b"\n"):
            _skip_rest(stream)
            yield number, None
            continue
        if number == 1:
            raw = raw.removeprefix(_UTF8_MARK)
        yield number, raw.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")


def head_lines(path: Path, count: int) -> list[str]:
    """Return the first `count` lines that are not blank, for telling formats apart."""
    found: list[str] = []
    with open_log(path) as stream:
        for number, text in numbered_lines(stream):
            if text is not None and text.strip():
                found.append(text)
            if len(found) == count or number > 10 * count:
                break
    return found


def _skip_rest(stream: io.BufferedIOBase) -> None:
    while raw := stream.readline(LONGEST_LINE_BYTES):
        if raw.endswith(b"\n"):
            return

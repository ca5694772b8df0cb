"""Batch files of the account updater: CSV in, CSV out, and large volumes split (seed 8.10, D-JOBS).

    in   token,expiration_year,expiration_month
    out  the same and new_token,new_expiration_year,new_expiration_month,result_code

A token is a UUID; year (1000 to 9999) and month (1 to 12) may be empty. A byte order mark, CRLF and
empty lines are fine. The first fault ends the reading and names its line and rule, never a value.

A file holds at most 30 MB (ACC-FILE), so a larger volume is cut into several, with one job a file
(ACC-SPLIT). The caller splits it (D-SPLIT), with `split_batch`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from engine.errors import InputError, wrong_type
from engine.profile import Profile

__all__ = [
    "HEADER",
    "RESULT_HEADER",
    "BatchFault",
    "Row",
    "batch_lines",
    "read_batch",
    "split_batch",
]

HEADER: Final = "token,expiration_year,expiration_month"
RESULT_HEADER: Final = HEADER + ",new_token,new_expiration_year,new_expiration_month,result_code"

_TOKEN: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_YEAR: Final = re.compile(r"(?:[1-9][0-9]{3})?")
_MONTH: Final = re.compile(r"(?:0?[1-9]|1[0-2])?")
_RULES: Final = (
    (_TOKEN, "token must be a UUID"),
    (_YEAR, "expiration_year must be a year from 1000 to 9999, or empty"),
    (_MONTH, "expiration_month must be a month from 1 to 12, or empty"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a batch file: a token id in lower case, and the expiry that its sender knows."""

    token_id: str
    year: int | None
    month: int | None


class BatchFault(Exception):
    """A batch file is invalid: the message names the line and the rule, never a value.

    rows: how many rows before it were fine.
    """

    def __init__(self, line: int, rule: str, rows: int) -> None:
        super().__init__(f"line {line}: {rule}")
        self.rows = rows


def read_batch(data: bytes) -> Iterator[Row]:
    """Read the rows of a batch file; raises `BatchFault` at the first line that is wrong."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BatchFault(data.count(b"\n", 0, error.start) + 1, "must be UTF-8", 0) from None
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows = 0
    try:
        if next(lines, None) != HEADER.split(","):
            raise BatchFault(1, f"must be {HEADER}", 0)
        for fields in lines:
            if not fields:
                continue
            if len(fields) != len(_RULES):
                raise BatchFault(lines.line_num, f"must hold {len(_RULES)} fields", rows)
            token_id, year, month = fields[0].lower(), fields[1], fields[2]
            for value, (form, rule) in zip((token_id, year, month), _RULES, strict=True):
                if form.fullmatch(value) is None:
                    raise BatchFault(lines.line_num, rule, rows)
            yield Row(token_id, int(year) if year else None, int(month) if month else None)
            rows += 1
    except csv.Error:
        raise BatchFault(lines.line_num, "must be CSV as in RFC 4180", rows) from None


def batch_lines(rows: Iterable[tuple[str, int | None, int | None]]) -> Iterator[bytes]:
    r"""Return the lines of a batch file, its header first, from (token id, year, month) rows.

    >>> list(batch_lines([("c1f4", 2030, None)]))
    [b'token,expiration_year,expiration_month\n', b'c1f4,2030,\n']
    """
    yield f"{HEADER}\n".encode()
    for token_id, year, month in rows:
        yield f"{token_id},{_text(year)},{_text(month)}\n".encode()


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def split_batch(
    volume: bytes | Iterable[bytes],
    limit_bytes: int = Profile().account_updater.file_limit_bytes,
) -> Iterator[bytes]:
    r"""Cut a volume into batch files of at most `limit_bytes`, each with the header (ACC-SPLIT).

    volume: one CSV with its header, as bytes, as an open binary file, or in pieces of any size; it
    is read as the files are taken. Together the files hold every line, in order. A volume without
    a line gives no file. Raises `InputError` for a line that fits into no file.

    >>> [file.decode() for file in split_batch(b"token\na\nb\nc", 10)]
    ['token\na\nb\n', 'token\nc\n']
    """
    _check_split(volume, limit_bytes)
    lines = _lines((volume,) if isinstance(volume, bytes) else volume)
    header = next(lines, None)
    if header is None:
        return
    held, size_bytes = [header], len(header)
    if size_bytes > limit_bytes:
        raise _misfit(1, header, limit_bytes)
    for number, line in enumerate(lines, 2):
        if len(header) + len(line) > limit_bytes:
            raise _misfit(number, line, limit_bytes)
        if size_bytes + len(line) > limit_bytes:
            yield b"".join(held)
            held, size_bytes = [header], len(header)
        held.append(line)
        size_bytes += len(line)
    yield b"".join(held)


def _check_split(volume: object, limit_bytes: object) -> None:
    if isinstance(volume, str) or not isinstance(volume, Iterable):
        raise wrong_type("volume", volume, "bytes, an open binary file, or pieces of bytes")
    if isinstance(limit_bytes, bool) or not isinstance(limit_bytes, int):
        raise wrong_type("limit_bytes", limit_bytes, "a whole number of bytes")


def _misfit(number: int, line: bytes, limit_bytes: int) -> InputError:
    return InputError(
        f"line {number} of {len(line)} bytes must fit, with the header, into a file of "
        f"{limit_bytes} bytes; raise limit_bytes or mend the line"
    )


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return whole lines, each with its end, the last one too."""
    begun: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun) + b"\n"
            begun = [other]
    last = b"".join(begun)
    if last:
        yield last + b"\n"

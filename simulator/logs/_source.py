"""Opening a log: plain or packed, told by its first bytes, as a stream of numbered lines.

Lines end at a line feed and nothing else (text of clients may hold other line separators); a
carriage return before it and a byte-order mark at the start are taken off. No line longer than
`LONGEST_LINE_BYTES` is ever held. Lines come in blocks of many, since work on a block costs a line
little.

*Wrappers*: a log's carrier may put a prefix before each line or the line into a JSON field
(`simulator.logs.formats`); `text_blocks` takes it off, and joins what the carrier has split.

*Pipes* (standard input, a named pipe, a process substitution) can be read once. So their head, of
`_HEAD_BYTES`, is read first; formats are told by it, and the whole log begins with it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias, cast

import orjson
import pyarrow as pa

from engine.errors import InputError
from simulator.logs.formats import Wrapper

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LONGEST_LINE_BYTES: Final = 1 << 20
_UTF8_MARK: Final = b"\xef\xbb\xbf"


def _arrow(codec: str) -> Callable[[IO[bytes]], Any]:
    def unpack(raw: IO[bytes]) -> Any:  # noqa: ANN401 # reason: a reader of Arrow's
        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)

    return unpack


_PACKED: Final[Mapping[bytes, tuple[str, Callable[[IO[bytes]], Any]]]] = {
    b"\x1f\x8b": ("gzip", lambda raw: gzip.GzipFile(fileobj=raw)),
    b"BZh": ("bzip2", bz2.BZ2File),
    b"\xfd7zXZ\0": ("xz", lzma.LZMAFile),
    b"(\xb5/\xfd": ("zstd", _arrow("zstd")),
    b"\x04\x22M\x18": ("lz4", _arrow("lz4")),
}
"""The first bytes of a packed log, and what unpacks it."""
_REFUSED: Final[Mapping[bytes, str]] = {
    b"\xff\xfe": "must be UTF-8; it is UTF-16, convert it first",
    b"\xfe\xff": "must be UTF-8; it is UTF-16, convert it first",
    b"PK\x03\x04": "must be a log; it is a zip, unpack it first",
    b"7z\xbc\xaf": "must be a log; it is a 7z archive, unpack it first",
    b"Rar!": "must be a log; it is a rar archive, unpack it first",
    b"SQLite format 3": "must be a log; it is an SQLite database, export a table as CSV first",
    b"Obj\x01": "must be a log; it is Avro, convert it to Parquet or JSON lines first",
    b"ORC": "must be a log; it is ORC, convert it to Parquet first",
    b"%PDF": "must be a log; it is a PDF",
    b"\x1f\x9d": "must be a log; it is packed by compress, unpack it first",
    b"\xff\x06\x00\x00sNaPpY": "must be a log; it is packed by Snappy, unpack it first",
    b"ElfFile\x00": "must be a log; it is a Windows event log, export it as CSV first",
}
_TAR: Final = (257, b"ustar")
_PEEKED: Final = 512


@contextmanager
def unreadable(path: Place) -> Iterator[None]:
    """Turn errors while `path` is read into one `InputError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"log = '{path}' must exist; check the name") from error
    except IsADirectoryError as error:
        raise InputError(f"log = '{path}' must be a file; it is a folder") from error
    except OSError as error:
        why = (error.strerror or "it is cut or damaged").lower()  # Arrow's has no strerror
        raise InputError(f"log = '{path}' must be readable; {why}") from error


class _Unpacked(io.RawIOBase):
    """The bytes of a packed log; raises `InputError` where they are cut or damaged.

    is_head: of its head alone, which ends where it is cut.
    """

    def __init__(self, path: Place, packing: str, packed: Any, *, is_head: bool) -> None:  # noqa: ANN401 # reason: readers of several libraries
        self._path = path
        self._packing = packing
        self._packed = packed
        self._is_head = is_head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        try:
            part = self._packed.read(len(view))
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if self._is_head:
                return 0
            raise InputError(
                f"log = '{self._path}' must be whole {self._packing}; it is cut or damaged"
            ) from error
        view[: len(part)] = part
        return len(part)


@contextmanager
def open_log(path: Place, *, look: bool = False) -> Iterator[io.BufferedIOBase]:
    """Open a log, unpacked. look: to read it again later. Raises `InputError`."""
    with unreadable(path), _opened(path, look=look) as raw:
        start = _start(path, raw)
        for mark, (packing, unpack) in _PACKED.items():
            if start.startswith(mark):
                is_head = look and isinstance(path, Pipe) and path.is_longer
                raw_log: io.RawIOBase = _Unpacked(path, packing, unpack(raw), is_head=is_head)
                with io.BufferedReader(raw_log, 1 << 16) as unpacked:
                    _start(path, unpacked)
                    yield unpacked
                return
        yield raw


def _start(path: Place, stream: io.BufferedReader[Any]) -> bytes:
    """Return the first bytes. Raises `InputError` where no log begins with them."""
    start = stream.peek(_PEEKED)[:_PEEKED]
    if not start:
        raise InputError(f"log = '{path}' must hold at least one line; it is empty")
    for mark, why in _REFUSED.items():
        if start.startswith(mark):
            raise InputError(f"log = '{path}' {why}")
    if start[_TAR[0] :].startswith(_TAR[1]):
        raise InputError(f"log = '{path}' must be a log; it is a tar archive, unpack it first")
    return start


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
    lines: list[str] = []
    with open_log(path, look=True) as stream:
        for number, text in numbered_lines(stream):
            if text is not None and text.strip():
                lines.append(text)
            if len(lines) == count or number > 10 * count:
                break
    return lines


Lines: TypeAlias = tuple[Sequence[int], str, Sequence[str | None]]
"""Some lines: the number of each, their text, each ended by a feed, and the wrapper's times."""


_LINES_TOGETHER: Final = 1 << 13
_LONGEST_JOINED: Final = 1 << 20


def text_blocks(
    path: Place, wrappers: Sequence[Wrapper], fault: Callable[[int, str], None]
) -> Iterator[Lines]:
    """Yield the lines of a log without what stands around them; `fault` gets the others."""
    with open_log(path) as stream:
        if wrappers:
            unwrapped = _unwrapped(numbered_lines(stream), wrappers, fault)
            while together := list(islice(unwrapped, _LINES_TOGETHER)):
                numbers, texts, times = zip(*together, strict=True)
                yield numbers, "\n".join(texts) + "\n", times
            return
        for first, text in line_blocks(stream):
            if text is None:
                fault(first, "line is too long")
            else:
                count = text.count("\n")
                yield range(first, first + count), text, [None] * count


def _unwrapped(
    lines: Iterator[tuple[int, str | None]],
    wrappers: Sequence[Wrapper],
    fault: Callable[[int, str], None],
) -> Iterator[tuple[int, str, str | None]]:
    """Yield (number, line inside, the wrapper's time)."""
    unwrap, number = Unwrapper(wrappers), 0
    for number, text in lines:
        if text is None:
            fault(number, "line is too long")
        elif text.strip():
            line = unwrap(text)
            if line is None:
                fault(number, f"line must be {wrappers[0].title}")
            elif line[0] is not None:
                yield number, line[0], line[1]
    for _ in range(unwrap.pending):
        fault(number, f"line is cut; its end in {wrappers[0].title} is missing")


class Unwrapper:
    """Takes off what stands around lines; joins a line that its carrier has split."""

    def __init__(self, wrappers: Sequence[Wrapper]) -> None:
        self._wrappers = wrappers
        self._parts: dict[tuple[int, str], str] = {}

    @property
    def pending(self) -> int:
        """How many lines have begun and not ended."""
        return len(self._parts)

    def __call__(self, line: str) -> tuple[str | None, str | None] | None:
        """Return the line inside and its time, (None, None) while it goes on, None if wrong."""
        text, time = line, None
        for place, wrapper in enumerate(self._wrappers):
            parts = _json_parts(wrapper, text) if wrapper.text else _text_parts(wrapper, text)
            if parts is None:
                return None
            text, stamp, stream, is_part = parts
            time = stamp or time
            before = self._parts.pop((place, stream), "")
            text = before + text
            if is_part and len(text) < _LONGEST_JOINED:
                self._parts[place, stream] = text
                return None, None
            text = text.rstrip("\r\n").replace("\n", "\\n")
        return text, time


def _text_parts(wrapper: Wrapper, line: str) -> tuple[str, str | None, str, bool] | None:
    """Return the line inside, its time, its stream and whether it goes on; None if wrong."""
    assert wrapper.pattern is not None
    match = wrapper.pattern.fullmatch(line)
    if match is None:
        return None
    parts = match.groupdict("")
    return (
        parts["text"],
        parts.get("time") or None,
        parts.get("stream", ""),
        parts.get("part") == "P",
    )


def _json_parts(wrapper: Wrapper, line: str) -> tuple[str, str | None, str, bool] | None:
    """Return the same of a line in a field of an object."""
    try:
        record = orjson.loads(line)
    except ValueError:
        return None
    text = record.get(wrapper.text) if isinstance(record, dict) else None
    if not isinstance(text, str):
        return None
    stamps = (record.get(name) for name in wrapper.time)
    time = next((stamp for stamp in stamps if isinstance(stamp, str)), None)
    stream = record.get(wrapper.stream) if wrapper.stream else None
    is_part = bool(stream) and not text.endswith(wrapper.whole)
    return text, time, str(stream or ""), is_part


STDIN: Final = "-"
"""What stands for standard input where a log is asked for."""

_HEAD_BYTES: Final = 1 << 20


class Pipe:
    """A log that can be read once. It is opened when it is first looked at.

    name: what the log is called. suffixes: those of its name, as a path has them.
    """

    def __init__(self, given: str) -> None:
        self._given = given
        self.name = log_name(given)
        self.suffixes = [] if given == STDIN else Path(given).suffixes
        self._source: io.BufferedReader | None = None
        self._head = b""
        self._is_spent = False

    def __str__(self) -> str:
        return self._given

    @property
    def is_longer(self) -> bool:
        """Whether there is more than its head."""
        return len(self._head) == _HEAD_BYTES

    def open(self, *, look: bool) -> io.BufferedReader:
        """Return the log from its first byte; its head alone if it will be opened again.

        Raises `InputError` once it was read whole, and `OSError` where it cannot be opened.
        """
        if self._is_spent:
            raise InputError(f"log = '{self}' must be a file to be read twice; write it to one")
        if self._source is None:
            is_stdin = self._given == STDIN
            opened = sys.stdin.buffer if is_stdin else Path(self._given).open("rb")  # noqa: SIM115 # reason: it is read across calls
            self._source = cast("io.BufferedReader", opened)
            self._head = self._source.read(_HEAD_BYTES)
        self._is_spent = not look
        head: Any = io.BytesIO(self._head)
        return io.BufferedReader(head if look else _Joined(head, self._source, self.close))

    def close(self) -> None:
        """Close what was opened; standard input stays open."""
        if self._source is not None and self._given != STDIN:
            self._source.close()


class _Joined(io.RawIOBase):
    """The bytes of a head, and then the rest. ended: called at the end."""

    def __init__(
        self, head: io.BytesIO, rest: io.BufferedReader, ended: Callable[[], None]
    ) -> None:
        self._head = head
        self._rest = rest
        self._ended = ended

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        part = self._head.read(len(view)) or self._rest.read1(len(view))
        view[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Close the rest too."""
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

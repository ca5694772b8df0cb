"""Whatever bytes a log holds, reading it ends in columns or in one line that says why not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import InputError
from simulator.logs import FORMATS, _source, stream_log
from simulator.logs.arrivals import make_arrivals, read_speed
from tests.memory import forget_peak, peak_kb
from tests.simulator.logs.test_tools import LINES
from tests.simulator.logs.whole import Log, read_log

GOOD: dict[str, bytes] = {
    "combined": b'203.0.113.7 - - [17/May/2015:10:05:03 +0000] "GET /x HTTP/1.1" 200 1 "-" "a"\n',
    "common": b'203.0.113.7 - - [17/May/2015:10:05:03 +0000] "GET /x HTTP/1.1" 200 1\n',
    "csv": b'time,ip,method,path\n1431857103,203.0.113.7,GET,"/x"\n',
    "jsonl": b'{"time": 1431857103.5, "ip": "203.0.113.7", "method": "GET", "path": "/x"}\n',
}
PIECES = [b'"', b"\\", b"[", b"]", b"\n", b"\r\n", b" ", b",", b"\x00", b"\xff", b"{", b"}", b":"]


def read_or_complain(file: Path, kind: str | None) -> Log | None:
    """Return the log; None where it cannot be used, which must be said in one line."""
    complaint = ""
    try:
        return read_log(file, format=kind)
    except InputError as error:
        complaint = str(error)
    assert complaint.isprintable()
    return None


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return a text with pieces cut out, doubled or put in."""
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(whole)))
        length = draw(st.integers(0, 12))
        middle = draw(st.sampled_from([*PIECES, b"", whole[place : place + length] * 2]))
        whole = whole[:place] + middle + whole[place + length :]
    return whole


@pytest.mark.parametrize("kind", sorted(GOOD))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_logs(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    file = tmp_path / "hostile.log"
    head = GOOD[kind] if kind != "csv" else GOOD[kind].partition(b"\n")[0] + b"\n"
    file.write_bytes(head + data.draw(damaged(GOOD[kind] * 4)))
    log = read_or_complain(file, kind)
    if log is None:
        return
    assert len(log) == len(log.line) == len(log.fields["path"].codes)
    assert (log.line[1:] > log.line[:-1]).all()
    assert log.unparsed >= len(log.unparsed_first)
    assert all(text.isprintable() for text in log.unparsed_first)
    arrivals = make_arrivals(
        stream_log(file, format=kind),
        kind="public",
        tenant_kind="production",
        speed=read_speed("1"),
        pseudonym_key=b"k",
    )
    assert len(arrivals) == len(log)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [None, *FORMATS])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes(tmp_path: Path, kind: str | None, content: bytes) -> None:
    file = tmp_path / "bytes.log"
    file.write_bytes(content)
    read_or_complain(file, kind)


def _no_utf8() -> pa.Array:
    """Texts that a careless writer took for UTF-8."""
    raw = pa.array([b"/tokens", b"/caf\xe9", b"/tokenize"], pa.binary())
    return pa.StringArray.from_buffers(len(raw), *raw.buffers()[1:])


COLUMNS = {
    "time": pa.array([1, 2, 3]),
    "ip": pa.array(["192.0.2.1"] * 3),
    "method": pa.array(["GET"] * 3),
    "path": pa.array(["/tokens"] * 3),
}


@pytest.mark.parametrize("name", sorted(COLUMNS))
@pytest.mark.parametrize("is_encoded", [False, True])
def test_a_column_that_is_no_utf8_is_one_line(tmp_path: Path, name: str, is_encoded: bool) -> None:
    """From Parquet and from a frame; the column and its rows are named."""
    texts = _no_utf8().dictionary_encode() if is_encoded else _no_utf8()
    table = pa.table({**COLUMNS, name: texts})
    file = tmp_path / "log.parquet"
    pq.write_table(table, file)
    for source, what in ((file, f"log = '{file}'"), (table, "frame")):
        with pytest.raises(InputError) as error:
            read_log(source)
        assert str(error.value) == (
            f"{what}: column = '{name}' must be UTF-8, and does not in rows 1 to 3; "
            "write it anew, or as binary"
        )


def test_a_dictionary_larger_than_its_rows_is_read_as_far_as_they_use_it() -> None:
    """A file's dictionary of 200,000 addresses came whole with every batch of 32,768 rows."""
    known = [f"10.0.{n >> 8}.{n & 255}" for n in range(1_000)]
    column = pa.DictionaryArray.from_arrays(pa.array([7, None, 7], pa.int32()), known)
    log = read_log(pa.table({**COLUMNS, "key": column}))
    assert log.fields["key"].names == ("10.0.0.7",)
    assert list(log.fields["key"].codes) == [0, -1, 0]


def test_a_parquet_whose_names_are_no_utf8_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "log.parquet"
    pq.write_table(pa.table(COLUMNS), file)
    file.write_bytes(file.read_bytes().replace(b"method", b"meth\xe9d"))
    with pytest.raises(InputError, match="must be Parquet; it is cut or damaged"):
        read_log(file)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_parquet_with_flipped_bits_is_columns_or_one_line(
    tmp_path: Path, data: st.DataObject
) -> None:
    file = tmp_path / "log.parquet"
    pq.write_table(pa.table(COLUMNS), file)
    content = bytearray(file.read_bytes())
    for place in data.draw(st.lists(st.integers(4, len(content) - 9), min_size=1, max_size=3)):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    read_or_complain(file, "parquet")


def line_by_line(content: bytes, longest: int) -> list[tuple[int, str | None]]:
    """Return what each line comes to, read one at a time."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [
        (
            number,
            None
            if len(line) >= longest
            else line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"")
            .rstrip(b"\r")
            .decode("utf-8", "backslashreplace"),
        )
        for number, line in enumerate(lines, 1)
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(
        st.sampled_from(
            [b"a", b"bc", b"\n", b"\r", b"\xef\xbb\xbf", b"\xe2\x82", b"\xac", b"d" * 7]
        )
    ),
    longest=st.integers(4, 16),
)
def test_lines_read_in_blocks_are_those_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], longest: int
) -> None:
    """Wherever a block ends: within a line, a character or a line that is too long."""
    monkeypatch.setattr(_source, "LONGEST_LINE_BYTES", longest)
    content = b"".join(pieces)
    found = list(_source.numbered_lines(io.BufferedReader(io.BytesIO(content))))
    assert found == line_by_line(content, longest)


GOOD_LINE = GOOD["combined"].decode()


@given(
    st.lists(st.sampled_from([GOOD_LINE, GOOD_LINE[:40] + "\n", "\n", "x\n", " \r\n"]), max_size=9)
)
def test_every_line_of_a_block_stands_for_itself(lines: list[str]) -> None:
    """One search takes a whole block; a bad line neither hides its neighbours nor joins them."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "access.log"
        file.write_text("".join([GOOD_LINE, *lines]), newline="")
        found = read_log(file, format="combined")
    good = [number for number, line in enumerate([GOOD_LINE, *lines], 1) if line == GOOD_LINE]
    assert found.line.tolist() == good
    assert found.unparsed == sum(bool(line.strip()) for line in lines) + 1 - len(good)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            pd.DataFrame([[1, 2, 3]], columns=["t_ns", "ip", "ip"]),
            "frame: column = 'ip' must stand once; rename the others or leave them out",
        ),
        (
            pd.concat({"a": pd.DataFrame({"t_ns": [1]})}, axis=1),
            (
                "frame: columns must have one level, not 2; choose one group, or join the names:"
                " frame.columns.map('.'.join)"
            ),
        ),
        (
            pa.table([[1], ["a"], ["b"]], names=["t_ns", "ip", "ip"]),
            "frame: column = 'ip' must stand once; rename the others or leave them out",
        ),
        (
            pd.DataFrame({"t_ns": [1, 2], "mixed": [1, "secret"]}),
            "frame: column = 'mixed' must hold what Arrow can read; convert it or leave it out",
        ),
        (
            pd.DataFrame({"t_ns": [1], "wave": [1j]}),
            "frame: column = 'wave' must hold what Arrow can read; convert it or leave it out",
        ),
        (
            {"t_ns": [1], "thing": [object()]},
            "frame: column = 'thing' must hold what Arrow can read; convert it or leave it out",
        ),
        (
            pd.DataFrame({"t_ns": [1], "ip": [["203.0.113.7"]], "method": "GET", "path": "/x"}),
            (
                "frame: column = 'ip' must hold one value a row, not list<item: string>; take one"
                " out of it or leave it out"
            ),
        ),
        (5, "source = 5 must be a log's path, or a frame that Arrow can read"),
    ],
)
def test_a_frame_that_cannot_be_read_names_the_column(frame: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_log(frame)
    assert str(caught.value) == message


def test_a_parquet_file_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "twins.parquet"
    pq.write_table(pa.table([[1], ["a"], ["b"]], names=["t_ns", "ip", "ip"]), file)
    with pytest.raises(InputError, match="column = 'ip' must stand once"):
        read_log(file)


# --- damaged logs of every format ----------------------------------------------------------------


MUTANTS: Final = 25
"""Damaged logs per form in the tests; the command tries 2,000."""
MOST_MEMORY_KB: Final = 500_000
LONGEST_S: Final = 10.0

_PIECES: Final = (
    *(bytes([letter]) for letter in b'"\\[]{}:,\t \n\r\x00\xff|#-='),
    *(b"\r\n", b"key_", b"9" * 40, b"1e99", b"{" * 3000, b'"a' * 3000, b" " * 3000),
)
_PACKERS: Final[tuple[Callable[[bytes], bytes], ...]] = (bz2.compress, gzip.compress, lzma.compress)
_STATED: Final = (None, None, "common", "nginx", "jsonl", "csv", "w3c")
FORMS: Final = (*LINES, "Parquet")


def mutant(content: bytes, chance: random.Random) -> bytes:
    """Return a content with pieces cut out, doubled, put in or flipped; sometimes packed."""
    damaged = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(damaged) + 1)
        length = chance.choice((0, 1, 2, 9, 60))
        doubled = bytes(damaged[at : at + length]) * 3
        damaged[at : at + length] = chance.choice((b"", doubled, chance.choice(_PIECES)))
        if damaged and chance.random() < 0.3:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.1:
        packed = bytearray(chance.choice(_PACKERS)(bytes(damaged)))
        if chance.random() < 0.5:
            packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        return bytes(packed)
    return bytes(damaged)


def parquet_log() -> bytes:
    sink = pa.BufferOutputStream()
    columns = {"time": [1, 2], "ip": ["a", "b"], "request": ["GET /x"] * 2}
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def read_mutants(form: str, count: int, folder: Path) -> Iterator[tuple[bool, float]]:
    """Read damaged logs of a form; yield whether each was read, and the seconds that it took."""
    is_parquet = form == "Parquet"
    content = parquet_log() if is_parquet else (LINES[form][1] + "\n").encode() * 3
    stated = (*_STATED, "parquet" if is_parquet else LINES[form][0].partition(" ")[0])
    log = folder / ("a.parquet" if is_parquet else "access.log")
    chance = random.Random(form)
    for number in range(count):
        log.write_bytes(mutant(content, chance))
        began, fault = time.process_time(), ""
        try:
            stream = stream_log(log, format=chance.choice(stated))
            rows = sum(len(batch) for batch in stream.batches())
        except InputError as error:
            fault = str(error)
        else:
            assert rows > 0, number
            assert all(line.isprintable() for line in stream.unparsed_first), number
        took_s = time.process_time() - began
        assert fault.isprintable(), number
        assert took_s < LONGEST_S, (number, took_s)
        yield not fault, took_s


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_log_is_columns_or_one_line(tmp_path: Path, form: str) -> None:
    before_kb = forget_peak()
    assert len(list(read_mutants(form, MUTANTS, tmp_path))) == MUTANTS
    assert peak_kb() - before_kb < MOST_MEMORY_KB


def main(count: int) -> None:
    """Try so many damaged logs of each form; an exception ends it."""
    with tempfile.TemporaryDirectory() as folder:
        for form in FORMS:
            results = list(read_mutants(form, count, Path(folder)))
            read, slowest_s = sum(ok for ok, _ in results), max(took for _, took in results)
            peak_mb = peak_kb() // 1000
            print(  # noqa: T201 # reason: the command prints
                f"{form}: {count} mutants, {read} read, {count - read} refused,"
                f" slowest {slowest_s:.3f} s, memory {peak_mb} MB",
                flush=True,
            )
            assert peak_mb * 1000 < MOST_MEMORY_KB, form


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MUTANTS)

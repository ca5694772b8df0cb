"""Damaged logs of every format: columns, or one line with the reason, in little time and memory.

    python -m tests.simulator.logs.test_mutants 2000

tries so many of each form, and prints a line about it; the tests try a few.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.errors import InputError
from simulator.logs import stream_log
from tests.memory import forget_peak, peak_kb
from tests.simulator.logs.test_tools import LINES

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

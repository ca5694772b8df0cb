"""Damaged logs of every format: columns, or one line with the reason, in little memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.errors import InputError
from simulator.logs import stream_log
from tests.simulator.logs.test_tools import LINES

MUTANTS: Final = 40
"""Damaged logs per format; 2,000 were tried of each."""
MOST_MEMORY_KB: Final = 500_000

_PIECES: Final = (
    *(bytes([letter]) for letter in b'"\\[]{}:,\t \n\r\x00\xff|#-='),
    *(b"\r\n", b"key_", b"9" * 40, b"1e99"),
)
_PACKERS: Final[tuple[Callable[[bytes], bytes], ...]] = (bz2.compress, gzip.compress, lzma.compress)


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


@pytest.mark.slow
@pytest.mark.parametrize("form", [*LINES, "Parquet"])
def test_a_damaged_log_is_columns_or_one_line(tmp_path: Path, form: str) -> None:
    content = parquet_log() if form == "Parquet" else (LINES[form][1] + "\n").encode() * 3
    chance = random.Random(form)
    for number in range(MUTANTS):
        log = tmp_path / ("a.parquet" if form == "Parquet" else "access.log")
        log.write_bytes(mutant(content, chance))
        fault = ""
        try:
            stream = stream_log(log, format=chance.choice((None, None, "combined", "jsonl", "csv")))
            rows = sum(len(batch) for batch in stream.batches())
        except InputError as error:
            fault = str(error)
        else:
            assert rows > 0, number
            assert all(line.isprintable() for line in stream.unparsed_first), number
        assert fault.isprintable(), number
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MOST_MEMORY_KB

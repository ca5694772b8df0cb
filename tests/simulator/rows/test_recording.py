"""Recording: chunks in order whenever answers come, one digest however rows are grouped."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.rows.parquet import FileSink, MemorySink
from simulator.rows.record import (
    FORMAT_VERSION,
    SCHEMA,
    TEXT_COLUMNS,
    Recorder,
    RequestIdentity,
)
from tests.memory import ONE_HEAP, STATUS


def _fill(recorder: Recorder, rows: int, *, seed: int = 1) -> None:
    chance = random.Random(seed)
    subjects = [
        recorder.subjects.number(
            RequestIdentity(
                n, "acme", None if n % 5 == 0 else "shop", f"key-{n:04d}", f"192.0.2.{n}",
                "GET", "/tokens" if n % 2 else "/tokens/{id}",
            )
        )
        for n in range(20)
    ]  # fmt: skip
    blocked = recorder.verdicts["blocked", "LIM-IP"]
    open_rows: list[int] = []
    for t_ns in range(rows):
        verdict = blocked if chance.random() < 0.2 else 0
        later = chance.random() < 0.3
        row = recorder.add(
            t_ns * 1_000, chance.choice(subjects), 1 + t_ns % 3, verdict, 7 if verdict else 0,
            None if later else t_ns, -1 if chance.random() < 0.1 else 200,
        )  # fmt: skip
        if later:
            open_rows.append(row)
        if open_rows and chance.random() < 0.5:
            recorder.answer(open_rows.pop(chance.randrange(len(open_rows))), 5, 201)
    for row in open_rows:
        recorder.answer(row, 5, 201)
    recorder.close()


def digest_of_table(table: pa.Table) -> str:
    """Return the digest of a run as a second reader would compute it, value by value."""
    whole = hashlib.sha256()
    for name in SCHEMA.names:
        column = hashlib.sha256()
        for value in table.column(name).to_pylist():
            if name in TEXT_COLUMNS:
                known = b"" if value is None else hashlib.sha256(value.encode()).digest()
                column.update(known[:8].ljust(8, b"\0"))
            else:
                number = -(1 << 63) if value is None else value
                column.update(number.to_bytes(8, "little", signed=True))
        whole.update(name.encode() + b"\0" + column.digest())
    return whole.hexdigest()


@pytest.mark.slow
@given(st.integers(0, 300), st.integers(1, 40))
def test_how_rows_are_grouped_changes_nothing(rows: int, chunk_rows: int) -> None:
    one, other = MemorySink(), MemorySink()
    _fill(Recorder([one.take]), rows)
    _fill(Recorder([other.take], chunk_rows=chunk_rows), rows)
    assert one.hexdigest() == other.hexdigest()
    assert one.table().to_pylist() == other.table().to_pylist()
    assert one.rows == rows
    assert digest_of_table(one.table()) == one.hexdigest()


def test_a_chunk_waits_for_its_answers_and_for_those_before_it() -> None:
    sizes: list[int] = []
    recorder = Recorder([lambda chunk: sizes.append(len(chunk))], chunk_rows=2)
    subject = recorder.subjects.number(
        RequestIdentity(0, None, None, None, "192.0.2.1", "GET", "/")
    )
    first = recorder.add(0, subject, 1, 0, 0, None)
    for t_ns in range(1, 6):
        recorder.add(t_ns, subject, 1, 0, 0, 0)
    assert sizes == []
    recorder.answer(first, 9, 200)
    recorder.add(6, subject, 1, 0, 0, 0)
    assert sizes == [2, 2, 2]
    recorder.close()
    assert sizes == [2, 2, 2, 1]


def test_an_unanswered_row_at_the_end_is_a_programmers_error() -> None:
    recorder = Recorder([])
    subject = recorder.subjects.number(
        RequestIdentity(0, None, None, None, "192.0.2.1", "GET", "/")
    )
    recorder.add(0, subject, 1, 0, 0, None)
    with pytest.raises(AssertionError, match="answered"):
        recorder.close()


def test_the_file_has_the_promised_form(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    sink = FileSink(path)
    _fill(Recorder([sink.take], chunk_rows=64), 500)
    sink.close()
    file = pq.ParquetFile(path)
    assert file.schema_arrow.equals(SCHEMA, check_metadata=False)
    assert file.schema_arrow.metadata[b"tollgate.format"] == str(FORMAT_VERSION).encode()
    assert file.num_row_groups == 8
    group = file.metadata.row_group(0)
    assert "DELTA_BINARY_PACKED" in group.column(0).encodings
    codecs = {column.path_in_schema: column.compression for column in map(group.column, range(14))}
    packed = {"t_ns", "tenant", "method", "outcome", "rule"}
    assert {name for name, codec in codecs.items() if codec == "UNCOMPRESSED"} == packed
    assert {codec for name, codec in codecs.items() if name not in packed} == {"ZSTD"}
    table = pq.read_table(path)
    assert digest_of_table(table) == sink.hexdigest()
    frame = table.to_pandas()
    assert frame["t_ns"].dtype == np.int64
    assert str(frame["outcome"].dtype) == "category"
    assert frame["rule"][frame["outcome"] == "admitted"].isna().all()
    assert file.metadata.num_rows == 500


def test_only_time_has_statistics_and_it_has_them(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    sink = FileSink(path)
    _fill(Recorder([sink.take], chunk_rows=64), 200)
    sink.close()
    group = pq.ParquetFile(path).metadata.row_group(1)
    assert (group.column(0).statistics.min, group.column(0).statistics.max) == (64_000, 127_000)
    assert [group.column(place).statistics for place in range(1, len(SCHEMA))] == [None] * 13


def test_a_full_disk_is_heard_though_another_thread_writes(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "requests.parquet")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            _fill(Recorder([sink.take], chunk_rows=100), 5_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        sink = FileSink(tmp_path / name)
        _fill(Recorder([sink.take], chunk_rows=64), 300)
        sink.close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_digest_depends_on_every_column() -> None:
    sink = MemorySink()
    _fill(Recorder([sink.take]), 50)
    table = sink.table()
    digests = {digest_of_table(table)}
    for name in table.column_names:
        place = table.column_names.index(name)
        values = table.column(name).to_pylist()
        values[3] = "other" if isinstance(values[3], str) or values[3] is None else values[3] + 1
        if name == "status":
            values[3] = 599
        changed = table.set_column(place, name, pa.array(values))
        digests.add(digest_of_table(changed))
    assert len(digests) == 1 + len(SCHEMA)


# --- memory --------------------------------------------------------------------------------------


SCRIPT = """
import tempfile
from pathlib import Path
from simulator.play.simulation import simulate
from simulator.scenario import loads
from tests.memory import peak_kb

scenario = loads('''
duration = "{seconds}s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
keys = 20
[[clients]]
name = "c"
count = 100
application = "a"
loop = "open"
arrivals = {{ kind = "poisson", rate = "10/1s" }}
''')
with tempfile.TemporaryDirectory() as name:
    rows = simulate(scenario, fidelity="{fidelity}", folder=Path(name)).summary["rows"]
print(rows, peak_kb() // 1024)
"""


def _peak_mb(seconds: int, fidelity: str, repository: Path) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(seconds=seconds, fidelity=fidelity)],
        check=True,
        capture_output=True,
        text=True,
        cwd=repository,
        env=os.environ | ONE_HEAP,
    )
    rows, peak = done.stdout.split()
    return int(rows), int(peak)


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says what was held")
@pytest.mark.parametrize(
    ("fidelity", "few_s", "many_s", "most_mb"),
    [("limits", 400, 1_200, 13), ("compiled", 1_000, 4_500, 30)],
)
def test_memory_is_flat(
    fidelity: str, few_s: int, many_s: int, most_mb: int, repository: Path
) -> None:
    """Rows that stayed would take 17 bytes each at least."""
    few, before_mb = _peak_mb(few_s, fidelity, repository)
    many, after_mb = _peak_mb(many_s, fidelity, repository)
    assert many - few > 790_000
    assert after_mb - before_mb < most_mb

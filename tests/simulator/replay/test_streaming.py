"""A log of any length is replayed in the same memory, and no cut of it changes a decision."""

from __future__ import annotations

import datetime as dt
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator
from engine.errors import InputError
from engine.limits import LimitTable
from engine.profile import Profile
from simulator.logs import stream_log
from simulator.logs.arrivals import Arrivals, make_arrivals
from simulator.play.replay import replay_arrivals
from simulator.play.simulation import Fidelity
from simulator.rows.record import Chunk, Recorder
from tests.memory import ONE_HEAP, STATUS

TIGHT = (
    LimitTable.default()
    .replace_rule("LIM-PUBLIC", rate="3/10s")
    .replace_rule("LIM-TEST-TENANT", rate="3/10s")
    .replace_rule("LIM-CREATE", rate="4/10s", shadow=True)
)
PROFILES = [
    Profile(),
    Profile().replace(limits={"algorithm": "gcra", "throttle": "delay", "compose": "lowest"}),
]
LINE = '192.0.2.{ip} - - [{stamp}] "{method} {path} HTTP/1.1" 200 5 "-" "x"\n'


def frame(rows: list[tuple[int, int, int]]) -> pd.DataFrame:
    """Return a log of rows of second, address and path."""
    return pd.DataFrame(
        {
            "t_ns": [at * 10**9 for at, _, _ in rows],
            "ip": [f"192.0.2.{ip}" for _, ip, _ in rows],
            "method": "POST",
            "path": [("/tokenize", "/tokens", "/x")[path] for _, _, path in rows],
        }
    )


def read(source: pd.DataFrame, folder: Path | None = None, **options: Any) -> Arrivals:
    given_ = {"kind": "public", "tenant_kind": "production", "folder": folder, **options}
    return make_arrivals(stream_log(source), speed=Fraction(1), **given_)


class Kept:
    """Keeps what a recorder hands on."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._parties = arrivals.parties
        self.rows: list[tuple[Any, ...]] = []

    def take(self, chunk: Chunk) -> None:
        parties = [self._parties[number] for number in chunk.subject.tolist()]
        verdicts = [chunk.verdicts[number] for number in chunk.verdict.tolist()]
        columns = (chunk.t_ns, chunk.wait_ns, chunk.latency_ns, chunk.status)
        self.rows += zip(*(column.tolist() for column in columns), parties, verdicts, strict=True)


def decided(
    arrivals: Arrivals, profile: Profile, fidelity: Fidelity, block_rows: int
) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """Return every row with what was decided about it, and what shadow rules say."""
    kept = Kept(arrivals)
    recorder = Recorder([kept.take], chunk_rows=block_rows)
    numbers = np.arange(len(arrivals.parties))
    played = replay_arrivals(
        arrivals, TIGHT, profile, recorder, numbers, fidelity=fidelity, block_rows=block_rows
    )
    for _ in played:
        pass
    recorder.close()
    return kept.rows, dict(recorder.shadow)


LOGS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=60
)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    log=LOGS,
    block_rows=st.sampled_from([1, 2, 7, 1000]),
    run_rows=st.sampled_from([1, 3, 10, 1000]),
    profile=st.sampled_from(PROFILES),
    fidelity=st.sampled_from(["limits", "compiled"]),
)
def test_no_cut_changes_a_decision(
    log: list[tuple[int, int, int]],
    block_rows: int,
    run_rows: int,
    profile: Profile,
    fidelity: Fidelity,
) -> None:
    """Blocks of a row, or one block; runs on disk out of order, or one run in memory (D-CLOCK)."""
    source = frame(log)
    whole = decided(read(source), profile, "limits", len(log))
    with (
        tempfile.TemporaryDirectory() as name,
        read(source, Path(name), run_rows=run_rows) as arrivals,
    ):
        assert decided(arrivals, profile, fidelity, block_rows) == whole


def test_answers_that_come_later_are_in_their_block() -> None:
    """The whole engine answers a delayed request while later blocks are fed."""
    source = frame([(second // 2, 1, 1) for second in range(60)])
    profile = Profile().replace(limits={"throttle": "delay"})
    kinds: dict[str, Any] = {"kind": "private", "tenant_kind": "test"}
    many, one = (decided(read(source, **kinds), profile, "engine", rows) for rows in (3, 60))
    assert many == one
    assert any(row[2] > 0 for row in many[0])


def write_log(file: Path, lines: int) -> None:
    """Write a log of few addresses and paths, now and then a second late, with bad lines."""
    chance = np.random.Generator(np.random.Philox(2))
    seconds = np.arange(lines) // 500 - chance.integers(0, 2, lines)
    addresses = chance.integers(1, 40, lines).tolist()
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    stamps = [
        f"{start + dt.timedelta(seconds=n):%d/%b/%Y:%H:%M:%S} +0000"
        for n in range(lines // 500 + 1)
    ]
    with file.open("w") as stream:
        for row, second in enumerate(np.maximum(seconds, 0).tolist()):
            path = ("/tokenize", "/tokens", "/x")[row % 3]
            stream.write(
                LINE.format(ip=addresses[row], stamp=stamps[second], method="POST", path=path)
                if row % 1_000
                else "garbage\n"
            )


REPLAY = """
import sys, simulator
from tests.memory import peak_kb
result = simulator.replay(sys.argv[1], fidelity="compiled", out=sys.argv[2], against=sys.argv[3])
print(result.summary["totals"]["offered"], peak_kb() // 1024)
"""


def write_rows(file: Path, rows: int) -> None:
    """Write the like as Parquet."""
    chance = np.random.Generator(np.random.Philox(2))
    names = np.array([f"192.0.2.{n}" for n in range(40)])
    texts = dict.fromkeys(("ip", "method", "path"), pa.string())
    schema = pa.schema({"t_ns": pa.int64()} | texts)
    with pq.ParquetWriter(file, schema) as writer:
        for first in range(0, rows, 1 << 18):
            count = min(1 << 18, rows - first)
            address = chance.integers(1, 40, count)
            t_ns = np.arange(first, first + count) * 10**6 - chance.integers(0, 10**9, count)
            paths = np.array(["/tokenize", "/tokens", "/x"])[address % 3]
            methods = np.full(count, "POST")
            columns = [pa.array(column) for column in (t_ns, names[address], methods, paths)]
            writer.write_table(pa.table(columns, schema=schema))


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says what was held")
@pytest.mark.parametrize(
    ("name", "write", "few", "times", "more_mb"),
    [
        ("access.log", write_log, 300_000, 4, 60),
        ("rows.parquet", write_rows, 600_000, 5, 100),
    ],
)
def test_many_times_the_requests_take_the_same_memory(
    tmp_path: Path,
    name: str,
    write: Callable[[Path, int], None],
    few: int,
    times: int,
    more_mb: int,
    repository: Path,
) -> None:
    """Held as columns and decisions, the rows more would be 100 and 200 MB."""
    old = tmp_path / "old.toml"
    old.write_text('[[rule]]\nid = "LIM-IP"\ncounter = "ip"\nrate = "5/1m"\naction = "throttle"\n')
    log, peaks_mb = tmp_path / name, list[int]()
    for run, rows in enumerate((1_000, few, times * few)):  # the first one may compile
        write(log, rows)
        words = [str(log), str(tmp_path / f"out-{run}"), str(old)]
        done = subprocess.run(
            [sys.executable, "-c", REPLAY, *words],
            cwd=repository,
            env=os.environ | ONE_HEAP,
            check=True,
            capture_output=True,
            text=True,
        )
        offered, peak_mb = map(int, done.stdout.split())
        assert rows - rows // 1_000 <= offered <= rows
        peaks_mb.append(peak_mb)
    assert peaks_mb[2] < peaks_mb[1] + more_mb


def many_rows(rows: int, *, key: str = "sesame-42") -> pd.DataFrame:
    return pd.DataFrame(
        {"t_ns": np.arange(rows)[::-1], "key": key, "ip": "192.0.2.1", "path": "/tokens"}
    ).assign(method="POST")


def is_unnamed(link: Path, folder: Path) -> bool:
    """Whether a link among a process's open files is of a file in `folder` without a name."""
    try:
        target = str(link.readlink())
    except FileNotFoundError:  # what the folder of links was read by is closed again
        return False
    return target.startswith(str(folder)) and "deleted" in target


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows open files")
def test_what_lies_on_disk_meanwhile_holds_no_text(tmp_path: Path) -> None:
    """Instants and numbers alone; no key can be found in what a disk may still hold."""
    seen: list[bytes] = []

    def look(stage: str, rows: int, _whole: int | None) -> None:
        if stage == "deciding" and not seen:
            seen.extend(
                link.read_bytes()
                for link in Path("/proc/self/fd").iterdir()
                if is_unnamed(link, tmp_path)
            )
            (folder,) = tmp_path.iterdir()
            assert [file.name for file in folder.iterdir()] == ["requests.parquet"]
        assert rows >= 0

    rows = (1 << 19) + 5
    simulator.replay(many_rows(rows), fidelity="compiled", out=tmp_path / "out", progress=look)
    assert len(seen[0]) == 12 << 19
    assert b"sesame" not in seen[0]
    assert sorted(item.name for item in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize("stage", ["reading", "deciding"])
def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, stage: str) -> None:
    def interrupt(now: str, rows: int, _whole: int | None) -> None:
        if now == stage and rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulator.replay(
            many_rows(200_000), fidelity="compiled", out=tmp_path / "out", progress=interrupt
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: both fail while rows are put away."""
    log = tmp_path / "rows.parquet"
    many_rows((1 << 19) + 5).to_parquet(log)

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = subprocess.run(
        [sys.executable, "-m", "simulator", "replay", log, "--out", tmp_path / "out", "--quiet"],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=bounded,  # reason: no thread runs here
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "File too large" in done.stderr
    assert sorted(item.name for item in tmp_path.iterdir()) == ["rows.parquet"]


def test_a_log_of_one_line_and_one_of_none(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        LINE.format(ip=1, stamp="17/May/2015:10:05:03 +0000", method="GET", path="/x").strip()
    )
    found = simulator.replay(log, fidelity="compiled", out=tmp_path / "out").summary
    assert (found["rows"], found["duration_ns"], found["replay"]["log_span_ns"]) == (1, 1, 0)
    for nothing, why in (
        ("", "it is empty"),
        ("\n\n", "it is blank"),
        ("x\n", "in a known format"),
    ):
        log.write_text(nothing)
        with pytest.raises(InputError, match=why):
            simulator.replay(log, out=tmp_path / "none")
        assert not (tmp_path / "none").exists()

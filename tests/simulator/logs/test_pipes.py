"""A log from a pipe: nothing is lost of what was read to tell how it is written."""

import gzip
import io
import os
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.errors import InputError
from simulator.cli import main
from simulator.logs import FORMATS, LogMap
from tests.simulator.logs.whole import read_log

LINES: dict[str, str] = {
    "combined": '203.0.113.{n} - - [17/May/2015:10:05:03 +0000] "GET /x HTTP/1.1" 200 1 "-" "a"\n',
    "common": '203.0.113.{n} - - [17/May/2015:10:05:03 +0000] "GET /x HTTP/1.1" 200 1\n',
    "csv": "1431857103,203.0.113.{n},GET,/x\n",
    "jsonl": '{{"time": 1431857103.5, "ip": "203.0.113.{n}", "method": "GET", "path": "/x"}}\n',
}


def written(kind: str, lines: int) -> bytes:
    head = "time,ip,method,path\n" if kind == "csv" else ""
    return (head + "".join(LINES[kind].format(n=n % 250) for n in range(lines))).encode()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe."""
    path = tmp_path / "log"
    os.mkfifo(path)
    return path


def fill(pipe: Path, content: bytes, first: int = 0) -> threading.Thread:
    """Write to a pipe from beside, the `first` bytes alone; a reader that leaves early ends it."""

    def write() -> None:
        try:
            with pipe.open("wb", buffering=0) as file:
                for part in (content[:first], content[first:]):
                    for at in range(0, len(part), 65_536):
                        file.write(part[at : at + 65_536])
        except BrokenPipeError:
            return

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("kind", list(LINES))
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lines", [3, 3_000])
def test_a_pipe_gives_what_a_file_gives(
    pipe: Path, tmp_path: Path, kind: str, packed: bool, lines: int, said: bool
) -> None:
    content = written(kind, lines)
    content = gzip.compress(content, compresslevel=1) if packed else content
    (tmp_path / "plain").write_bytes(content)
    expected = read_log(tmp_path / "plain", format=kind)
    thread = fill(pipe, content, first=1)
    found = read_log(pipe, format=kind if said else None)
    thread.join(timeout=10)
    assert found.format == kind
    assert len(found) == len(expected) == lines
    assert found.line.tolist() == expected.line.tolist()
    assert found.fields["address"].names == expected.fields["address"].names


def test_a_map_reads_a_pipe(pipe: Path, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(
        'format = "csv"\ntime = "time"\naddress = "ip"\npath = "path"\n'
    )
    fill(pipe, written("csv", 30))
    assert len(read_log(pipe, map=LogMap.read(tmp_path / "map.toml"))) == 30


def test_standard_input_is_replayed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written("combined", 40))))
    assert main(["replay", "-"]) == 0
    shown = capsys.readouterr().out
    assert "40 requests from 40 addresses" in shown
    assert (tmp_path / "runs" / "stdin-0" / "report.html").exists()
    assert not sys.stdin.closed


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"when,where\n1,2\n" * 100_000, "must be a field of the log"),
        (b"PAR1 and more\n" * 100_000, "must be a file to be Parquet"),
    ],
    ids=["no time", "Parquet"],
)
def test_a_pipe_that_cannot_be_used_is_let_go(pipe: Path, content: bytes, why: str) -> None:
    """Whoever writes to it is told, and does not wait for a reader that never comes."""
    writer = fill(pipe, content)
    with pytest.raises(InputError, match=why) as caught:
        read_log(pipe)
    writer.join(timeout=10)
    assert not writer.is_alive()
    assert caught.value.__traceback__ is not None, "what failed is still held here"


def test_an_empty_pipe_and_parquet_are_one_line(
    pipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(InputError, match="log = '-' must hold at least one line; it is empty"):
        read_log("-")
    pq.write_table(pa.table({"time": [1], "ip": ["a"]}), tmp_path / "log.parquet")
    fill(pipe, (tmp_path / "log.parquet").read_bytes())
    with pytest.raises(InputError, match="must be a file to be Parquet; write it to one first"):
        read_log(pipe)
    assert "parquet" in FORMATS

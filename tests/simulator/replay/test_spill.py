"""Rows between two passes: in order of (instant, place in the log), however runs are cut."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.logs import arrivals
from simulator.logs.arrivals import ExternalSort, Piece, in_blocks

PARTS = st.lists(st.lists(st.integers(0, 12), max_size=9), max_size=8)
"""Instants of a log in the batches in which it is read: few distinct ones, so many ties."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def filled(spill: ExternalSort, parts: list[list[int]]) -> list[tuple[int, int]]:
    """Put the parts in; return what must come out. A row's party is its place in the log."""
    rows = [t_ns for part in parts for t_ns in part]
    first = 0
    for part in parts:
        party = np.arange(first, first + len(part), dtype=np.int32)
        spill.add(np.array(part, dtype=np.int64), party)
        first += len(part)
    return sorted((t_ns, place) for place, t_ns in enumerate(rows))


def rows(pieces: Iterator[Piece]) -> list[tuple[int, int]]:
    return [
        row for t_ns, party in pieces for row in zip(t_ns.tolist(), party.tolist(), strict=True)
    ]


@given(
    parts=PARTS,
    run_rows=st.integers(1, 20),
    read_rows=st.sampled_from([1, 2, 1 << 10]),
    on_disk=st.booleans(),
)
def test_rows_come_in_order_of_instant_then_place(
    folder: Path, parts: list[list[int]], run_rows: int, read_rows: int, *, on_disk: bool
) -> None:
    """Of runs that overlap, a part is read at a time; small ones would be read whole."""
    with mock.patch.object(arrivals, "_FEWEST_ROWS", read_rows):
        spill = ExternalSort(folder if on_disk else None, run_rows=run_rows)
        expected = filled(spill, parts)
        assert len(spill) == len(expected)
        assert rows(spill.in_order()) == expected
        spill.close()


@given(parts=PARTS, run_rows=st.integers(1, 20), block_rows=st.integers(1, 9))
def test_two_readers_do_not_disturb_each_other(
    folder: Path, parts: list[list[int]], run_rows: int, block_rows: int
) -> None:
    spill = ExternalSort(folder, run_rows=run_rows)
    expected = filled(spill, parts)
    blocks = [in_blocks(spill.in_order(), block_rows) for _ in range(2)]
    both = list(zip(*blocks, strict=True))
    for which in range(2):
        assert rows(pair[which] for pair in both) == expected
    sizes = [len(one[0]) for one, _ in both]
    assert all(size == block_rows for size in sizes[:-1])
    spill.close()


def test_what_merging_holds_does_not_grow_with_the_runs(folder: Path) -> None:
    """A log that is shuffled whole is given in pieces no larger than a few runs."""
    run_rows, count = 5_000, 40
    spill = ExternalSort(folder, run_rows=run_rows)
    t_ns = np.random.Generator(np.random.Philox(8)).permutation(run_rows * count)
    spill.add(t_ns, np.zeros(len(t_ns), dtype=np.int32))
    pieces = [piece[0] for piece in spill.in_order()]
    assert np.array_equal(np.concatenate(pieces), np.arange(len(t_ns)))
    assert max(len(piece) for piece in pieces) <= 1_024 * count
    spill.close()


def test_a_log_in_order_is_given_a_run_at_a_time(folder: Path) -> None:
    spill = ExternalSort(folder, run_rows=100)
    spill.add(np.arange(1_000) // 7, np.zeros(1_000, dtype=np.int32))
    assert max(len(piece[0]) for piece in spill.in_order()) <= 100
    spill.close()


def test_the_file_has_no_name_and_few_rows_need_none(tmp_path: Path) -> None:
    few, many = ExternalSort(tmp_path, run_rows=100), ExternalSort(tmp_path, run_rows=10)
    for spill in (few, many):
        spill.add(np.arange(50), np.zeros(50, dtype=np.int32))
        assert list(tmp_path.iterdir()) == []
    assert few._file is None
    assert many._file is not None
    many.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    spill = ExternalSort(tmp_path / "none", run_rows=1)
    with pytest.raises(OSError, match="No such file") as caught:
        spill.add(np.arange(2), np.zeros(2, dtype=np.int32))
    assert caught.value.filename == str(tmp_path / "none")

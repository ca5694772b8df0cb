"""Batch files: read line by line, and large volumes split (ACC-FILE, ACC-SPLIT)."""

import io
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.resources.account_updater import (
    HEADER,
    BatchFault,
    BatchLine,
    batch_lines,
    read_batch,
    split_batch,
)

TOKEN = "8a0f3f5e-0d5c-4f0e-9d0c-2b8c7b6d5e4f"
ROWS = st.lists(
    st.tuples(
        st.uuids().map(str),
        st.none() | st.integers(1000, 9999),
        st.none() | st.integers(1, 12),
    ),
    max_size=40,
)


@given(ROWS)
def test_what_is_written_is_read(rows: list[tuple[str, int | None, int | None]]) -> None:
    assert list(read_batch(b"".join(batch_lines(rows)))) == [BatchLine(*row) for row in rows]


def test_marks_ends_and_empty_lines_do_not_matter() -> None:
    text = f'\ufeff{HEADER}\r\n\r\n"{TOKEN.upper()}",2030,07\r\n\n{TOKEN},,'
    assert list(read_batch(text.encode())) == [
        BatchLine(TOKEN, 2030, 7),
        BatchLine(TOKEN, None, None),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", f"line 1: must be {HEADER}"),
        ("token,year,month\n", f"line 1: must be {HEADER}"),
        (f"{TOKEN},2030,1\n", f"line 1: must be {HEADER}"),
        (f"{HEADER}\n{TOKEN},2030\n", "line 2: must hold 3 fields"),
        (f"{HEADER}\n{TOKEN},2030,1,4242\n", "line 2: must hold 3 fields"),
        (f"{HEADER}\n{TOKEN},,\n4242424242424242,2030,1\n", "line 3: token must be a UUID"),
        (
            f"{HEADER}\n\n{TOKEN},30,1\n",
            "line 3: expiration_year must be a year from 1000 to 9999, or empty",
        ),
        (
            f"{HEADER}\n{TOKEN},2030,13\n",
            "line 2: expiration_month must be a month from 1 to 12, or empty",
        ),
        (f'{HEADER}\n{TOKEN},"2030,1\n', "line 2: must be CSV as in RFC 4180"),
        (f'{HEADER}\n{TOKEN},"20"30,1\n', "line 2: must be CSV as in RFC 4180"),
    ],
)
def test_the_first_fault_names_line_and_rule_and_no_value(text: str, said: str) -> None:
    with pytest.raises(BatchFault) as fault:
        list(read_batch(text.encode()))
    assert str(fault.value) == said


def test_what_is_no_text_is_named_by_line() -> None:
    with pytest.raises(BatchFault, match=r"^line 3: must be UTF-8$"):
        list(read_batch(f"{HEADER}\n{TOKEN},,\n".encode() + b"\xff\n"))


def test_a_fault_says_how_many_rows_were_fine() -> None:
    with pytest.raises(BatchFault) as fault:
        list(read_batch(b"".join(batch_lines([(TOKEN, 2030, 1)] * 5)) + b"x\n"))
    assert fault.value.rows == 5


# --- splitting ----------------------------------------------------------------------------------

LINES = st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=30)


@given(LINES, st.integers(1, 40), st.integers(1, 9))
def test_files_hold_every_line_in_order_within_the_limit(
    lines: list[bytes], limit_bytes: int, piece_bytes: int
) -> None:
    """ACC-SPLIT: each file has the header, none exceeds the limit or has room for a line more."""
    whole = b"\n".join(lines)
    pieces = [whole[i : i + piece_bytes] for i in range(0, len(whole), piece_bytes)]
    *complete, last = (line + b"\n" for line in whole.split(b"\n"))
    if last != b"\n":  # what stands behind the last end is a line only when it holds something
        complete.append(last)
    if not complete:
        assert list(split_batch(pieces, limit_bytes)) == []
        return
    header, rows = complete[0], complete[1:]
    if max(len(header), *(len(header) + len(row) for row in rows), 0) > limit_bytes:
        with pytest.raises(InputError, match="must fit"):
            list(split_batch(pieces, limit_bytes))
        return
    files = list(split_batch(pieces, limit_bytes))
    assert files == list(split_batch(whole, limit_bytes))
    assert all(file.startswith(header) and len(file) <= limit_bytes for file in files)
    assert b"".join(file.removeprefix(header) for file in files) == b"".join(rows)
    held = [_rows(file, header) for file in files]
    assert all(rows or len(files) == 1 for rows in held)
    for file, following in zip(files, held[1:], strict=False):
        assert len(file) + len(following[0]) > limit_bytes


def _rows(file: bytes, header: bytes) -> list[bytes]:
    return [line + b"\n" for line in file.removeprefix(header).split(b"\n")[:-1]]


def test_a_volume_of_300_thousand_tokens_is_one_file_and_one_more_is_two() -> None:
    """ACC-FILE: 30 MB are about 300 thousand tokens; here 100 bytes a line less the header."""
    row = b"x" * 99 + b"\n"
    fits = b"h" * 99 + b"\n" + row * 299_999
    assert [len(file) for file in split_batch(fits)] == [30_000_000]
    assert [len(file) for file in split_batch(fits + row)] == [30_000_000, 200]


def test_a_volume_is_read_as_the_files_are_taken() -> None:
    """ACC-SPLIT: a volume larger than memory passes through, from an open file too."""
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield f"{uuid.uuid4()}\n".encode()

    first = next(split_batch(endless(), 37 * 10))  # type: ignore[arg-type] # reason: a generator of bytes
    assert (first.count(b"\n"), taken) == (10, 11)
    assert list(split_batch(io.BytesIO(b"h\na\r\nb"), 5)) == [b"h\na\r\n", b"h\nb\n"]


def test_a_line_that_fits_into_no_file_is_named() -> None:
    with pytest.raises(InputError) as fault:
        list(split_batch(b"token\naaa\nbbbbbbbb\n", 12))
    assert str(fault.value) == (
        "line 3 of 9 bytes must fit, with the header, into a file of 12 bytes; "
        "raise limit_bytes or mend the line"
    )
